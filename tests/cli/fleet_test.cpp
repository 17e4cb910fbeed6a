// SPDX-License-Identifier: Apache-2.0
// The examples for schedulers, run as the scheduler would run them.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/subprocess.hpp"
#include "catch.hpp"
#include "program.hpp"

using namespace hstu::jit;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

const char* const kManifest =
    R"({"schema": "hstu-jit/manifest/1", "specs": [{"sweep": {"base":
        {"op": "hstu_attention", "heads": 2, "head_dim_qk": 32, "uih_lengths": [40, 9]},
        "set": {"/mask/causal": [true, false], "/dtype": ["bf16", "fp16"]}}}]})";

bool can_compile(const Program& program, const char* test) {
  const std::string missing = program.missing("compiler for gfx90a");
  if (missing.empty()) return true;
  fmt::print("SKIPPED: {}: {}\n", test, missing);
  return false;
}

ProcessResult call(const Program& program, const std::vector<std::string>& argv,
                   const std::vector<std::string>& more = {}) {
  ProcessOptions options;
  options.argv = {"/usr/bin/env"};  // looks for the program on the PATH given here
  options.argv.insert(options.argv.end(), argv.begin(), argv.end());
  options.environment.emplace();
  for (const auto& [name, value] : program.environment)
    if (!value.empty()) options.environment->push_back(name + "=" + value);
  options.environment->insert(options.environment->end(), more.begin(), more.end());
  Result<ProcessResult> result = run_process(options);
  if (!result) FAIL(result.error().message);
  INFO(result->output << result->errors);
  CHECK(result->succeeded());
  return *result;
}

// The bundle that one call without a scheduler makes.
std::string whole(const Program& program, const std::string& manifest) {
  const std::string out = program.folder() + "/whole.hjb";
  REQUIRE(program.run({"prewarm", manifest, "--targets", "gfx90a", "--out", out}).code == 0);
  return *read_file(out);
}

}  // namespace

TEST_CASE("the Slurm example: an array of parts, then the merge") {
  Program program;
  if (!can_compile(program, "Slurm example")) return;
  const std::string manifest = program.file("fleet.json", kManifest);
  const std::string script = HSTU_FLEET "/slurm-prewarm.sbatch";
  call(program, {"bash", "-n", script});
  const std::string bundle = program.folder() + "/a folder/kernels.hjb";
  REQUIRE(make_directories(program.folder() + "/a folder").ok());
  // An sbatch that writes down what it was asked, and answers as the real one.
  const std::string calls = program.folder() + "/calls";
  program.file("sbatch", "#!/bin/bash\nprintf '%s\\n' \"$*\" >> " + calls + "\necho '77;cluster'\n",
               true);
  const std::string path =
      fmt::format("PATH={}:{}", program.folder(), program.environment.at("PATH"));
  program.environment.erase("PATH");
  const std::vector<std::string> arguments{"bash", script, manifest, "gfx90a", bundle, "3"};
  const std::string tool = "HSTU_JIT=" HSTU_PROGRAM;
  call(program, arguments, {path, tool});
  const std::string asked = *read_file(calls);
  CHECK_THAT(asked, ContainsSubstring("--parsable --array=0-2"));
  CHECK_THAT(asked, ContainsSubstring("--dependency=afterok:77 "));
  for (int i = 0; i < 3; ++i)
    call(program, arguments,
         {path, tool, "SLURM_JOB_ID=77", fmt::format("SLURM_ARRAY_TASK_ID={}", i),
          "SLURM_ARRAY_TASK_MIN=0", "SLURM_ARRAY_TASK_MAX=2", "SLURM_ARRAY_TASK_COUNT=3",
          "SLURM_ARRAY_TASK_STEP=1", "SLURM_CPUS_PER_TASK=2"});
  call(program, arguments, {path, tool, "SLURM_JOB_ID=78"});
  program.environment["PATH"] = std::getenv("PATH");
  CHECK(*read_file(bundle) == whole(program, manifest));
}

