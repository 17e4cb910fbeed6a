// SPDX-License-Identifier: Apache-2.0
// Commands, outputs and exit codes as a user meets them.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/env.hpp"
#include "base/file.hpp"
#include "catch.hpp"
#include "program.hpp"

using nlohmann::json;

namespace {

const std::vector<std::string> kCommands = {
    "run",    "plan",   "emit",        "compile", "inspect", "mask", "devices",
    "doctor", "schema", "environment", "prewarm", "bundle",  "cache"};

int one_line_error(const Outcome& o) {
  INFO("stderr: " << o.err);
  CHECK(o.lines_err() == 1);
  CHECK(o.err.rfind("hstu-jit: ", 0) == 0);
  return o.code;
}

}  // namespace

TEST_CASE("help of every command has an example; the version names build and compilers") {
  const Program p;
  const Outcome help = p.run({"--help"}, "", false);
  CHECK(help.code == 0);
  for (const std::string& command : kCommands) {
    CHECK_THAT(help.out, ContainsSubstring(command));
    const Outcome h = p.run({command, "--help"}, "", false);
    CHECK(h.code == 0);
    CHECK_THAT(h.out, ContainsSubstring("Example: hstu-jit " + command));
  }
  const Outcome version = p.run({"--version"}, "", false);
  CHECK(version.code == 0);
  CHECK_THAT(version.out, ContainsSubstring("built by"));
  CHECK_THAT(version.out, ContainsSubstring("templates"));
}

TEST_CASE("the second run compiles nothing and says so") {
  const Program p;
  const std::string spec = p.file("spec.json", kSmallSpec);
  const Outcome first = p.run({"run", spec});
  INFO(first.out << first.err);
  REQUIRE(first.code == 0);
  CHECK_THAT(first.out, ContainsSubstring("compiled in"));
  CHECK_THAT(first.out, ContainsSubstring("PASS"));
  CHECK(first.err.empty());
  const Outcome second = p.run({"run", spec});
  CHECK(second.code == 0);
  CHECK_THAT(second.out, ContainsSubstring("cache hit"));
  CHECK_THAT(second.out, ContainsSubstring("nothing compiled"));

  SECTION("lengths, name, seed and data do not matter to the cache") {
    json other = json::parse(kSmallSpec);
    other["name"] = "other";
    other["uih_lengths"] = {3, 200};
    other["num_targets"] = {9, 1};
    other["heads"] = 5;
    other["data"] = {{"seed", 99}, {"init", "uniform"}};
    const Outcome o = p.run({"run", "-", "--json"}, other.dump());
    REQUIRE(o.code == 0);
    const json r = json::parse(o.out);
    CHECK(r["results"][0]["kernel"]["source"] == "local");
    CHECK(r["results"][0]["compile_ms"] == 0);
  }
  SECTION("structure does") {
    json other = json::parse(kSmallSpec);
    other["dtype"] = "fp16";
    const Outcome o = p.run({"run", "-", "--json"}, other.dump());
    REQUIRE(o.code == 0);
    CHECK(json::parse(o.out)["results"][0]["kernel"]["source"] == "compiled");
  }
}

TEST_CASE("run --json has the documented members") {
  const Program p;
  const Outcome o = p.run({"run", "-", "--json"}, kSmallSpec);
  REQUIRE(o.code == 0);
  const json j = json::parse(o.out);
  CHECK(j["schema"] == "hstu-jit/run/1");
  const json r = j["results"][0];
  for (const char* key :
       {"name", "status", "device", "target", "kernel", "compile_ms", "prepare_ms", "run_ms",
        "useful_tflops", "dense_tflops", "visible_pairs", "validation"})
    CHECK(r.contains(key));
  CHECK(r["status"] == "pass");
  CHECK(r["validation"]["mismatches"] == 0);
  CHECK(r["validation"]["checked"] == (45 + 3 + 7) * 2 * 16);
  CHECK(r["kernel"]["key"].get<std::string>().size() == 64);
  for (const char* key : {"median", "p10", "p90", "runs"}) CHECK(r["run_ms"].contains(key));
}

