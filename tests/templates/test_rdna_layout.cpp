// SPDX-License-Identifier: Apache-2.0
// Where RDNA kernels put K and V^T in LDS: every byte once, and reads that meet no bank twice.
#include <algorithm>
#include <vector>

#include "catch.hpp"
#include "tile/rdna_layout.h"

using namespace hstu::rdna;

namespace {

// Cycles over the least possible of one 16-byte read of a wave, lane l at byte at(l). Lanes of the
// wave's halves may ask for the same bytes.
template <class At>
double conflicts(bool crossed, At at) {
  constexpr int kCrossed[4][8] = {{0, 1, 2, 3, 20, 21, 22, 23},
                                  {4, 5, 6, 7, 16, 17, 18, 19},
                                  {8, 9, 10, 11, 28, 29, 30, 31},
                                  {12, 13, 14, 15, 24, 25, 26, 27}};
  int cycles = 0;
  for (int phase = 0; phase < 4; ++phase) {
    std::vector<int> columns[8];  // different lines asked of each
    for (int i = 0; i < 8; ++i) {
      const int byte = at(crossed ? kCrossed[phase][i] : 8 * phase + i);
      auto& lines = columns[byte / 16 % 8];
      if (std::find(lines.begin(), lines.end(), byte / 128) == lines.end())
        lines.push_back(byte / 128);
    }
    size_t most = 1;
    for (const auto& lines : columns) most = std::max(most, lines.size());
    cycles += static_cast<int>(most);
  }
  return cycles / 4.0;
}

bool all_different(std::vector<int> bytes, int total) {
  std::sort(bytes.begin(), bytes.end());
  return std::adjacent_find(bytes.begin(), bytes.end()) == bytes.end() && bytes.front() >= 0 &&
         bytes.back() < total;
}

template <int chunks, int tile_n>
void check_k() {
  using K = KLayout<chunks, tile_n>;
  INFO("K: " << chunks << " chunks, " << tile_n << " keys");
  const auto at = [](int row, int c) { return (K::base(row) ^ K::twist(c)) + K::shift(c); };
  std::vector<int> bytes;
  for (int row = 0; row < tile_n; ++row)
    for (int c = 0; c < chunks; ++c) bytes.push_back(at(row, c));
  CHECK(all_different(bytes, K::bytes));
  for (int row = 0; row + 16 < tile_n; ++row)
    CHECK(at(row + 16, 1) == (at(row, 1) ^ K::row_twist(16)) + K::row_shift(16));
  const bool crossed_too = chunks % 4 == 0;  // of other dims, gfx12 reads conflict in that order
  for (int c = 0; c < chunks; c += 2)
    for (const bool crossed : {false, true}) {
      CHECK(conflicts(crossed, [&](int l) { return at(l % 16, c); }) == 1);
      if (!crossed || crossed_too)
        CHECK(conflicts(crossed, [&](int l) { return at(l % 16, c + l / 16); }) == 1);
    }
}

template <int tile_n, bool split>
void check_v() {
  constexpr int tiles = 5;
  using V = VLayout<tiles, tile_n, split>;
  INFO("V: " << tile_n << " keys, " << (split ? "gfx12" : "gfx11"));
  const auto at = [](int tile, int upper, int d, int chunk) {
    return (V::base(tile, upper, chunk) ^ V::twist(d)) + d * V::d_shift;
  };
  std::vector<int> bytes;
  for (int t = 0; t < tiles; ++t)
    for (int upper = 0; upper < 2; ++upper)
      for (int d = 0; d < 8; ++d)
        for (int c = 0; c < tile_n / 8; ++c) {
          bytes.push_back(at(t, upper, d, c));
          // As the reading side gets there from tile 0, chunk 0.
          CHECK(bytes.back() ==
                (at(0, upper, d, 0) ^ V::chunk_twist(c) ^ V::tile_twist(t)) + V::tile_shift(t));
        }
  CHECK(all_different(bytes, V::bytes));
  for (int t = 0; t < tiles; ++t)
    for (int c = 0; c < tile_n / 8; c += 2)
      for (const bool crossed : {false, true})
        CHECK(conflicts(crossed, [&](int l) {
                const int m = l % 16;
                return at(t, split ? m / 8 : m % 2, split ? m % 8 : m / 2,
                          c + (split ? l / 16 : 0));
              }) == 1);
}

}  // namespace

TEST_CASE("rdna layout: K", "[rdna]") {
  check_k<2, 64>();
  check_k<6, 32>();
  check_k<8, 64>();
  check_k<10, 32>();
  check_k<12, 32>();
  check_k<16, 32>();
  check_k<16, 16>();
  check_k<24, 16>();
  check_k<32, 16>();
}

TEST_CASE("rdna layout: V", "[rdna]") {
  check_v<16, false>();
  check_v<32, false>();
  check_v<64, false>();
  check_v<16, true>();
  check_v<32, true>();
  check_v<64, true>();
}

TEST_CASE("rdna layout: the count notices rows that start in one bank", "[rdna]") {
  CHECK(conflicts(false, [](int l) { return l % 16 * 256; }) == 8);
  CHECK(conflicts(true, [](int l) { return l % 16 * 128 + l % 2 * 16; }) == 4);
}