TEST_CASE("the Kubernetes example: an indexed Job, then the merge") {
  Program program;
  if (!can_compile(program, "Kubernetes example")) return;
  const auto python = find_program("python3");
  ProcessOptions options;
  options.argv = {"python3", "-c",
                  "import json, sys, yaml\n"
                  "print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))",
                  HSTU_FLEET "/kubernetes-prewarm.yaml"};
  Result<ProcessResult> read = python ? run_process(options) : Error{};
  if (!read || !read->succeeded()) {
    fmt::print("SKIPPED: Kubernetes example: no python3 with its yaml module\n");
    return;
  }
  const json documents = json::parse(read->output);
  REQUIRE(documents.size() == 2);
  const json& job = documents[0]["spec"];
  CHECK(job["completionMode"] == "Indexed");
  const int parts = job["completions"];
  const auto container = [&](int i) {
    return documents[i]["spec"]["template"]["spec"]["containers"][0];
  };

  const std::string kernels = program.folder() + "/kernels";
  REQUIRE(make_directories(kernels).ok());
  program.file("fleet.json", kManifest);
  REQUIRE(fs::create_directory(program.folder() + "/manifest"));
  fs::rename(program.folder() + "/fleet.json", program.folder() + "/manifest/fleet.json");
  fs::create_symlink(HSTU_PROGRAM, program.folder() + "/hstu-jit");
  program.environment["PATH"] = program.folder() + ":" + program.environment["PATH"];
  // As the cluster does: indices filled in, volumes mounted (here: moved below the test's folder).
  const auto placed = [&](std::string word, const std::string& index) {
    for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
             {"$(JOB_COMPLETION_INDEX)", index},
             {"gfx90a,gfx942", "gfx90a"},
             {"/kernels/", kernels + "/"},
             {"/manifest/", program.folder() + "/manifest/"}})
      for (size_t at = word.find(from); at != std::string::npos;
           at = word.find(from, at + to.size()))
        word.replace(at, from.size(), to);
    return word;
  };
  const auto words = [&](const json& command, const std::string& index) {
    std::vector<std::string> list;
    for (const auto& word : command) list.push_back(placed(word, index));
    return list;
  };
  for (int i = 0; i < parts; ++i) {
    const std::string index = std::to_string(i);
    call(program, words(container(0)["command"], index), {"JOB_COMPLETION_INDEX=" + index});
    CHECK(fs::exists(fmt::format("{}/part-{}.hjb", kernels, i)));
  }
  call(program, words(container(1)["command"], ""));
  CHECK(*read_file(kernels + "/kernels.hjb") ==
        whole(program, program.folder() + "/manifest/fleet.json"));
}

// The three commands as they stand, but for a manifest of one small kernel, this host for its GPUs,
// and the digest that the second printed.
TEST_CASE("the README's commands for a fleet do what it says") {
  Program p;
  const std::string readme = *hstu::jit::read_file(HSTU_README);
  const size_t section = readme.find("## A cache for a fleet");
  REQUIRE(section != std::string::npos);
  const size_t begin = readme.find("```sh\n", section) + 6;
  std::istringstream lines(readme.substr(begin, readme.find("```", begin) - begin));
  const std::string manifest =
      p.file("small.json", std::string(R"({"schema": "hstu-jit/manifest/1", "specs": [{"spec": )") +
                               kSmallSpec + "}]}");
  const std::string spec = p.file("spec.json", kSmallSpec);
  const std::string bundle = p.folder() + "/kernels.hjb";
  std::string digest, line;
  std::vector<Outcome> outcomes;
  while (std::getline(lines, line)) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::vector<std::string> arguments;
    std::string word;
    bool program = false;
    while (words >> word) {
      const size_t file = word.find("kernels.hjb");
      if (file != std::string::npos) word.replace(file, 11, bundle);
      if (word == "cache/manifests/ranking.json") word = manifest;
      if (word == "gfx90a,gfx942") word = "cpu";
      if (word == "spec.json") word = spec;
      const size_t pin = word.find("@sha256:...");
      if (pin != std::string::npos) word.replace(pin, std::string::npos, "@" + digest);
      const size_t equals = word.find('=');
      if (word == "hstu-jit")
        program = true;
      else if (program)
        arguments.push_back(word);
      else
        p.environment[word.substr(0, equals)] = word.substr(equals + 1);
    }
    if (outcomes.size() == 2) {  // the node's own cache is empty
      fs::create_directory(p.folder() + "/node");
      arguments.insert(arguments.end(), {"--cache-dir", p.folder() + "/node"});
    }
    outcomes.push_back(p.run(arguments));
    INFO(line << "\n" << outcomes.back().err);
    CHECK(outcomes.back().code == 0);
    const size_t at = outcomes.back().out.find("sha256:");
    if (outcomes.size() == 2) {
      REQUIRE(at != std::string::npos);
      digest = outcomes.back().out.substr(at, 7 + 64);
    }
  }
  REQUIRE(outcomes.size() == 3);
  CHECK_THAT(outcomes[2].out, ContainsSubstring("bundle"));
  CHECK_THAT(outcomes[2].out, ContainsSubstring("PASS"));
}
