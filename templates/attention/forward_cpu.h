// SPDX-License-Identifier: Apache-2.0
// Forward attention on the CPU. Threads take (query tile, sequence, head) items from a queue; an
// item walks over its key tiles: pack K and V once for all its rows, then for each block of rows
// logits -> activation -> product with V, with everything in scratch that stays in the cache.
#pragma once

#include "attention/arguments.h"
#include "attention/config.h"
#include "attention/work_queue.h"
#include "cpu/activation.h"
#include "cpu/amx.h"
#include "cpu/product.h"
#include "mask/mask.h"

namespace hstu {

class ForwardCpu {
 public:
  explicit ForwardCpu(const ForwardArguments& arguments) : a_(arguments) {}

  // Item `index` of `count`: query tiles from the last to the first (under a causal mask the last
  // are the longest), all sequences and heads of one tile index together.
  void run_item(long long index, long long count) {
    const long long pairs = static_cast<long long>(a_.batch) * a_.heads;
    const int tile = static_cast<int>(count / pairs - 1 - index / pairs);
    const int b = static_cast<int>(index % pairs / a_.heads);
    const int h = static_cast<int>(index % pairs % a_.heads);
    start_sequence(b, h);
    row0_ = tile * C::tile_m;
    rows_ = min_of(C::tile_m, mask_.seqlen_q - row0_);
    if (rows_ <= 0) return;
    const TileKeys keys = tile_keys(kFeatures, mask_, row0_, row0_ + rows_);
    start_rows();
    const int begin = keys.begin / kBlockColumns * kBlockColumns;
    for (int key = begin; key < keys.end; key += kTileN) key_tile(key, keys.end);
    finish_rows(b, h);
  }

 private:
  using C = Config;
  using P = Packing<C::dtype>;
  static constexpr MaskFeatures kFeatures{C::causal,  C::cross,   C::local,
                                          C::context, C::minfull, C::targets};
  static constexpr bool kSoftmax = C::activation == Activation::softmax;
  static constexpr bool kExact = kSoftmax || C::dtype == Dtype::fp16;
  static constexpr float kMinusInfinity = -__builtin_inff();

  static constexpr int kTileM = round_up(C::tile_m, kBlockRows);
  static constexpr int kTileN = round_up(C::tile_n, 32);
  static constexpr int kBlocks = kTileN / kBlockColumns;
  static constexpr int kDepthQk = round_up(C::head_dim_qk, P::depth_step) / P::per_lane;
  static constexpr int kDepthV = kTileN / P::per_lane;  // lanes the product with V sums over
  static constexpr int kValues = round_up(C::head_dim_v, kBlockColumns);
  static constexpr int kProbabilityStride = kDepthV + kLanes;  // rows on different cache sets
  static constexpr long kPanelK = long{kDepthQk} * kLanes;
  static constexpr long kPanelV = long{kDepthV} * kLanes;

  void start_sequence(int b, int h) {
    const long long first_q = C::jagged ? a_.seq_offsets_q[b] : 0;
    const long long first_kv = C::jagged ? a_.seq_offsets_kv[b] : 0;
    const int seqlen_q = C::jagged ? a_.seq_offsets_q[b + 1] - a_.seq_offsets_q[b] : a_.seqlen_q;
    const int seqlen_kv =
        C::jagged ? a_.seq_offsets_kv[b + 1] - a_.seq_offsets_kv[b] : a_.seqlen_kv;
    const GroupArguments& group = C::grouped ? a_.groups[b / a_.batches_per_group] : a_.uniform;
    attn_scale_ = group.attn_scale;
    const int targets = C::targets && a_.num_targets != nullptr ? a_.num_targets[b] : 0;
    mask_ = resolve_mask(kFeatures, seqlen_q, seqlen_kv, targets, group.local_len,
                         group.context_len, group.minfull_len);
    q_ = a_.q + offset(a_.q_strides, b, first_q, h);
    k_ = a_.k + offset(a_.k_strides, b, first_kv, h);
    v_ = a_.v + offset(a_.v_strides, b, first_kv, h);
    o_ = a_.o + offset(a_.o_strides, b, first_q, h);
  }

  static long long offset(const Strides& s, int b, long long token, int h) {
    return (C::jagged ? 0 : b * s.batch) + token * s.seq + h * s.head;
  }

