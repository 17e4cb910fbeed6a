// SPDX-License-Identifier: Apache-2.0
// The arithmetic of one query tile on the CPU: packed rows of Q against key tiles, in scratch that
// stays in the core's cache. A key tile is packed once for all rows; then each block of rows goes
// through logits -> activation -> product with V. With AMX three neighbouring blocks are in these
// stages at once, their instructions interleaved, so that tile and vector units work side by side.
#pragma once

#include "attention/config.h"
#include "cpu/activation.h"
#include "cpu/amx.h"
#include "cpu/product.h"

namespace hstu {

class CpuTile {
 protected:
  using C = Config;
  using P = Packing<C::dtype>;
  static constexpr bool kSoftmax = C::activation == Activation::softmax;
  static constexpr bool kExact = kSoftmax || C::dtype == Dtype::fp16;
  static constexpr float kMinusInfinity = -__builtin_inff();

  static constexpr int kTileM = round_up(C::tile_m, kBlockRows);
  static constexpr int kTileN = round_up(C::tile_n, 32);
  static constexpr int kBlocks = kTileN / kBlockColumns;
  static constexpr int kDepthQk = round_up(C::head_dim_qk, P::depth_step) / P::per_lane;
  static constexpr int kDepthV = kTileN / P::per_lane;  // lanes the product with V sums over
  static constexpr int kValues = round_up(C::head_dim_v, kBlockColumns);
  // One cache line more than they hold, so that rows and panels do not meet in the same cache sets.
  static constexpr int kStrideP = kDepthV + kLanes;
  static constexpr int kPanelK = (kDepthQk + 1) * kLanes;
  static constexpr int kPanelV = (kDepthV + 1) * kLanes;
  static constexpr int kSizeK = kTileN / kLanes * kPanelK;
  static constexpr int kSizeV = kValues / kLanes * kPanelV;
  static constexpr int kPasses = P::parts == 1 ? 1 : 3;  // products of parts, see pack.h

  // One block of rows and what it sees of a key tile: blocks of columns [begin, end), of which all
  // rows see the columns [full_begin, full_end).
  struct RowBlock {
    int row;
    int key;  // first key of the tile
    int begin, end;
    int full_begin, full_end;
    int slot;  // buffers of logits and probabilities
    bool full(int block) const {
      return block * kBlockColumns >= full_begin && (block + 1) * kBlockColumns <= full_end;
    }
  };

  RowBlock row_block(int row, int rows, int key, int keys) const {
    int begin = kTileN, end = 0, full_begin = 0, full_end = kTileN;
    for (int i = row; i < min_of(row + kBlockRows, rows); ++i) {
      const int row_begin = max_of(row_begin_[i] - key, 0);
      const int row_end = min_of(row_end_[i] - key, keys);
      full_begin = max_of(full_begin, row_begin);
      full_end = min_of(full_end, row_end);
      if (row_begin >= row_end) continue;
      begin = min_of(begin, row_begin);
      end = max_of(end, row_end);
    }
    return {row, key, begin / kBlockColumns, ceil_div(end, kBlockColumns), full_begin, full_end, 0};
  }

  // The packed key tile at `key`, holding `keys` keys, against the first `rows` rows.
  void multiply_tile(int rows, int key, int keys) {
#if defined(__AMX_TILE__) && defined(__AMX_BF16__)
    RowBlock blocks[3];  // a ring: the last three with anything to do
    int count = 0;
    for (int row = 0; row < rows; row += kBlockRows) {
      prefetch(row, rows);
      RowBlock next = row_block(row, rows, key, keys);
      if (next.begin >= next.end) continue;
      next.slot = count % 2;
      blocks[count % 3] = next;
      overlap(&next, count > 0 ? &blocks[(count + 2) % 3] : nullptr,
              count > 1 ? &blocks[(count + 1) % 3] : nullptr);
      ++count;
    }
    if (count == 0) return;
    overlap(nullptr, &blocks[(count + 2) % 3], count > 1 ? &blocks[(count + 1) % 3] : nullptr);
    overlap(nullptr, nullptr, &blocks[(count + 2) % 3]);
#else
    for (int row = 0; row < rows; row += kBlockRows) {
      prefetch(row, rows);
      const RowBlock block = row_block(row, rows, key, keys);
      if (block.begin >= block.end) continue;
      logits(block);
      ActivationWork work(*this, &block);
      work.advance(work.units);
      add_values(block);
    }
#endif
  }