TEST_CASE("the README's spec runs, and its mask picture is what the mask is") {
  const Program p;
  const std::string readme = *hstu::jit::read_file(HSTU_README);
  const size_t spec_at = readme.find("```json\n") + 8;
  const std::string spec = readme.substr(spec_at, readme.find("```", spec_at) - spec_at);
  const Outcome o = p.run({"run", "-"}, spec);
  INFO(o.err);
  CHECK(o.code == 0);

  const Outcome mask = p.run({"mask", "-", "--json"}, R"({"op": "hstu_attention", "heads": 1,
      "head_dim_qk": 8, "uih_lengths": [6], "num_targets": 2,
      "mask": {"local_len": 2, "context_len": 2, "minfull_len": 2}})");
  REQUIRE(mask.code == 0);
  size_t at = readme.find("context  cch");
  const json rows = json::parse(mask.out)["batches"][0]["rows"];
  REQUIRE(rows.size() == 10);
  for (const json& row : rows) {
    std::string drawn = readme.substr(at + 9, 10);
    for (char& c : drawn) c = c == '.' ? '0' : '1';
    CHECK(drawn == row.get<std::string>());
    at = readme.find('\n', at) + 1;
    if (readme.compare(at, 1, " ") == 0) at = readme.find('\n', at) + 1;
  }
}

TEST_CASE("empty batches, empty sequences and all-target sequences succeed") {
  const Program p;
  for (const char* spec :
       {R"({"op": "hstu_attention", "heads": 2, "head_dim_qk": 16, "batch": 0, "uih_lengths": 4})",
        R"({"op": "hstu_attention", "heads": 2, "head_dim_qk": 16, "uih_lengths": [0, 0]})",
        R"({"op": "hstu_attention", "heads": 2, "head_dim_qk": 16, "uih_lengths": [0],
            "num_targets": 9, "mask": {"local_len": 3}})"}) {
    const Outcome o = p.run({"run", "-"}, spec);
    INFO(spec << o.err);
    CHECK(o.code == 0);
    CHECK_THAT(o.out, ContainsSubstring("PASS"));
  }
}

TEST_CASE("a suite prints a line each, a summary, and the first failure's code") {
  const Program p;
  const std::string good = kSmallSpec;
  const std::string bad = R"({"op": "hstu_attention", "name": "elsewhere", "heads": 2,
                              "head_dim_qk": 16, "uih_lengths": [4], "target": "gfx90a"})";
  const Outcome o = p.run({"run", "-"}, "[" + good + "," + bad + "," + good + "]");
  CHECK(o.code == 4);
  CHECK_THAT(o.out, ContainsSubstring("3 problems: 2 passed, 1 failed"));
  CHECK(one_line_error(o) == 4);
  const Outcome all = p.run({"run", "-", "--json"}, "[" + good + "," + good + "]");
  CHECK(all.code == 0);
  CHECK(json::parse(all.out)["results"].size() == 2);
}

TEST_CASE("bad specs give exit 3, one line and a pointer; --json gives the object too") {
  const Program p;
  const Outcome o = p.run({"run", "-"}, R"({"op": "hstu_attention", "hedas": 2})");
  CHECK(one_line_error(o) == 3);
  CHECK(o.out.empty());
  CHECK_THAT(o.err, ContainsSubstring("/hedas"));
  CHECK_THAT(o.err, ContainsSubstring("heads"));
  const Outcome j = p.run({"run", "-", "--json"}, R"({"op": "hstu_attention", "hedas": 2})");
  CHECK(one_line_error(j) == 3);
  const json error = json::parse(j.out)["results"][0]["error"];
  CHECK(error["kind"] == "spec");
  CHECK(error["pointer"] == "/hedas");
  CHECK(one_line_error(p.run({"run", "/no/such/spec.json"})) == 3);
  CHECK(one_line_error(p.run({"run", "-"}, "")) == 3);
  CHECK(one_line_error(p.run({"plan", "-"}, "[")) == 3);
  CHECK(one_line_error(p.run({"mask", "-"}, "{}")) == 3);
}

