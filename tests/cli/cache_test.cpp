// SPDX-License-Identifier: Apache-2.0
// hstu-jit cache: what people and scripts see of the local store. The entries are the golden ones,
// which this program did not write.
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "catch.hpp"
#include "program.hpp"

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

constexpr const char* kPlain =
    "d79744ba83ad73fd6a10b81365f0914cc336c4858fbb809fee820c8cc346032e.cccccccccccc.hko";
constexpr const char* kText =
    "4f43b240bbf3487423dc731e0e507655e7d4e1d2ba174143404b2c8575c90257.0123456789ab.hko";
constexpr const char* kEmpty =
    "e00e73868f6bb25119dd84ff80871f5783c3814e012c0692eda8aac83007a758.000000000000.hko";
constexpr int64_t kHour = 3600;

struct Cache : Program {
  std::string put(const std::string& golden, const std::string& name, int64_t age) const {
    const fs::path path = fs::path(cache_dir()) / "v1/objects" / name.substr(0, 2) / name;
    fs::create_directories(path.parent_path());
    fs::copy_file(fs::path(HSTU_TEST_DATA) / "cache" / golden, path);
    fs::permissions(path, fs::perms(0644));
    touch(path, age);
    return path;
  }
  static void touch(const std::string& path, int64_t age) {
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::seconds(age));
  }
  std::string plain, text, empty;
  Cache() {
    fs::create_directories(cache_dir());
    plain = put("v1-plain.hko", kPlain, 3 * kHour);
    text = put("v1-text.hko", kText, 50 * kHour);
    empty = put("v1-empty.hko", kEmpty, 60);
  }
  Outcome cache(const std::vector<std::string>& arguments) const {
    std::vector<std::string> all = {"cache"};
    for (const std::string& argument : arguments) all.push_back(argument);
    return run(std::move(all));
  }
  json cache_json(std::vector<std::string> arguments, int code = 0) const {
    arguments.push_back("--json");
    const Outcome o = cache(std::move(arguments));
    INFO(o.out << o.err);
    CHECK(o.code == code);
    return json::parse(o.out);
  }
};

std::string first_word(const std::string& text, int line) {
  size_t at = 0;
  for (int i = 0; i < line; ++i) at = text.find('\n', at) + 1;
  return text.substr(at, text.find(' ', at) - at);
}

}  // namespace

TEST_CASE("cache ls shows key, target, size, age and entry, in the order asked for") {
  const Cache c;
  Outcome o = c.cache({"ls"});
  INFO(o.out << o.err);
  CHECK(o.code == 0);
  CHECK(first_word(o.out, 0) == "KEY");
  CHECK(first_word(o.out, 1) == std::string(kEmpty).substr(0, 12));
  CHECK(first_word(o.out, 2) == std::string(kPlain).substr(0, 12));
  CHECK(first_word(o.out, 3) == std::string(kText).substr(0, 12));
  CHECK_THAT(o.out, ContainsSubstring("gfx90a"));
  CHECK_THAT(o.out, ContainsSubstring("374 B"));
  CHECK_THAT(o.out, ContainsSubstring("3 h"));
  CHECK_THAT(o.out, ContainsSubstring("2 d"));
  CHECK_THAT(o.err, ContainsSubstring("3 entries"));
  CHECK(first_word(c.cache({"ls", "--sort", "size"}).out, 1) == std::string(kText).substr(0, 12));
  CHECK(first_word(c.cache({"ls", "--sort", "target"}).out, 3) ==
        std::string(kPlain).substr(0, 12));
  CHECK(c.cache({"ls", "--sort", "colour"}).code == 2);

  const json j = c.cache_json({"ls"});
  CHECK(j["schema"] == "hstu-jit/cache-ls/1");
  CHECK(j["bytes"] == 374 + 626 + 285);
  REQUIRE(j["entries"].size() == 3);
  CHECK(j["entries"][1]["path"] == c.plain);
  CHECK(j["entries"][1]["target"] == "gfx90a");
  CHECK(j["entries"][1]["bytes"] == 374);
  CHECK(j["entries"][1]["last_use"] <= std::time(nullptr) - 3 * kHour);
}

