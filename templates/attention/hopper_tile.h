// SPDX-License-Identifier: Apache-2.0
// A query tile of the Hopper kernel, worked out once by the scheduling warp for all others: its
// place, its mask, and the steps of keys that its rows need.
#pragma once

#include "attention/arguments.h"
#include "attention/hopper_schedule.h"
#include "base/types.h"
#include "mask/mask.h"
#include "tile/hopper_machine.h"

namespace hstu {

// What the scheduling warp tells the others about a tile, in shared memory, in groups of words that
// are read together.
struct HopperTile {
  struct alignas(16) Steps {
    int count;                       // -1: no tile is left
    int diagonal_count;              // the last of them hold target rows' own keys
    int diagonal_begin, main_begin;  // first key of either part; steps run upwards from it
  } steps;
  struct alignas(16) Place {
    int batch, head;
    int first_row;  // within the sequence; below 0 where its first groups of 64 do not exist
    float attn_scale;
  } place;
  struct alignas(16) Tokens {
    int first_q, first_kv;  // tokens the sequence begins at (jagged), 0 (batched)
    int unused[2];
  } tokens;
  struct alignas(16) Mask {
    SequenceMask mask;
  } mask;
  // For each 64 rows: the keys seen, where half a step may do.
  struct alignas(16) Rows {
    int begin, end, diagonal_begin, diagonal_end;
  } rows[3];
  // For the same rows: the steps [full_first, full_end) that need no mask, those of which something
  // is seen, and those that hold target rows' own keys.
  struct alignas(16) Needed {
    int full_first, full_end;
    int seen_first, seen_end;
    int own_first, own_end;
    int few;     // whether some row may see but a few keys
    int exists;  // how many of the rows do
  } needed[3];
  // For the same rows: the keys that all of them see, where a step has clean halves; where
  // warpgroups are apart, their own steps.
  struct alignas(16) Common {
    int begin, end;
    int unused[2];
  };
  union {
    Common common[3];
    Steps own_steps[3];
  };
};

// The first key of a step.
template <class C>
HSTU_DEVICE int first_key(const HopperTile::Steps& t, int step) {
  const int own = step - (t.count - t.diagonal_count);
  return own >= 0 ? t.diagonal_begin + own * C::tile_n : t.main_begin + step * C::tile_n;
}

// All 32 lanes call; lane g works out the keys of warpgroup g's rows, lane 3 those of the tile.
// Where warpgroups are apart each lane's steps are its own rows', which need all of them.
template <class C>
HSTU_DEVICE void describe(HopperTile& t, const ForwardArguments& a, const TileName& name,
                          HopperCut<C> cut, int lane) {
  constexpr MaskFeatures features{C::causal,  C::cross,   C::local,
                                  C::context, C::minfull, C::targets};
  GroupArguments group = a.uniform;
  if (C::grouped) group = a.groups[name.batch / a.batches_per_group];
  const int context = C::context ? group.context_len : 0;
  const int first_row = 64 * (name.tile * cut.groups() - cut.missing(name.seqlen_q, context));
  const SequenceMask mask = resolve_mask(features, name.seqlen_q, name.seqlen_kv, name.targets,
                                         group.local_len, group.context_len, group.minfull_len);
  const int row = lane < 3 ? first_row + 64 * lane : first_row;
  const int rows = lane >= 3 ? 64 * cut.groups() : lane < cut.groups() ? 64 : 0;
  const TileKeys keys = tile_keys(features, mask, max_of(row, 0), row + rows);
  const auto of_tile = [](int x) { return C::apart ? x : hopper::of_lane(x, 3); };
  const int begin = of_tile(keys.begin), end = of_tile(keys.end);
  // Steps start at multiples of 64, so that a warpgroup's own rows and keys meet in half steps.
  const auto start = [](int key) { return C::apart ? key : key / 64 * 64; };
  const int main_begin = start(begin);
  const int main_count = end > begin ? ceil_div(end - main_begin, C::tile_n) : 0;
  int diagonal_begin = 0, diagonal_count = 0;
  if (C::targets && !C::cross) {
    const int own = of_tile(keys.diagonal_begin), own_end = of_tile(keys.diagonal_end);
    if (own_end > own) {
      const int covered = main_count > 0 ? main_begin + main_count * C::tile_n : 0;
      diagonal_begin = max_of(start(own), covered);
      diagonal_count = max_of(0, ceil_div(own_end - diagonal_begin, C::tile_n));
    }
  }
  const int count = main_count + diagonal_count;
  const int full_first = ceil_div(max_of(keys.full_begin - main_begin, 0), C::tile_n);
  const int full_end =
      max_of(max_of(min_of(keys.full_end - main_begin, main_count * C::tile_n), 0) / C::tile_n,
             full_first);
  if (lane < C::waves / 4 - 1) {
    HopperTile::Needed needed{full_first, full_end, 0, 0, 0, 0, 0, 0};
    if (keys.end > keys.begin) {
      needed.seen_first = (keys.begin - main_begin) / C::tile_n;
      needed.seen_end = ceil_div(keys.end - main_begin, C::tile_n);
    }
    if (keys.diagonal_end > keys.diagonal_begin) {
      const int covered = main_begin + main_count * C::tile_n;
      const auto step_of = [&](int key) {
        return key < covered ? (key - main_begin) / C::tile_n
                             : main_count + (key - diagonal_begin) / C::tile_n;
      };
      needed.own_first = step_of(keys.diagonal_begin);
      needed.own_end = step_of(keys.diagonal_end - 1) + 1;
    }
    needed.few = keys.full_end - keys.full_begin < 32;
    needed.exists = row < 0 ? 0 : max_of(min_of(rows, name.seqlen_q - row), 0);
    t.needed[lane] = needed;
    t.rows[lane] = {keys.begin, keys.end, keys.diagonal_begin, keys.diagonal_end};
    if (C::apart)
      t.own_steps[lane] = {count, diagonal_count, diagonal_begin, main_begin};
    else
      t.common[lane] = {keys.full_begin, keys.full_end, {0, 0}};
  }
  if (lane == 3) {
    t.steps = {count, diagonal_count, diagonal_begin, main_begin};
    t.place = {name.batch, name.head, first_row, group.attn_scale};
    t.tokens = {name.first_q, name.first_kv, {0, 0}};
    t.mask.mask = mask;
  }
}

}  // namespace hstu
