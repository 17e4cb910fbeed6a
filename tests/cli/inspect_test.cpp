// SPDX-License-Identifier: Apache-2.0
// hstu-jit inspect --schedule: objects and specs, text and JSON, replaced assumptions.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/file.hpp"
#include "catch.hpp"
#include "object/toolchains.hpp"
#include "program.hpp"

using nlohmann::json;

namespace {

// Eight matrix instructions of 32 clocks and `exps` transcendentals of 16 in a loop of two scalars.
std::string loop(int matrix, int exps) {
  std::string code = ".Lloop:\n";
  for (int i = 0; i < matrix; ++i)
    code += "v_mfma_f32_32x32x8_f16 v[32:47], v[0:1], v[2:3], v[32:47]\n";
  for (int i = 0; i < exps; ++i) code += fmt::format("v_exp_f32 v{}, v60\n", i);
  return code + "s_sub_u32 s0, s0, 1\ns_cbranch_scc0 .Lloop\n";
}

// The path of an object assembled from `code`; empty, and a line, where there is no assembler.
std::string assembled(const Program& p, const std::string& name, const std::string& code) {
  const auto bytes = hstu::test::assemble_amd(p.folder(), "gfx942", code);
  if (bytes) return p.file(name, *bytes);
  REQUIRE((!hstu::jit::find_program("clang-19") || !hstu::jit::find_program("ld.lld-19")));
  hstu::test::skipped("inspect --schedule " + name, "no clang-19 and ld.lld-19");
  return "";
}

json reports_of(const Outcome& o) {
  INFO(o.err);
  REQUIRE(o.code == 0);
  CHECK(o.err.empty());
  const json j = json::parse(o.out);
  CHECK(j["schema"] == "hstu-jit/schedule/1");
  return j["reports"];
}

}  // namespace

TEST_CASE("inspect --schedule of an object: text and JSON") {
  const Program p;
  const std::string object = assembled(p, "matrix.hsaco", loop(8, 0));
  if (object.empty()) return;
  const json reports = reports_of(p.run({"inspect", "--schedule", object, "--json"}));
  REQUIRE(reports.size() == 1);
  const json& r = reports[0];
  CHECK(r["input"] == object);
  CHECK(r["kernel"] == "kernel");
  CHECK(r["target"] == "gfx942");
  CHECK(r["vgprs"] == 128);
  CHECK(r["clocks"]["matrix"] == 8 * 32);
  CHECK(r["loop"]["instructions"] == 10);
  CHECK(r["loop"]["mnemonics"]["v_mfma_f32_32x32x8_f16"] == 8);
  CHECK(r["loop"]["classes"]["matrix"] == 8);
  // Nothing but matrix instructions: the unit never waits.
  for (const json& share : r["shares"]) CHECK(share["low"] == 1);
  CHECK(r["bound"]["limited_by"] == "matrix");
  CHECK_FALSE(r["assumptions"].empty());
  CHECK_FALSE(r["rules"].empty());

  const Outcome text = p.run({"inspect", object, "--schedule"});
  INFO(text.out);
  CHECK(text.code == 0);
  CHECK(text.err.empty());
  for (const char* words :
       {"kernel kernel for gfx942", "128 VGPRs", "v_mfma_f32_32x32x8_f16 8", "matrix 256",
        "modelled matrix share", "1 wave a SIMD", "100.0 %", "assumed, in clocks", "lds-latency"})
    CHECK_THAT(text.out, ContainsSubstring(words));
}

TEST_CASE("inspect --schedule takes several objects, in their order") {
  const Program p;
  const std::string first = assembled(p, "first.hsaco", loop(8, 0));
  const std::string second = assembled(p, "second.hsaco", loop(1, 4));
  if (first.empty() || second.empty()) return;
  const json reports = reports_of(p.run({"inspect", "--schedule", second, first, "--json"}));
  REQUIRE(reports.size() == 2);
  CHECK(reports[0]["input"] == second);
  CHECK(reports[0]["loop"]["classes"]["transcendental"] == 4);
  CHECK(reports[1]["input"] == first);
  check_refused(p.run({"inspect", first, second}), 2, {"--schedule"});
}