TEST_CASE("cache info shows ingredients and metadata, and nothing that steers a terminal") {
  const Cache c;
  const Outcome o = c.cache({"info", std::string(kPlain).substr(0, 8)});
  INFO(o.out << o.err);
  CHECK(o.code == 0);
  for (const char* words : {"target", "gfx90a", "-O3", "source", "3 lines", R"({"entry":"f"})"}) {
    CHECK_THAT(o.out, ContainsSubstring(words));
  }
  const Outcome odd = c.cache({"info", kText});
  CHECK(odd.code == 0);
  CHECK(odd.out.find('\x01') == std::string::npos);
  CHECK(odd.out.find('\x1f') == std::string::npos);
  const json j = c.cache_json({"info", std::string(kPlain).substr(0, 64)});
  CHECK(j["entries"][0]["ingredients"]["options"] == "-O3");

  check_refused(c.cache({"info", "0123"}), 1, {"no entry", "0123"});
  check_refused(c.cache({"info", ""}), 2, {"more digits"});
  CHECK(c.cache({"info"}).code == 2);
}

TEST_CASE("cache verify finds damage, puts it away and exits with 1") {
  Cache c;
  Outcome o = c.cache({"verify"});
  INFO(o.out << o.err);
  CHECK(o.code == 0);
  CHECK_THAT(o.out, ContainsSubstring("3 good, 0 damaged"));
  const std::string future = c.put("v2-future.hko", std::string(64, 'a') + ".aaaaaaaaaaaa.hko", 0);
  fs::resize_file(c.text, 625);
  fs::remove(c.empty);
  fs::copy_file(c.plain, c.empty);  // the entry of another key
  const json j = c.cache_json({"verify"}, 1);
  CHECK(j["good"] == 1);
  CHECK(j["damaged"] == 2);
  CHECK(j["not_ours"] == 1);
  REQUIRE(j["problems"].size() == 3);
  for (const json& problem : j["problems"]) {
    const bool is_future = problem["path"] == future;
    CHECK(problem["put_away"] == !is_future);
    CHECK(fs::exists(problem["path"].get<std::string>()) == is_future);
  }
  CHECK(fs::exists(c.cache_dir() + "/v1/quarantine/" + kText));
  CHECK(c.cache({"verify"}).code == 0);

  fs::resize_file(c.plain, 10);
  for (const char* mode : {"ro", "sealed"}) {  // found, and left as it is
    c.environment["HSTU_JIT_CACHE_MODE"] = mode;
    const json left = c.cache_json({"verify", "--remove"}, 1);
    CHECK(left["problems"][0]["put_away"] == false);
    CHECK(fs::exists(c.plain));
  }
  c.environment["HSTU_JIT_CACHE_MODE"] = "";
  CHECK(c.cache({"verify", "--remove"}).code == 1);
  CHECK_FALSE(fs::exists(c.plain));
  CHECK_FALSE(fs::exists(c.cache_dir() + "/v1/quarantine/" + kPlain));
}

TEST_CASE("cache gc trims to the size that is asked for, the longest unused first") {
  const Cache c;
  json j = c.cache_json({"gc"});
  CHECK(j["evicted"] == 0);
  CHECK(j["entries"] == 3);
  CHECK(j["limit"] == 2ull << 30);
  j = c.cache_json({"gc", "--max-size", "700"});
  CHECK(j["evicted"] == 1);
  CHECK(j["bytes"] == 374 + 285);
  CHECK_FALSE(fs::exists(c.text));
  check_refused(c.cache({"gc", "--max-size", "many"}), 2, {"--max-size", "many"});
  Cache limited;
  limited.environment["HSTU_JIT_CACHE_SIZE"] = std::string("300");
  CHECK(limited.cache({"gc"}).code == 0);
  CHECK(fs::exists(limited.empty));
  CHECK_FALSE(fs::exists(limited.plain));
  limited.environment["HSTU_JIT_CACHE_SIZE"] = std::string("0");
  CHECK(limited.cache_json({"gc"})["limit"].is_null());
  CHECK(limited.cache_json({"stats"})["counters"]["local.evicted"] == 2);
}

