// SPDX-License-Identifier: Apache-2.0
// HSTU attention forward for NVIDIA's sm_90a. A persistent workgroup works through query tiles as
// one stream of key steps: its first warpgroup names the tiles and keeps K, V and Q coming through
// the copy engine, each of the others computes 64 rows.
//
// A step is fed in slices: S = Q K^T as one product, then the activation of 16 keys at a time, each
// followed by its part of O += P V. The next step's Q K^T queues behind those products, so one wait
// covers both and the matrix unit never drains.
#pragma once

#include "attention/arguments.h"
#include "attention/config.h"
#include "attention/hopper_activation.h"
#include "attention/hopper_load.h"
#include "attention/hopper_pair.h"
#include "attention/hopper_seen.h"
#include "attention/hopper_tile.h"
#include "base/types.h"
#include "tile/hopper.h"

namespace hstu {

template <class C>
struct HopperForward {
  using S = HopperShape<C>;
  using T = HopperTileLayer<C>;
  using L = HopperLoad<C>;
  using A = HopperActivation<C>;
  template <int size>
  using Ring = HopperRing<size>;
  static constexpr bool softmax = C::activation == Activation::softmax;

  struct State {
    float o[T::o_count];
    typename A::Rows rows;
    Ring<S::ring> stage;
    int first_place;  // in memory, of the warpgroup's steps where it is apart
    // Barrier of queries whose memory is free when the next logits are there, or 0: these are the
    // last that need it, or, where output is staged, the tile before is written by then.
    unsigned q_done;
    int held;    // V stage that products under way still read, or -1
    bool fresh;  // no key of the tile was seen yet: o is to be started, not added to

    HSTU_DEVICE int place() const { return S::apart ? first_place + stage.at : stage.at; }
  };

  // Every warp gives back a buffer for itself, so none falls a round behind.
  HSTU_DEVICE static void release(unsigned barrier) {
    if (T::lane() == 0) hopper::arrive(barrier);
  }

  HSTU_DEVICE static void release_queries(State& w) {
    if (w.q_done != 0) {
      if (S::staged && T::lane() == 0) hopper::boxes_read();
      release(w.q_done);
    }
    w.q_done = 0;
  }

  // All products are done: gives back the V that the last of them read.
  HSTU_DEVICE static void drain(State& w, unsigned base) {
    hopper::product_wait<0>();
    hopper::pin<T::o_count>(w.o);
    if (w.held >= 0) release(base + S::v_empty + 8 * w.held);
    w.held = -1;
  }

  // What the output of a thread's rows is multiplied with; of softmax also writes their LSE, if
  // told to.
  HSTU_DEVICE static void finish(const ForwardArguments& a, const State& w, unsigned tile,
                                 int group, bool write_lse, float (&factor)[2]) {
    const HopperTile::Place place = L::place_of(tile);
    factor[0] = factor[1] = place.attn_scale;
    if (!softmax) return;
    // All lanes read the description, though not all need it: see `tile_empty` in compute().
    const int exist = C::write_lse ? L::needed_of(tile, group).exists : 0;
    const int first_row = (C::write_lse ? L::tokens_of(tile).first_q : 0) + place.first_row;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float sum = w.rows.sum[i];
      sum += nvidia::shuffle_xor(sum, 1);
      sum += nvidia::shuffle_xor(sum, 2);
      factor[i] = sum > 0.0f ? place.attn_scale / sum : 0.0f;
      if (C::write_lse && write_lse && T::row(i) < exist && T::lane() % 4 == 0) {
        const long long token = first_row + 64 * group + T::row(i);
        a.lse[place.batch * a.lse_strides.batch + token * a.lse_strides.seq +
              place.head * a.lse_strides.head] =
            sum > 0.0f ? (w.rows.max[i] + nvidia::log2(sum)) * 0.6931471805599453f : -infinity();
      }
    }
  }