TEST_CASE("usage, target, device and memory errors have their codes") {
  const Program p;
  const std::string spec = p.file("spec.json", kSmallSpec);
  CHECK(one_line_error(p.run({}, "", false)) == 2);
  CHECK(one_line_error(p.run({"runn", spec})) == 2);
  CHECK(one_line_error(p.run({"run", spec, "--no-such-option"})) == 2);
  CHECK(one_line_error(p.run({"run"})) == 2);
  CHECK(one_line_error(p.run({"plan", spec, "--target", "gfx94"})) == 4);
  CHECK(one_line_error(p.run({"run", spec, "--target", "gfx90a", "--device", "cpu"})) == 4);
  CHECK(one_line_error(p.run({"run", spec, "--device", "hip:0"})) == 7);
  const Outcome device = p.run({"run", spec, "--device", "gpu7"});
  CHECK((device.code == 2 || device.code == 7));
  CHECK(device.lines_err() == 1);
  CHECK(one_line_error(p.run({"run", spec, "--device", "sim:gfx900"})) == 4);
  const Outcome rows = p.run({"run", spec, "--rows", "-1"});
  CHECK(one_line_error(rows) == 2);
  CHECK_THAT(rows.err, ContainsSubstring("allowed 0 or more"));
  CHECK(rows.err.size() < 200);
  const Outcome huge = p.run(
      {"run", "-"}, R"({"op": "hstu_attention", "heads": 4096, "head_dim_qk": 256, "batch": 2000,
                        "uih_lengths": 1000000})");
  CHECK(one_line_error(huge) == 4);
  CHECK_THAT(huge.err, ContainsSubstring("bytes"));
}

TEST_CASE("plan, emit, compile and inspect work without a GPU") {
  const Program p;
  const std::string spec = p.file("spec.json", kSmallSpec);
  for (const char* target : {"cpu", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "sm_90a"}) {
    const Outcome plan = p.run({"plan", spec, "--target", target});
    CHECK(plan.code == 0);
    for (const char* word : {"tile", "grid", "work", "bound", "why"})
      CHECK_THAT(plan.out, ContainsSubstring(word));
    const Outcome source = p.run({"emit", spec, "--target", target});
    CHECK(source.code == 0);
    CHECK_THAT(source.out, ContainsSubstring("\"head_dim_qk\": 16"));
  }
  const json plan = json::parse(p.run({"plan", spec, "--json", "--target", "gfx90a"}).out);
  CHECK(plan["schema"] == "hstu-jit/plan/1");

  const std::string object = p.folder() + "/k.so";
  const Outcome compiled = p.run({"compile", spec, "--target", "cpu", "-o", object});
  INFO(compiled.err);
  REQUIRE(compiled.code == 0);
  const Outcome inspected = p.run({"inspect", object, "--json"});
  REQUIRE(inspected.code == 0);
  const json info = json::parse(inspected.out);
  CHECK(info["schema"] == "hstu-jit/inspect/1");
  CHECK(info["kernels"].size() == 1);
  CHECK(one_line_error(p.run({"inspect", spec})) == 1);
  CHECK(one_line_error(p.run({"inspect", "/no/such/object"})) == 1);
  CHECK(one_line_error(p.run({"compile", spec, "-o", "/no/such/folder/k.o"})) == 1);
}

TEST_CASE("mask prints the worked example and writes a picture") {
  const Program p;
  const char* spec = R"({"op": "hstu_attention", "heads": 1, "head_dim_qk": 8, "uih_lengths": [6],
      "num_targets": 2, "mask": {"local_len": 2, "context_len": 2, "minfull_len": 2}})";
  const Outcome j = p.run({"mask", "-", "--json"}, spec);
  REQUIRE(j.code == 0);
  const json mask = json::parse(j.out);
  CHECK(mask["schema"] == "hstu-jit/mask/1");
  CHECK(mask["batches"][0]["visible_pairs"] == 62);
  CHECK(mask["batches"][0]["rows"][2] == "1110000000");
  const std::string png = p.folder() + "/mask.png";
  CHECK(p.run({"mask", "-", "--png", png, "--tiles"}, spec).code == 0);
  CHECK(std::filesystem::file_size(png) > 100);
  CHECK(one_line_error(p.run({"mask", "-", "--batch", "1"}, spec)) == 2);
}

