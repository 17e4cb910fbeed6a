// SPDX-License-Identifier: Apache-2.0
// Manifests: what they say, and everything they may not say.
#include <fmt/format.h>

#include <set>

#include "base/temp_dir.hpp"
#include "support.hpp"

using namespace hstu::jit;
using namespace hstu::jit::test;

TEST_CASE("inline specs, files and suites, with targets and priorities") {
  const std::string suite = "[" + kBase + ", " + kBase + "]";
  const Manifest m = good(
      R"({"schema": "hstu-jit/manifest/1", "about": "of the tests", "targets": ["gfx90a", "cpu", "gfx90a"],
          "defaults": {"priority": 3},
          "specs": [{"spec": )" +
          kBase + R"(, "about": "one"},
                    {"file": "a/suite.json", "targets": ["gfx942"], "priority": 9},
                    {"file": "/abs.json"}]})",
      {{"dir/a/suite.json", suite},
       {"/abs.json", R"({"op": "hstu_attention", "name": "whole", "heads": 1, "head_dim_qk": 32,
                         "uih_lengths": 5})"}});
  CHECK(m.targets == std::vector<std::string>{"gfx90a", "cpu"});
  REQUIRE(m.specs.size() == 4);
  CHECK(m.specs[0].label == "/specs/0");
  CHECK(m.specs[0].pointer == "/specs/0");
  CHECK(m.specs[0].priority == 3);
  CHECK(m.specs[0].targets.empty());
  CHECK(m.specs[0].problem.head_dim_qk == 64);
  CHECK(m.specs[1].label == "a/suite.json#0");
  CHECK(m.specs[2].label == "a/suite.json#1");
  CHECK(m.specs[2].priority == 9);
  CHECK(m.specs[2].targets == std::vector<std::string>{"gfx942"});
  CHECK(m.specs[3].label == "whole");
  CHECK(m.specs[3].problem.head_dim_qk == 32);
  CHECK(m.warnings.empty());
}

TEST_CASE("paths inside a spec file are of its own folder") {
  const Manifest m =
      good(manifest_of(R"({"file": "sub/s.json"})"),
           {{"dir/sub/s.json",
             R"({"op": "hstu_attention", "heads": 1, "head_dim_qk": 8, "uih_lengths": 1,
            "data": {"init": "files", "files": {"q": "q.bin", "k": "k.bin", "v": "/v.bin"}}})"}});
  CHECK(m.specs[0].problem.data.q_file == "dir/sub/q.bin");
  CHECK(m.specs[0].problem.data.v_file == "/v.bin");
}

TEST_CASE("a sweep is the product of its lists, the last one fastest") {
  const Manifest m = good(
      manifest_of(R"({"sweep": {"base": )" + kBase + R"(, "set": {"/head_dim_qk": [32, 64, 128],
          "/mask/causal": [true, false]}}})"));
  REQUIRE(m.specs.size() == 6);
  size_t i = 0;
  for (const int dim : {32, 64, 128}) {
    for (const bool causal : {true, false}) {
      CHECK(m.specs[i].problem.head_dim_qk == dim);
      CHECK(m.specs[i].problem.head_dim_v == dim);
      CHECK(m.specs[i].problem.causal == causal);
      CHECK(m.specs[i].problem.uih_q == std::vector<int32_t>{40, 9});
      CHECK_THAT(m.specs[i].label, ContainsSubstring(fmt::format("/head_dim_qk={}", dim)));
      ++i;
    }
  }
  CHECK(m.specs[5].pointer == "/specs/0");
}

TEST_CASE("a sweep reaches into lists, makes objects, and takes a file as its base") {
  const std::string base = R"({"op": "hstu_attention", "name": "g", "heads": 1, "head_dim_qk": 64,
      "uih_lengths": 8, "batch": 4, "groups": [{"local_len": 1}, {"local_len": 2}]})";
  const Manifest m =
      good(manifest_of(R"({"sweep": {"base": "b.json", "set": {"/groups/1/local_len": [5, 6, 7],
                      "/name": ["n~/1"], "/mask": [{"causal": false}]}}})"),
           {{"dir/b.json", base}});
  REQUIRE(m.specs.size() == 3);
  for (int i = 0; i < 3; ++i) {
    CHECK(m.specs[static_cast<size_t>(i)].problem.groups[0].local_len == 1);
    CHECK(m.specs[static_cast<size_t>(i)].problem.groups[1].local_len == 5 + i);
    CHECK_FALSE(m.specs[static_cast<size_t>(i)].problem.causal);
    CHECK(m.specs[static_cast<size_t>(i)].problem.name == "n~/1");
  }
}

