// SPDX-License-Identifier: Apache-2.0
// Shipped specs through the command line on simulated devices, and what it says when something is
// wrong.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/file.hpp"
#include "base/subprocess.hpp"
#include "catch.hpp"
#include "probe.hpp"

namespace hstu::test {
namespace {

jit::ProcessResult run(std::vector<std::string> arguments, std::string_view input = {}) {
  jit::ProcessOptions options;
  options.input = std::string(input);
  options.argv = {HSTU_PROGRAM, "run"};
  options.argv.insert(options.argv.end(), arguments.begin(), arguments.end());
  options.argv.insert(options.argv.end(), {"--cache-dir", HSTU_SIM_CACHE});
  const auto result = jit::run_process(options);
  REQUIRE(result.ok());
  return *result;
}

int lines(const std::string& text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

// Whether there is what a run needs: a disassembler, and a compiler. A compiler that is there and
// fails is a failure.
bool can_run(const std::string& target, const std::string& test) {
  if (!can_probe(target, test)) return false;
  static const nlohmann::json report = [] {
    jit::ProcessOptions options;
    options.argv = {HSTU_PROGRAM, "doctor", "--json", "--cache-dir", HSTU_SIM_CACHE};
    const auto result = jit::run_process(options);
    REQUIRE(result.ok());
    return nlohmann::json::parse(result->output, nullptr, false);
  }();
  REQUIRE_FALSE(report.is_discarded());
  for (const auto& finding : report["findings"]) {
    if (finding["subject"] != "compiler for " + target) continue;
    if (finding["grade"] == "ok") return true;
    skip(fmt::format("{} on {}", test, target), finding["advice"].get<std::string>());
    return false;
  }
  FAIL("the doctor knows no compiler for " << target);
  return false;
}

std::string spec_file(const char* name) { return std::string(HSTU_TEST_DATA) + "/specs/" + name; }

}  // namespace

TEST_CASE("simulator: shipped specs pass on simulated devices") {
  for (const char* target : {"gfx90a", "gfx942", "gfx1100"}) {
    if (!can_run(target, "shipped specs")) continue;
    for (const char* spec : {"quickstart.json", "mask-test.json", "cross-mask-test.json"}) {
      const auto result =
          run({spec_file(spec), "--device", std::string("sim:") + target, "--json"});
      INFO(target << " " << spec << ": " << result.output << result.errors);
      CHECK(result.exit_code == 0);
      CHECK(result.signal == 0);
      const auto json = nlohmann::json::parse(result.output, nullptr, false);
      REQUIRE_FALSE(json.is_discarded());
      CHECK(result.output.find("\"mismatches\"") != std::string::npos);
    }
  }
}

// A sequence without keys, and queries that stand before all keys, in whole query tiles.
TEST_CASE("simulator: rows that see no key are zeros on simulated devices") {
  constexpr const char* kSpec =
      R"({"op": "hstu_attention", "dtype": "bf16", "heads": 1, "head_dim_qk": 64, "batch": 3,
          "layout": "jagged", "uih_lengths": [33, 600, 40], "uih_lengths_kv": [0, 40, 64],
          "num_targets": [0], "mask": {"causal": true}, "activation": "silu"})";
  for (const char* target : {"gfx90a", "gfx942", "gfx1100"}) {
    if (!can_run(target, "rows without keys")) continue;
    const auto result = run({"-", "--device", std::string("sim:") + target}, kSpec);
    INFO(target << ": " << result.output << result.errors);
    CHECK(result.exit_code == 0);
    CHECK(result.output.find("PASS") != std::string::npos);
  }
}

// gfx90a's matrix unit takes fp16 denormals for zero. Logits near 1e-3 make activations of that
// size, and logits beyond 4096 those that a factor against it would take out of fp16's range.
TEST_CASE("simulator: fp16 activations far from one on simulated devices") {
  for (const char* target : {"gfx90a", "gfx942"}) {
    if (!can_run(target, "fp16 activations")) continue;
    for (const char* numbers : {R"("alpha": 1e-4)", R"("alpha": 300, "attn_scale": 1e-4)"}) {
      const std::string spec = fmt::format(
          R"({{"op": "hstu_attention", "dtype": "fp16", "heads": 1, "head_dim_qk": 128,
               "batch": 3, "layout": "jagged", "uih_lengths": [150, 70, 1],
               "mask": {{"causal": true}}, "activation": "silu", {}}})",
          numbers);
      const auto result = run({"-", "--device", std::string("sim:") + target}, spec);
      INFO(target << " " << numbers << ": " << result.output << result.errors);
      CHECK(result.exit_code == 0);
      CHECK(result.output.find("PASS") != std::string::npos);
    }
  }
}

TEST_CASE("simulator: the command line on simulated devices says what is wrong") {
  const auto unknown = run({spec_file("quickstart.json"), "--device", "sim:gfx999"});
  CHECK(unknown.exit_code == 4);
  CHECK(unknown.signal == 0);
  CHECK(lines(unknown.errors) == 1);
  CHECK(unknown.errors.find("gfx999") != std::string::npos);
  CHECK(unknown.errors.find("gfx90a") != std::string::npos);
  CHECK(unknown.output.empty());
  const auto empty = run({spec_file("quickstart.json"), "--device", "sim:"});
  CHECK(empty.exit_code != 0);
  CHECK(empty.signal == 0);
  CHECK(lines(empty.errors) == 1);
  if (!can_run("gfx90a", "counters")) return;
  const auto counted = run({spec_file("quickstart.json"), "--device", "sim:gfx90a", "--counters"});
  CHECK(counted.exit_code == 0);
  for (const char* word : {"matrix", "lds_read", "global_read"}) {
    INFO(word << " in " << counted.output);
    CHECK(counted.output.find(word) != std::string::npos);
  }
}

}  // namespace hstu::test
