// SPDX-License-Identifier: Apache-2.0
// Shared memory of the kernels for sm_90a and how they cut sequences into tiles, for the kernel and
// for the plan that asks for the one and counts the other.
#pragma once

#include "base/types.h"

namespace hstu {

constexpr int kHopperTileSlots = 4;     // described tiles: the one under way and the next ones
constexpr int kHopperTileBytes = 288;   // of a description
constexpr int kHopperSharedGroups = 2;  // of 64 rows, at most, of a tile that two workgroups share
constexpr int kHopperWrittenRows = 16;  // that the copy engine writes at once: those of a warp
constexpr int kHopperApartKeys = 80;    // of a step where warpgroups are apart

// Bytes to give at launch: q_buffers query tiles of tile_m rows and `stages` steps of tile_n keys
// and values, in panels of 64 columns of 128-byte rows; descriptions; barriers of 8 bytes; and room
// to align the start to 1024.
HSTU_HOST_DEVICE constexpr int hopper_shared_bytes(int tile_m, int tile_n, int head_dim_qk,
                                                   int head_dim_v, int stages, int q_buffers) {
  const int qk_panels = ceil_div(head_dim_qk, 64), v_panels = ceil_div(head_dim_v, 64);
  return q_buffers * tile_m * 128 * qk_panels + stages * tile_n * 128 * (qk_panels + v_panels) +
         kHopperTileSlots * kHopperTileBytes +
         8 * (2 * q_buffers * (tile_m / 64) + 4 * stages + 2 * kHopperTileSlots + 2 +
              2 * (tile_m / 64)) +
         1024;
}

// Whether warpgroups are apart: each loads the keys of its own 64 rows and waits for no other.
// Under a window this narrow they fit one step, but for some beside target rows: where these are
// many, own keys take a second one, and rows that are not causal see all targets. No row may see
// further.
HSTU_HOST_DEVICE constexpr bool hopper_apart(bool causal, int window) {
  return window > 0 && window <= (kHopperApartKeys - 64) / (causal ? 1 : 2);
}

// Whether a tile's output fits the memory of its queries, both in panels of 64 columns.
HSTU_HOST_DEVICE constexpr bool hopper_output_fits_queries(int head_dim_qk, int head_dim_v) {
  return ceil_div(head_dim_v, 64) <= ceil_div(head_dim_qk, 64);
}

// Whether two workgroups can share a tile's keys: each then writes half of the columns, of which
// the other sends its sums into the memory of the queries. Maxima and sums of softmax go where
// queries of a third group of rows would be. Tiles of one step have nothing to share.
HSTU_HOST_DEVICE constexpr bool hopper_shares_tiles(bool apart, bool softmax, int head_dim_qk,
                                                    int head_dim_v, int tile_m) {
  return !apart && head_dim_v % 64 == 0 && head_dim_v <= 128 &&
         hopper_output_fits_queries(head_dim_qk, head_dim_v) &&
         (!softmax || tile_m > 64 * kHopperSharedGroups);
}

// Groups of 64 rows of a sequence's first tile that do not exist, of a tile's `groups`. Where tiles
// do not divide a sequence the first one is short, not the last: causal rows see few keys there,
// and one warpgroup alone is slow. Unless it could not hold all contextual rows, which see all
// keys.
HSTU_HOST_DEVICE constexpr int hopper_missing_groups(int rows, int context, int groups) {
  const int exist = ceil_div(rows, 64);
  const int spare = ceil_div(exist, groups) * groups - exist;
  return context > 64 * (groups - spare) ? 0 : spare;
}

}  // namespace hstu
