// SPDX-License-Identifier: Apache-2.0
// HSTU attention forward on CDNA: forward_gpu() with the main loop of tile/cdna_slots.h. Same
// launch, same needs.
//
// Keys pass through LDS in steps of tile_n, K one step ahead of V. Every wave does the same in a
// step, and in this order, whatever its rows see:
//   barrier s       K of steps s and s + 1 and V of step s are in LDS
//   land            K of step s + 2 in the place of step s's, V of step s + 1
//   fetch           K of step s + 3, V of step s + 2
// so before barrier s a wave has read K of step s, and V of step s - 1.
#pragma once

#include "attention/forward_gpu.h"
#include "tile/cdna_feed.h"
#include "tile/cdna_slots.h"

namespace hstu {

// The steps of a workgroup (KeySteps), and what one wave does in them.
template <class C>
struct WaveSteps {
  using T = Tile<C>;
  static constexpr bool own_keys = C::targets && !C::cross;
  TileKeys wave;
  int main_begin, main_count, own_begin, count, seqlen_kv;

  HSTU_DEVICE WaveSteps(const TileKeys& all, const TileKeys& wave_keys, int key_count)
      : wave(wave_keys), seqlen_kv(key_count) {
    if constexpr (C::waves_per_simd == 1) {
      // LLVM 15 keeps what comes out of branches in vector registers, which are short here; scalar
      // ones are elsewhere.
      wave.begin = same_in_all_lanes(wave.begin);
      wave.end = same_in_all_lanes(wave.end);
      wave.full_begin = same_in_all_lanes(wave.full_begin);
      wave.full_end = same_in_all_lanes(wave.full_end);
      wave.diagonal_begin = same_in_all_lanes(wave.diagonal_begin);
      wave.diagonal_end = same_in_all_lanes(wave.diagonal_end);
    }
    const KeySteps<C> steps(all);
    main_begin = steps.main_begin;
    main_count = steps.main_count;
    own_begin = steps.diagonal_begin;
    count = steps.count;
    // Keys past the end are zero, and SiLU(0) = 0.
    if (C::activation != Activation::softmax && wave.full_end >= seqlen_kv) wave.full_end = 1 << 30;
  }
  HSTU_DEVICE int first_key(int s) const {
    int key = s < main_count ? (main_begin + s) * C::tile_n : seqlen_kv;
    if (own_keys && s >= main_count && s < count) key = (own_begin + s - main_count) * C::tile_n;
    return key;
  }
  // Some row of the wave sees a key of step s.
  HSTU_DEVICE bool works(int s) const {
    const int key = first_key(s);
    return classify(wave, key, min_of(key + C::tile_n, seqlen_kv)) != TileClass::skip;
  }
  // Every row sees all keys of the steps from s to before this one, perhaps s itself.
  HSTU_DEVICE int fast_end(int s) const {
    if (first_key(s) < wave.full_begin) return s;
    return min_of(wave.full_end / C::tile_n - main_begin, main_count);
  }
  // Not every row sees all keys of the part.
  HSTU_DEVICE bool masked(int key) const {
    return key < wave.full_begin || key + T::part_keys > wave.full_end;
  }
};

template <class C>
struct CdnaForward {
  using T = Tile<C>;
  using S = Slots<C>;

  const WaveSteps<C>& steps;
  Feed<C>& feed;
  typename Feed<C>::Load& load;
  int v_key;  // first key of step s + 2
  S& slots;
  char* lds;

  // Work beside matrix instructions: none, or a restock in pieces, one behind every second of them.
  struct Nothing {
    template <int>
    HSTU_DEVICE void run() {}
  };
  struct Restock {
    Feed<C>& feed;
    typename Feed<C>::Load& load;
    char* lds;
    int first_k, first_v;
    template <int n>
    HSTU_DEVICE void run() {
      constexpr int all = amd::kProducts * S::k_slots, every = all / Feed<C>::pieces;
      static_assert(every > 0, "more pieces than matrix instructions");
      if constexpr (n % every == 0) feed.template piece<n / every>(load, lds, first_k, first_v);
    }
  };

  // What follows barrier s.
  HSTU_DEVICE void restock(int s) {
    feed.land(load, lds);
    amd::keep_order();
    const int ahead = steps.first_key(s + 3);
    feed.fetch(load, ahead, v_key);
    v_key = ahead;
    amd::keep_order();
  }
  HSTU_DEVICE void meet() {
    amd::lds_barrier();
    slots.next_v();
  }