  // Drains, then writes; by way of `queries`, the memory of the warpgroup's queries, where output
  // is staged.
  HSTU_DEVICE static void write(const HopperArguments& arguments, State& w, unsigned base,
                                unsigned tile, int group, unsigned queries) {
    const ForwardArguments& a = arguments.forward;
    const HopperTile::Place place = L::place_of(tile);
    const long long batch = place.batch, head = place.head;
    const int row = place.first_row + 64 * group;
    const int rows = L::needed_of(tile, group).exists;
    const long long token = L::tokens_of(tile).first_q + row;
    unsigned short* to =
        a.o + batch * a.o_strides.batch + token * a.o_strides.seq + head * a.o_strides.head;
    drain(w, base);
    float factor[2];
    finish(a, w, tile, group, true, factor);
    if (S::staged)
      T::store_staged(
          w.o, !w.fresh, factor, queries + hopper::thread_again() % 128 / 32 * 16 * S::row_bytes,
          {&arguments.o, static_cast<int>(token), place.head, C::jagged ? 0 : place.batch}, to,
          a.o_strides.seq, rows);
    else
      T::template store<S::v_width>(w.o, !w.fresh, factor, to, C::head_dim_v, a.o_strides.seq,
                                    rows);
  }

  // What the main loop has to know of a tile.
  struct Tile {
    int steps;  // -1: no tile is left
    int full_first, full_end;
    int seen_first, seen_end;
    int own_first, own_end;
    bool few;

    // Apart, no step is worth a way without a mask.
    HSTU_DEVICE bool full(int step) const {
      return !S::apart && step >= full_first && step < full_end;
    }
    // Whether the warpgroup's rows see anything of a step.
    HSTU_DEVICE bool seen(int step) const {
      return S::apart || (step >= seen_first && step < seen_end) ||
             (step >= own_first && step < own_end);
    }
  };
  // The drawn-th tile of the workgroup; waits until it is named.
  HSTU_DEVICE static Tile next(unsigned base, unsigned drawn, int group) {
    const unsigned slot = drawn % S::tile_slots;
    hopper::wait(base + S::tile_full + 8 * slot, drawn / S::tile_slots % 2);
    const unsigned tile = L::tile_at(base, slot);
    const HopperTile::Needed needed = L::needed_of(tile, group);
    int count = L::steps_of(tile).count;
    if (S::apart && count >= 0) count = L::steps_of(tile, group).count;
    Tile t{nvidia::uniform(count),
           nvidia::uniform(needed.full_first),
           nvidia::uniform(needed.full_end),
           nvidia::uniform(needed.seen_first),
           nvidia::uniform(needed.seen_end),
           0,
           0,
           !softmax && nvidia::uniform(needed.few)};
    if (C::targets && !C::cross) {
      t.own_first = nvidia::uniform(needed.own_first);
      t.own_end = nvidia::uniform(needed.own_end);
    }
    return t;
  }

  HSTU_DEVICE static void compute(const HopperArguments& arguments, char* shared, int warpgroup) {
    const ForwardArguments& a = arguments.forward;
    const unsigned base = nvidia::shared_address(shared);
    State w;
    w.held = -1;
    w.first_place = warpgroup * S::ring;
    w.q_done = 0;
    // Whether the next tile is looked at while the last products run: wider outputs leave no
    // register for it.
    constexpr bool ahead = S::v_width <= 128;
    Tile t{};
    const auto group_of = [&](unsigned drawn) {
      return nvidia::uniform(L::group_of(warpgroup, drawn));
    };
    if (ahead) t = next(base, 0, group_of(0));
    for (unsigned drawn = 0;; ++drawn) {  // all rings of tiles come from one number
      const int group = group_of(drawn);
      if (!ahead) t = next(base, drawn, group);
      if (t.steps < 0) break;
      const unsigned slot = drawn % S::tile_slots;
      const unsigned tile = L::tile_at(base, slot);
      const Tile now = t;
      const unsigned q_at = base + S::q + drawn % S::q_buffers * S::q_bytes;
      const unsigned buffer = drawn % S::q_buffers * S::warpgroups + warpgroup;
      hopper::wait(base + S::q_full + 8 * buffer, drawn / S::q_buffers % 2);
      const unsigned own_q = q_at + warpgroup * 64 * S::row_bytes;
      const unsigned long long queries = hopper::along_k(own_q);
      begin(w);
      const int stride = nvidia::uniform(L::workgroups_of_tile());
      int step = nvidia::uniform(L::part_of_tile());
      const bool early = S::early && stride == 1;
      const bool none = step >= now.steps;
      const auto last_queries = [&] {
        if (early && step + 1 == now.steps) w.q_done = base + S::q_empty + 8 * buffer;
      };
      while (step < now.steps) {
        if (now.full(step)) {
          for (; step < now.full_end; step += stride, w.stage.advance()) {
            last_queries();
            full_step(a, w, base, queries);
          }
          if (!S::late) drain(w, base);
          continue;
        }
        if (now.seen(step)) {
          last_queries();
          // The approximate tanh is off by 1e-5, too much for rows of a few keys whose logits may
          // all lie far below zero.
          if (S::apart || now.few)
            partial_step<true>(a, w, tile, shared, group, step, queries);
          else
            partial_step<false>(a, w, tile, shared, group, step, queries);
          step += stride;
          w.stage.advance();
          continue;
        }
        drain(w, base);  // a V that is held over several such steps would never be loaded again
        for (; step < now.steps && !now.seen(step); step += stride, w.stage.advance()) {
          last_queries();
          pass_over(w, base);
        }
      }
      if (S::staged) release_queries(w);  // of a tile without steps
      if (ahead) t = next(base, drawn + 1, group_of(drawn + 1));
      const unsigned q_empty = base + S::q_empty + 8 * buffer;
      if (S::splits && stride == 2) {
        drain(w, base);
        // A warpgroup that has no rows of shared tiles trades nothing: where its queries would be,
        // others do.
        if (group < kHopperSharedGroups) {
          HopperPair<C>::add_other_half(w.o, w.rows, w.fresh, base, q_at, group, drawn % 2);
          float factor[2];
          finish(a, w, tile, group, L::part_of_tile() == 0, factor);
          HopperPair<C>::write_half(a, w.o, factor, tile, group);
          hopper::proxy_fence();
        }
      } else {
        if (!S::staged && none) {
          hopper::warp_barrier();  // all lanes have seen that the queries are there
          release(q_empty);
        }
        write(arguments, w, base, tile, group, own_q);
        if (S::staged) w.q_done = q_empty;
      }
      hopper::warp_barrier();  // all lanes have read the description and what they staged
      if (S::splits && stride == 2) release(q_empty);
      // The last lane: checkers for races know of a word's last reader only.
      if (T::lane() == 31) hopper::arrive(base + S::tile_empty + 8 * slot);
    }
    if (S::staged && T::lane() == 0) hopper::boxes_read();  // shared memory ends with the workgroup
  }

