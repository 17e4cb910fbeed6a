// SPDX-License-Identifier: Apache-2.0
// HSTU attention forward on gfx950 over the main loop of tile/cdna4_slots.h. Same launch as
// forward_gpu(); needs what tile/cdna4.h needs.
//
// Keys pass through LDS in steps of tile_n; a step's buffer is s % buffers. Every wave of the
// workgroup comes to the same meetings -1, 0, 1, .. in that order, whatever its rows see:
//   meeting s   before it a wave has used K of all steps before s, and V of all parts but the last
//               before the last one of step s (tile_n = 32: V of all steps before s - 1);
//               behind it are in LDS K of step s + 1 and V of step s (s - 1).
//   restock     K of step s + buffers - 1, and V of that step (the one before it), start on their
//               way to the buffers that have thereby become free.
#pragma once

#include "attention/forward_gpu.h"
#include "tile/cdna4_slots.h"

namespace hstu {

// What one wave has to do, in steps and parts of its workgroup.
template <class C>
struct WaveWork {
  using T = Tile<C>;
  // Steps with keys that some row sees: [begin[0], end[0]) and then [begin[1], end[1]).
  int begin[2], end[2];
  int full_begin, full_count;  // parts whose keys all rows see

  HSTU_DEVICE WaveWork(const KeySteps<C>& steps, const TileKeys& keys, int seqlen_kv) {
    const int base = steps.main_begin;
    begin[0] = max_of(keys.begin / C::tile_n - base, 0);
    end[0] = min_of(ceil_div(keys.end, C::tile_n) - base, steps.main_count);
    if (keys.begin >= keys.end) begin[0] = end[0] = 0;
    begin[1] = end[1] = 0;
    if (keys.diagonal_begin < keys.diagonal_end) {
      const int first = keys.diagonal_begin / C::tile_n;
      const int last = ceil_div(keys.diagonal_end, C::tile_n);
      const int low = max_of(first - base, 0), high = min_of(last - base, steps.main_count);
      if (low < high) {
        begin[0] = begin[0] < end[0] ? min_of(begin[0], low) : low;
        end[0] = max_of(end[0], high);
      }
      const int shift = steps.main_count - steps.diagonal_begin;
      begin[1] = max_of(first + shift, steps.main_count);
      end[1] = min_of(last + shift, steps.count);
    }
    // Keys past the end are zero and SiLU(0) = 0, so the last part may be full without being whole.
    const bool to_end = C::activation != Activation::softmax && keys.full_end >= seqlen_kv;
    const int first_part = base * T::parts;
    full_begin = max_of(ceil_div(keys.full_begin, T::part_keys) - first_part, 0);
    const int full_end =
        min_of((to_end ? ceil_div(keys.full_end, T::part_keys) : keys.full_end / T::part_keys) -
                   first_part,
               steps.main_count * T::parts);
    full_count = max_of(full_end - full_begin, 0);
  }
  HSTU_DEVICE bool masked(int part) const {
    return static_cast<unsigned>(part - full_begin) >= static_cast<unsigned>(full_count);
  }
};

// Rows of K or V on their way to LDS, step by step. Told from step to step rather than worked out:
// it is done with scalar instructions, but those take a wave's time too.
template <class C>
struct Incoming {
  unsigned long long base;
  int row_bytes, rows_left;  // from this step on
  int step;

