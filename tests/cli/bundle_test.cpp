// SPDX-License-Identifier: Apache-2.0
// hstu-jit bundle as a user meets it.
#include "cache/bundle.hpp"

#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.hpp"
#include "cache/entry.hpp"
#include "catch.hpp"
#include "program.hpp"

using nlohmann::json;
using namespace hstu::cache;

namespace {

std::string entry(int i, size_t payload = 300) {
  Artifact made;
  made.ingredients = {{"target", "gfx90a"}, {"entry", "kernel_" + std::to_string(i)}};
  made.key = {request_digest(made.ingredients), std::string(64, 'c')};
  made.metadata = "{}";
  made.payload = std::string(payload, static_cast<char>('a' + i));
  return *encode_entry(made);
}

std::string bundle(const Program& p, const std::string& name, const std::vector<std::string>& list,
                   const char* producer = "test 1") {
  const std::string path = p.folder() + "/" + name;
  BundleNotes notes;
  notes.producer = producer;
  notes.requested = {R"({"target": "gfx90a"})"};
  notes.failed = {{"ranking/large", "gfx942", "no compiler"}};
  REQUIRE(write_bundle(path, list, notes).ok());
  return path;
}

std::string read(const std::string& path) { return *hstu::jit::read_file(path); }

void spoil(const std::string& path, const std::string& after) {
  std::string bytes = read(path);
  bytes[bytes.rfind(after)] ^= 1;
  REQUIRE(hstu::jit::write_file_atomic(path, bytes).ok());
}

}  // namespace

TEST_CASE("bundle ls names kernels, failures and the digest") {
  const Program p;
  const std::string path = bundle(p, "k.hjb", {entry(0), entry(1)});
  const std::string digest = Bundle::open(path)->digest();
  const Outcome text = p.run({"bundle", "ls", path});
  CHECK(text.code == 0);
  CHECK(text.err.empty());
  for (const std::string word : {"kernel_0", "kernel_1", "gfx90a", "2 kernels by test 1",
                                 "failed: ranking/large for gfx942: no compiler"})
    CHECK_THAT(text.out, ContainsSubstring(word));
  CHECK_THAT(text.out, ContainsSubstring("sha256:" + digest));
  const json j = json::parse(p.run({"bundle", "ls", path, "--json"}).out);
  CHECK(j["schema"] == "hstu-jit/bundle-ls/1");
  CHECK(j["digest"] == "sha256:" + digest);
  CHECK(j["entries"].size() == 2);
  CHECK(j["entries"][0]["size"] == entry(0).size());
  CHECK(j["failed"][0]["reason"] == "no compiler");
  CHECK(j["requested"][0]["target"] == "gfx90a");
  // To look is not to trust.
  REQUIRE(::chmod(path.c_str(), 0666) == 0);
  CHECK(p.run({"bundle", "ls", path}).code == 0);
}

