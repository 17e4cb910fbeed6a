// SPDX-License-Identifier: Apache-2.0
// Which query tile a persistent workgroup computes next. Tiles are numbered along the sequences, so
// that those which read the same keys and values run at the same time and memory is read at an even
// pace; within a sequence the longest come first: those of the highest index under a causal mask,
// before them the one that holds contextual rows. Short tiles of the last sequences wait for a
// second round, so that little is left to do when the first workgroup finds no more. Only real
// tiles have a number. A workgroup asks for ever larger numbers, so the walk over the sequences
// never turns back.
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

// All 32 lanes of one warp hold a share of it: lane l knows the l-th sequence of the block.
template <class C>
struct HopperSchedule {
  // 32 sequences or fewer, in one of the rounds.
  struct Block {
    int pass;   // 0: the first round, of all tiles but those that wait for the second, 1
    int batch;  // its first sequence
  };
  int pairs_in_l2;    // sequences and heads whose keys and values fit the L2 cache; at least 1
  int first_waiting;  // the first sequence with tiles for the second round under a causal mask
  int heads;
  Block block;
  unsigned base;         // number of the block's first tile
  unsigned block_tiles;  // of one head
  // This lane's sequence
  int lane_q;      // rows; what else there is to know of a sequence is read when one of its tiles
                   // is named
  int lane_wait;   // tiles of the second round: those of the lowest ranks
  int lane_first;  // tiles of this round that sequences before it in the block have

  HSTU_DEVICE void start(const ForwardArguments& a) {
    // Under a window that no rows see far beyond, all tiles are of the second round.
    block = {C::local && !C::minfull && !C::context ? 1 : 0, 0};
    // Of the 50 to 60 MB of L2 half is left for queries, output and the sequence before.
    constexpr int l2_tokens = (24 << 20) / (2 * (C::head_dim_qk + C::head_dim_v));
    pairs_in_l2 = max_of(l2_tokens / max_of(a.seqlen_kv, 1), 1);
    heads = a.heads;
    base = 0;
    first_waiting = 0;
    if (C::causal && !C::local) {
      const float tiles = static_cast<float>(low_ranks(a)) * heads;  // of a sequence
      if (tiles == 0.0f)
        first_waiting = a.batch;
      else if (8.0f * hopper::blocks() < tiles * (a.batch - 1))
        first_waiting = a.batch - 1 - static_cast<int>(8.0f * hopper::blocks() / tiles);
    }
    load(a);
  }

  // The number of the tile that a pair of workgroups computes as its drawn-th. Both must name the
  // same tiles, so nothing is counted: there and back over the pairs, which evens out.
  HSTU_DEVICE static unsigned number_of_pair(unsigned drawn, unsigned pair, unsigned pairs) {
    return drawn * pairs + (drawn % 2 == 0 ? pair : pairs - 1 - pair);
  }

