// SPDX-License-Identifier: Apache-2.0
// hstu-jit-cache-bench in small: every row is there, and goals can be met and missed.
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/file.hpp"
#include "base/subprocess.hpp"
#include "base/temp_dir.hpp"
#include "catch.hpp"

using namespace hstu::jit;

namespace {

ProcessResult run(const std::vector<std::string>& arguments) {
  // Compiles of 50 ms, which nothing here is to measure.
  Result<TempDir> dir = TempDir::create("hstu-cache-bench-test-");
  REQUIRE(dir.ok());
  const std::string worker = dir->path() + "/tiny";
  REQUIRE(::symlink(HSTU_FAKE_WORKER, worker.c_str()) == 0);
  ::setenv("HSTU_JIT_WORKER", worker.c_str(), 1);
  ProcessOptions options;
  options.argv = {HSTU_CACHE_BENCH};
  options.argv.insert(options.argv.end(), arguments.begin(), arguments.end());
  Result<ProcessResult> result = run_process(options);
  REQUIRE(result.ok());
  return *result;
}

ProcessResult small(std::vector<std::string> more) {
  std::vector<std::string> arguments{"--target", "cpu",    "--kernels", "3",        "--entries",
                                     "20",       "--hits", "50",        "--starts", "2"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run(arguments);
}

}  // namespace

TEST_CASE("a small run has every row, and goals that are wide are met") {
  const ProcessResult ran = small({"--scale-goals", "1000", "--json"});
  INFO(ran.errors);
  REQUIRE(ran.exit_code == 0);
  const nlohmann::json j = nlohmann::json::parse(ran.output);
  CHECK(j["schema"] == "hstu-jit/cache-bench/1");
  CHECK(j["target"].get<std::string>().rfind("cpu", 0) == 0);
  CHECK(j["met"] == true);
  int goals = 0;
  for (const auto& row : j["rows"]) {
    INFO(row.dump());
    CHECK(row["samples"].get<int>() > 0);
    CHECK(row["median"].get<double>() > 0);
    CHECK(row["p90"].get<double>() >= row["median"].get<double>());
    goals += row.contains("goal") ? 1 : 0;
  }
  CHECK(j["rows"].size() == 8);
  CHECK(goals == 5);
}

TEST_CASE("goals that no machine meets are missed, each of them") {
  const ProcessResult ran = small({"--scale-goals", "1e-9"});
  CHECK(ran.exit_code == 1);
  size_t missed = 0;
  for (size_t at = ran.output.find("MISSED"); at != std::string::npos;
       at = ran.output.find("MISSED", at + 1))
    ++missed;
  CHECK(missed == 5);
  CHECK(small({"--scale-goals", "-1"}).exit_code == 2);
  CHECK(run({"--target", "gfx9999"}).exit_code == 4);
}