  HSTU_DEVICE Incoming(const KeySteps<C>& steps, const unsigned short* first, long long stride,
                       int count) {
    const int key = steps.first_key(0);
    base = reinterpret_cast<unsigned long long>(first + key * stride);
    row_bytes = static_cast<int>(stride) * 2;
    rows_left = steps.count > 0 ? max_of(count - key, 0) : 0;
    step = 0;
  }
  HSTU_DEVICE amd::Buffer rows() const {
    const unsigned left = rows_left, most = C::tile_n;
    return amd::plain_buffer(base,
                             amd::uniform(static_cast<int>(left < most ? left : most) * row_bytes));
  }
  HSTU_DEVICE void advance(const KeySteps<C>& steps) {
    ++step;
    skip(1);
    if constexpr (C::targets && !C::cross) {
      if (__builtin_expect(step == steps.main_count, 0))
        skip(steps.diagonal_begin - (steps.main_begin + steps.main_count));
    }
    if (step >= steps.count) rows_left = 0;
  }
  HSTU_DEVICE void skip(int tiles) {
    base += static_cast<unsigned long long>(row_bytes) * static_cast<unsigned>(tiles * C::tile_n);
    rows_left = max_of(rows_left - tiles * C::tile_n, 0);
  }
};

template <class C>
struct Cdna4Forward {
  using T = Tile<C>;
  using S = Slots<C>;
  static constexpr int parts = T::parts;
  static constexpr int buffers = T::buffers;
  // Parts after which buffers and s[], p[] repeat, and steps.
  static constexpr int cycle = parts == 1 && buffers % 2 != 0 ? 2 * buffers : parts * buffers;
  static constexpr int cycle_steps = cycle / parts;
  static constexpr int late_v = parts == 1 ? 1 : 0;  // steps that V is behind K
  // Loads of a wave still on their way at a meeting.
  static constexpr int pending = T::least_v + (buffers - 3) * T::least;

  KeySteps<C> steps;
  WaveWork<C> wave;
  typename T::Stage stage;
  S& slots;
  char* lds;
  Incoming<C> k, v;

  struct Arrivals {
    amd::Buffer k, v;
  };
  // The rows that start behind the next meeting; the `first` time no V if it is late.
  HSTU_DEVICE Arrivals arrivals(bool first = false) const {
    return {k.rows(), late_v != 0 && first ? amd::plain_buffer(v.base, 0) : v.rows()};
  }
  // There may be a branch in it: not in the middle of a group.
  HSTU_DEVICE void advance(bool first = false) {
    k.advance(steps);
    if (late_v != 0 && first) return;
    v.advance(steps);
    if (late_v == 0) v.rows_left = k.rows_left;  // said so that it is kept once
  }
  // Round `r` of the loads behind a meeting of a step in `buffer`.
  template <int r, int buffer>
  HSTU_DEVICE void restock(const Arrivals& from) const {
    stage.template load<r, (buffer + buffers - 1) % buffers,
                        (buffer + buffers - 1 - late_v) % buffers>(from.k, from.v, lds);
  }
  // All of them, by a wave that does nothing else.
  HSTU_DEVICE void restock_all(int buffer, bool first = false) {
    restock_from<0>(arrivals(first), (buffer + buffers - 1) % buffers,
                    (buffer + buffers - 1 - late_v) % buffers);
    advance(first);
  }
  template <int r>
  HSTU_DEVICE void restock_from(const Arrivals& from, int k_buffer, int v_buffer) const {
    if constexpr (r < T::rounds) {
      stage.template load<r, 0, 0>(from.k, from.v, lds, k_buffer, v_buffer);
      restock_from<r + 1>(from, k_buffer, v_buffer);
    }
  }
  HSTU_DEVICE void idle_step(int s) {
    amd::meet<pending>();
    restock_all((s + buffers) % buffers);
  }

  // What output_group() does beside its work: restocks behind meeting s, at place m of the cycle.
  template <int m>
  struct Restocking {
    const Cdna4Forward& forward;
    const Arrivals& from;

    template <int n>
    HSTU_DEVICE void slot() const {
      slot_from<n, 0>();
    }
    template <int n, int round>
    HSTU_DEVICE void slot_from() const {
      if constexpr (round < T::rounds) {
        if constexpr (round * S::v_slots / T::rounds == n)
          forward.template restock<round, m % buffers>(from);
        slot_from<n, round + 1>();
      }
    }
  };
  struct Nothing {
    template <int n>
    HSTU_DEVICE void slot() const {}
  };

