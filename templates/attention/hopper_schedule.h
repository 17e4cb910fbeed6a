// SPDX-License-Identifier: Apache-2.0
// Which query tile a persistent workgroup computes next. Tiles are numbered along groups of
// sequences and heads whose keys and values fit the L2 cache together; within a group the longest
// come first: those of the highest index under a causal mask, before them the one that holds
// contextual rows. The short ones of all groups wait for a second round, so that little is left to
// do when the first workgroup finds no more. Only real tiles have a number. A workgroup asks for
// ever larger numbers, so the walk over the groups never turns back.
#pragma once

#include "attention/arguments.h"
#include "base/types.h"
#include "tile/hopper_machine.h"

namespace hstu {

struct TileName {
  int batch, head;
  int tile;               // index of the query tile in its sequence; -1: no tile is left
  int first_q, first_kv;  // token the sequence begins at; 0 if batched
  int seqlen_q, seqlen_kv;
  int targets;
};

// All 32 lanes of one warp hold a share of it: lane l knows the l-th sequence of the group.
template <class C>
struct HopperSchedule {
  int heads_of_group, sequences_of_group;  // at most; 1 sequence or all heads
  int head_groups;
  int batch, head;       // where the group begins
  int sequences;         // of the group, in this walk
  unsigned group_tiles;  // of one head
  unsigned base;         // number of the group's first tile
  int pass;              // 0: all but the short tiles
  // This lane's sequence
  int lane_first_q, lane_first_kv, lane_q, lane_kv, lane_targets;
  int lane_tiles;           // query tiles
  int lane_low, lane_high;  // ranks of those that belong to this pass; the highest comes first

  HSTU_DEVICE explicit HopperSchedule(const ForwardArguments& a) {
    // Of the 50 to 60 MB of L2 half is left for queries, output and the group before.
    constexpr long long l2 = 24 << 20;
    const long long pair =
        max_of(a.seqlen_kv, 1) * 2ll * (C::head_dim_qk + C::head_dim_v);  // bytes
    // Under a window neighbouring tiles alone share keys, but the last rows may see the whole
    // history: the long tiles of all sequences come first.
    const long long pairs = C::local ? 32ll * a.heads : l2 / pair < 1 ? 1 : l2 / pair;
    heads_of_group = pairs < a.heads ? static_cast<int>(pairs) : a.heads;
    const long long fit = pairs / a.heads;
    sequences_of_group = fit < 1 ? 1 : fit > 32 ? 32 : static_cast<int>(fit);
    head_groups = ceil_div(a.heads, heads_of_group);
    batch = head = 0;
    base = 0;
    pass = 0;
    load(a);
  }

  // The tile of this number; numbers only grow from call to call.
  HSTU_DEVICE TileName find(const ForwardArguments& a, unsigned number) {
    int heads = heads_here(a);
    while (number - base >= group_tiles * heads) {
      base += group_tiles * heads;
      head += heads_of_group;
      if (head >= a.heads) {
        head = 0;
        batch += sequences_of_group;
        if (batch >= a.batch) {
          if (++pass == passes) return {0, 0, -1, 0, 0, 0, 0, 0};
          batch = 0;
        }
        load(a);
      }
      heads = heads_here(a);
    }
    const unsigned row = (number - base) / heads;
    const int at_head = head + static_cast<int>(number - base - row * heads);
    // The row-th in order of falling rank, found by counting how many tiles have at least a rank.
    int rank = 0, above = hopper::max_of_lanes(lane_high);
    while (above - rank > 1) {
      const int middle = (rank + above) / 2;
      if (static_cast<unsigned>(count_from(middle)) > row)
        rank = middle;
      else
        above = middle;
    }
    const int index = static_cast<int>(row) - count_from(rank + 1);
    const bool has = lane_high > rank && lane_low <= rank;
    const int before = hopper::count_bits(hopper::lanes_where(has) & ((1u << lane()) - 1));
    const int found = hopper::first_bit(hopper::lanes_where(has && before == index));
    const int tiles = hopper::of_lane(lane_tiles, found);
    // Contextual rows see all keys: the first tile has the highest rank.
    const int tile = !C::context ? rank : rank == tiles - 1 ? 0 : rank + 1;
    return {batch + found,
            at_head,
            tile,
            hopper::of_lane(lane_first_q, found),
            hopper::of_lane(lane_first_kv, found),
            hopper::of_lane(lane_q, found),
            hopper::of_lane(lane_kv, found),
            C::targets ? hopper::of_lane(lane_targets, found) : 0};
  }

 private:
  HSTU_DEVICE static int lane() { return nvidia::thread() % 32; }
  HSTU_DEVICE int heads_here(const ForwardArguments& a) const {
    return min_of(heads_of_group, a.heads - head);
  }
  static constexpr int passes = C::causal ? 2 : 1;
  // Tiles of the round with at least this rank.
  HSTU_DEVICE int count_from(int rank) const {
    return hopper::sum_of_lanes(max_of(lane_high - max_of(rank, lane_low), 0));
  }
  HSTU_DEVICE void load(const ForwardArguments& a) {
    sequences = min_of(sequences_of_group, a.batch - batch);
    lane_first_q = lane_first_kv = 0;
    lane_q = a.seqlen_q;
    lane_kv = a.seqlen_kv;
    lane_targets = lane_tiles = 0;
    if (lane() < sequences) {
      const int sequence = batch + lane();
      if (C::jagged) {
        lane_first_q = a.seq_offsets_q[sequence];
        lane_first_kv = a.seq_offsets_kv[sequence];
        lane_q = a.seq_offsets_q[sequence + 1] - lane_first_q;
        lane_kv = a.seq_offsets_kv[sequence + 1] - lane_first_kv;
      }
      if (C::targets) lane_targets = a.num_targets[sequence];
      lane_tiles = ceil_div(lane_q, C::tile_m);
    }
    const int short_tiles = passes == 2 ? lane_tiles / 4 : 0;  // 1/16 of the work
    lane_low = pass == 0 ? short_tiles : 0;
    lane_high = pass == 0 ? lane_tiles : short_tiles;
    group_tiles = static_cast<unsigned>(hopper::sum_of_lanes(lane_high - lane_low));
  }
};

}  // namespace hstu