TEST_CASE("what a manifest may not say is told with its place") {
  struct Case {
    const char *text, *pointer, *says;
  };
  const std::string spec = R"({"spec": )" + kBase + "}";
  const std::string sweep_start = R"({"sweep": {"base": )" + kBase + R"(, "set": )";
  const std::vector<std::array<std::string, 3>> cases = {
      {"", "", "empty text"},
      {"[]", "", "found an empty array; allowed an object"},
      {"{", "", "invalid JSON"},
      {R"({"specs": []})", "/schema", "found nothing; allowed \"hstu-jit/manifest/1\""},
      {R"({"schema": "hstu-jit/manifest/2", "specs": []})", "/schema", "manifest/2"},
      {R"({"schema": "hstu-jit/manifest/1"})", "/specs", "found nothing"},
      {manifest_of(""), "/specs", "found an empty array; allowed a list of at least one"},
      {R"({"schema": "hstu-jit/manifest/1", "schema": 1})", "/schema", "twice"},
      {manifest_of(spec, R"("target": ["cpu"], )"), "/target", "did you mean targets?"},
      {manifest_of(spec, R"("targets": [], )"), "/targets", "found an empty array"},
      {manifest_of(spec, R"("targets": "cpu", )"), "/targets", "found \"cpu\""},
      {manifest_of(spec, R"("targets": ["cpu", 3], )"), "/targets/1", "found 3; allowed a string"},
      {manifest_of(spec, R"("targets": [""], )"), "/targets/0", "found \"\""},
      {manifest_of(spec, R"("targets": ["a\nb"], )"), "/targets/0", "control characters"},
      {manifest_of(spec, R"("about": 7, )"), "/about", "found 7"},
      {manifest_of(spec, R"("defaults": {"prioritiy": 3}, )"), "/defaults/prioritiy",
       "did you mean priority?"},
      {manifest_of(spec, R"("defaults": 3, )"), "/defaults", "found 3"},
      {manifest_of(spec, R"("defaults": {"priority": 1001}, )"), "/defaults/priority",
       "an integer from 0 to 1000"},
      {manifest_of("7"), "/specs/0", "found 7; allowed an object"},
      {manifest_of(spec + ", {}"), "/specs/1", "found 0 of the keys file, spec and sweep"},
      {manifest_of(R"({"spec": {}, "file": "x"})"), "/specs/0", "found 2 of the keys"},
      {manifest_of(R"({"spec": 3})"), "/specs/0/spec", "found 3"},
      {manifest_of(R"({"spec": []})"), "/specs/0/spec", "an empty array"},
      {manifest_of(R"({"spec": {"op": "hstu_attention", "head_dim_qk": 64}})"),
       "/specs/0/spec/heads", "found nothing"},
      {manifest_of(R"({"spec": {"op": "other"}})"), "/specs/0/spec/op", "found \"other\""},
      {manifest_of(R"({"sepc": {}})"), "/specs/0/sepc", "did you mean spec?"},
      {manifest_of(R"({"spec": {}, "priority": -1})"), "/specs/0/priority", "found -1"},
      {manifest_of(R"({"spec": {}, "priority": 1.5})"), "/specs/0/priority", "found 1.5"},
      {manifest_of(R"({"spec": {}, "priority": 18446744073709551615})"), "/specs/0/priority",
       "found 18446744073709551615"},
      {manifest_of(R"({"file": "none.json"})"), "/specs/0/file", "no such file"},
      {manifest_of(R"({"file": 3})"), "/specs/0/file", "found 3"},
      {manifest_of(R"({"file": "a\u0000b"})"), "/specs/0/file", "control characters"},
      {manifest_of(R"({"file": "broken.json"})"), "/specs/0/file", "broken.json: spec: found inv"},
      {manifest_of(R"({"file": "wrong.json"})"), "/specs/0/file", "wrong.json: /1/heads: found 0"},
      {manifest_of(R"({"sweep": {}})"), "/specs/0/sweep/base", "found nothing"},
      {manifest_of(R"({"sweep": {"base": {}}})"), "/specs/0/sweep/set", "found nothing"},
      {manifest_of(R"({"sweep": {"base": [], "set": {"/a": [1]}}})"), "/specs/0/sweep/base",
       "an empty array"},
      {manifest_of(R"({"sweep": {"base": "broken.json", "set": {"/a": [1]}}})"),
       "/specs/0/sweep/base", "broken.json"},
      {manifest_of(R"({"sweep": {"base": "wrong.json", "set": {"/a": [1]}}})"),
       "/specs/0/sweep/base", "an array of 2; allowed one spec"},
      {manifest_of(sweep_start + "{}}}"), "/specs/0/sweep/set", "an empty object"},
      {manifest_of(sweep_start + R"({"heads": [1]}}})"), "/specs/0/sweep/set/heads",
       "a JSON pointer"},
      {manifest_of(sweep_start + R"({"/a~2": [1]}}})"), "/specs/0/sweep/set/~1a~02",
       "a JSON pointer"},
      {manifest_of(sweep_start + R"({"/heads": 3}}})"), "/specs/0/sweep/set/~1heads", "found 3"},
      {manifest_of(sweep_start + R"({"/heads": []}}})"), "/specs/0/sweep/set/~1heads",
       "an empty array"},
      {manifest_of(sweep_start + R"({"/mask": [{}], "/mask/causal": [true]}}})"),
       "/specs/0/sweep/set/~1mask~1causal", "do not contain each other"},
      {manifest_of(sweep_start + R"({"/heads": [1, 0]}}})"), "/specs/0/sweep/set/~1heads/1",
       "/heads: found 0"},
      {manifest_of(sweep_start + R"({"/heads/x": [1]}}})"), "/specs/0/sweep/set/~1heads~1x",
       "found 2 above \"x\""},
      {manifest_of(sweep_start + R"({"/uih_lengths/2": [1]}}})"),
       "/specs/0/sweep/set/~1uih_lengths~12", "found no element \"2\""},
      {manifest_of(sweep_start + R"({"/uih_lengths/00": [1]}}})"),
       "/specs/0/sweep/set/~1uih_lengths~100", "found no element \"00\""},
      {manifest_of(sweep_start + R"({"/uih_lengths/-1": [1]}}})"),
       "/specs/0/sweep/set/~1uih_lengths~1-1", "found no element"},
      {manifest_of(sweep_start + R"({"/colour": [1]}}})"), "/specs/0/sweep/set/~1colour/0",
       "unknown key"},
  };
  const Files files{{"dir/broken.json", "{nonsense"},
                    {"dir/wrong.json", "[" + kBase + R"(, {"op": "hstu_attention", "heads": 0,
                      "head_dim_qk": 64, "uih_lengths": 1}])"}};
  for (const auto& [text, pointer, says] : cases) {
    INFO(text);
    const Error e = bad(text, files);
    INFO(e.message);
    CHECK(e.pointer == pointer);
    CHECK_THAT(e.message, ContainsSubstring(says));
  }
}