  // Packs Q, notes what each row sees, and starts each output row: with zero, or with a target
  // row's own key, which no interval holds.
  void start_rows() {
    pack_left<C::dtype, C::head_dim_qk, kDepthQk>(q_ + row0_ * a_.q_strides.seq, a_.q_strides.seq,
                                                  rows_, round_up(rows_, kBlockRows), q_lanes_[0],
                                                  kTileM * kDepthQk);
    for (int r = 0; r < round_up(rows_, kBlockRows); ++r) {
      row_begin_[r] = row_end_[r] = 0;
      row_max_[r] = kMinusInfinity;
      row_sum_[r] = 0;
      float* o = out_ + r * kValues;
      for (int c = 0; c < kValues; c += kLanes) store(o + c, VectorF{});
      if (r >= rows_) continue;
      const RowKeys keys = row_keys(kFeatures, mask_, row0_ + r);
      row_begin_[r] = keys.begin;
      row_end_[r] = keys.end;
      if (C::targets && !C::cross && keys.diagonal) start_with_own_key(r, o);
    }
  }

  void start_with_own_key(int r, float* o) {
    const unsigned short* q = q_ + (row0_ + r) * a_.q_strides.seq;
    const unsigned short* k = k_ + (row0_ + r) * a_.k_strides.seq;
    const unsigned short* v = v_ + (row0_ + r) * a_.v_strides.seq;
    VectorF dot{};
    for (int d = 0; d < C::head_dim_qk; d += kLanes)
      dot += values(q, d, C::head_dim_qk) * values(k, d, C::head_dim_qk);
    VectorF p = splat(1.0f);
    if constexpr (kSoftmax) {
      row_max_[r] = sum(dot) * (a_.alpha * kLog2E);
      row_sum_[r] = 1;
    } else {
      p = silu<kExact>(splat(sum(dot)), splat(a_.alpha), splat(-a_.alpha * kLog2E));
      p = round_to<C::dtype>(p);
    }
    for (int c = 0; c < C::head_dim_v; c += kLanes) store(o + c, p * values(v, c, C::head_dim_v));
  }

  static VectorF values(const unsigned short* from, int at, int dim) {
    if (at + kLanes <= dim) return to_float<C::dtype>(load<VectorH>(from + at));
    VectorH h{};
    for (int i = 0; i < dim - at; ++i) h[i] = from[at + i];
    return to_float<C::dtype>(h);
  }

  // Keys [key, min(key + kTileN, end)).
  void key_tile(int key, int end) {
    const int keys = min_of(end - key, kTileN);
    const int padded = round_up(keys, 32);
    pack_transposed<C::dtype, C::head_dim_qk, kDepthQk>(k_ + key * a_.k_strides.seq,
                                                        a_.k_strides.seq, keys, padded, k_lanes_[0],
                                                        kTileN * kDepthQk);
    pack_rows<C::dtype, C::head_dim_v, kValues, kDepthV>(v_ + key * a_.v_strides.seq,
                                                         a_.v_strides.seq, keys, padded,
                                                         v_lanes_[0], kDepthV * kValues);
    for (int r = 0; r < rows_; r += kBlockRows) {
      const Span span = span_of(r, key, keys);
      if (span.begin >= span.end) continue;
      logits(r, span);
      if constexpr (kSoftmax) {
        activate_softmax(r, key, span);
      } else {
        activate_silu(r, key, span);
      }
      add_values(r, span);
    }
  }

  // What the rows of one block see of a key tile: blocks of columns [begin, end), and the columns
  // [full_begin, full_end) all of them see.
  struct Span {
    int begin, end;
    int full_begin, full_end;
    bool full(int block) const {
      return block * kBlockColumns >= full_begin && (block + 1) * kBlockColumns <= full_end;
    }
  };

  Span span_of(int r, int key, int keys) const {
    int begin = kTileN, end = 0, full_begin = 0, full_end = kTileN;
    for (int i = r; i < min_of(r + kBlockRows, rows_); ++i) {
      const int row_begin = max_of(row_begin_[i] - key, 0);
      const int row_end = min_of(row_end_[i] - key, keys);
      full_begin = max_of(full_begin, row_begin);
      full_end = min_of(full_end, row_end);
      if (row_begin >= row_end) continue;
      begin = min_of(begin, row_begin);
      end = max_of(end, row_end);
    }
    // Depth steps of the product with V are 32 keys wide at most.
    constexpr int unit = kAmx ? 32 : kBlockColumns;
    return {begin / unit * unit / kBlockColumns, round_up(end, unit) / kBlockColumns, full_begin,
            full_end};
  }

