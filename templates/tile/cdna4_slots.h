// SPDX-License-Identifier: Apache-2.0
// The main loop of attention on gfx950, written in slots as in tile/cdna_slots.h: one slot is an
// LDS read for a later slot, one matrix instruction and a share of the activation; nothing moves
// from one slot to the next.
//
// The unit of work is a part of 32 keys. Of consecutive parts c and n,
//   logits_group(c)   multiplies K of part n while the activation of part c comes to its end,
//   output_group(c)   multiplies V of part c while the activation of part n begins.
// Two parts are under way, held in s[0], p[0] and s[1], p[1].
//
// A transcendental takes two issue slots of the SIMD here, others one: exp and rcp of each element
// are as cheap as sharing a reciprocal among four, and cannot overflow.
#pragma once

#include "base/types.h"
#include "tile/cdna4.h"

namespace hstu {

// Keys that the lane's row sees.
struct RowView {
  int begin;
  unsigned count;
  int own;  // its own key if it is a target row of self-attention, else -1
};

template <class C>
struct Slots {
  using T = Tile<C>;
  static constexpr bool softmax = C::activation == Activation::softmax;
  static constexpr bool own_keys = C::targets && !C::cross;

  static constexpr int k_slots = T::k_slots;
  static constexpr int v_slots = T::v_slots;
  // Slots between an LDS read and its use, where registers allow: 6 cover the latency of LDS even
  // for a wave that has its SIMD for itself.
  static constexpr int ahead = min_of(C::waves_per_simd > 2 ? 3 : 6, min_of(k_slots, v_slots) - 1);
  // Registers for operands on their way, in turn. A part's slots are a multiple if that can be:
  // else operands are copied once per part.
  HSTU_DEVICE static constexpr int ring_size() {
    for (int n = ahead + 1; n <= 8; ++n)
      if ((k_slots + v_slots) % n == 0) return n;
    return ahead + 1;
  }
  static constexpr int ring = ring_size();
  static_assert(ahead > 0);

  typename T::Q q;
  typename T::O o;
  amd::Floats16 s[2];
  amd::Words4 p[2][2];
  amd::Words4 f[ring];
  unsigned k_at[T::k_pairs], v_at[T::v_pairs];
  RowView view;
  float scale;  // of the logits, to base 2
  // Activation under way
  amd::Floats2 x[2], e[2];
  // Softmax
  float base;          // subtracted from scaled logits; the lowest number at first
  amd::Floats2 total;  // of the exponentials, this lane's keys
  float shrink;        // what o is still to be multiplied with, if `late`
  bool late;

  HSTU_DEVICE Slots() {
#pragma unroll
    for (int j = 0; j < T::k_pairs; ++j) k_at[j] = T::k_address(j);
#pragma unroll
    for (int i = 0; i < T::v_pairs; ++i) {
      // V behind K, hidden from the compiler: distances from here fit into the instruction.
      v_at[i] = T::v_address(i) + T::buffers * T::k_bytes;
      amd::forget(v_at[i]);
    }
    T::zero(o);
    settle();
    base = -3.402823466e38f;
    total = amd::Floats2{0.0f, 0.0f};
    shrink = 1.0f;
    late = false;
  }

  HSTU_DEVICE amd::Words4 read_k(const char* lds, int buffer, int part, int j) const {
    return amd::read_lds(lds + buffer * T::k_bytes + T::k_place(part, j), k_at[j % T::k_pairs]);
  }
  HSTU_DEVICE amd::Words4 read_v(const char* lds, int buffer, int part, int n) const {
    const int j = n / T::v_tiles, i = n % T::v_tiles;
    return T::read_v(lds + buffer * T::v_bytes + T::v_place(part, j, i), v_at[i % T::v_pairs]);
  }

  // ---- Activation: 4 quads of elements, each a sequence of operations of some ticks (issue slots
  // of the SIMD).
  static constexpr int operations = softmax ? 8 : 16;
  HSTU_DEVICE static constexpr int ticks(int n) {
    if (softmax) return n == 1 || n == 2 || n == 4 || n == 5 || n >= 6 ? 2 : 1;
    return n == 1 || n == 2 || n == 4 || n == 6 || n == 7 || n == 9 || n == 10 || n == 12 ? 2 : 1;
  }
  HSTU_DEVICE static constexpr int ticks_before(int n) {
    int sum = 0;
    for (int i = 0; i < n; ++i) sum += ticks(i % operations);
    return sum;
  }
  static constexpr int shares = k_slots + v_slots;
  static constexpr int lead = 1;  // shares left empty while the logits arrive
  // The first operation of a part that belongs to this share, or a later one.
  HSTU_DEVICE static constexpr int first_of(int share) {
    const int all = ticks_before(4 * operations);
    int n = 0;
    for (int before = 0; n < 4 * operations && lead + before * (shares - lead) / all < share; ++n)
      before += ticks(n % operations);
    return n;
  }