TEST_CASE("bundle verify: digest, damage, trust and signatures have their words and code 8") {
  Program p;
  const std::string path = bundle(p, "k v.hjb", {entry(0), entry(1), entry(2)});
  const std::string digest = Bundle::open(path)->digest();
  const Outcome good = p.run({"bundle", "verify", path});
  CHECK(good.code == 0);
  CHECK_THAT(good.out, ContainsSubstring("good, 3 kernels, digest sha256:" + digest));
  CHECK(p.run({"bundle", "verify", path, "--digest", "sha256:" + digest}).code == 0);
  CHECK(p.run({"bundle", "verify", path, "--digest", digest}).code == 0);
  CHECK(p.run({"bundle", "verify", path + "@sha256:" + digest}).code == 0);
  check_refused(p.run({"bundle", "verify", path, "--digest", std::string(64, '0')}), 8,
                {path, "the pin says"});
  check_refused(p.run({"bundle", "verify", path, "--digest", "12"}), 2, {"64 hex digits"});
  check_refused(p.run({"bundle", "verify", path + "@sha256:" + digest, "--digest", digest}), 2,
                {"once"});
  check_refused(p.run({"bundle", "verify", p.folder() + "/none.hjb"}), 8, {"none.hjb", "No such"});
  check_refused(p.run({"bundle", "verify", p.file("no.hjb", std::string(2000, 'x'))}), 8,
                {"no.hjb", "not a bundle"});
  check_refused(p.run({"bundle", "verify", path, "--verify-command", "false {manifest}"}), 8,
                {path, "exit code 1"});
  check_refused(p.run({"bundle", "verify", path, "--verify-command", "true"}), 2, {"{manifest}"});
  check_refused(p.run({"bundle", "verify", path, "--verify-command", "sleep 60 {manifest}",
                       "--verify-timeout", "1"}),
                8, {"exit code 1"});  // sleep takes no names
  check_refused(p.run({"bundle", "verify", path, "--verify-timeout", "1", "--verify-command",
                       "sh -c 'sleep 60' {manifest}"}),
                8, {"no answer within 1 s"});
  CHECK(p.run({"bundle", "verify", path, "--verify-timeout", "0"}).code == 2);
  const std::string check =
      p.file("my check", "#!/bin/sh\ntest -s \"$1\" && test -s \"$2\"\n", true);
  const Outcome accepted =
      p.run({"bundle", "verify", path, "--verify-command", "'" + check + "' {manifest} {bundle}"});
  CHECK(accepted.code == 0);
  CHECK_THAT(accepted.out, ContainsSubstring("accepted by the verify command"));
  p.environment["HSTU_JIT_BUNDLE_VERIFY"] = "false {manifest}";
  CHECK(p.run({"bundle", "verify", path}).code == 8);
  CHECK(p.run({"bundle", "install", path}).code == 8);
  p.environment["HSTU_JIT_BUNDLE_VERIFY"] = "";

  REQUIRE(::chmod(path.c_str(), 0666) == 0);
  check_refused(p.run({"bundle", "verify", path}), 8, {path, "others may write", "pin"});
  CHECK(p.run({"bundle", "verify", path, "--digest", digest}).code == 0);
  REQUIRE(::chmod(path.c_str(), 0644) == 0);

  spoil(path, "aaaa");
  const Outcome bad = p.run({"bundle", "verify", path});
  CHECK(bad.code == 8);
  CHECK(bad.lines_err() == 1);
  CHECK_THAT(bad.err, ContainsSubstring("1 of 3 kernels damaged"));
  CHECK_THAT(bad.out, ContainsSubstring("SHA-256"));
  const json j = json::parse(p.run({"bundle", "verify", path, "--json"}).out);
  CHECK(j["good"] == false);
  CHECK(j["problems"].size() == 1);
  const json error =
      json::parse(p.run({"bundle", "verify", p.folder() + "/none.hjb", "--json"}).out);
  CHECK(error["error"]["kind"] == "cache");
}

