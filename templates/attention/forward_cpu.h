// SPDX-License-Identifier: Apache-2.0
// Forward attention on the CPU. Threads take (sequence, head, query tile) items from a queue; an
// item packs its rows of Q, walks over the key tiles any of them sees and writes its rows of O.
#pragma once

// Kernels of several configurations live in one process: only the entry is seen from outside.
#pragma GCC visibility push(hidden)

#include "attention/arguments.h"
#include "attention/config.h"
#include "attention/cpu_tile.h"
#include "attention/work_queue.h"
#include "mask/mask.h"

namespace hstu {

class ForwardCpu : CpuTile {
 public:
  explicit ForwardCpu(const ForwardArguments& arguments) : a_(arguments) {
    alpha_ = arguments.alpha;
  }

  // Item `index` of `count`: the query tiles of one sequence and head follow each other, so that
  // its keys and values are still in the cache; the last rows first, which under a causal mask take
  // longest.
  void run_item(long long index, long long count) {
    const long long tiles = count / a_.batch / a_.heads;
    const int tile = static_cast<int>(tiles - 1 - index % tiles);
    const int b = static_cast<int>(index / tiles / a_.heads);
    const int h = static_cast<int>(index / tiles % a_.heads);
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
  static constexpr MaskFeatures kFeatures{C::causal,  C::cross,   C::local,
                                          C::context, C::minfull, C::targets};

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
      if constexpr (kSoftmax) store(row_sum_[r], VectorF{});
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
      row_sum_[r][0] = 1;
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
    pack_transposed<C::dtype, C::head_dim_qk, kDepthQk, kPanelK>(
        k_ + key * a_.k_strides.seq, a_.k_strides.seq, keys, padded, k_lanes_[0], kSizeK);
    pack_rows<C::dtype, C::head_dim_v, kValues, kPanelV>(
        v_ + key * a_.v_strides.seq, a_.v_strides.seq, keys, padded, v_lanes_[0], kSizeV);
    next_ = {k_ + (key + kTileN) * a_.k_strides.seq, v_ + (key + kTileN) * a_.v_strides.seq,
             a_.k_strides.seq, a_.v_strides.seq, max_of(0, min_of(end - key - kTileN, kTileN))};
    multiply_tile(rows_, key, keys);
  }

  void finish_rows(int b, int h) {
    for (int r = 0; r < rows_; ++r) {
      float factor = attn_scale_;
      float total = 0;
      if constexpr (kSoftmax) {
        total = sum(load<VectorF>(row_sum_[r]));
        factor = total == 0 ? 0.0f : attn_scale_ / total;
      }
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
            total == 0 ? kMinusInfinity : row_max_[r] / kLog2E + log_of(total);
      }
    }
  }

  const ForwardArguments& a_;
  SequenceMask mask_;
  float attn_scale_;
  const unsigned short *q_, *k_, *v_;  // token 0 of the sequence, this head
  unsigned short* o_;
  int row0_, rows_;
};

}  // namespace hstu

#pragma GCC visibility pop

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