  HSTU_DEVICE amd::Floats2 logits(int c, int first) const {
    const amd::Floats2 pair = {s[c][first], s[c][first + 1]};
    return pair * scale;
  }
  HSTU_DEVICE void operate_silu(int c, int first, int n) {
    switch (n) {
      case 0:
        x[0] = logits(c, first);
        break;
      case 1:
        e[0].x = amd::exp2_negated(x[0].x);
        break;
      case 2:
        e[0].y = amd::exp2_negated(x[0].y);
        break;
      case 3:
        x[1] = logits(c, first + 2);
        break;
      case 4:
        e[1].x = amd::exp2_negated(x[1].x);
        break;
      case 5:
        e[0] = e[0] + 1.0f;
        break;
      case 6:
        e[1].y = amd::exp2_negated(x[1].y);
        break;
      case 7:
        e[0].x = amd::rcp(e[0].x);
        break;
      case 8:
        e[1] = e[1] + 1.0f;
        break;
      case 9:
        e[0].y = amd::rcp(e[0].y);
        break;
      case 10:
        e[1].x = amd::rcp(e[1].x);
        break;
      case 11:
        x[0] = x[0] * e[0];
        break;
      case 12:
        e[1].y = amd::rcp(e[1].y);
        break;
      case 13:
        p[c][first / 8][first % 8 / 2] = pack(x[0]);
        break;
      case 14:
        x[1] = x[1] * e[1];
        break;
      case 15:
        p[c][first / 8][first % 8 / 2 + 1] = pack(x[1]);
        break;
    }
  }
  HSTU_DEVICE void operate_softmax(int c, int first, int n) {
    switch (n) {
      case 0:
        x[0] = amd::Floats2{s[c][first], s[c][first + 1]} * scale - base;
        break;
      case 1:
        e[0].x = amd::exp2(x[0].x);
        break;
      case 2:
        e[0].y = amd::exp2(x[0].y);
        break;
      case 3:
        x[1] = amd::Floats2{s[c][first + 2], s[c][first + 3]} * scale - base;
        break;
      case 4:
        e[1].x = amd::exp2(x[1].x);
        break;
      case 5:
        e[1].y = amd::exp2(x[1].y);
        break;
      case 6:
        total += e[0];
        p[c][first / 8][first % 8 / 2] = pack(e[0]);
        break;
      case 7:
        total += e[1];
        p[c][first / 8][first % 8 / 2 + 1] = pack(e[1]);
        break;
    }
  }
  HSTU_DEVICE static unsigned pack(amd::Floats2 v) {
    const float low = v.x, high = v.y;
    return amd::pack<C::dtype>(low, high);
  }
  // Operations n to end - 1. Everything that depends on a slot's number is worked out by the
  // front end: left to the optimizer, it takes minutes.
  template <int c, int n, int end>
  HSTU_DEVICE void operate() {
    if constexpr (n < end) {
      if constexpr (softmax)
        operate_softmax(c, n / operations * 4, n % operations);
      else
        operate_silu(c, n / operations * 4, n % operations);
      operate<c, n + 1, end>();
    }
  }
  // Shares `first` to end - 1.
  template <int c, int first, int end = first + 1>
  HSTU_DEVICE void activate() {
    operate<c, first_of(first), first_of(end)>();
  }

  // Between groups there are branches: what share `end` finds done is not to move past them.
  template <int c, int end>
  HSTU_DEVICE void hold() {
    constexpr int quads = first_of(end) / operations;
#pragma unroll
    for (int w = 0; w < 2 * quads; ++w) {
      unsigned word = p[c][w / 4][w % 4];
      amd::hold(word);
      p[c][w / 4][w % 4] = word;
    }
    if constexpr (first_of(end) % operations != 0) {
      for (int i = 0; i < 2; ++i) {
        amd::hold(x[i]);
        amd::hold(e[i]);
      }
    }
  }

  HSTU_DEVICE bool sees(int first_key, int element) const {
    const int key = first_key + T::key(element);
    return static_cast<unsigned>(key - view.begin) < view.count || (own_keys && key == view.own);
  }
  // After the logits of part c, before their activation. SiLU(0) = 0 hides a key.
  template <int c>
  HSTU_DEVICE void prepare(int first_key, bool masked) {
    if (__builtin_expect(masked, 0)) {
#pragma unroll
      for (int i = 0; i < 16; ++i)
        if (!sees(first_key, i)) s[c][i] = softmax ? -infinity() : 0.0f;
    }
    if constexpr (softmax) {
      float m = s[c][0];
#pragma unroll
      for (int i = 1; i < 16; ++i) m = amd::largest(m, s[c][i]);
      if (__builtin_expect(amd::any(m * scale - base > 8.0f), 0)) {
        m = T::row_max(m * scale);
        const float grown = larger(base, m);
        shrink = amd::exp2(base - grown);
        base = grown;
        total *= shrink;
        late = true;
      }
    }
  }
  HSTU_DEVICE void rescale() {
    if constexpr (softmax) {
      if (__builtin_expect(late, 0)) {
#pragma unroll
        for (int i = 0; i < T::v_tiles; ++i) {
          // One after the other: accumulation registers have to come and go.
          if (C::waves_per_simd == 1) amd::hold_in_accumulators(o.tile[i]);
          o.tile[i] *= shrink;
          if (C::waves_per_simd == 1) amd::hold_in_accumulators(o.tile[i]);
          amd::keep_order();
        }
        late = false;
      }
    }
  }

