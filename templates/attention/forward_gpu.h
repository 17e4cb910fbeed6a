// SPDX-License-Identifier: Apache-2.0
// HSTU attention forward on a GPU: one workgroup computes one tile of query rows of one head, in
// steps of tile_n keys. Written once over the tile layer (tile/tile.h).
//
// Launched with batch * heads * ceil(seqlen_q / tile_m) workgroups in one dimension. Needs strides
// of q, k, v and o that are multiples of 8 elements, and bases aligned to 16 bytes; a machine may
// bound the strides of k and v (see its tile file).
#pragma once

#include "attention/arguments.h"
#include "attention/config.h"
#include "base/types.h"
#include "mask/mask.h"

namespace hstu {

// The workgroup's place in the problem, the same for all its lanes.
struct WorkTile {
  int batch, head;
  int first_row;  // of the tile, within the sequence
  int seqlen_q, seqlen_kv;
  long long first_q, first_kv;  // token index of the sequence's start (jagged), 0 (batched)
  GroupArguments group;
  SequenceMask mask;
};

template <class C>
HSTU_HOST_DEVICE constexpr MaskFeatures mask_features() {
  return {C::causal, C::cross, C::local, C::context, C::minfull, C::targets};
}

// Blocks of one (sequence, head) are neighbours, last query tile first: under a causal mask it is
// the longest, and its keys stay in cache for the ones after it.
template <class C>
HSTU_DEVICE WorkTile work_tile(const ForwardArguments& a, long long block) {
  WorkTile w{};
  // A grid has fewer than 2^32 workgroups; 32-bit division is much shorter.
  const unsigned index = static_cast<unsigned>(block);
  const unsigned tiles = ceil_div(a.seqlen_q, C::tile_m);
  const unsigned pair = index / tiles;
  w.first_row = static_cast<int>(tiles - 1 - (index - pair * tiles)) * C::tile_m;
  const unsigned heads = a.heads;
  w.batch = static_cast<int>(pair / heads);
  w.head = static_cast<int>(pair - w.batch * heads);
  w.seqlen_q = a.seqlen_q;
  w.seqlen_kv = a.seqlen_kv;
  if (C::jagged) {
    const int first_q = same_in_all_lanes(a.seq_offsets_q[w.batch]);
    const int first_kv = same_in_all_lanes(a.seq_offsets_kv[w.batch]);
    w.first_q = first_q;
    w.first_kv = first_kv;
    w.seqlen_q = same_in_all_lanes(a.seq_offsets_q[w.batch + 1]) - first_q;
    w.seqlen_kv = same_in_all_lanes(a.seq_offsets_kv[w.batch + 1]) - first_kv;
  }
  w.group = a.uniform;
  if (C::grouped) {
    w.group = a.groups[w.batch / a.batches_per_group];
    w.group.local_len = same_in_all_lanes(w.group.local_len);
    w.group.context_len = same_in_all_lanes(w.group.context_len);
    w.group.minfull_len = same_in_all_lanes(w.group.minfull_len);
  }
  const int targets = C::targets ? same_in_all_lanes(a.num_targets[w.batch]) : 0;
  w.mask = resolve_mask(mask_features<C>(), w.seqlen_q, w.seqlen_kv, targets, w.group.local_len,
                        w.group.context_len, w.group.minfull_len);
  return w;
}

// The key tiles of a query tile: first those of the hull, then those that only hold target rows'
// own keys. Step s covers keys [first_key(s), first_key(s) + tile_n).
template <class C>
struct KeySteps {
  int main_begin, main_count, diagonal_begin, count;

