// SPDX-License-Identifier: Apache-2.0
// libFuzzer: any bytes as a cache entry, as a counter file and as a name in the cache folder.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/digest.hpp"
#include "cache/entry.hpp"
#include "cache/names.hpp"
#include "cache/statistics.hpp"

namespace {

void check(const std::string& bytes) {
  const hstu::cache::DecodedEntry decoded = hstu::cache::decode_entry(bytes);
  if ((decoded.fault == hstu::cache::EntryFault::none) != decoded.problem.empty()) std::abort();
  if (decoded.fault == hstu::cache::EntryFault::none) {
    // What was accepted is what the writer writes.
    const auto again = hstu::cache::encode_entry(decoded.artifact);
    if (!again.ok()) std::abort();
    const hstu::cache::DecodedEntry back = hstu::cache::decode_entry(*again);
    if (back.artifact.payload != decoded.artifact.payload) std::abort();
    if (back.artifact.ingredients != decoded.artifact.ingredients) std::abort();
  }
  (void)hstu::cache::peek_ingredients(bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  check(bytes);
  const hstu::cache::Counters counters = hstu::cache::read_counters(bytes);
  if (hstu::cache::read_counters(hstu::cache::write_counters(counters)) != counters) std::abort();
  std::string request, toolchain;
  if (hstu::cache::parse_entry_name(bytes, &request, &toolchain) &&
      request + "." + toolchain + ".hko" != bytes) {
    std::abort();
  }
  (void)hstu::cache::parse_size(bytes);
  // The digest keeps random bytes from the checks behind it: the same bytes as a sealed header, all
  // but the last one, whose value is the length of a payload.
  if (size == 0) return 0;
  const size_t payload = data[size - 1] % size;
  std::string start(hstu::cache::kEntryMagic);
  for (uint64_t value :
       {uint64_t{hstu::cache::kEntryVersion}, uint64_t{size - 1 - payload}, uint64_t{payload}}) {
    for (int i = 0; i < 8; ++i) start.push_back(static_cast<char>(value >> (8 * i)));
  }
  const std::string rest = bytes.substr(0, size - 1);
  check(start + hstu::jit::sha256_hex(start + rest) + rest);
  return 0;
}