  // Steps from s on, all keys from `key` to before `end` in them, which every row sees. Leaves the
  // last step with the logits of its last part, which is still to be finished; returns that step.
  HSTU_DEVICE int fast_steps(int s, int end) {
    Nothing nothing;
    slots.begin(lds);
    if constexpr (T::parts == 2) {
      // While the logits of one part are computed, the other is on its way to the output.
      slots.read_ahead(lds, 1);
      slots.template logits_group<0, 1, 0, true>(lds, nothing);
      slots.template output_group<0, 0, 0, true, false>(lds);
      restock(s);
      do {
        slots.template logits_group<1, 0, 1, false>(lds, nothing);
        slots.template output_group<1, 1, 1, false, false>(lds);
        ++s;
        slots.template logits_group<0, 1, 0, true>(lds, nothing);
        slots.template output_group<0, 0, 0, true, false>(lds);
        restock(s);
      } while (s + 1 < end);
    } else {
      // A turn of the loop reaches from one barrier to the next.
      meet();
      slots.next_k();
      slots.read_ahead(lds, 0);
      do {
        if constexpr (Feed<C>::in_pieces) {
          Restock beside{feed, load, lds, steps.first_key(s + 3), v_key};
          slots.template logits_group<0, 0, 0, false>(lds, beside);
          v_key = beside.first_k;
        } else {
          restock(s);
          slots.template logits_group<0, 0, 0, false>(lds, nothing);
        }
        slots.template output_group<0, 0, 0, true, true>(lds);
        slots.next_v();
#pragma unroll
        for (int j = 0; j < 2; ++j) slots.p[0][j] = slots.p[1][j];
      } while (++s + 1 < end);
      restock(s);
    }
    slots.drop();
    return s;
  }

  // One step, whatever its rows see.
  HSTU_DEVICE void exact_step(int s) {
    const bool works = steps.works(s);
    if (works) {
#pragma unroll
      for (int c = 0; c < T::parts; ++c) slots.compute_logits(lds, c);
    }
    meet();
    slots.next_k();
    restock(s);
    if (works) {
#pragma unroll
      for (int c = 0; c < T::parts; ++c) finish(s, c);
    }
  }
  HSTU_DEVICE void finish(int s, int c) {
    const int key = steps.first_key(s) + T::part_keys * c;
    slots.finish(lds, c, key, steps.masked(key));
  }

