// SPDX-License-Identifier: Apache-2.0
// The bytes of one cache entry: see FORMAT.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "cache/store.hpp"

namespace hstu::cache {

inline constexpr std::string_view kEntryMagic{"hstu-ko\n", 8};
inline constexpr uint32_t kEntryVersion = 1;
inline constexpr size_t kEntryPrefix = 96;  // magic, version, flags, two lengths, digest in hex
inline constexpr uint64_t kMaxHeader = uint64_t{64} << 20;
inline constexpr uint64_t kMaxPayload = uint64_t{1} << 30;

// 64 lower-case hex digits.
bool is_digest(std::string_view text);

// Whether lists and objects of a JSON text stand in one another more than `levels` deep: such a
// text takes far more memory as a tree. The text may be anything.
bool nested_deeper(std::string_view json, size_t levels);

// Errors: kCache when the artifact breaks a rule of the format (a key that is no digest of the
// ingredients, text that is not UTF-8, too large).
hstu::jit::Result<std::string> encode_entry(const Artifact& artifact);

enum class EntryFault { none, other_version, corrupt };

struct DecodedEntry {
  EntryFault fault = EntryFault::none;
  std::string problem;  // one line when there is a fault
  Artifact artifact;    // whole when there is none
};

// Every byte is checked; never fails otherwise than by a fault, whatever the bytes are.
DecodedEntry decode_entry(std::string_view bytes);

// Ingredients alone, from the first bytes of an entry (the payload may be missing and the digest is
// not checked: good for explanations only). Empty when they cannot be read.
Ingredients peek_ingredients(std::string_view bytes);
// The same with the metadata; false when they cannot be read.
bool peek_header(std::string_view bytes, Ingredients* ingredients, std::string* metadata);

}  // namespace hstu::cache