  // Where a group reads: the part multiplied, and the one of the next group.
  struct Places {
    int buffer, part;
    int next_buffer, next_part;
  };

  // Logits of part 1 - c from K; the first slots' reads have been made. Reads ahead V of part c.
  // `meet`: called once, after it reads of V may follow.
  template <int c, class Meet>
  HSTU_DEVICE void logits_group(const char* lds, const Places& w, Meet meet) {
    amd::Floats16 sum = static_cast<amd::Floats16>(0.0f);
    logits_slots<c, 0>(lds, w, sum, meet);
    s[1 - c] = sum;
    hold<c, shares>();
    turn<k_slots>();
  }
  template <int c, int n, class Meet>
  HSTU_DEVICE void logits_slots(const char* lds, const Places& w, amd::Floats16& sum, Meet meet) {
    if constexpr (n < k_slots) {
      constexpr int next = n + ahead;
      if constexpr (next == k_slots) meet();
      const amd::Words4 a = f[n % ring];
      if constexpr (next < k_slots)
        f[next % ring] = read_k(lds, w.buffer, w.part, next);
      else
        f[next % ring] = read_v(lds, w.next_buffer, w.next_part, next - k_slots);
      amd::multiply<C::dtype>(sum, a, q.chunk[n]);
      activate<c, v_slots + n>();
      amd::keep_order();
      logits_slots<c, n + 1>(lds, w, sum, meet);
    }
  }

  // Output of part c from V. Reads ahead K of the part after the next. `prepare_next()` is called
  // when the logits of part 1 - c have come, side.slot<n>() in slot n for what else is to be done.
  template <int c, class Prepare, class Side>
  HSTU_DEVICE void output_group(const char* lds, const Places& w, Prepare prepare_next,
                                const Side& side) {
    output_slots<c, 0>(lds, w, prepare_next, side);
    hold<1 - c, v_slots>();
    turn<v_slots>();
    rescale();
    settle();
  }
  // A wave that has its SIMD for itself has as many accumulation registers as others; only the
  // output can do with those.
  HSTU_DEVICE void settle() {
    if constexpr (C::waves_per_simd == 1) {
#pragma unroll
      for (int i = 0; i < T::v_tiles; ++i) amd::keep_in_accumulators(o.tile[i]);
    }
  }
  template <int c, int n, class Prepare, class Side>
  HSTU_DEVICE void output_slots(const char* lds, const Places& w, Prepare prepare_next,
                                const Side& side) {
    if constexpr (n < v_slots) {
      constexpr int next = n + ahead;
      if constexpr (n == lead) prepare_next();
      const amd::Words4 a = f[n % ring];
      if constexpr (next < v_slots)
        f[next % ring] = read_v(lds, w.buffer, w.part, next);
      else
        f[next % ring] = read_k(lds, w.next_buffer, w.next_part, next - v_slots);
      amd::multiply<C::dtype>(o.tile[n % T::v_tiles], a, p[c][n / T::v_tiles]);
      activate<1 - c, n>();
      side.template slot<n>();
      amd::keep_order();
      output_slots<c, n + 1>(lds, w, prepare_next, side);
    }
  }

  // The reads ahead of a group of `slots` slots stand where the next group looks for them.
  template <int slots>
  HSTU_DEVICE void turn() {
    constexpr int by = slots % ring;
    if constexpr (by != 0) {
      amd::Words4 g[ring];
#pragma unroll
      for (int i = 0; i < ring; ++i) g[i] = f[(i + by) % ring];
#pragma unroll
      for (int i = 0; i < ring; ++i) f[i] = g[i];
    }
  }

  // Begins: logits of a part without anything beside them, and the share of their activation that
  // output_group() would have done.
  template <int c, class Prepare>
  HSTU_DEVICE void begin(const char* lds, int buffer, int part, Prepare prepare_this) {
    s[c] = static_cast<amd::Floats16>(0.0f);
#pragma unroll
    for (int n = 0; n < k_slots; ++n) {
      amd::multiply<C::dtype>(s[c], read_k(lds, buffer, part, n), q.chunk[n]);
      if (n % ring == ring - 1) amd::keep_order();
    }
    prepare_this();
    rescale();
    activate<c, 0, v_slots>();
  }
  HSTU_DEVICE void read_ahead(const char* lds, int buffer, int part) {
#pragma unroll
    for (int n = 0; n < ahead; ++n) f[n] = read_k(lds, buffer, part, n);
  }
  // Ends: the rest of the activation, and the output.
  template <int c>
  HSTU_DEVICE void end(const char* lds, int buffer, int part) {
    activate<c, v_slots, shares>();
#pragma unroll
    for (int n = 0; n < v_slots; ++n) {
      amd::multiply<C::dtype>(o.tile[n % T::v_tiles], read_v(lds, buffer, part, n),
                              p[c][n / T::v_tiles]);
      if (n % ring == ring - 1) amd::keep_order();
    }
    settle();
  }
};

}  // namespace hstu