 private:
#if defined(__AMX_TILE__) && defined(__AMX_BF16__)
  // Logits of `next`, activation of `current`, product with V of `previous`; each may be null.
  void overlap(const RowBlock* next, const RowBlock* current, const RowBlock* previous) {
    ActivationWork work(*this, current);
    int steps = 0;
    if (next != nullptr) steps += (next->end - next->begin) * (kDepthQk / 16);
    if (previous != nullptr) steps += (previous->end - previous->begin) * (kValues / 32);
    const int share = steps > 0 ? ceil_div(work.units, steps * kPasses) : 0;
    if (next != nullptr) {
      for (int block = next->begin; block < next->end; ++block) {
        amx_zero_block();
        for (int pass = 0; pass < kPasses; ++pass) {
          const unsigned* a = q_lanes_[pass == 2] + next->row * kDepthQk;
          const unsigned* b = k_lanes_[pass == 1] + block * 2 * kPanelK;
          for (int d = 0; d < kDepthQk; d += 16) {
            amx_step(a + d, kDepthQk, b + d * kLanes, kPanelK);
            work.advance(share);
          }
        }
        amx_store_block(s_[next->slot][block], kBlockColumns);
      }
    }
    if (previous != nullptr) {
      const int first = previous->begin * 16, last = previous->end * 16;
      for (int c = 0; c < kValues; c += 32) {
        float* o = out_ + previous->row * kValues + c;
        amx_load_block(o, kValues);
        for (int pass = 0; pass < kPasses; ++pass) {
          const unsigned* a = p_lanes_[previous->slot][pass == 2];
          const unsigned* b = v_lanes_[pass == 1] + c / kLanes * kPanelV;
          for (int d = first; d < last; d += 16) {
            amx_step(a + d, kStrideP, b + d * kLanes, kPanelV);
            work.advance(share);
          }
        }
        amx_store_block(o, kValues);
      }
    }
    work.advance(work.units);
  }
#else
  void logits(const RowBlock& rows) {
    for (int block = rows.begin; block < rows.end; ++block)
      block_product<P::pairs, false>(q_lanes_[0] + rows.row * kDepthQk, kDepthQk,
                                     k_lanes_[0] + block * 2 * kPanelK, kPanelK, kDepthQk,
                                     s_[0][block], kBlockColumns);
  }

  void add_values(const RowBlock& rows) {
    const int first = rows.begin * kBlockColumns / P::per_lane;
    const int depth = (rows.end - rows.begin) * kBlockColumns / P::per_lane;
    for (int c = 0; c < kValues; c += kBlockColumns)
      block_product<P::pairs, true>(p_lanes_[0][0] + first, kStrideP,
                                    v_lanes_[0] + c / kLanes * kPanelV + first * kLanes, kPanelV,
                                    depth, out_ + rows.row * kValues + c, kValues);
  }
#endif

  // The share of block of rows `row` in fetching the next key tile: packing would wait for memory.
  void prefetch(int row, int rows) const {
    const int begin = next_.keys * row / rows;
    const int end = next_.keys * min_of(row + kBlockRows, rows) / rows;
    for (int i = begin; i < end; ++i) {
      const unsigned short* k = next_.k + i * next_.stride_k;
      const unsigned short* v = next_.v + i * next_.stride_v;
      for (int d = 0; d < C::head_dim_qk; d += 32) __builtin_prefetch(k + d, 0, 2);
      for (int d = 0; d < C::head_dim_v; d += 32) __builtin_prefetch(v + d, 0, 2);
    }
  }

  // Two vectors: one row of a block of columns.
  struct Two {
    VectorF low, high;
    // Other values outside columns [begin, end), these two starting at column c.
    HSTU_INLINE void keep(int c, int begin, int end, VectorF other) {
      const VectorI at = lane_index() + c;
      low = select((at >= begin) & (at < end), low, other);
      high = select((at + kLanes >= begin) & (at + kLanes < end), high, other);
    }
  };

  // The activation of one block of rows, done in units of one row of one block of columns.
  struct ActivationWork {
    CpuTile& tile;
    const RowBlock* rows;
    int units = 0;  // still to do
    int block = 0, row = 0;
    VectorF scale{}, scale_log2{};

    HSTU_INLINE ActivationWork(CpuTile& tile, const RowBlock* rows) : tile(tile), rows(rows) {
      if (rows == nullptr) return;
      units = (rows->end - rows->begin) * kBlockRows;
      block = rows->begin;
      scale = splat(tile.alpha_);
      scale_log2 = splat(-tile.alpha_ * kLog2E);
      if constexpr (kSoftmax) tile.raise_maximum(*rows);
    }