  // s = q k^T for the block of rows at r and the blocks of columns of the span.
  void logits(int r, const Span& span) {
    for (int block = span.begin; block < span.end; ++block) {
      float* s = s_[block];
      const long column = long{block} * kBlockColumns * kDepthQk;
#if defined(__AMX_TILE__) && defined(__AMX_BF16__)
      amx_zero_block();
      for (int pass = 0; pass < kPasses; ++pass)
        for (int d = 0; d < kDepthQk; d += 16)
          amx_step(q_lanes_[pass == 2] + r * kDepthQk + d, kDepthQk,
                   k_lanes_[pass == 1] + column + d * kLanes, kPanelK);
      amx_store_block(s, kBlockColumns);
#else
      block_product<P::pairs, false>(q_lanes_[0] + r * kDepthQk, kDepthQk, k_lanes_[0] + column,
                                     kPanelK, kDepthQk, s, kBlockColumns);
#endif
    }
  }

  // out += p v for the block of rows at r over the columns of the span.
  void add_values(int r, const Span& span) {
    const int first = span.begin * kBlockColumns / P::per_lane;
    const int depth = (span.end - span.begin) * kBlockColumns / P::per_lane;
    for (int c = 0; c < kValues; c += kBlockColumns) {
      float* o = out_ + r * kValues + c;
      const long column = long{c} * kDepthV + long{first} * kLanes;
#if defined(__AMX_TILE__) && defined(__AMX_BF16__)
      amx_load_block(o, kValues);
      for (int pass = 0; pass < kPasses; ++pass)
        for (int d = 0; d < depth; d += 16)
          amx_step(p_lanes_[pass == 2] + first + d, kProbabilityStride,
                   v_lanes_[pass == 1] + column + d * kLanes, kPanelV);
      amx_store_block(o, kValues);
#else
      block_product<P::pairs, true>(p_lanes_[0] + first, kProbabilityStride, v_lanes_[0] + column,
                                    kPanelV, depth, o, kValues);
#endif
    }
  }

  // Keeps of two vectors at column c the lanes in [begin, end).
  struct Two {
    VectorF low, high;
    HSTU_INLINE void keep(int c, int begin, int end, VectorF other) {
      const VectorI at = lane_index() + c;
      low = select((at >= begin) & (at < end), low, other);
      high = select((at + kLanes >= begin) & (at + kLanes < end), high, other);
    }
  };

  HSTU_INLINE void store_probabilities(int row, int block, const Two& p) {
    const int at = row * kProbabilityStride + block * kBlockColumns / P::per_lane;
    if constexpr (!P::pairs) {
      store(p_lanes_[0] + at, (VectorU)round_to<C::dtype>(p.low));
      store(p_lanes_[0] + at + kLanes, (VectorU)round_to<C::dtype>(p.high));
    } else {
      VectorU lanes[P::parts];
      if constexpr (P::parts == 1) {
        P::split(p.low, p.high, lanes);
      } else {
        P::split(round_to<C::dtype>(p.low), round_to<C::dtype>(p.high), lanes);
      }
      for (int part = 0; part < P::parts; ++part) store(p_lanes_[part] + at, lanes[part]);
    }
  }

  void activate_silu(int r, int key, const Span& span) {
    const VectorF scale = splat(a_.alpha), scale_log2 = splat(-a_.alpha * kLog2E);
    for (int block = span.begin; block < span.end; ++block) {
      const bool full = span.full(block);
      for (int i = 0; i < kBlockRows; ++i) {
        const float* s = s_[block] + i * kBlockColumns;
        Two p{silu<kExact>(load<VectorF>(s), scale, scale_log2),
              silu<kExact>(load<VectorF>(s + kLanes), scale, scale_log2)};
        if (!full)
          p.keep(block * kBlockColumns, row_begin_[r + i] - key, row_end_[r + i] - key, VectorF{});
        store_probabilities(i, block, p);
      }
    }
  }