  HSTU_DEVICE explicit KeySteps(const TileKeys& t) {
    main_begin = t.begin / C::tile_n;
    const int main_end = ceil_div(t.end, C::tile_n);
    main_count = main_end - main_begin;
    count = main_count;
    diagonal_begin = 0;
    if (C::targets && !C::cross) {
      diagonal_begin = max_of(t.diagonal_begin / C::tile_n, main_count > 0 ? main_end : 0);
      count += max_of(ceil_div(t.diagonal_end, C::tile_n) - diagonal_begin, 0);
    }
  }
  HSTU_DEVICE int first_key(int s) const {
    return (s < main_count ? main_begin + s : diagonal_begin + s - main_count) * C::tile_n;
  }
};

template <class C, class T>
HSTU_DEVICE void forward_gpu(const ForwardArguments& a, char* lds) {
  constexpr MaskFeatures f = mask_features<C>();
  constexpr bool softmax = C::activation == Activation::softmax;
  constexpr float log2e = 1.4426950408889634f;
  // Softmax: exponentials are 2^lift times as large, so that small ones in fp16 are still normal
  // numbers; matrix units of gfx90a take denormals for zero.
  constexpr float lift = C::dtype == Dtype::fp16 ? 4.0f : 0.0f;

  const WorkTile w = work_tile<C>(a, T::block());
  if (w.first_row >= w.seqlen_q) return;
  const int wave_row = w.first_row + T::wave() * T::rows_per_wave;
  const int wave_rows = max_of(0, min_of(w.seqlen_q - wave_row, T::rows_per_wave));

  const long long q_row = w.first_q + wave_row;
  const typename T::Keys keys{
      a.k + w.batch * a.k_strides.batch + w.first_kv * a.k_strides.seq + w.head * a.k_strides.head,
      a.v + w.batch * a.v_strides.batch + w.first_kv * a.v_strides.seq + w.head * a.v_strides.head,
      a.k_strides.seq, a.v_strides.seq, w.seqlen_kv};

  const KeySteps<C> steps(tile_keys(f, w.mask, w.first_row, w.first_row + C::tile_m));
  typename T::Stage stage;
  if (steps.count > 0) T::fetch(stage, lds, keys, steps.first_key(0), 0);
  // After the first fetch, because a machine may wait here for all loads.
  typename T::Q q;
  T::load_q(q,
            a.q + w.batch * a.q_strides.batch + q_row * a.q_strides.seq + w.head * a.q_strides.head,
            a.q_strides.seq, wave_rows);

  const TileKeys wave_keys = tile_keys(f, w.mask, wave_row, wave_row + T::rows_per_wave);
  RowKeys seen[T::row_slots];
  for (int r = 0; r < T::row_slots; ++r) {
    const int row = wave_row + T::row(r);
    seen[r] = row < w.seqlen_q ? row_keys(f, w.mask, row) : RowKeys{0, 0, false};
  }

  typename T::O o;
  T::zero(o);
  float row_max[T::row_slots], row_sum[T::row_slots];  // softmax: of the log2-scaled logits
  for (int r = 0; r < T::row_slots; ++r) {
    row_max[r] = -infinity();
    row_sum[r] = 0.0f;
  }
  const float scale_log2 = a.alpha * log2e;

  for (int s = 0; s < steps.count; ++s) {
    const int buffer = s & 1;
    T::land(stage, lds, buffer);
    T::barrier();
    if (s + 1 < steps.count) T::fetch(stage, lds, keys, steps.first_key(s + 1), 1 - buffer);
#pragma unroll
    for (int part = 0; part < T::parts; ++part) {
      const int first_key = steps.first_key(s) + part * T::part_keys;
      const TileClass tile_class =
          classify(wave_keys, first_key, min_of(first_key + T::part_keys, w.seqlen_kv));
      if (first_key >= w.seqlen_kv || tile_class == TileClass::skip) continue;
      float x[T::elements];
      T::logits(x, q, lds, buffer, part);
      if (softmax) {
        for (int e = 0; e < T::elements; ++e) x[e] *= scale_log2;
      }
      // Keys past the end are zero: SiLU(0) = 0 hides them, softmax has to mask them. Such a part
      // is never `full` for softmax because classify() is asked with the unclipped end there.
      const bool masked =
          tile_class == TileClass::partial || (softmax && first_key + T::part_keys > w.seqlen_kv);
      if (masked) {
#pragma unroll
        for (int e = 0; e < T::elements; ++e) {
          const int r = T::slot(e);
          const int key = first_key + T::key(e);
          const bool sees =
              static_cast<unsigned>(key - seen[r].begin) <
                  static_cast<unsigned>(seen[r].end - seen[r].begin) ||
              (f.targets && !f.cross && seen[r].diagonal && key == wave_row + T::row(r));
          if (!sees) x[e] = softmax ? -infinity() : 0.0f;
        }
      }
      if (softmax) {
        float base[T::row_slots];
        for (int r = 0; r < T::row_slots; ++r) {
          float m = -infinity();
          for (int e = 0; e < T::elements; ++e)
            if (T::slot(e) == r) m = larger(m, x[e]);
          m = T::row_max(m);
          const float grown = larger(row_max[r], m);
          base[r] = grown == -infinity() ? 0.0f : grown;  // a row with nothing seen yet stays at 0
          const float shrink = T::exp2(row_max[r] - base[r]);
          base[r] -= lift;
          row_max[r] = grown;
          row_sum[r] *= shrink;
          T::scale(o, r, shrink);
        }
        for (int e = 0; e < T::elements; ++e) {
          x[e] = T::exp2(x[e] - base[T::slot(e)]);
          row_sum[T::slot(e)] += x[e];
        }
      } else {
        // log2(e) * silu(alpha x); the factor leaves through the output's scale.
        for (int e = 0; e < T::elements; ++e) {
          const float logit = x[e] * scale_log2;
          x[e] = logit * T::rcp(1.0f + T::exp2(-logit));
        }
      }
      T::accumulate(o, x, lds, buffer, part);
    }
  }

  // Where the rows lie is worked out again rather than kept: machines without scalar registers
  // would hold it in every lane all along the loop.
  const WorkTile place = work_tile<C>(a, T::block());
  const int first_row = place.first_row + T::wave() * T::rows_per_wave;
  const int rows = max_of(0, min_of(place.seqlen_q - first_row, T::rows_per_wave));
  const long long token = place.first_q + first_row;
  float factor[T::row_slots];
  for (int r = 0; r < T::row_slots; ++r) {
    factor[r] = place.group.attn_scale * (1 / log2e);
    if (softmax) {
      const float sum = T::row_sum(row_sum[r]);
      factor[r] = sum > 0.0f ? place.group.attn_scale / sum : 0.0f;
      const int row = T::row(r);
      if (C::write_lse && row < rows && T::first_of_row(r)) {
        const float lse =
            sum > 0.0f ? (row_max[r] + (T::log2(sum) - lift)) * 0.6931471805599453f : -infinity();
        a.lse[place.batch * a.lse_strides.batch + (token + row) * a.lse_strides.seq +
              place.head * a.lse_strides.head] = lse;
      }
    }
  }
  T::store(o, factor,
           a.o + place.batch * a.o_strides.batch + token * a.o_strides.seq +
               place.head * a.o_strides.head,
           a.o_strides.seq, rows);
}

}  // namespace hstu