  // Starts a new output.
  HSTU_DEVICE static void begin(State& w) {
    w.fresh = true;
    hopper::define<T::o_count>(w.o);
    if (softmax) {
      w.rows.max[0] = w.rows.max[1] = -infinity();
      w.rows.sum[0] = w.rows.sum[1] = 0.0f;
    }
  }

  // Begins to multiply queries with `count` keys at `k`.
  template <int count>
  HSTU_DEVICE static void begin_logits(float (&s)[count / 2], State& w, unsigned long long queries,
                                       unsigned k) {
    hopper::define<count / 2>(s);
    hopper::pin<T::o_count>(w.o);
    hopper::product_fence();
    T::template logits<count>(s, queries, hopper::along_k(k));
  }

  // They are there, and all earlier products are done too.
  template <int count>
  HSTU_DEVICE static void await_logits(float (&s)[count / 2], State& w, unsigned base) {
    hopper::product_wait<0>();
    hopper::pin<count / 2>(s);
    hopper::pin<T::o_count>(w.o);
    if (w.held >= 0) release(base + S::v_empty + 8 * w.held);
    w.held = -1;
    release(base + S::k_empty + 8 * w.place());
    release_queries(w);
  }

  // From logits of `count` keys to products: 16 keys at a time, so that the matrix unit starts on
  // the first while the rest are activated. V of the first key stands at `v_at`.
  template <int count, bool exact, class Hide>
  HSTU_DEVICE static void feed(float (&s)[count / 2], unsigned (&p)[count / 4], State& w,
                               float scale, const float (&shift)[2], unsigned v_at,
                               const Hide& hide) {
    const unsigned long long v = hopper::along_n(v_at, S::panel_bytes);
    // Two slices of exponentials at a time were 1 % faster than one.
    constexpr int slices = softmax && count % 32 == 0 ? 2 : 1;
#pragma unroll
    for (int first = 0; first < count / 16; first += slices) {
#pragma unroll
      for (int k = first; k < first + slices; ++k) {
        hide(s, 8 * k, 8 * k + 8);
        if (softmax)
          A::exponentials(s + 8 * k, p + 4 * k, w.rows, scale, shift);
        else
          A::template activate<exact>(s + 8 * k, p + 4 * k, scale);
      }
      hopper::pin<4 * slices>(p + 4 * first);
      if (first == 0) hopper::pin<T::o_count>(w.o);
      hopper::product_fence();
#pragma unroll
      for (int k = first; k < first + slices; ++k)
        T::accumulate(w.o, p + 4 * k, v + k * 128, k > 0 || !w.fresh);
      hopper::product_commit();
    }
    w.fresh = false;
    w.held = w.place();
  }

