// SPDX-License-Identifier: Apache-2.0
// A machine that misbehaves: the run still works, or says in one line why it cannot.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "catch.hpp"
#include "program.hpp"

using nlohmann::json;

namespace {

std::vector<std::string> entries(const std::string& dir) {
  std::vector<std::string> found;
  if (!std::filesystem::exists(dir)) return found;
  for (const auto& e : std::filesystem::recursive_directory_iterator(dir))
    if (e.path().extension() == ".hko") found.push_back(e.path());
  return found;
}

// First line of standard error; a compile error adds its log below.
std::string first_line(const Outcome& o) { return o.err.substr(0, o.err.find('\n')); }

}  // namespace

TEST_CASE("a miscompiled kernel fails validation with exit 6 and the worst element") {
  Program p;
  // A "compiler" that quietly turns the causal mask off.
  p.environment["HSTU_JIT_CXX"] =
      p.file("bad-c++",
             "#!/bin/sh\n"
             "case \" $* \" in\n"
             "*' - '*) sed 's/bool causal = true/bool causal = false/' | g++ \"$@\";;\n"
             "*) exec g++ \"$@\";;\n"
             "esac\n",
             true);
  const Outcome o = p.run({"run", "-"}, kSmallSpec);
  INFO(o.out << o.err);
  CHECK(o.code == 6);
  CHECK_THAT(o.out, ContainsSubstring("FAIL"));
  CHECK_THAT(o.err, ContainsSubstring("worst"));
  const Outcome j = p.run({"run", "-", "--json"}, kSmallSpec);
  CHECK(j.code == 6);
  const json r = json::parse(j.out)["results"][0];
  CHECK(r["status"] == "fail");
  CHECK(r["validation"]["mismatches"] > 0);
  CHECK(r["validation"]["worst"]["index"].size() == 4);
  CHECK(r["validation"]["worst"].contains("got"));
  CHECK(r["validation"]["worst"].contains("want"));
}

TEST_CASE("compilers that crash, hang, fail or are missing give exit 5 and one clear line") {
  Program p;
  const std::string spec = p.file("spec.json", kSmallSpec);
  SECTION("crash") {
    p.environment["HSTU_JIT_CXX"] = p.file("crash", "#!/bin/sh\nkill -SEGV $$\n", true);
  }
  SECTION("hang") {
    p.environment["HSTU_JIT_CXX"] = p.file("hang", "#!/bin/sh\nsleep 1000\n", true);
    p.environment["HSTU_JIT_COMPILE_TIMEOUT"] = "1";
  }
  SECTION("fail") {
    p.environment["HSTU_JIT_CXX"] =
        p.file("fail", "#!/bin/sh\necho 'x.cpp:1: error: no' >&2\nexit 1\n", true);
  }
  SECTION("says it worked and wrote nothing") {
    p.environment["HSTU_JIT_CXX"] = p.file("lie", "#!/bin/sh\nexit 0\n", true);
  }
  SECTION("none") {
    p.environment["HSTU_JIT_CXX"] = "/nonexistent/c++";
    p.environment["PATH"] = "/nonexistent";
  }
  const Outcome o = p.run({"run", spec});
  INFO(o.err);
  CHECK(o.code == 5);
  CHECK(first_line(o).rfind("hstu-jit: ", 0) == 0);
  CHECK(entries(p.cache_dir()).empty());
}

TEST_CASE("a worker that dies or is not there is a compile error, not a crash") {
  Program p;
  p.environment["HSTU_JIT_WORKER"] = p.file("worker", "#!/bin/sh\nkill -9 $$\n", true);
  const Outcome killed = p.run({"run", "-"}, kSmallSpec);
  INFO(killed.err);
  CHECK(killed.code == 5);
  p.environment["HSTU_JIT_WORKER"] = "/nonexistent/worker";
  const Outcome missing = p.run({"run", "-"}, kSmallSpec);
  INFO(missing.err);
  CHECK(missing.code == 5);
  CHECK_THAT(first_line(missing), ContainsSubstring("worker"));
}

TEST_CASE("odd caches: corrupt entries, no HOME, no place to write") {
  Program p;
  const std::string spec = p.file("spec.json", kSmallSpec);
  SECTION("a corrupt entry is a miss with its reason") {
    REQUIRE(p.run({"run", spec}).code == 0);
    REQUIRE(entries(p.cache_dir()).size() == 1);
    std::filesystem::resize_file(entries(p.cache_dir()).front(), 200);
    const Outcome o = p.run({"run", spec});
    CHECK(o.code == 0);
    CHECK_THAT(o.out, ContainsSubstring("damaged"));
    CHECK_THAT(p.run({"run", spec}).out, ContainsSubstring("cache hit"));
  }
  SECTION("no HOME") {
    p.environment["HOME"] = "";
    const Outcome o = p.run({"run", spec}, "", false);
    INFO(o.err);
    CHECK(o.code == 0);
  }
  SECTION("HOME cannot be written to") {
    p.environment["HOME"] = p.file("home", "a file, not a folder");
    p.environment["TMPDIR"] = p.folder();
    CHECK(p.run({"run", spec}, "", false).code == 0);
  }
  SECTION("an explicit folder that cannot be used is exit 8") {
    const Outcome o = p.run({"run", spec, "--cache-dir", "/proc/cannot"});
    CHECK(o.code == 8);
    CHECK(o.lines_err() == 1);
  }
  SECTION("a named bundle that cannot be used is exit 8, one of the environment is a warning") {
    const Outcome named = p.run({"run", spec, "--bundle", "/nowhere/k.hjb"});
    CHECK(named.code == 8);
    CHECK(named.lines_err() == 1);
    CHECK_THAT(named.err, ContainsSubstring("/nowhere/k.hjb"));
    p.environment["HSTU_JIT_BUNDLES"] = "/nowhere/k.hjb";
    const Outcome warned = p.run({"run", spec});
    CHECK(warned.code == 0);
    CHECK(warned.lines_err() == 1);
    CHECK_THAT(warned.err, ContainsSubstring("/nowhere/k.hjb"));
  }
  SECTION("sealed and cold is exit 8") {
    p.environment["HSTU_JIT_CACHE_MODE"] = "sealed";
    const Outcome o = p.run({"run", spec});
    CHECK(o.code == 8);
    CHECK(o.lines_err() == 1);
  }
  SECTION("a nonsense mode is a usage error") {
    p.environment["HSTU_JIT_CACHE_MODE"] = "maybe";
    CHECK(p.run({"run", spec}).code == 2);
  }
  SECTION("a warm cache serves without any compiler") {
    REQUIRE(p.run({"run", spec}).code == 0);
    p.environment["HSTU_JIT_CXX"] = "/nonexistent/c++";
    p.environment["PATH"] = "/nonexistent";
    const Outcome o = p.run({"run", spec});
    INFO(o.out << o.err);
    CHECK(o.code == 0);
    CHECK_THAT(o.out, ContainsSubstring("without a compiler"));
  }
}

TEST_CASE("a full disk under standard output is an error, not silence") {
  if (access("/dev/full", W_OK) != 0) {
    fmt::print("SKIPPED: full disk under standard output: no /dev/full here\n");
    return;
  }
  const Program p;
  const std::string script =
      p.file("full.sh", fmt::format("#!/bin/sh\nexec {} schema > /dev/full\n", HSTU_PROGRAM), true);
  CHECK(std::system((script + " 2>/dev/null").c_str()) != 0);
}