TEST_CASE("a manifest cannot ask for more than its bounds, nor take long to be refused") {
  // 20 lists of 20 values: 20^20 combinations.
  std::string set;
  for (int i = 0; i < 20; ++i)
    set += fmt::format("{}\"/x{}\": [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]",
                       i ? ", " : "", i);
  Error e = bad(manifest_of(R"({"sweep": {"base": {}, "set": {)" + set + "}}}"));
  CHECK(e.pointer == "/specs/0/sweep/set");
  CHECK_THAT(e.message, ContainsSubstring("more than 65536 combinations"));

  set.clear();
  for (int i = 0; i < 33; ++i) set += fmt::format("{}\"/x{}\": [1]", i ? ", " : "", i);
  CHECK_THAT(bad(manifest_of(R"({"sweep": {"base": {}, "set": {)" + set + "}}}")).message,
             ContainsSubstring("found 33 pointers"));

  // Each entry is allowed, all together are not.
  std::string values = "1";
  for (int i = 2; i <= 300; ++i) values += fmt::format(", {}", i);
  const std::string sweep = R"({"sweep": {"base": )" + kBase + R"(, "set": {"/data/seed": [)" +
                            values + R"(], "/mask/local_len": [)" + values + "]}}}";
  e = bad(manifest_of(sweep));
  CHECK_THAT(e.message, ContainsSubstring("combinations"));

  // Few bytes that name a large file again and again.
  std::string entries;
  for (int i = 0; i < 20; ++i) entries += fmt::format("{}{{\"file\": \"big.json\"}}", i ? "," : "");
  const std::string big = "[" + std::string(size_t{8} << 20, ' ') + kBase + "]";
  CHECK_THAT(bad(manifest_of(entries), {{"dir/big.json", big}}).message,
             ContainsSubstring("specs of more than"));

  // Few bytes that ask for many sequences.
  CHECK_THAT(
      bad(manifest_of(R"({"sweep": {"base": {"op": "hstu_attention", "heads": 1, "head_dim_qk": 64,
          "batch": 9000000, "uih_lengths": 1}, "set": {"/data/seed": [1, 2, 3, 4]}}})"))
          .message,
      ContainsSubstring("sequences in all specs"));

  CHECK_THAT(bad(manifest_of(std::string(100, '[') + std::string(100, ']'))).message,
             ContainsSubstring("nested"));
  CHECK_THAT(bad("{\"schema\": \"\xff\xfe\"}").message, ContainsSubstring("UTF-8"));
  CHECK_THAT(bad(std::string("{\0}", 3)).message, ContainsSubstring("zero byte"));
}

