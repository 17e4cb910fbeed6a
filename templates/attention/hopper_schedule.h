// SPDX-License-Identifier: Apache-2.0
// Which query tile a persistent workgroup computes next. Tiles are numbered along the sequences, so
// that those which read the same keys and values run at the same time and memory is read at an even
// pace; within a sequence the longest come first: those of the highest index under a causal mask,
// before them those that hold contextual rows. Under a causal mask without a window the last few
// sequences follow in another order, the longest of all their tiles first, and the short tiles of
// many sequences come last, so that little is left to do when the first workgroup finds no more.
// Only real tiles have a number. A workgroup asks for ever larger numbers, so the walk over the
// sequences never turns back.
#pragma once

#include "attention/arguments.h"
#include "base/types.h"
#include "tile/hopper_machine.h"
#include "tile/hopper_shape.h"

namespace hstu {

// How sequences are cut into query tiles, in groups of 64 rows. A tile that two workgroups share
// has two groups at most: where tiles are few the longest of them takes all the time. Two divisors
// known to the compiler are fewer instructions than one that is not.
template <class C>
struct HopperCut {
  static constexpr int all_groups = C::tile_m / 64,
                       few_groups = min_of(all_groups, kHopperSharedGroups);
  bool shared;

  HSTU_DEVICE int groups() const { return shared ? few_groups : all_groups; }
  HSTU_DEVICE int tiles(int rows) const { return tiles_of(ceil_div(rows, 64)); }
  // Groups of the first tile that do not exist, of a sequence with so many contextual rows.
  HSTU_DEVICE int missing(int rows, int context) const {
    return shared ? hopper_missing_groups(rows, context, few_groups)
                  : hopper_missing_groups(rows, context, all_groups);
  }
  // Tiles that so many groups need.
  HSTU_DEVICE int tiles_of(int count) const {
    return shared ? ceil_div(count, few_groups) : ceil_div(count, all_groups);
  }
};

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
  // 32 sequences or fewer, in one of the rounds. Under a causal mask without a window: the long
  // tiles of most sequences, those of the last sequences, short ones. Under a window: the tiles
  // whose rows see far beyond it, all others.
  struct Block {
    int round;
    int batch;  // its first sequence
  };
  static constexpr bool ranked = C::causal && !C::local;  // by length in all rounds but the first
  static constexpr int rounds = ranked ? 3 : C::local ? 2 : 1;
  const ForwardArguments* call;
  HopperCut<C> cut;
  int group_heads;    // heads of a sequence that are worked through together, as far as L2 goes
  int first_last;     // the first of the last sequences
  int first_waiting;  // the first sequence with tiles for the last round under a causal mask
  int last_round_sequences;  // of a block of the last round
  int heads;
  Block block;
  unsigned base;         // number of the block's first tile
  unsigned block_tiles;  // of one head
  // This lane's sequence
  int lane_q, lane_kv;              // rows and keys
  int lane_begin_q, lane_begin_kv;  // tokens it begins at; 0 if batched
  int lane_targets;
  int lane_context;  // contextual rows, where groups have each their own
  int lane_wait;     // tiles of the last round: those of the lowest ranks
  int lane_first;    // tiles of this round that sequences before it in the block have

