// SPDX-License-Identifier: Apache-2.0
// The bytes of an entry.
#include "cache/entry.hpp"

#include "base/digest.hpp"
#include "helpers.hpp"

using namespace hstu::cache;
using namespace hstu::cache::test;

namespace {

// An entry of any header and payload whose digest is right: to reach the checks behind it.
std::string sealed(const std::string& header, const std::string& payload, uint32_t version = 1,
                   uint32_t flags = 0) {
  std::string start(kEntryMagic);
  const auto put = [&](uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) start.push_back(static_cast<char>(value >> (8 * i)));
  };
  put(version, 4);
  put(flags, 4);
  put(header.size(), 8);
  put(payload.size(), 8);
  return start + hstu::jit::sha256_hex(start + header + payload) + header + payload;
}

}  // namespace

TEST_CASE("an entry gives back what went in") {
  Artifact in = artifact("Grüße\n\"quoted\"\n", 'c',
                         std::string("\0\x7f"
                                     "ELF\xff",
                                     6));
  in.metadata = "";
  const auto bytes = encode_entry(in);
  REQUIRE(bytes.ok());
  const DecodedEntry out = decode_entry(*bytes);
  REQUIRE(out.fault == EntryFault::none);
  CHECK(out.artifact.key.request == in.key.request);
  CHECK(out.artifact.key.toolchain == in.key.toolchain);
  CHECK(out.artifact.ingredients == in.ingredients);
  CHECK(out.artifact.metadata == in.metadata);
  CHECK(out.artifact.payload == in.payload);
  CHECK(peek_ingredients(*bytes) == in.ingredients);
}

TEST_CASE("the layout is the one of the format page") {
  const Artifact in = artifact();
  const std::string bytes = *encode_entry(in);
  CHECK(bytes.substr(0, 8) == "hstu-ko\n");
  CHECK(bytes.substr(8, 8) == std::string("\1\0\0\0\0\0\0\0", 8));
  CHECK(bytes[24] == 7);  // length of "payload"
  CHECK(bytes.substr(bytes.size() - 7) == "payload");
  CHECK(bytes[96] == '{');
  const std::string covered = bytes.substr(0, 32) + bytes.substr(96);
  CHECK(bytes.substr(32, 64) == hstu::jit::sha256_hex(covered));
}

TEST_CASE("every cut and every changed byte is noticed") {
  const std::string good = *encode_entry(artifact());
  for (size_t length = 0; length < good.size(); ++length) {
    CHECK(decode_entry(good.substr(0, length)).fault != EntryFault::none);
    CHECK(peek_ingredients(good.substr(0, length)).size() <= 3);  // and does not crash
  }
  CHECK(decode_entry(good + "x").fault == EntryFault::corrupt);
  for (size_t at = 0; at < good.size(); ++at) {
    for (int bit : {0, 7}) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
      const DecodedEntry decoded = decode_entry(bad);
      const bool version = at >= 8 && at < 12;
      CHECK(decoded.fault == (version ? EntryFault::other_version : EntryFault::corrupt));
      CHECK_FALSE(decoded.problem.empty());
    }
  }
}

TEST_CASE("headers that are sealed but wrong are refused") {
  const Artifact good = artifact();
  const std::string bytes = *encode_entry(good);
  const std::string header = bytes.substr(96, bytes.size() - 96 - 7);
  CHECK(decode_entry(sealed(header, "payload")).fault == EntryFault::none);
  CHECK(decode_entry(sealed(header, "payload", 2)).fault == EntryFault::other_version);
  CHECK(decode_entry(sealed(header, "payload", 1, 1)).fault == EntryFault::corrupt);
  for (const char* text : {"", "{}", "[]", "null", "{", "\"x\"", "{\"request\":1}"}) {
    CHECK(decode_entry(sealed(text, "payload")).fault == EntryFault::corrupt);
  }
  CHECK(decode_entry(sealed(std::string(100000, '['), "")).fault == EntryFault::corrupt);
  // Unknown members are ignored, but not at any depth: the rest of this header is good.
  const auto with = [&](size_t levels) {
    return header.substr(0, header.rfind('}')) + ",\"x\":" + std::string(levels, '[') + "\"]\"" +
           std::string(levels, ']') + "}\n";
  };
  CHECK(decode_entry(sealed(with(60), "payload")).fault == EntryFault::none);
  CHECK_THAT(decode_entry(sealed(with(64), "payload")).problem, ContainsSubstring("too deeply"));
  std::string other = header;  // an ingredient that the key was not made of
  other.replace(other.find("gfx90a"), 6, "gfx942");
  CHECK_THAT(decode_entry(sealed(other, "payload")).problem, ContainsSubstring("ingredients"));
}

TEST_CASE("artifacts that break the rules are not stored") {
  Artifact bad = artifact();
  bad.key.toolchain = "short";
  CHECK_FALSE(encode_entry(bad).ok());
  bad = artifact();
  bad.key.request[0] = bad.key.request[0] == '0' ? '1' : '0';
  CHECK_FALSE(encode_entry(bad).ok());
  bad = artifact("\xff\xfe");
  CHECK_THAT(encode_entry(bad).error().message, ContainsSubstring("UTF-8"));
}

TEST_CASE("the request digest separates names, texts and order") {
  const std::string base = request_digest({{"a", "bc"}, {"d", "e"}});
  CHECK(base.size() == 64);
  CHECK(base == request_digest({{"a", "bc"}, {"d", "e"}}));
  CHECK(base != request_digest({{"ab", "c"}, {"d", "e"}}));
  CHECK(base != request_digest({{"d", "e"}, {"a", "bc"}}));
  CHECK(base != request_digest({{"a", "bc"}}));
  CHECK(base != request_digest({{"a", "bc"}, {"d", "e"}, {"", ""}}));
}
