// SPDX-License-Identifier: Apache-2.0
// What an emulated tensor map holds in place of the driver's encoding.
#pragma once

#include <cstring>

namespace emulator {

struct Map {
  unsigned short* base;
  long long extents[4];  // head_dim, tokens of a batch entry, heads, batch entries
  long long strides[3];  // of tokens, heads and batch entries, in elements
  int box_tokens;
};

inline Map map_in(const unsigned long long (&words)[16]) {
  Map map;
  static_assert(sizeof map <= sizeof words);
  std::memcpy(&map, words, sizeof map);
  return map;
}
inline void put(const Map& map, unsigned long long (&words)[16]) {
  std::memcpy(words, &map, sizeof map);
}

}  // namespace emulator