  // Not "fast or exact": compilers lay the two ways out one behind the other, and would keep the
  // output of before the first for the second.
  HSTU_DEVICE void run(int exact) {
    for (int s = 0; s < steps.count; ++s) {
      const int fast_end = exact != 0 ? s : steps.fast_end(s);
      if (fast_end > s + 1) {
        s = fast_steps(s, fast_end);
        finish(s++, T::parts - 1);
      }
      if (s < steps.count) exact_step(s);
    }
  }
};

// True in all waves of the workgroup if `yes` is in one of their lanes. LDS is free before and
// after.
template <class C>
HSTU_DEVICE bool any_wave(bool yes, char* lds) {
  using T = Tile<C>;
  const unsigned mine = amd::any(yes) ? 1 : 0;
  amd::lds_barrier();
  amd::write_lds(lds, T::wave() * 16, amd::Words4{mine, mine, mine, mine});
  amd::lds_barrier();
  const amd::Words4 one = amd::read_lds(lds, T::lane() % C::waves * 16);
  const unsigned theirs = one[0];
  const bool all = amd::any(theirs != 0);
  amd::lds_barrier();
  return all;
}

template <class C>
HSTU_DEVICE void write_output(const ForwardArguments& argument, const Slots<C>& slots) {
  using T = Tile<C>;
  const ForwardArguments& a = amd::argument_again(argument);
  constexpr float log2e = 1.4426950408889634f;
  const WorkTile w = work_tile<C>(a, T::block());
  const int first_row = w.first_row + T::wave() * T::rows_per_wave;
  const int rows = max_of(0, min_of(w.seqlen_q - first_row, T::rows_per_wave));
  const long long token = w.first_q + first_row;
  float factor[1] = {w.group.attn_scale * (1 / log2e)};
  if constexpr (Slots<C>::lift != 1.0f) {
    if (slots.raised != 1.0f) factor[0] *= 1 / Slots<C>::lift;
  }
  if constexpr (Slots<C>::softmax) {
    const float sum = T::row_sum(slots.total.x + slots.total.y);
    factor[0] = sum > 0.0f ? w.group.attn_scale / (sum * Slots<C>::one) : 0.0f;
    const int r = T::row(0);
    if (C::write_lse && r < rows && T::first_of_row(0)) {
      const float lse =
          sum > 0.0f ? (slots.base.x + T::log2(sum)) * 0.6931471805599453f : -infinity();
      a.lse[w.batch * a.lse_strides.batch + (token + r) * a.lse_strides.seq +
            w.head * a.lse_strides.head] = lse;
    }
  }
  T::store(slots.o, factor,
           a.o + w.batch * a.o_strides.batch + token * a.o_strides.seq + w.head * a.o_strides.head,
           a.o_strides.seq, rows);
}

template <class C>
HSTU_DEVICE void forward_cdna(const ForwardArguments& a, char* lds) {
  using T = Tile<C>;
  if constexpr (!Slots<C>::possible) {
    forward_gpu<C, T>(a, lds);
  } else {
    constexpr MaskFeatures f = mask_features<C>();
    constexpr float log2e = 1.4426950408889634f;

    const WorkTile w = work_tile<C>(a, T::block());
    if (w.first_row >= w.seqlen_q) return;
    const int wave_row = w.first_row + T::wave() * T::rows_per_wave;
    const WaveSteps<C> steps(tile_keys(f, w.mask, w.first_row, w.first_row + C::tile_m),
                             tile_keys(f, w.mask, wave_row, wave_row + T::rows_per_wave),
                             w.seqlen_kv);
    Feed<C> feed({a.k + w.batch * a.k_strides.batch + w.first_kv * a.k_strides.seq +
                      w.head * a.k_strides.head,
                  a.v + w.batch * a.v_strides.batch + w.first_kv * a.v_strides.seq +
                      w.head * a.v_strides.head,
                  a.k_strides.seq, a.v_strides.seq, w.seqlen_kv});
    typename Feed<C>::Load first, load;
    constexpr bool big = Feed<C>::units > 1;  // no room for the loads of two steps
    feed.fetch(first, steps.first_key(0), steps.first_key(0));
    if constexpr (!big) feed.fetch(load, steps.first_key(1), steps.first_key(1));
    Slots<C> slots;
    // After the first fetches, because a machine may wait here for all loads.
    T::load_q(slots.q,
              a.q + w.batch * a.q_strides.batch + (w.first_q + wave_row) * a.q_strides.seq +
                  w.head * a.q_strides.head,
              a.q_strides.seq, max_of(0, min_of(w.seqlen_q - wave_row, T::rows_per_wave)));
    const int row = wave_row + T::row(0), own_first = T::key(0);
    const RowKeys seen = row < w.seqlen_q ? row_keys(f, w.mask, row) : RowKeys{0, 0, false};
    slots.view = {seen.begin - own_first, seen.end - seen.begin,
                  (seen.diagonal ? row : -(1 << 30)) - own_first};
    // Maxima are taken of unscaled logits: a negative scale becomes the queries'.
    const bool negative = Slots<C>::softmax && a.alpha < 0.0f;
    const float scale = (negative ? -a.alpha : a.alpha) * log2e;
    slots.scale = {scale, scale};
    if (negative) T::negate(slots.q);
    slots.raised = Slots<C>::lift;

    // Rows that see no key are written too, as zeros.
    if (steps.count <= 0) slots.clear();
    for (int exact = 0; steps.count > 0;) {
      slots.clear();
      feed.land(first, lds);
      if constexpr (big) feed.fetch(load, steps.first_key(1), steps.first_key(1));
      feed.land(load, lds, true);
      feed.fetch(load, steps.first_key(2), 0, true);
      amd::lds_barrier();
      CdnaForward<C>{steps, feed, load, steps.first_key(2), slots, lds}.run(exact);
      if (exact != 0 || !any_wave<C>(slots.overflow(), lds)) break;
      // Once more.
      exact = 1;
      slots.raised = 1.0f;
      feed.rewind();
      feed.fetch(first, steps.first_key(0), steps.first_key(0));
      if constexpr (!big) feed.fetch(load, steps.first_key(1), steps.first_key(1));
    }
    write_output(a, slots);
  }
}

}  // namespace hstu
