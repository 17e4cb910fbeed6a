// SPDX-License-Identifier: Apache-2.0
// Which rows a validation looks at.
#include <algorithm>

#include "check/check.hpp"

namespace hstu::jit {
namespace {

// A well-mixed 64-bit number for (a, b): samples need no more randomness than that.
uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t z = a * 0x9e3779b97f4a7c15 + b + 0x632be59bd9b4e019;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

// Both sides of every place where the mask changes its form.
void add_mask_edges(const Geometry& geometry, int64_t b, std::vector<int64_t>& rows) {
  const SequenceMask m = geometry.mask_of(b);
  const int64_t given_context = geometry.groups[geometry.sequences[b].group].context_len;
  std::vector<int64_t> edges = {m.context,    given_context, m.rows,
                                m.wide_begin, -m.shift,      m.context - int64_t{m.shift}};
  if (m.local) {
    edges.push_back(int64_t{m.window} - m.shift + 1);          // leaves key 0
    edges.push_back(int64_t{m.window} + m.context - m.shift);  // leaves the context block
    edges.push_back(int64_t{m.rows} - m.window);               // reaches the targets
  }
  for (int64_t edge : edges) rows.insert(rows.end(), {edge - 1, edge, edge + 1});
}

void add_tile_edges(int64_t seqlen, int64_t tile_m, int64_t b, int32_t h,
                    std::vector<int64_t>& rows) {
  constexpr int64_t kMost = 16;
  const int64_t tiles = (seqlen + tile_m - 1) / tile_m;
  const auto start = static_cast<int64_t>(mix(b, h) >> 1);
  for (int64_t n = 0; n < std::min(tiles, kMost); ++n) {
    const int64_t tile = tiles <= kMost ? n : (start % tiles + n * tiles / kMost) % tiles;
    // Cut from the first row, or, by kernels whose first tile is the short one, from the last.
    const int64_t shift = tile_m % 64 == 0 ? tiles * tile_m - (seqlen + 63) / 64 * 64 : 0;
    for (const int64_t row : {tile * tile_m, tile * tile_m - shift})
      rows.insert(rows.end(), {row, row + tile_m - 1});
  }
}

// One token in each of `count` equal parts of all tokens; those of this sequence are kept.
void add_samples(const Geometry& geometry, int64_t count, int64_t b, int32_t h,
                 std::vector<int64_t>& rows) {
  const Geometry::Sequence& sequence = geometry.sequences[b];
  const int64_t tokens = geometry.tokens_q;
  const auto part_begin = [&](int64_t n) { return n * tokens / count; };  // both below 2^31
  int64_t n = std::max<int64_t>(sequence.first_q * count / tokens - 1, 0);
  for (; n < count && part_begin(n) < sequence.first_q + sequence.seqlen_q; ++n) {
    const int64_t size = part_begin(n + 1) - part_begin(n);
    rows.push_back(part_begin(n) + static_cast<int64_t>(mix(n, h) % size) - sequence.first_q);
  }
}

}  // namespace

std::vector<int32_t> rows_to_check(const Problem& problem, const Geometry& geometry, int64_t b,
                                   int32_t h, int tile_m) {
  const int64_t seqlen = geometry.sequences[b].seqlen_q;
  std::vector<int64_t> rows;
  if (problem.validate.rows <= 0 || problem.validate.rows >= geometry.tokens_q) {
    for (int64_t i = 0; i < seqlen; ++i) rows.push_back(i);
  } else {
    rows = {0, seqlen - 1};
    add_mask_edges(geometry, b, rows);
    if (tile_m > 0) add_tile_edges(seqlen, tile_m, b, h, rows);
    add_samples(geometry, problem.validate.rows, b, h, rows);
  }
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  std::vector<int32_t> inside;
  for (int64_t i : rows)
    if (i >= 0 && i < seqlen) inside.push_back(static_cast<int32_t>(i));
  return inside;
}

}  // namespace hstu::jit