  // A step of which every row of the warpgroup sees every key.
  HSTU_DEVICE static void full_step(const ForwardArguments& a, State& w, unsigned base,
                                    unsigned long long queries) {
    hopper::wait(base + S::k_full + 8 * w.place(), w.stage.round);
    float s[T::s_count];
    unsigned p[C::tile_n / 4];
    begin_logits<C::tile_n>(s, w, queries, base + S::k + w.place() * S::k_bytes);
    // Where many steps are in memory V has long come: asking now saves time later.
    if (S::stages > 3) hopper::wait(base + S::v_full + 8 * w.place(), w.stage.round);
    await_logits<C::tile_n>(s, w, base);
    const float scale = A::template step_scale<false>(a);
    if (softmax) A::template turn<C::tile_n>(a, s);
    float shift[2];
    if (softmax) A::template raise<C::tile_n>(s, w.rows, w.o, scale, shift);
    if (S::stages <= 3) hopper::wait(base + S::v_full + 8 * w.place(), w.stage.round);
    feed<C::tile_n, false>(s, p, w, scale, shift, base + S::v + w.place() * S::v_bytes,
                           [](float*, int, int) {});
    if (!S::late) drain(w, base);
  }

  // A step that none of the warpgroup's rows sees anything of; no products are under way.
  HSTU_DEVICE static void pass_over(State& w, unsigned base) {
    hopper::wait(base + S::k_full + 8 * w.place(), w.stage.round);
    hopper::wait(base + S::v_full + 8 * w.place(), w.stage.round);
    hopper::warp_barrier();  // no lane gives back what another still waits for
    release(base + S::k_empty + 8 * w.place());
    release(base + S::v_empty + 8 * w.place());
    release_queries(w);
  }

  // A step of which some row does not see every key; exact: with the exact SiLU.
  template <bool exact>
  HSTU_DEVICE static void partial_step(const ForwardArguments& a, State& w, unsigned tile,
                                       char* shared, int group, int step,
                                       unsigned long long queries) {
    constexpr int part = S::part_keys;
    const unsigned base = nvidia::shared_address(shared);
    const int from = nvidia::uniform(hstu::first_key<C>(L::steps_of(tile, group), step));
    const int seqlen_kv = nvidia::uniform(L::mask_of(tile).seqlen_kv);
    hopper::wait(base + S::k_full + 8 * w.place(), w.stage.round);
    if (part == C::tile_n) {
      partial_product<C::tile_n, exact>(a, w, tile, shared, group, from, 0, seqlen_kv, queries);
      return;
    }
    const HopperSpan span =
        seen_span<C>(L::rows_of(tile, group), from, min_of(from + C::tile_n, seqlen_kv));
    const int skipped = span.low >= from + part ? part : 0;
    if (span.high - from - skipped <= part)
      partial_product<part, exact>(a, w, tile, shared, group, from + skipped, skipped, seqlen_kv,
                                   queries);
    else
      partial_product<C::tile_n, exact>(a, w, tile, shared, group, from, 0, seqlen_kv, queries);
  }

  // `count` keys of the stage from `skipped` on; the first of them is the sequence's `first`.
  template <int count, bool exact>
  HSTU_DEVICE static void partial_product(const ForwardArguments& a, State& w, unsigned tile,
                                          char* shared, int group, int first, int skipped,
                                          int seqlen_kv, unsigned long long queries) {
    const unsigned base = nvidia::shared_address(shared);
    const unsigned v_at = S::v + w.place() * S::v_bytes + skipped * S::row_bytes;
    float s[count / 2];
    unsigned p[count / 4];
    begin_logits<count>(s, w, queries,
                        base + S::k + w.place() * S::k_bytes + skipped * S::row_bytes);
    const HopperSeen<C> seen = HopperSeen<C>::template of<count>(tile, group, first);
    hopper::wait(base + S::v_full + 8 * w.place(), w.stage.round);
    if (C::jagged && first + count > seqlen_kv)
      T::clear_rows(shared + v_at, max_of(seqlen_kv - first, 0), count);
    await_logits<count>(s, w, base);
    const float scale = A::template step_scale<exact>(a);
    if (softmax) A::template turn<count>(a, s);
    float shift[2];
    // Of a whole step half the slices may have nothing to hide: all rows see their keys.
    HopperTile::Common common{0, 0, {0, 0}};
    if (count > S::part_keys) common = L::common_of(tile, group);
    const int clean_begin = nvidia::uniform(common.begin) - first;
    const int clean_end = nvidia::uniform(common.end) - first;
    const auto hide = [&](float* x, int begin, int end) {
      if (count <= S::part_keys || 2 * begin < clean_begin || 2 * end > clean_end)
        seen.hide(x, begin, end);
    };
    if (softmax) {
#pragma unroll
      for (int k = 0; k < count / 16; ++k) hide(s, 8 * k, 8 * k + 8);
      A::template raise<count>(s, w.rows, w.o, scale, shift);
    }
    feed<count, exact>(s, p, w, scale, shift, base + v_at, [&](float* x, int begin, int end) {
      if (!softmax) hide(x, begin, end);
    });
    if (!S::late) drain(w, base);
  }
};