TEST_CASE("lines of a record are specs of one target each; torn ones are told and left out") {
  const std::string line =
      R"({"schema":"hstu-jit/record/1","key":"k","target":"gfx90a","spec":)" + kBase + "}";
  const std::string other =
      R"({"schema":"hstu-jit/record/1","target":"gfx942","spec":)" + kBase + "}";
  const Manifest one = good(line);  // also without an end of line
  REQUIRE(one.specs.size() == 1);
  CHECK(one.specs[0].targets == std::vector<std::string>{"gfx90a"});
  CHECK(one.targets.empty());

  const Manifest m =
      good("\n" + line + "\n" + line.substr(0, 50) + "\n\n" + other + "\r\n" + other.substr(0, 30));
  REQUIRE(m.specs.size() == 2);
  CHECK(m.specs[1].targets == std::vector<std::string>{"gfx942"});
  REQUIRE(m.warnings.size() == 2);
  CHECK_THAT(m.warnings[0], ContainsSubstring("line 3"));
  CHECK_THAT(m.warnings[1], ContainsSubstring("line 6"));

  CHECK_THAT(bad(line + "\n" + R"({"schema":"hstu-jit/record/2"})").message,
             ContainsSubstring("/line 2"));
  CHECK_THAT(bad(line + "\n[]").message, ContainsSubstring("/line 2"));
  const Error e =
      bad(line + "\n" + R"({"schema":"hstu-jit/record/1","target":"cpu","spec":{"op":"x"}})");
  CHECK(e.pointer == "/line 2/spec/op");
}

TEST_CASE("a manifest file: relative paths, no file, too large, a folder") {
  const TempDir dir = folder();
  REQUIRE(make_directories(dir.path() + "/in/specs").ok());
  REQUIRE(write_file_atomic(dir.path() + "/in/specs/a b.json", kBase).ok());
  REQUIRE(write_file_atomic(dir.path() + "/in/m.json", manifest_of(R"({"file": "specs/a b.json"})"))
              .ok());
  const Result<Manifest> m = load_manifest(dir.path() + "/in/m.json");
  REQUIRE(m.ok());
  CHECK(m->specs.size() == 1);
  for (const std::string& path :
       {dir.path() + "/none.json", dir.path(), std::string("/dev/zero")}) {
    const Result<Manifest> none = load_manifest(path);
    REQUIRE_FALSE(none.ok());
    CHECK(none.error().kind == ErrorKind::kSpec);
    CHECK_THAT(none.error().message, ContainsSubstring(path));
  }
  REQUIRE(write_file_atomic(dir.path() + "/in/bad.json", manifest_of("3")).ok());
  CHECK_THAT(load_manifest(dir.path() + "/in/bad.json").error().message,
             ContainsSubstring("bad.json: /specs/0: found 3"));
}