  // Parts i and i + 1 of a cycle that began at step s: output of the one, logits of the other.
  template <int i>
  HSTU_DEVICE void transition(int s) {
    constexpr int c = i % 2, next = i + 1, after = i + 2;
    constexpr int now = i / parts % buffers, soon = next / parts % buffers,
                  then = after / parts % buffers;
    const typename S::Places of_k{soon, next % parts, now, i % parts};
    const typename S::Places of_v{now, i % parts, then, after % parts};
    const auto prepare = [&] {
      const int key = steps.first_key(s + next / parts) + next % parts * T::part_keys;
      slots.template prepare<1 - c>(key, wave.masked(s * parts + next));
    };
    if constexpr (next % parts == parts - 1) {
      Arrivals from;
      slots.template logits_group<c>(lds, of_k, [&] {
        amd::meet<pending>();
        from = arrivals();
      });
      slots.template output_group<c>(lds, of_v, prepare, Restocking<next / parts>{*this, from});
      advance();
    } else {
      slots.template logits_group<c>(lds, of_k, [] {});
      slots.template output_group<c>(lds, of_v, prepare, Nothing{});
    }
  }
  // Parts i on of a cycle that began at step s, until step `stop`: returns the last step done, or
  // -1 after a whole cycle.
  template <int i>
  HSTU_DEVICE int cycle_from(int s, int stop) {
    if constexpr (i < cycle) {
      if ((i + 1) % parts == 0 && s + (i + 1) / parts >= stop) return s + i / parts;
      transition<i>(s);
      return cycle_from<i + 1>(s, stop);
    }
    return -1;
  }

  // Steps s, a multiple of cycle_steps, to stop - 1; returns the first step whose meeting has not
  // been.
  HSTU_DEVICE int work(int s, int stop) {
    const int key = steps.first_key(s);
    if constexpr (parts == 1) idle_step(s);
    slots.template begin<0>(lds, 0, 0,
                            [&] { slots.template prepare<0>(key, wave.masked(s * parts)); });
    slots.read_ahead(lds, parts == 1 ? 1 : 0, parts - 1);
    int last;
    while ((last = cycle_from<0>(s, stop)) < 0) s += cycle_steps;
    if constexpr (parts == 1) {
      idle_step(last + 1);
      if (last % 2 != 0) {
        slots.s[0] = slots.s[1];
        for (int j = 0; j < 2; ++j) slots.p[0][j] = slots.p[1][j];
      }
    }
    slots.template end<parts - 1>(lds, last % buffers, parts - 1);
    return last + 1 + late_v;
  }

  // Step s by itself, nothing beside anything. `met` is the first meeting that has not been.
  HSTU_DEVICE void lone_step(int s, int& met) {
    while (met <= s) idle_step(met++);
#pragma nounroll
    for (int part = 0; part < parts; ++part) {
      const int key = steps.first_key(s) + part * T::part_keys;
      slots.template begin<0>(lds, s % buffers, part, [&] {
        slots.template prepare<0>(key, wave.masked(s * parts + part));
      });
      if (parts == 1 && met == s + 1) idle_step(met++);
      slots.template end<0>(lds, s % buffers, part);
    }
  }

