// SPDX-License-Identifier: Apache-2.0
// How much of each block of pairs is visible, by region of the key: what long masks are drawn from.
// Costs rows + blocks, not pairs.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "spec/geometry.hpp"

namespace hstu::jit {

enum class Region { context = 0, history = 1, target = 2 };

inline Region query_region(const SequenceMask& m, int i, int context_len) {
  return i < context_len ? Region::context : i < m.rows ? Region::history : Region::target;
}
inline Region key_region(const SequenceMask& m, int j, int context_len) {
  return j < context_len ? Region::context : j < m.keys ? Region::history : Region::target;
}

// Row `block_row` of blocks of `block` x `block` pairs: visible pairs of each block, per region.
using BlockCounts = std::vector<std::array<int64_t, 3>>;

inline void add_interval(BlockCounts& counts, int block, Region region, int begin, int end) {
  for (int x = begin / block; begin < end; ++x) {
    const int stop = std::min(end, (x + 1) * block);
    counts[x][static_cast<int>(region)] += stop - begin;
    begin = stop;
  }
}

inline BlockCounts block_counts(const Geometry& geometry, const SequenceMask& m, int context_len,
                                int block, int block_row) {
  BlockCounts counts((int64_t{m.seqlen_kv} + block - 1) / block);
  const int last =
      static_cast<int>(std::min<int64_t>(m.seqlen_q, (int64_t{block_row} + 1) * block));
  const int edges[4] = {0, std::min(context_len, m.keys), m.keys, m.seqlen_kv};
  for (int i = block_row * block; i < last; ++i) {
    const RowKeys keys = row_keys(geometry.features, m, i);
    for (int region = 0; region < 3; ++region)
      add_interval(counts, block, static_cast<Region>(region), std::max(keys.begin, edges[region]),
                   std::min(keys.end, edges[region + 1]));
    if (keys.diagonal) add_interval(counts, block, Region::target, i, i + 1);
  }
  return counts;
}

}  // namespace hstu::jit
