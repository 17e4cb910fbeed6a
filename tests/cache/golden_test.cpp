// SPDX-License-Identifier: Apache-2.0
// Entries that were written once, by tests/data/cache/make_golden.py and not by this library, stay
// readable, and the same artifact still becomes the same bytes.
#include <sys/stat.h>

#include "base/digest.hpp"
#include "cache/entry.hpp"
#include "helpers.hpp"

using namespace hstu::cache;
using namespace hstu::cache::test;

namespace {

std::string golden(const std::string& name) {
  auto bytes = hstu::jit::read_file(std::string(HSTU_TEST_DATA) + "/cache/" + name);
  REQUIRE(bytes.ok());
  return std::move(*bytes);
}

Artifact made_of(Ingredients ingredients, std::string toolchain, std::string metadata,
                 std::string payload) {
  const std::string request = request_digest(ingredients);
  return {{request, std::move(toolchain)},
          std::move(ingredients),
          std::move(metadata),
          std::move(payload)};
}

struct Golden {
  const char* file;
  Artifact artifact;
  const char* sha256;  // of the file: a golden file that changes is noticed here
};

std::vector<Golden> version_1() {
  std::string all_bytes, toolchain;
  for (int i = 0; i < 256; ++i) all_bytes.push_back(static_cast<char>(i));
  for (int i = 0; i < 4; ++i) toolchain += "0123456789abcdef";
  return {{"v1-plain.hko",
           made_of({{"target", "gfx90a"}, {"options", "-O3"}, {"source", "kernel\nbody\n"}},
                   std::string(64, 'c'), R"({"entry":"f"})", "payload"),
           "da348b7b2b529440b2d6883257c133016be21b60c10bc826327aea33aaeec3d2"},
          {"v1-text.hko",
           made_of({{"Grüße", "a \"quoted\" \\ text\twith\x01\x1f\x7f controls\r\n"},
                    {"", "中文 🙂"}},
                   toolchain, "", all_bytes),
           "82fa4b197ffbe47bf0b23f70d8b499d29b0e9d09e98b37c7c86c3b4c35af0a1b"},
          {"v1-empty.hko", made_of({}, std::string(64, '0'), "", ""),
           "ea26d4a8612ba7e46269c703ca3fd7191580718b13f41b37c44c72a104aae2ad"}};
}

}  // namespace

TEST_CASE("golden entries of version 1 decode, and encode to the same bytes") {
  for (const Golden& g : version_1()) {
    INFO(g.file);
    const std::string bytes = golden(g.file);
    CHECK(hstu::jit::sha256_hex(bytes) == g.sha256);
    const DecodedEntry decoded = decode_entry(bytes);
    REQUIRE(decoded.fault == EntryFault::none);
    CHECK(decoded.artifact.key.request == g.artifact.key.request);
    CHECK(decoded.artifact.key.toolchain == g.artifact.key.toolchain);
    CHECK(decoded.artifact.ingredients == g.artifact.ingredients);
    CHECK(decoded.artifact.metadata == g.artifact.metadata);
    CHECK(decoded.artifact.payload == g.artifact.payload);
    const auto encoded = encode_entry(g.artifact);
    REQUIRE(encoded.ok());
    CHECK(*encoded == bytes);
  }
}

TEST_CASE("a golden entry that another program copied into a cache is a hit") {
  const auto dir = folder();
  const Store store = open_store(dir.path());
  const Golden g = version_1().front();
  const fs::path path = store.entry_path(g.artifact.key);
  fs::create_directories(path.parent_path());
  fs::copy_file(std::string(HSTU_TEST_DATA) + "/cache/" + g.file, path);
  fs::permissions(path, fs::perms(0644));
  CHECK(store.lookup(g.artifact.key).artifact.payload == g.artifact.payload);
}

TEST_CASE("a golden entry of a later version is a miss with a reason and stays where it is") {
  const auto dir = folder();
  const Store store = open_store(dir.path());
  const std::string bytes = golden("v2-future.hko");
  CHECK(hstu::jit::sha256_hex(bytes) ==
        "f06ed32960b81deece0bfbdd26e9262f04dc499a04024a7ec07adb39296f981d");
  CHECK(decode_entry(bytes).fault == EntryFault::other_version);
  const Key key = artifact().key;
  const std::string path = store.entry_path(key);
  fs::create_directories(fs::path(path).parent_path());
  REQUIRE(hstu::jit::write_file_atomic(path, bytes).ok());
  const Lookup missed = store.lookup(key);
  CHECK_FALSE(missed.hit);
  CHECK(missed.reason == MissReason::unreadable);
  CHECK_THAT(missed.explanation, ContainsSubstring("format version 2"));
  CHECK(*hstu::jit::read_file(path) == bytes);
  CHECK(count_files(dir.path() + "/v1/quarantine") == 0);
}