TEST_CASE("bundle merge and diff") {
  const Program p;
  const std::string a = bundle(p, "a.hjb", {entry(0), entry(1)});
  const std::string b = bundle(p, "b.hjb", {entry(1), entry(2)});
  const std::string c = p.folder() + "/c.hjb";
  const Outcome merged = p.run({"bundle", "merge", a, b, "-o", c});
  INFO(merged.err);
  REQUIRE(merged.code == 0);
  CHECK_THAT(merged.out, ContainsSubstring("3 kernels"));
  CHECK(Bundle::open(c)->manifest().producer.rfind("hstu-jit ", 0) == 0);
  REQUIRE(p.run({"bundle", "merge", b, a, "-o", p.folder() + "/d.hjb"}).code == 0);
  CHECK(read(c) == read(p.folder() + "/d.hjb"));

  const Outcome same = p.run({"bundle", "diff", c, p.folder() + "/d.hjb"});
  CHECK(same.code == 0);
  CHECK(same.out.empty());
  const std::string other = bundle(p, "e.hjb", {entry(1, 301), entry(2)});
  const Outcome differ = p.run({"bundle", "diff", a, other});
  CHECK(differ.code == 1);
  CHECK(differ.err.empty());
  CHECK_THAT(differ.out, ContainsSubstring("< "));
  CHECK_THAT(differ.out, ContainsSubstring("> "));
  CHECK_THAT(differ.out, ContainsSubstring("! "));
  const json j = json::parse(p.run({"bundle", "diff", a, other, "--json"}).out);
  CHECK(j["only_a"][0]["name"] == "kernel_0");
  CHECK(j["only_b"][0]["name"] == "kernel_2");
  CHECK(j["differing"][0]["b"]["name"] == "kernel_1");
  const Outcome notes =
      p.run({"bundle", "diff", a, bundle(p, "f.hjb", {entry(0), entry(1)}, "test 2")});
  CHECK(notes.code == 1);
  CHECK_THAT(notes.out, ContainsSubstring("the kernels are the same"));

  const std::string m = p.folder() + "/m.hjb";
  check_refused(p.run({"bundle", "merge", a, other, "-o", m}), 8, {m, "other bytes", "--prefer"});
  CHECK_FALSE(std::filesystem::exists(m));
  REQUIRE(p.run({"bundle", "merge", a, other, "-o", m, "--prefer", "last"}).code == 0);
  CHECK(p.run({"bundle", "diff", m, other, "--json"}).out.find("\"differing\": []") !=
        std::string::npos);
  CHECK(p.run({"bundle", "merge", a, other, "-o", m, "--prefer", "newest"}).code == 2);
  CHECK(p.run({"bundle", "merge", a}).code == 2);
  check_refused(p.run({"bundle", "merge", a, p.folder() + "/none", "-o", m}), 8, {"none"});
  check_refused(p.run({"bundle", "merge", a, "-o", p.folder() + "/no/m.hjb"}), 8, {"no/m.hjb"});
  check_refused(p.run({"bundle", "diff", a, p.folder() + "/none"}), 8, {"none"});
}

TEST_CASE("bundle install fills the cache, entry by entry") {
  Program p;
  const std::string path = bundle(p, "k.hjb", {entry(0), entry(1), entry(2)});
  const Outcome first = p.run({"bundle", "install", path});
  INFO(first.err);
  REQUIRE(first.code == 0);
  CHECK_THAT(first.out, ContainsSubstring("3 kernels installed"));
  const auto opened = Bundle::open(path);
  const std::string digest = opened->digest();
  for (const BundleEntry& e : opened->manifest().entries) {
    const std::string file = p.cache_dir() + "/v1/" + entry_name(e.key);
    CHECK(std::filesystem::file_size(file) == e.size);
  }
  const json again = json::parse(p.run({"bundle", "install", path, "--json"}).out);
  CHECK(again["installed"] == 0);
  CHECK(again["present"] == 3);
  CHECK(p.run({"bundle", "install", path, "--digest", digest}).code == 0);
  check_refused(p.run({"bundle", "install", path, "--digest", std::string(64, '1')}), 8, {"pin"});

  spoil(path, "bbbb");
  const std::string fresh = p.folder() + "/fresh";
  const Outcome partial = p.run({"bundle", "install", path, "--cache-dir", fresh});
  CHECK(partial.code == 8);
  CHECK(partial.lines_err() == 1);
  CHECK_THAT(partial.out, ContainsSubstring("2 kernels installed"));
  CHECK_THAT(partial.out, ContainsSubstring("BAD"));
  CHECK_THAT(partial.err, ContainsSubstring("1 of 3 kernels"));
  p.environment["HSTU_JIT_CACHE_MODE"] = "ro";
  check_refused(p.run({"bundle", "install", path, "--cache-dir", fresh}), 8,
                {"HSTU_JIT_CACHE_MODE"});
}

TEST_CASE("bundle needs a command, and its help has examples") {
  const Program p;
  CHECK(p.run({"bundle"}).code == 2);
  CHECK(p.run({"bundle", "lss", "x"}).code == 2);
  CHECK_THAT(p.run({"bundle", "--help"}, "", false).out,
             ContainsSubstring("Example: hstu-jit bundle"));
  for (const char* command : {"ls", "verify", "merge", "diff", "install"}) {
    CHECK_THAT(p.run({"bundle", command, "--help"}, "", false).out,
               ContainsSubstring(std::string("Example: hstu-jit bundle ") + command));
    CHECK(p.run({"bundle", command}).code == 2);
  }
}