TEST_CASE("the environment page lists every variable, and unknown names warn") {
  Program p;
  const Outcome page = p.run({"environment"}, "", false);
  REQUIRE(page.code == 0);
  for (const auto& v : hstu::jit::environment_variables())
    CHECK_THAT(page.out, ContainsSubstring(v.name));
  p.environment["HSTU_JIT_CACHE_DIRR"] = std::string("x");
  const Outcome o = p.run({"environment"}, "", false);
  CHECK(o.code == 0);
  CHECK_THAT(o.err, ContainsSubstring("HSTU_JIT_CACHE_DIRR"));
  CHECK_THAT(o.err, ContainsSubstring("HSTU_JIT_CACHE_DIR"));
  p.environment = {{"HSTU_JIT_LOG", "loud"}};
  CHECK_THAT(p.run({"environment"}, "", false).err, ContainsSubstring("want error, warn"));
}

TEST_CASE("devices and doctor say what was looked for") {
  const Program p;
  const Outcome devices = p.run({"devices"}, "", false);
  CHECK(devices.code == 0);
  CHECK_THAT(devices.out, ContainsSubstring("hip"));
  CHECK_THAT(devices.out, ContainsSubstring("cpu"));
  CHECK(json::parse(p.run({"devices", "--json"}, "", false).out)["backends"].size() >= 2);
  const Outcome doctor = p.run({"doctor"});
  INFO(doctor.out << doctor.err);
  CHECK(doctor.code == 0);
  for (const char* word : {"kernel cache", "temporary folder", "compiler for cpu", "devices"})
    CHECK_THAT(doctor.out, ContainsSubstring(word));
}

TEST_CASE("output.dump and output.mask write the documented files") {
  const Program p;
  json spec = json::parse(kSmallSpec);
  spec["activation"] = "softmax";
  spec["training"] = true;
  spec["output"] = {{"dump", p.folder() + "/dump"}, {"mask", p.folder() + "/mask.dat"}};
  const Outcome o = p.run({"run", "-"}, spec.dump());
  INFO(o.err);
  REQUIRE(o.code == 0);
  for (const char* name : {"output_dev.dat", "output_host.dat"})
    CHECK(std::filesystem::file_size(p.folder() + "/dump/" + name) == (45 + 3 + 7) * 2 * 16 * 2);
  for (const char* name : {"lse_dev.dat", "lse_host.dat"})
    CHECK(std::filesystem::file_size(p.folder() + "/dump/" + name) == (45 + 3 + 7) * 2 * 4);
  // max_seqlen = 40 + 5 targets (maximum over the batch) + 2 context, for 3 sequences, 2 heads.
  CHECK(std::filesystem::file_size(p.folder() + "/mask.dat") == 3 * 2 * 47 * 47);
}

TEST_CASE("a dump that cannot be written is an error, and not called a wrong result") {
  const Program p;
  json spec = json::parse(kSmallSpec);
  spec["output"] = {{"dump", "/proc/cannot"}};
  const Outcome o = p.run({"run", "-"}, spec.dump());
  CHECK(one_line_error(o) == 1);
  CHECK_THAT(o.out, ContainsSubstring("ERROR"));
  CHECK(o.out.find("FAIL") == std::string::npos);
}

TEST_CASE("HSTU_JIT_DUMP leaves source, options, log and object of each key") {
  Program p;
  p.environment["HSTU_JIT_DUMP"] = p.folder() + "/dump";
  REQUIRE(p.run({"run", "-"}, kSmallSpec).code == 0);
  size_t files = 0;
  for (const auto& e : std::filesystem::recursive_directory_iterator(p.folder() + "/dump"))
    files += e.is_regular_file();
  CHECK(files >= 4);
}
