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
  int batch, head;                         // where the group begins
  int sequences;                           // of the group, in this walk
  unsigned group_tiles;                    // of one head
  unsigned base;                           // number of the group's first tile
  int pass;                                // 0: all but the short tiles
  // This lane's sequence
  int lane_short;  // tiles of the second round
  int lane_q;  // rows; what else there is to know of a sequence is read when one of its tiles is
               // named

  HSTU_DEVICE explicit HopperSchedule(const ForwardArguments& a) {
    // Of the 50 to 60 MB of L2 half is left for queries, output and the group before.
    constexpr int l2_tokens = (24 << 20) / (2 * (C::head_dim_qk + C::head_dim_v));
    const int pairs = max_of(l2_tokens / max_of(a.seqlen_kv, 1), 1);
    heads_of_group = min_of(pairs, a.heads);
    sequences_of_group = min_of(max_of(pairs / a.heads, 1), 32);
    batch = head = 0;
    base = 0;
    pass = C::local && !C::minfull && !C::context ? 1 : 0;  // no rows see far more than a window
    load(a);
  }

  // The number of the tile that a pair of workgroups computes as its drawn-th. Both must name the
  // same tiles, so nothing is counted: there and back over the pairs, which evens out.
  HSTU_DEVICE static unsigned number_of_pair(unsigned drawn, unsigned pair, unsigned pairs) {
    return drawn * pairs + (drawn % 2 == 0 ? pair : pairs - 1 - pair);
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
    int rank = 0, above = hopper::max_of_lanes(lane_high());
    while (above - rank > 1) {
      const int middle = (rank + above) / 2;
      if (static_cast<unsigned>(count_from(middle)) > row)
        rank = middle;
      else
        above = middle;
    }
    const int index = static_cast<int>(row) - count_from(rank + 1);
    const bool has = lane_high() > rank && lane_low() <= rank;
    const int before = hopper::count_bits(hopper::lanes_where(has) & ((1u << lane()) - 1));
    const int found = hopper::first_bit(hopper::lanes_where(has && before == index));
    const int tiles = hopper::of_lane(lane_tiles(), found);
    // Contextual rows see all keys: the first tile has the highest rank.
    const int tile = !C::context ? rank : rank == tiles - 1 ? 0 : rank + 1;
    const int sequence = batch + found;
    TileName name{sequence, at_head, tile, 0, 0, a.seqlen_q, a.seqlen_kv, 0};
    if (C::jagged) {
      name.first_q = a.seq_offsets_q[sequence];
      name.first_kv = a.seq_offsets_kv[sequence];
      name.seqlen_q = a.seq_offsets_q[sequence + 1] - name.first_q;
      name.seqlen_kv = a.seq_offsets_kv[sequence + 1] - name.first_kv;
    }
    if (C::targets) name.targets = a.num_targets[sequence];
    return name;
  }

 private:
  HSTU_DEVICE static int lane() { return nvidia::thread() % 32; }
  HSTU_DEVICE int heads_here(const ForwardArguments& a) const {
    return min_of(heads_of_group, a.heads - head);
  }
  static constexpr int passes = C::causal || C::local ? 2 : 1;
  // Tiles that wait for the second round: 1/16 of the work under a causal mask; under a window all
  // but those whose rows see far more keys than the window.
  HSTU_DEVICE int short_tiles(const ForwardArguments& a, int sequence) const {
    if (!C::local) return C::causal ? lane_tiles() / 4 : 0;
    int first = lane_tiles();  // that has such rows
    if (C::minfull) {
      const int wide =
          C::grouped ? a.groups[sequence / a.batches_per_group].minfull_len : a.uniform.minfull_len;
      const int targets = C::targets ? a.num_targets[sequence] : 0;
      first = min_of(first, max_of(lane_q - targets - wide, 0) / C::tile_m);
    }
    return C::context ? max_of(first - 1, 0)
                      : first;  // the tile of contextual rows has the top rank
  }
  // Query tiles of this lane's sequence; ranks of those that belong to this pass, the highest of
  // which comes first.
  HSTU_DEVICE int lane_tiles() const { return ceil_div(lane_q, C::tile_m); }
  HSTU_DEVICE int lane_low() const { return pass == 0 ? lane_short : 0; }
  HSTU_DEVICE int lane_high() const { return pass == 0 ? lane_tiles() : lane_short; }
  // Tiles of the round with at least this rank.
  HSTU_DEVICE int count_from(int rank) const {
    return hopper::sum_of_lanes(max_of(lane_high() - max_of(rank, lane_low()), 0));
  }
  HSTU_DEVICE void load(const ForwardArguments& a) {
    sequences = min_of(sequences_of_group, a.batch - batch);
    lane_q = lane_short = 0;
    if (lane() < sequences) {
      const int sequence = batch + lane();
      lane_q = C::jagged ? a.seq_offsets_q[sequence + 1] - a.seq_offsets_q[sequence] : a.seqlen_q;
      lane_short = short_tiles(a, sequence);
      if (C::targets) hopper::prefetch(a.num_targets + sequence);  // find() reads it
    }
    group_tiles = static_cast<unsigned>(hopper::sum_of_lanes(lane_high() - lane_low()));
  }
};

}  // namespace hstu