  // Online softmax in base 2: raises the running maximum, rescales what is there, adds this tile.
  void activate_softmax(int r, int key, const Span& span) {
    const VectorF scale = splat(a_.alpha * kLog2E);
    for (int i = 0; i < kBlockRows; ++i) {
      const int begin = row_begin_[r + i] - key, end = row_end_[r + i] - key;
      VectorF top = splat(kMinusInfinity);
      for (int block = span.begin; block < span.end; ++block) {
        float* s = s_[block] + i * kBlockColumns;
        Two t{load<VectorF>(s) * scale, load<VectorF>(s + kLanes) * scale};
        if (!span.full(block)) t.keep(block * kBlockColumns, begin, end, splat(kMinusInfinity));
        top = at_least(t.low, at_least(t.high, top));
        store(s, t.low);
        store(s + kLanes, t.high);
      }
      const float before = row_max_[r + i];
      const float now = largest(at_least(top, splat(before)));
      const float subtract = now == kMinusInfinity ? 0.0f : now;
      VectorF total{};
      for (int block = span.begin; block < span.end; ++block) {
        const float* s = s_[block] + i * kBlockColumns;
        Two p{exp2_of<true>(load<VectorF>(s) - splat(subtract)),
              exp2_of<true>(load<VectorF>(s + kLanes) - splat(subtract))};
        if (!span.full(block)) p.keep(block * kBlockColumns, begin, end, VectorF{});
        total += p.low + p.high;
        store_probabilities(i, block, p);
      }
      row_max_[r + i] = now;
      if (now != before && before != kMinusInfinity) {
        const VectorF factor = exp2_of<true>(splat(before - now));
        row_sum_[r + i] *= factor[0];
        float* o = out_ + (r + i) * kValues;
        for (int c = 0; c < kValues; c += kLanes) store(o + c, load<VectorF>(o + c) * factor);
      }
      row_sum_[r + i] += sum(total);
    }
  }

  void finish_rows(int b, int h) {
    for (int r = 0; r < rows_; ++r) {
      float factor = attn_scale_;
      if constexpr (kSoftmax) factor = row_sum_[r] == 0 ? 0.0f : attn_scale_ / row_sum_[r];
      unsigned short* to = o_ + (row0_ + r) * a_.o_strides.seq;
      for (int c = 0; c < C::head_dim_v; c += kLanes) {
        const VectorH h16 =
            from_float<C::dtype>(load<VectorF>(out_ + r * kValues + c) * splat(factor));
        if (c + kLanes <= C::head_dim_v) {
          store(to + c, h16);
        } else {
          for (int i = 0; i < C::head_dim_v - c; ++i) to[c + i] = h16[i];
        }
      }
      if constexpr (C::write_lse) {
        const long long first = C::jagged ? a_.seq_offsets_q[b] : 0;
        a_.lse[offset(a_.lse_strides, b, first + row0_ + r, h)] =
            row_sum_[r] == 0 ? kMinusInfinity : row_max_[r] / kLog2E + log_of(row_sum_[r]);
      }
    }
  }

  const ForwardArguments& a_;
  SequenceMask mask_;
  float attn_scale_;
  const unsigned short *q_, *k_, *v_;  // token 0 of the sequence, this head
  unsigned short* o_;
  int row0_, rows_;

  static constexpr int kPasses = P::parts == 1 ? 1 : 3;  // products of parts, see pack.h
  alignas(64) unsigned q_lanes_[P::parts][kTileM * kDepthQk];
  alignas(64) unsigned k_lanes_[P::parts][kTileN * kDepthQk];
  alignas(64) unsigned v_lanes_[P::parts][kDepthV * kValues];
  alignas(64) unsigned p_lanes_[P::parts][kBlockRows * kProbabilityStride];
  alignas(64) float s_[kBlocks][kBlockRows * kBlockColumns];
  alignas(64) float out_[kTileM * kValues];
  int row_begin_[kTileM], row_end_[kTileM];  // visible keys of each row
  float row_max_[kTileM], row_sum_[kTileM];  // softmax, in base 2
};

}  // namespace hstu

// The entry: called by every thread of the launch with the same arguments and queue.
extern "C" __attribute__((visibility("default"))) void HSTU_ENTRY(
    const hstu::ForwardArguments* arguments, hstu::WorkQueue* queue) {
  if (arguments->batch <= 0 || arguments->heads <= 0) return;
#if defined(__AMX_TILE__) && defined(__AMX_BF16__)
  hstu::amx_begin();
#endif
  hstu::ForwardCpu kernel(*arguments);
  for (long long item = take_work(queue); item >= 0; item = take_work(queue))
    kernel.run_item(item, queue->end);
#if defined(__AMX_TILE__) && defined(__AMX_BF16__)
  hstu::amx_end();
#endif
}
