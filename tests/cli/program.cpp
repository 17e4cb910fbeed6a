// SPDX-License-Identifier: Apache-2.0
#include "program.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/subprocess.hpp"
#include "base/temp_dir.hpp"
#include "catch.hpp"

using namespace hstu::jit;

const char* const kSmallSpec =
    R"({"op": "hstu_attention", "name": "small", "heads": 2, "head_dim_qk": 16,
        "uih_lengths": [40, 1, 0], "num_targets": [3, 0, 5],
        "mask": {"local_len": 7, "context_len": 2, "minfull_len": 5}})";

int Outcome::lines_err() const {
  return static_cast<int>(std::count(err.begin(), err.end(), '\n'));
}

void check_refused(const Outcome& o, int code, const std::vector<std::string>& words) {
  INFO("stdout: " << o.out << "stderr: " << o.err);
  CHECK(o.code == code);
  CHECK(o.lines_err() == 1);
  CHECK(o.out.empty());
  for (const std::string& word : words) {
    INFO("missing: " << word);
    CHECK(o.err.find(word) != std::string::npos);
  }
}

Program::Program() : folder_(std::move(*TempDir::create("cli-test-"))) {
  environment = {{"PATH", std::getenv("PATH")}, {"HOME", folder_.path()}};
  if (const char* options = std::getenv("ASAN_OPTIONS")) environment["ASAN_OPTIONS"] = options;
}

Outcome Program::run(std::vector<std::string> arguments, const std::string& input,
                     bool cache) const {
  ProcessOptions options;
  options.argv = {HSTU_PROGRAM};
  options.argv.insert(options.argv.end(), arguments.begin(), arguments.end());
  if (cache && std::find(arguments.begin(), arguments.end(), "--cache-dir") == arguments.end()) {
    options.argv.push_back("--cache-dir");
    options.argv.push_back(cache_dir());
  }
  options.input = input;
  options.environment.emplace();
  for (const auto& [name, value] : environment)
    if (!value.empty()) options.environment->push_back(name + "=" + value);
  Result<ProcessResult> result = run_process(options);
  if (!result) FAIL(result.error().message);
  INFO(result->how_it_ended());
  CHECK(result->signal == 0);
  CHECK_FALSE(result->timed_out);
  return {result->exit_code, result->output, result->errors};
}

std::string Program::file(const std::string& name, const std::string& text, bool executable) const {
  const std::string path = folder() + "/" + name;
  REQUIRE(write_file_atomic(path, text, executable ? 0755 : 0644).ok());
  return path;
}

std::string Program::missing(const std::string& subject) const {
  const Outcome doctor = run({"doctor", "--json"});
  const auto report = nlohmann::json::parse(doctor.out, nullptr, false);
  REQUIRE_FALSE(report.is_discarded());
  for (const auto& finding : report["findings"]) {
    if (finding["subject"] != subject) continue;
    if (finding["grade"] == "ok") return "";
    return fmt::format("no {}: {}", subject, finding["advice"].get<std::string>());
  }
  FAIL("the doctor knows no " << subject);
  return "";
}