  // shared: whether two workgroups share each tile.
  HSTU_DEVICE void start(const ForwardArguments& a, bool shared) {
    call = &a;
    cut.shared = shared;
    // Of the 50 to 60 MB of L2 half is left for queries, output and the sequence before.
    constexpr int l2_tokens = (24 << 20) / (2 * (C::head_dim_qk + C::head_dim_v));
    heads = a.heads;
    group_heads = min_of(max_of(l2_tokens / max_of(a.seqlen_kv, 1), 1), heads);
    base = 0;
    first_last = first_waiting = 0;
    last_round_sequences = 32;
    // Under a window that no rows see far beyond, all tiles are of the second round. Whichever the
    // first is, it begins with the first sequence: asked for at once, as memory takes its time.
    block = {C::local && !C::minfull && !C::context ? 1 : 0, 0};
    ask(a, 0);
    if (ranked) {
      const float batch = static_cast<float>(a.batch);
      const float rows = C::jagged ? static_cast<float>(a.seq_offsets_q[a.batch]) / batch
                                   : static_cast<float>(a.seqlen_q);  // of a sequence, in the mean
      const float keys = C::jagged ? static_cast<float>(a.seq_offsets_kv[a.batch]) / batch
                                   : static_cast<float>(a.seqlen_kv);
      // As many sequences as fit L2, or have as many tiles as there are workgroups. How many of
      // them: tried on the machine and by the model of the test.
      const float fit = l2_tokens / (max_of(keys, 1.0f) * heads);
      const float one = hopper::blocks() / ((rows / (64 * cut.groups()) + 0.5f) * heads);
      first_last = sequences_left(a, min_of(2.0f * fit, 3.0f * one));
      first_waiting = sequences_left(a, 2.0f * hopper::blocks() / (low_ranks(a) * heads) + 1.0f);
      last_round_sequences = static_cast<int>(min_of(max_of(6.0f * fit, 1.0f), 32.0f));
    }
    block = settled(a, block);
    enter(a);
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
      block.batch += block_sequences();
      block = settled(a, block);
      if (block.round == rounds) return {0, 0, -1, 0, 0, 0, 0, 0};
      ask(a, block.batch);
      enter(a);
    }
    const Place place = ranked && block.round > 0 ? place_by_length(number - base)
                                                  : place_by_sequence(number - base);
    const int tiles = hopper::of_lane(lane_tiles(), place.lane);
    // Contextual rows see all keys: their tiles, the first ones, have the highest ranks.
    const int top = hopper::of_lane(lane_top(), place.lane);
    const int tile = place.rank >= tiles - top ? place.rank - (tiles - top) : place.rank + top;
    const int sequence = block.batch + place.lane;
    const auto told = [&](int of_lanes) { return hopper::of_lane(of_lanes, place.lane); };
    return {sequence,
            place.head,
            tile,
            told(lane_begin_q),
            told(lane_begin_kv),
            told(lane_q),
            told(lane_kv),
            C::targets ? told(lane_targets) : 0};
  }

 private:
  struct Place {
    int lane, head, rank;
  };

  HSTU_DEVICE static int lane() { return nvidia::thread() % 32; }
  HSTU_DEVICE static const GroupArguments& group_of(const ForwardArguments& a, int sequence) {
    return C::grouped ? a.groups[sequence / a.batches_per_group] : a.uniform;
  }
  // The first of the last `count` sequences, of one at least.
  HSTU_DEVICE static int sequences_left(const ForwardArguments& a, float count) {
    return count >= static_cast<float>(a.batch) ? 0 : a.batch - max_of(static_cast<int>(count), 1);
  }
  HSTU_DEVICE int block_sequences() const {
    return ranked && block.round == 2 ? last_round_sequences : 32;
  }
  HSTU_DEVICE int end_of_round(const ForwardArguments& a, int round) const {
    return ranked && round == 0 ? first_last : a.batch;
  }
  // The next block that has sequences.
  HSTU_DEVICE Block settled(const ForwardArguments& a, Block b) const {
    while (b.round < rounds && b.batch >= end_of_round(a, b.round)) {
      ++b.round;
      b.batch = !ranked ? 0 : b.round == 1 ? first_last : first_waiting;
    }
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
    const unsigned group_tiles = tiles * group_heads;
    unsigned group = 0;
    if (number >= group_tiles) {
      group = number / group_tiles;
      number -= group * group_tiles;
    }
    const unsigned first_head = group * group_heads;
    const unsigned heads_here = min_of(group_heads, static_cast<int>(all_heads - first_head));
    const unsigned row = number / heads_here;
    return {found, static_cast<int>(first_head + number - row * heads_here),
            high - 1 - static_cast<int>(row)};
  }

  // The longest first over all sequences of the block: by how many groups of 64 rows a sequence has
  // up to the tile's end, or would have if contextual rows were its last.
  HSTU_DEVICE Place place_by_length(unsigned number) const {
    const unsigned row = number / static_cast<unsigned>(heads);
    // The length of the row-th, found by counting how many tiles have at least a length.
    int length = 0, above = hopper::max_of_lanes(lane_tiles() * cut.groups()) + 1;
    while (above - length > 1) {
      const int middle = (length + above) / 2;
      if (static_cast<unsigned>(count_from(middle)) > row)
        length = middle;
      else
        above = middle;
    }
    const int index = static_cast<int>(row) - count_from(length + 1);
    const int ends = length + lane_missing(), rank = cut.tiles_of(ends) - 1;
    const bool has = (rank + 1) * cut.groups() == ends && lane_high() > rank && lane_low() <= rank;
    const int before = hopper::count_bits(hopper::lanes_where(has) & ((1u << lane()) - 1));
    const int found = hopper::first_bit(hopper::lanes_where(has && before == index));
    return {found, static_cast<int>(number - row * heads), hopper::of_lane(rank, found)};
  }

  // Tiles of this sequence that wait for the last round. Under a causal mask those of the ranks
  // that are the lowest quarter of the longest sequence, of as many sequences as it takes; those of
  // all would be read twice for nothing. Under a window all but those whose rows see far more keys
  // than the window.
  HSTU_DEVICE int low_ranks(const ForwardArguments& a) const {
    return ceil_div(cut.tiles(max_of(a.seqlen_q, 1)), 4);
  }
  HSTU_DEVICE int waiting_tiles(const ForwardArguments& a, int sequence) const {
    if (!C::local)
      return ranked && sequence >= first_waiting ? min_of(low_ranks(a), lane_tiles()) : 0;
    int first = lane_tiles();  // that has such rows
    if (C::minfull) {
      const int wide = group_of(a, sequence).minfull_len;
      const int group = max_of(lane_q - lane_targets - wide, 0) / 64 + lane_missing();
      first = min_of(first, cut.tiles_of(group + 1) - 1);
    }
    return max_of(first - lane_top(), 0);
  }
  // Query tiles of this lane's sequence; ranks of those that belong to this round, the highest of
  // which comes first.
  HSTU_DEVICE int lane_tiles() const { return cut.tiles(lane_q); }
  HSTU_DEVICE int contextual_rows() const {
    return C::grouped ? lane_context : C::context ? call->uniform.context_len : 0;
  }
  HSTU_DEVICE int lane_missing() const { return cut.missing(lane_q, contextual_rows()); }
  // Tiles that hold contextual rows.
  HSTU_DEVICE int lane_top() const {
    const int rows = min_of(contextual_rows(), lane_q);
    return rows > 0 ? cut.tiles_of(ceil_div(rows, 64) + lane_missing()) : 0;
  }
  HSTU_DEVICE bool waiting_round() const { return rounds > 1 && block.round == rounds - 1; }
  HSTU_DEVICE int lane_low() const { return waiting_round() ? 0 : lane_wait; }
  HSTU_DEVICE int lane_high() const { return waiting_round() ? lane_wait : lane_tiles(); }
  // Tiles of the round with at least this length.
  HSTU_DEVICE int count_from(int length) const {
    const int rank = cut.tiles_of(length + lane_missing()) - 1;
    return hopper::sum_of_lanes(max_of(lane_high() - max_of(rank, lane_low()), 0));
  }
  // Reads what this lane has to know of its sequence of a block that begins at `first`.
  HSTU_DEVICE void ask(const ForwardArguments& a, int first) {
    const int sequence = first + lane();
    lane_q = lane_kv = lane_begin_q = lane_begin_kv = lane_targets = lane_context = 0;
    if (sequence >= a.batch) return;
    lane_q = a.seqlen_q;
    lane_kv = a.seqlen_kv;
    if (C::jagged) {
      lane_begin_q = a.seq_offsets_q[sequence];
      lane_begin_kv = a.seq_offsets_kv[sequence];
      lane_q = a.seq_offsets_q[sequence + 1] - lane_begin_q;
      lane_kv = a.seq_offsets_kv[sequence + 1] - lane_begin_kv;
    }
    if (C::targets) lane_targets = a.num_targets[sequence];
    if (C::context && C::grouped) lane_context = group_of(a, sequence).context_len;
  }
  // Counts the tiles of the block that was asked for.
  HSTU_DEVICE void enter(const ForwardArguments& a) {
    const int sequence = block.batch + lane();
    lane_wait = 0;
    if (lane() >= block_sequences() || sequence >= end_of_round(a, block.round)) lane_q = 0;
    if (lane_q > 0) lane_wait = waiting_tiles(a, sequence);
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