  // After meeting -1.
  HSTU_DEVICE void run() {
    const int meetings = steps.count > 0 ? steps.count + late_v : 0;
    int met = 0;
    if (wave.begin[0] < wave.end[0]) {
      while (met < wave.begin[0] - wave.begin[0] % cycle_steps) idle_step(met++);
      met = work(met, wave.end[0]);
    }
    // Own keys of target rows: a few steps.
    if constexpr (C::targets && !C::cross) {
#pragma nounroll
      for (int s = wave.begin[1]; s < wave.end[1]; ++s) lone_step(s, met);
    }
    while (met < meetings) idle_step(met++);
  }
};

template <class C>
HSTU_DEVICE void forward_cdna4(const ForwardArguments& a, char* lds) {
  using T = Tile<C>;
  using F = Cdna4Forward<C>;
  constexpr MaskFeatures f = mask_features<C>();
  constexpr bool softmax = C::activation == Activation::softmax;
  constexpr float log2e = 1.4426950408889634f;

  const WorkTile w = work_tile<C>(a, T::block());
  if (w.first_row >= w.seqlen_q) return;
  const int wave_row = w.first_row + T::wave() * T::rows_per_wave;
  const int wave_rows = max_of(0, min_of(w.seqlen_q - wave_row, T::rows_per_wave));
  const typename T::Keys keys{
      a.k + w.batch * a.k_strides.batch + w.first_kv * a.k_strides.seq + w.head * a.k_strides.head,
      a.v + w.batch * a.v_strides.batch + w.first_kv * a.v_strides.seq + w.head * a.v_strides.head,
      a.k_strides.seq, a.v_strides.seq, w.seqlen_kv};
  const KeySteps<C> steps(tile_keys(f, w.mask, w.first_row, w.first_row + C::tile_m));
  const TileKeys wave_keys = tile_keys(f, w.mask, wave_row, wave_row + T::rows_per_wave);

  Slots<C> slots;
  F forward{steps,
            WaveWork<C>(steps, wave_keys, w.seqlen_kv),
            typename T::Stage(keys),
            slots,
            lds,
            Incoming<C>(steps, keys.k, keys.k_stride, keys.count),
            Incoming<C>(steps, keys.v, keys.v_stride, keys.count)};
  if (steps.count > 0)
    for (int s = 1 - T::buffers; s < -1; ++s)
      forward.restock_all(s + T::buffers, s == 1 - T::buffers);
  T::load_q(slots.q,
            a.q + w.batch * a.q_strides.batch + (w.first_q + wave_row) * a.q_strides.seq +
                w.head * a.q_strides.head,
            a.q_strides.seq, wave_rows);
  const int row = wave_row + T::row(0);
  const RowKeys seen = row < w.seqlen_q ? row_keys(f, w.mask, row) : RowKeys{0, 0, false};
  slots.view = {seen.begin, static_cast<unsigned>(seen.end - seen.begin), seen.diagonal ? row : -1};
  slots.scale = a.alpha * log2e;
  if (softmax && slots.scale < 0.0f) {
    // Maxima are taken of unscaled logits.
    slots.scale = -slots.scale;
    T::negate(slots.q);
  }
  if (steps.count > 0) {
    if (T::parts == 1)
      forward.restock_all(T::buffers - 1);  // all there is to meeting -1: meeting 0 is next
    else
      forward.idle_step(-1);
  }
  forward.run();
  amd::settle_loads();

  const WorkTile end = work_tile<C>(a, T::block());
  const int first_row = end.first_row + T::wave() * T::rows_per_wave;
  const int rows = max_of(0, min_of(end.seqlen_q - first_row, T::rows_per_wave));
  const long long token = end.first_q + first_row;
  // SiLU: of log2-scaled logits so far.
  float factor = end.group.attn_scale * (1 / log2e);
  if constexpr (softmax) {
    const float sum = T::row_sum(slots.total.x + slots.total.y);
    factor = sum > 0.0f ? end.group.attn_scale / sum : 0.0f;
    const int r = T::row(0);
    if (C::write_lse && r < rows && T::first_of_row(0)) {
      const float lse =
          sum > 0.0f ? (slots.base + T::log2(sum)) * 0.6931471805599453f : -infinity();
      a.lse[end.batch * a.lse_strides.batch + (token + r) * a.lse_strides.seq +
            end.head * a.lse_strides.head] = lse;
    }
  }
  T::store(
      slots.o, factor,
      a.o + end.batch * a.o_strides.batch + token * a.o_strides.seq + end.head * a.o_strides.head,
      a.o_strides.seq, rows);
}

}  // namespace hstu