TEST_CASE("inspect --schedule: assumptions can be replaced, nonsense is a usage error") {
  const Program p;
  const std::string object = assembled(p, "exp.hsaco", loop(1, 4));
  if (object.empty()) return;
  // One matrix instruction of 32 clocks; the vector port: 4 to issue it, 16 for each exponential.
  const auto bound = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"inspect", "--schedule", object, "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return reports_of(p.run(arguments))[0];
  };
  const json usual = bound({}), fast = bound({"--assume", "transcendental=8"});
  CHECK(usual["bound"]["low"].get<double>() == Approx(32.0 / 68).margin(1e-4));
  CHECK(fast["bound"]["low"].get<double>() == Approx(32.0 / 36).margin(1e-4));
  const json both = bound({"--assume", "transcendental=8", "--assume", "lds-latency=256"});
  std::map<std::string, int> assumed;
  for (const json& a : both["assumptions"]) assumed[a["name"]] = a["clocks"];
  CHECK(assumed["transcendental"] == 8);
  CHECK(assumed["lds-latency"] == 256);

  for (const char* nonsense : {"speed=3", "lds-latency", "lds-latency=", "lds-latency=0",
                               "lds-latency=-4", "lds-latency=fast", "=5"})
    check_refused(p.run({"inspect", "--schedule", object, "--assume", nonsense}), 2,
                  {"want NAME=CLOCKS"});
  check_refused(p.run({"inspect", object, "--assume", "lds-latency=64"}), 2, {"--schedule"});
  const Outcome j = p.run({"inspect", "--schedule", object, "--assume", "speed=3", "--json"});
  CHECK(j.code == 2);
  CHECK(json::parse(j.out)["error"]["kind"] == "usage");
}

TEST_CASE("inspect --schedule: what it cannot model is an error of its kind") {
  Program p;
  const std::string spec = p.file("spec.json", kSmallSpec);
  check_refused(p.run({"inspect", "--schedule", spec, "--target", "cpu"}), 4, {"--target"});
  check_refused(p.run({"inspect", "--schedule", spec, "--target", "sm_90a"}), 4, {"no AMD target"});
  check_refused(p.run({"inspect", "--schedule", "/no/such/object"}), 1, {"/no/such/object"});
  check_refused(p.run({"inspect", "--schedule", p.file("text", "some text")}), 1, {"text"});
  check_refused(p.run({"inspect", "--schedule", p.file("bad.json", "{}")}), 3, {"bad.json"});
  const std::string straight = assembled(p, "straight.hsaco", "v_mov_b32 v0, v1\n");
  if (straight.empty()) return;
  check_refused(p.run({"inspect", "--schedule", straight}), 1,
                {"straight.hsaco", "no matrix instruction"});
  p.environment["HSTU_JIT_OBJDUMP"] = "/nowhere/objdump";
  check_refused(p.run({"inspect", "--schedule", straight}), 4, {"/nowhere/objdump"});
}

TEST_CASE("inspect --schedule of a spec reports the kernel that compile writes") {
  const Program p;
  for (const char* thing : {"compiler for gfx90a", "disassembler for gfx90a"}) {
    if (const std::string lack = p.missing(thing); !lack.empty()) {
      hstu::test::skipped("inspect --schedule of a spec", lack);
      return;
    }
  }
  const std::string spec = p.file("spec.json", kSmallSpec), object = p.folder() + "/k.hsaco";
  REQUIRE(p.run({"compile", spec, "--target", "gfx90a", "-o", object}).code == 0);
  json of_spec = reports_of(p.run({"inspect", "--schedule", spec, "--target", "gfx90a", "--json"}));
  json of_object = reports_of(p.run({"inspect", "--schedule", object, "--json"}));
  REQUIRE(of_spec.size() == 1);
  REQUIRE(of_object.size() == 1);
  CHECK(of_spec[0]["input"] == spec);
  of_spec[0].erase("input");
  of_object[0].erase("input");
  CHECK(of_spec == of_object);
  CHECK(of_spec[0]["loop"]["classes"]["matrix"] > 0);
  // Two problems of one kernel are one report.
  const std::string suite = p.file("suite.json", fmt::format("[{0}, {0}]", kSmallSpec));
  CHECK(reports_of(p.run({"inspect", "--schedule", suite, "--device", "sim:gfx90a", "--json"}))
            .size() == 1);
  CHECK_THAT(p.run({"inspect", "--schedule", "-", "--target", "gfx90a"}, kSmallSpec).out,
             ContainsSubstring("modelled matrix share"));
}