  // The tile of this number; numbers only grow from call to call.
  HSTU_DEVICE TileName find(const ForwardArguments& a, unsigned number) {
    while (number - base >= block_tiles * heads) {
      base += block_tiles * heads;
      block = after(a, block);
      if (block.pass == passes) return {0, 0, -1, 0, 0, 0, 0, 0};
      load(a);
    }
    const Place place =
        by_rank(block.pass) ? place_by_rank(number - base) : place_by_sequence(number - base);
    const int tiles = hopper::of_lane(lane_tiles(), place.lane);
    // Contextual rows see all keys: the first tile has the highest rank.
    const int tile = !C::context ? place.rank : place.rank == tiles - 1 ? 0 : place.rank + 1;
    const int sequence = block.batch + place.lane;
    TileName name{sequence, place.head, tile, 0, 0, a.seqlen_q, a.seqlen_kv, 0};
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
  struct Place {
    int lane, head, rank;
  };

  HSTU_DEVICE static int lane() { return nvidia::thread() % 32; }
  static constexpr int passes = C::causal || C::local ? 2 : 1;

  // The last tiles are put in order over a whole block: as many sequences as the L2 cache takes of
  // the quarter of the keys that those tiles see.
  HSTU_DEVICE static constexpr bool by_rank(int pass) {
    return C::causal && !C::local && pass == 1;
  }

  HSTU_DEVICE int block_sequences(int pass) const {
    return by_rank(pass) ? min_of(max_of(4 * pairs_in_l2 / heads, 1), 32) : 32;
  }
  HSTU_DEVICE Block after(const ForwardArguments& a, Block b) const {
    b.batch += block_sequences(b.pass);
    if (b.batch >= a.batch) b = {b.pass + 1, first_waiting};
    return b;
  }

  // One sequence after the other; in it one group of heads after the other, in that rank by rank.
  HSTU_DEVICE Place place_by_sequence(unsigned number) const {
    const unsigned all_heads = heads;
    const int found = hopper::count_bits(hopper::lanes_where(
                          number >= static_cast<unsigned>(lane_first) * all_heads)) -
                      1;
    const int high = hopper::of_lane(lane_high(), found);
    const unsigned tiles = high - hopper::of_lane(lane_low(), found);
    number -= hopper::of_lane(lane_first, found) * all_heads;
    const unsigned group_heads = min_of(pairs_in_l2, heads), group_tiles = tiles * group_heads;
    unsigned group = 0;
    if (number >= group_tiles) {
      group = number / group_tiles;
      number -= group * group_tiles;
    }
    const unsigned first_head = group * group_heads;
    const unsigned heads_here =
        first_head + group_heads > all_heads ? all_heads - first_head : group_heads;
    const unsigned row = number / heads_here;
    return {found, static_cast<int>(first_head + number - row * heads_here),
            high - 1 - static_cast<int>(row)};
  }

  // Rank by rank over all sequences of the block.
  HSTU_DEVICE Place place_by_rank(unsigned number) const {
    const unsigned row = number / static_cast<unsigned>(heads);
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
    return {hopper::first_bit(hopper::lanes_where(has && before == index)),
            static_cast<int>(number - row * heads), rank};
  }

  // Tiles of this sequence that wait for the second round. Under a causal mask those of the lowest
  // quarter, which are 1/16 of the work: of so many sequences that every workgroup finds about
  // eight of them, the work of one of the longest tiles; those of all would be read twice for
  // nothing. Under a window all but those whose rows see far more keys than the window.
  HSTU_DEVICE static int low_ranks(const ForwardArguments& a) {
    return ceil_div(a.seqlen_q, C::tile_m) / 4;
  }
  HSTU_DEVICE int waiting_tiles(const ForwardArguments& a, int sequence) const {
    if (!C::local)
      return C::causal && sequence >= first_waiting ? min_of(low_ranks(a), lane_tiles()) : 0;
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
  HSTU_DEVICE int lane_low() const { return block.pass == 0 ? lane_wait : 0; }
  HSTU_DEVICE int lane_high() const { return block.pass == 0 ? lane_tiles() : lane_wait; }
  // Tiles of the round with at least this rank.
  HSTU_DEVICE int count_from(int rank) const {
    return hopper::sum_of_lanes(max_of(lane_high() - max_of(rank, lane_low()), 0));
  }
  HSTU_DEVICE void load(const ForwardArguments& a) {
    lane_q = lane_wait = 0;
    const int sequence = block.batch + lane();
    if (lane() < block_sequences(block.pass) && sequence < a.batch) {
      lane_q = C::jagged ? a.seq_offsets_q[sequence + 1] - a.seq_offsets_q[sequence] : a.seqlen_q;
      lane_wait = waiting_tiles(a, sequence);
      if (C::targets) hopper::prefetch(a.num_targets + sequence);  // find() reads it
    }
    const int tiles = lane_high() - lane_low();
    int sum = tiles;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int before = hopper::of_lane(sum, max_of(lane() - distance, 0));
      if (lane() >= distance) sum += before;
    }
    lane_first = sum - tiles;
    block_tiles = static_cast<unsigned>(hopper::of_lane(sum, 31));
  }
};

}  // namespace hstu