    HSTU_INLINE void advance(int count) {
      count = min_of(count, units);
      units -= count;
      while (count > 0) {
        const int here = min_of(count, kBlockRows - row);
        if (rows->full(block))
          run<true>(here);
        else
          run<false>(here);
        count -= here;
        row += here;
        if (row == kBlockRows) row = 0, ++block;
      }
    }

    template <bool Full>
    HSTU_INLINE void run(int count) {
      const float* s = tile.s_[rows->slot][block] + row * kBlockColumns;
      for (int i = row; i < row + count; ++i, s += kBlockColumns) {
        Two p{load<VectorF>(s), load<VectorF>(s + kLanes)};
        if constexpr (kSoftmax) {
          const VectorF top = splat(tile.subtract_[i]);
          p = {exp2_of<true>(p.low - top), exp2_of<true>(p.high - top)};
        } else {
          p = {silu<kExact>(p.low, scale, scale_log2), silu<kExact>(p.high, scale, scale_log2)};
        }
        if constexpr (!Full)
          p.keep(rows->key + block * kBlockColumns, tile.row_begin_[rows->row + i],
                 tile.row_end_[rows->row + i], VectorF{});
        if constexpr (kSoftmax) {
          float* total = tile.row_sum_[rows->row + i];
          store(total, load<VectorF>(total) + (p.low + p.high));
        }
        tile.store_probabilities(rows->slot, i, block, p);
      }
    }
  };

  HSTU_INLINE void store_probabilities(int slot, int row, int block, const Two& p) {
    const int at = row * kStrideP + block * kBlockColumns / P::per_lane;
    if constexpr (!P::pairs) {
      store(p_lanes_[slot][0] + at, (VectorU)round_to<C::dtype>(p.low));
      store(p_lanes_[slot][0] + at + kLanes, (VectorU)round_to<C::dtype>(p.high));
    } else {
      VectorU lanes[P::parts];
      if constexpr (P::parts == 1) {
        P::split(p.low, p.high, lanes);
      } else {
        P::split(round_to<C::dtype>(p.low), round_to<C::dtype>(p.high), lanes);
      }
      for (int part = 0; part < P::parts; ++part) store(p_lanes_[slot][part] + at, lanes[part]);
    }
  }

  // Online softmax in base 2: scales the logits, raises the running maximum of each row and
  // rescales what has been summed under the old one.
  void raise_maximum(const RowBlock& rows) {
    const VectorF scale = splat(alpha_ * kLog2E);
    for (int i = 0; i < kBlockRows; ++i) {
      const int r = rows.row + i;
      VectorF top = splat(row_max_[r]);
      for (int block = rows.begin; block < rows.end; ++block) {
        float* s = s_[rows.slot][block] + i * kBlockColumns;
        Two t{load<VectorF>(s) * scale, load<VectorF>(s + kLanes) * scale};
        store(s, t.low);
        store(s + kLanes, t.high);
        if (!rows.full(block))
          t.keep(rows.key + block * kBlockColumns, row_begin_[r], row_end_[r],
                 splat(kMinusInfinity));
        top = at_least(t.low, at_least(t.high, top));
      }
      const float before = row_max_[r], now = largest(top);
      row_max_[r] = now;
      subtract_[i] = now == kMinusInfinity ? 0.0f : now;
      if (now != before && before != kMinusInfinity) {
        const VectorF factor = exp2_of<true>(splat(before - now));
        store(row_sum_[r], load<VectorF>(row_sum_[r]) * factor);
        float* o = out_ + r * kValues;
        for (int c = 0; c < kValues; c += kLanes) store(o + c, load<VectorF>(o + c) * factor);
      }
    }
  }

 protected:
  struct NextTile {
    const unsigned short *k, *v;
    long long stride_k, stride_v;
    int keys;
  } next_;
  float alpha_;
  int row_begin_[kTileM], row_end_[kTileM];                   // visible keys of each row
  float row_max_[kTileM];                                     // softmax, in base 2
  alignas(64) float row_sum_[kSoftmax ? kTileM : 1][kLanes];  // to be summed over the lanes
  alignas(64) unsigned q_lanes_[P::parts][kTileM * kDepthQk];
  alignas(64) unsigned k_lanes_[P::parts][kSizeK];
  alignas(64) unsigned v_lanes_[P::parts][kSizeV];
  alignas(64) float out_[kTileM * kValues];

 private:
  static constexpr int kSlots = kAmx ? 2 : 1;
  float subtract_[kBlockRows];
  alignas(64) unsigned p_lanes_[kSlots][P::parts][kBlockRows * kStrideP];
  alignas(64) float s_[kSlots][kBlocks][kBlockRows * kBlockColumns];
};

}  // namespace hstu