template <class C>
HSTU_DEVICE void forward_hopper(const HopperArguments& arguments) {
  using S = HopperShape<C>;
  char* given = hopper::dynamic_shared();
  char* shared = given + ((1024 - nvidia::shared_address(given) % 1024) % 1024);
  const unsigned base = nvidia::shared_address(shared);
  const int group = nvidia::uniform(nvidia::thread() / 128);
  if (nvidia::thread() == 96) {  // of a warp that has nothing else to do yet
    hopper::prefetch_map(&arguments.q);
    hopper::prefetch_map(&arguments.k);
    hopper::prefetch_map(&arguments.v);
    if (S::staged) hopper::prefetch_map(&arguments.o);
    for (int i = 0; i < S::q_buffers * S::warpgroups; ++i) {
      hopper::barrier_init(base + S::q_full + 8 * i, 1);
      hopper::barrier_init(base + S::q_empty + 8 * i, 4);
    }
    hopper::barrier_init(base + S::tile_taken, 1);
    hopper::barrier_init(base + S::q_asked, 1);
    // Who reads a description, who a step: all computing warps and loading lanes, or one's alone.
    constexpr int loaders = S::apart ? S::warpgroups : 2;
    constexpr int step_warps = S::apart ? 4 : 4 * S::warpgroups;
    for (int i = 0; i < S::tile_slots; ++i) {
      hopper::barrier_init(base + S::tile_full + 8 * i, 32);
      hopper::barrier_init(base + S::tile_empty + 8 * i, 4 * S::warpgroups + loaders);
    }
    for (int i = 0; i < S::stages; ++i) {
      hopper::barrier_init(base + S::k_full + 8 * i, 1);
      hopper::barrier_init(base + S::k_empty + 8 * i, step_warps);
      hopper::barrier_init(base + S::v_full + 8 * i, 1);
      hopper::barrier_init(base + S::v_empty + 8 * i, step_warps);
    }
    for (int i = 0; i < S::warpgroups; ++i) {
      hopper::barrier_init(base + S::sum_full + 8 * i, 1);
      hopper::barrier_init(base + S::sum_empty + 8 * i, 4);
    }
    hopper::barrier_init_fence();
  }
  using L = HopperLoad<C>;
  // The first tile is found while the barriers are made. All warps meet at this one place.
  const int warp = nvidia::uniform(nvidia::thread() / 32);
  HopperSchedule<C> schedule;
  TileName first{};
  if (warp == 0) {
    schedule.start(arguments.forward, L::workgroups_of_tile() > 1);
    first = schedule.find(arguments.forward,
                          static_cast<unsigned>(nvidia::block() / L::workgroups_of_tile()));
  }
  L::meet();
  if (group == 0) {
    hopper::give_registers<S::loader_registers>();
    if (warp == 0) L::schedule(arguments, shared, schedule, first);
    if constexpr (S::apart) {
      if (warp > 0 && warp <= S::warpgroups && nvidia::thread() % 32 == 0)
        L::load_apart(arguments, shared, warp - 1);
    } else {
      if (nvidia::thread() == 32) L::load(arguments, shared);
      if (nvidia::thread() == 64) L::load_queries(arguments, shared);
    }
  } else {
    hopper::take_registers<S::registers>();
    HopperForward<C>::compute(arguments, shared, group - 1);
  }
  if (HopperLoad<C>::workgroups_of_tile() > 1)
    hopper::cluster_barrier();  // the other may still write here
}

}  // namespace hstu