TEST_CASE("cache clear removes entries and nothing else, once it is told yes") {
  const Cache c;
  const std::string notes = fs::path(c.plain).parent_path() / "notes";
  REQUIRE(hstu::jit::write_file_atomic(notes, "mine").ok());
  REQUIRE(hstu::jit::write_file_atomic(c.cache_dir() + "/notes", "mine").ok());
  check_refused(c.cache({"clear"}), 2, {"3 entries", "--yes"});
  CHECK(fs::exists(c.plain));
  const json j = c.cache_json({"clear", "--yes"});
  CHECK(j["entries"] == 3);
  for (const std::string& path : {c.plain, c.text, c.empty}) CHECK_FALSE(fs::exists(path));
  CHECK(fs::exists(notes));
  CHECK(fs::exists(c.cache_dir() + "/notes"));
  CHECK(c.cache_json({"ls"})["entries"].empty());
}

TEST_CASE("cache path and stats; a folder that cannot be used is exit 8") {
  Cache c;
  Outcome o = c.cache({"path"});
  CHECK(o.code == 0);
  CHECK(o.out == c.cache_dir() + "\n");
  CHECK(c.cache_json({"path"})["why"] == "given");

  CHECK_THAT(c.cache({"stats"}).out, ContainsSubstring("nothing was counted yet"));
  o = c.run({"compile", "-", "--target", "cpu", "-o", c.folder() + "/object"}, kSmallSpec);
  INFO(o.err);
  REQUIRE(o.code == 0);
  CHECK(c.run({"compile", "-", "--target", "cpu", "-o", c.folder() + "/object"}, kSmallSpec).code ==
        0);
  json j = c.cache_json({"stats"});
  CHECK(j["counters"]["local.miss.absent"] == 1);
  CHECK(j["counters"]["local.publish"] == 1);
  CHECK(j["counters"]["local.hit"] == 1);
  CHECK(j["entries"] == 4);
  CHECK(c.cache_json({"stats", "--zero"})["counters"].empty());

  const std::string file = c.file("file", "x");
  for (const char* command : {"ls", "verify", "gc", "path", "stats"}) {
    INFO(command);
    const Outcome bad = c.run({"cache", command, "--cache-dir", file});
    CHECK(bad.code == 8);
    CHECK_THAT(bad.err, ContainsSubstring(file));
    CHECK(c.run({"cache", command, "--cache-dir", file, "--json"}).code == 8);
  }
  CHECK(c.run({"cache", "ls", "--cache-dir", c.folder() + "/none"}).code == 8);
  CHECK_FALSE(fs::exists(c.folder() + "/none"));  // looking does not make it
  CHECK(c.cache({}).code == 2);
  for (const char* command : {"ls", "info", "verify", "gc", "clear", "path", "stats"}) {
    const Outcome help = c.cache({command, "--help"});
    CHECK(help.code == 0);
    CHECK_THAT(help.out, ContainsSubstring("Example: "));
  }
}

TEST_CASE("a cache in a folder with spaces, quotes and UTF-8, and without TMPDIR or HOME") {
  Program p;
  const std::string root = p.folder() + "/it's \"a\" cache/Grüße 中文";
  p.environment["TMPDIR"] = p.folder() + "/no such folder";
  p.environment["HOME"] = "";
  const std::vector<std::string> compile = {
      "compile", "-", "--target", "cpu", "-o", p.folder() + "/object", "--cache-dir", root};
  for (int round = 0; round < 2; ++round) {
    const Outcome o = p.run(compile, kSmallSpec);
    INFO(o.err);
    CHECK(o.code == 0);
  }
  const json j = json::parse(p.run({"cache", "stats", "--json", "--cache-dir", root}).out);
  CHECK(j["root"] == root);
  CHECK(j["counters"]["local.hit"] == 1);
  CHECK(p.run({"cache", "path", "--cache-dir", root}).out == root + "\n");
}
