// SPDX-License-Identifier: Apache-2.0
// The main loop of attention on CDNA, written in slots so that matrix and vector instructions of a
// wave alternate: one slot is an LDS read for a later slot and the matrix instructions of one
// 32x16 operand; behind each matrix instruction stands a share of the activation, and nothing
// moves from one share to the next.
//
// The unit of work is a part of 32 keys. Of consecutive parts c and n,
//   logits_group(c)   multiplies K of part n while the activation of part c comes to its end,
//   output_group(c)   multiplies V of part c while the activation of part n begins.
// Two parts are under way, held in s[0], p[0] and s[1], p[1].
//
// This loop has no masks and no branches. SiLU computes four reciprocals from that of a product,
// which can overflow; softmax subtracts a base that later logits may exceed. overflow() tells
// afterwards whether either happened, and the results are worthless then. The exact way to the
// output, one part after the other with masks, is finish().
#pragma once

#include "base/types.h"
#include "tile/amd_machine.h"
#include "tile/cdna.h"

namespace hstu {

// Keys that the lane's row sees, counted from the lane's first key of a part (Tile::key(0)).
struct RowView {
  int begin, count;
  int own;  // its own key if it is a target row of self-attention, else far away
};

template <class C>
struct Slots {
  using T = Tile<C>;
  static constexpr bool softmax = C::activation == Activation::softmax;
  static constexpr bool own_keys = C::targets && !C::cross;

  static constexpr int ahead = 3;  // slots between an LDS read and its use
  static constexpr int ring = 4;
  static constexpr int k_slots = T::k_chunks / 2;
  static constexpr int v_tiles = T::v_rows / 32;
  static constexpr int v_slots = 2 * v_tiles;
  static constexpr int k_pairs = 1 << (T::k_bits - 1);     // lane addresses of K
  static constexpr int v_pairs = C::tile_n == 32 ? 2 : 4;  // and of V^T
  static constexpr bool possible =
      !T::tight && T::parts <= 2 && k_slots > ahead&& v_slots > ahead&& T::k_bits > 0;

  typename T::Q q;
  typename T::O o;
  amd::Floats16 s[2];
  amd::Words4 p[2][2];
  amd::Words4 f[ring];
  int k_at[k_pairs], v_at[v_pairs];
  int k_other, v_other;  // from this buffer to the other
  RowView view;
  // Numbers that multiply pairs are kept twice: a compiler that reads one of them together with its
  // neighbour in this struct, to save an instruction, would put the struct into memory.
  amd::Floats2 scale;  // of the logits, to base 2
  // Activation under way
  amd::Floats2 x[2], d[2], pair, r;
  float e[4];
  unsigned top;  // SiLU: largest product so far, as bits
  float raised;  // SiLU: the lift of this run
  // Softmax
  amd::Floats2 base;          // subtracted from scaled logits; the lowest number at first
  amd::Floats2 total;         // of the exponentials, this lane's keys
  amd::Floats2 total_before;  // this part

  // Addresses at buffer 0 of K and, since V comes a step later, 1 of V.
  HSTU_DEVICE Slots() {
    const int l = T::lane() % 32, h = T::half();
#pragma unroll
    for (int j = 0; j < k_pairs; ++j) k_at[j] = T::k_offset(l, 2 * j + h);
#pragma unroll
    for (int j = 0; j < v_pairs; ++j) v_at[j] = T::v_offset(l, 2 * j + h) + T::buffer_bytes;
    k_other = T::buffer_bytes;
    v_other = -T::buffer_bytes;
  }
  // As at the start of a tile.
  HSTU_DEVICE void clear() {
    if (k_other < 0) {  // after an odd number of steps
      next_v();
      next_k();
    }
    T::zero(o);
    top = 0;
    base = amd::Floats2{-3.402823466e38f, -3.402823466e38f};
    total = total_before = amd::Floats2{0.0f, 0.0f};
  }

  // Operand n of a part, from the buffer that the addresses stand at.
  HSTU_DEVICE amd::Words4 read_k(const char* lds, int part, int n) const {
    constexpr int part_bytes = T::part_keys * T::k_chunks * 16;
    return amd::read_lds(lds + part * part_bytes + n / k_pairs * k_pairs * 32, k_at[n % k_pairs]);
  }
  HSTU_DEVICE amd::Words4 read_v(const char* lds, int part, int n) const {
    const int j = n / v_tiles, i = n % v_tiles;
    // Bit 5 of the row flips bit 1 of the chunk: the neighbouring pair's address.
    return amd::read_lds(lds + T::k_bytes + i * (32 * C::tile_n * 2),
                         v_at[(part * 2 + j) % v_pairs ^ i % 2]);
  }
  // The addresses of the other buffer.
  HSTU_DEVICE void next_k() {
#pragma unroll
    for (int j = 0; j < k_pairs; ++j) k_at[j] += k_other;
    k_other = -k_other;
  }
  HSTU_DEVICE void next_v() {
    // Of two parts, V turns before K: the way that K will go back.
    const int other = T::parts == 2 ? -k_other : v_other;
#pragma unroll
    for (int j = 0; j < v_pairs; ++j) v_at[j] += other;
    v_other = -v_other;
  }

  // ---- Activation: 4 quads of elements, each a sequence of operations of some ticks (issue slots
  // of the SIMD).
  // bf16: numbers carry a factor that makes rounding cheap.
  static constexpr bool upscaled = C::dtype == Dtype::bf16 && !amd::kFastPack;
  // fp16 SiLU where the matrix unit drops denormals: probabilities are this many times as large, so
  // that a row of one small probability is not lost. One too large makes overflow() true, and the
  // second run goes without.
  static constexpr float lift =
      !softmax && C::dtype == Dtype::fp16 && amd::kDropsDenormals ? 16.0f : 1.0f;
  static constexpr float one = upscaled ? amd::kDownscale : 1.0f / lift;
  static constexpr int operations = softmax ? 8 : 18;
  static constexpr int pack_ticks = C::dtype == Dtype::fp16 ? 3 : amd::kFastPack ? 1 : 3;
  HSTU_HOST_DEVICE static constexpr int ticks(int n) {
    if (softmax) return n >= 6 ? 1 + pack_ticks : n % 3 == 0 ? 1 : 4;
    if (n >= 16) return pack_ticks;
    return n == 1 || n == 2 || n == 4 || n == 6 || n == 10 ? 4 : n == 9 ? 2 : 1;
  }
  static constexpr int shares = amd::kProducts * (k_slots + v_slots);
  // Shares left empty while the logits arrive; short groups have none to spare.
  static constexpr int lead = shares > 16 ? amd::kProducts : 0;
  // first[i]: the first operation of share i. Operations go evenly by their ticks.
  struct Schedule {
    int first[shares + 1];
    HSTU_HOST_DEVICE constexpr Schedule() : first() {
      int all = 0;
      for (int n = 0; n < operations; ++n) all += 4 * ticks(n);
      int share = 0, before = 0;
      for (int n = 0; n < 4 * operations; ++n) {
        while (share <= lead + before * (shares - lead) / all) first[share++] = n;
        before += ticks(n % operations);
      }
      while (share <= shares) first[share++] = 4 * operations;
    }
  };
  static constexpr Schedule schedule{};

  template <int c, int n, int end>
  HSTU_DEVICE void operate() {
    if constexpr (n < end) {
      constexpr int first = n / operations * 4;
      if constexpr (softmax)
        operate_softmax(c, first, n % operations);
      else
        operate_silu(c, first, n % operations);
      operate<c, n + 1, end>();
    }
  }
  HSTU_DEVICE void operate_silu(int c, int first, int n) {
    switch (n) {
      case 0:
        x[0] = amd::Floats2{s[c][first], s[c][first + 1]} * scale;
        break;
      case 1:
        e[0] = amd::exp2_negated(x[0].x);
        break;
      case 2:
        e[1] = amd::exp2_negated(x[0].y);
        break;
      case 3:
        x[1] = amd::Floats2{s[c][first + 2], s[c][first + 3]} * scale;
        break;
      case 4:
        e[2] = amd::exp2_negated(x[1].x);
        break;
      case 5:
        d[0] = amd::Floats2{e[0], e[1]} * one + one;
        break;
      case 6:
        e[3] = amd::exp2_negated(x[1].y);
        break;
      case 7:
        d[1] = amd::Floats2{e[2], e[3]} * one + one;
        break;
      case 8:
        pair = d[0] * d[1];
        break;
      case 9: {
        const float all = pair.x * pair.y;
        r = amd::Floats2{all, all};
        const unsigned bits = __builtin_bit_cast(unsigned, all);
        top = top > bits ? top : bits;
        break;
      }
      case 10: {
        const float one = amd::rcp(r.x);
        r = amd::Floats2{one, one};
        break;
      }
      case 11:
        pair = amd::Floats2{pair.y, pair.x} * r;
        break;  // reciprocals of the pairs
      case 12:
        d[1] *= pair;
        break;  // of d[0]
      case 13:
        x[0] *= d[1];
        break;
      case 14:
        d[0] *= pair;
        break;
      case 15:
        x[1] *= d[0];
        break;
      case 16:
        p[c][first / 8][first % 8 / 2] = pack_share(x[0]);
        break;
      case 17:
        p[c][first / 8][first % 8 / 2 + 1] = pack_share(x[1]);
        break;
    }
  }
  HSTU_DEVICE void operate_softmax(int c, int first, int n) {
    switch (n) {
      case 0:
        x[0] = amd::Floats2{s[c][first], s[c][first + 1]} * scale - base;
        break;
      case 1:
        e[0] = amd::exp2(x[0].x);
        break;
      case 2:
        e[1] = amd::exp2(x[0].y);
        break;
      case 3:
        x[1] = amd::Floats2{s[c][first + 2], s[c][first + 3]} * scale - base;
        break;
      case 4:
        e[2] = amd::exp2(x[1].x);
        break;
      case 5:
        e[3] = amd::exp2(x[1].y);
        break;
      case 6:
        d[0] = amd::Floats2{e[0], e[1]};
        total += d[0];
        p[c][first / 8][first % 8 / 2] = pack_share(d[0]);
        break;
      case 7:
        d[1] = amd::Floats2{e[2], e[3]};
        total += d[1];
        p[c][first / 8][first % 8 / 2 + 1] = pack_share(d[1]);
        break;
    }
  }
  HSTU_DEVICE static unsigned pack_share(amd::Floats2 v) {
    if constexpr (upscaled) return amd::pack_upscaled(v);
    return pack(v);
  }
  HSTU_DEVICE static unsigned pack(amd::Floats2 v) {
    const float low = v.x, high = v.y;
    return amd::pack<C::dtype>(low, high);
  }

  // Shares [share, end) of the activation of part c.
  template <int c, int share, int end = share + 1>
  HSTU_DEVICE void activate() {
    constexpr int from = schedule.first[share], to = schedule.first[end];
    operate<c, from, to>();
  }

  // Softmax: exponentials from here on are of numbers not above those of part c.
  HSTU_DEVICE void rebase(int c) {
    // fp16 exponentials are 2^4 times as large, so that those 2^-18 of the largest are still normal
    // numbers (matrix units of gfx90a take denormals for zero), and have room to grow by 2^12; bf16
    // by 2^127. Upscaled ones are 65537 times as large.
    constexpr float room = C::dtype == Dtype::fp16 ? -4.0f : upscaled ? -16.0000220136f : 0.0f;
    float m = s[c][0];
#pragma unroll
    for (int i = 1; i < 16; ++i) m = larger(m, s[c][i]);
    m = T::row_max(m) * scale.x + room;
    const float grown = larger(base.x, m);
    const float shrink = amd::exp2(base.x - grown);
    base = amd::Floats2{grown, grown};
    total *= shrink;
    T::scale(o, 0, shrink);
  }
  // The exact activation of all of part c. `first_key`: of the part.
  HSTU_DEVICE void activate_exactly(int c, int first_key, bool masked) {
    if (masked) {
      // Of element 0, counted from the row's first key and from its own.
      unsigned place = first_key - view.begin;
      unsigned own = first_key - view.own;
      amd::forget(place);  // or else the sums below are kept in registers through all loops
      amd::forget(own);
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        if (i % 4 == 0) amd::keep_order();
        const unsigned key = 16 * (i / 8) + i % 8;
        const bool sees =
            place + key < static_cast<unsigned>(view.count) || (own_keys && own + key == 0);
        if (!sees) s[c][i] = softmax ? -infinity() : 0.0f;
      }
    }
    if constexpr (softmax) rebase(c);
#pragma unroll
    for (int i = 0; i < 16; i += 2) {
      if (i % 4 == 0) amd::keep_order();
      amd::Floats2 y = amd::Floats2{s[c][i], s[c][i + 1]} * scale;
      if constexpr (softmax) {
        y -= base;
        y = amd::Floats2{amd::exp2(y.x), amd::exp2(y.y)};
        total += y;
        y *= one;
      } else {
        const amd::Floats2 d = amd::Floats2{amd::exp2_negated(y.x), amd::exp2_negated(y.y)} + 1.0f;
        y *= amd::Floats2{amd::rcp(d.x), amd::rcp(d.y)};
        if constexpr (lift != 1.0f) y *= raised;
      }
      p[c][i / 8][i % 8 / 2] = pack(y);
    }
  }
  // True in a lane whose fast activations are not to be trusted.
  HSTU_DEVICE bool overflow() const {
    if constexpr (softmax) {
      constexpr float limit = C::dtype == Dtype::fp16 ? 65000.0f : 1e30f;
      return !(total.x < limit && total.y < limit);
    }
    // An upscaled number too large is NaN, a lifted one infinite, and so is the output: it makes
    // this one NaN, too.
    float zero = 0.0f;
    if constexpr (upscaled || lift != 1.0f) {
#pragma unroll
      for (int i = 0; i < v_tiles; ++i) {
        amd::keep_order();
#pragma unroll
        for (int r = 0; r < 16; ++r) zero += o.tile[i][r] * 0.0f;
      }
    }
    // 2^125 is the last number whose reciprocal is a normal one.
    return !(zero == 0.0f) | (top > 0x7e000000u);
  }

  template <int part>
  HSTU_DEVICE static void multiply(amd::Floats16& c, amd::Words4 a, amd::Words4 b) {
    if constexpr (part < amd::kProducts) amd::multiply_part<C::dtype, part>(c, a, b);
  }

  // Logits of part `1 - c` from K of part `k_part`; the first slots' reads have been made. Reads
  // ahead V of part `v_part`. `meet`: the barrier after which V of the next step may be read.
  // `beside.template run<n>()`: other work of the wave, called behind matrix instruction n.
  template <int c, int k_part, int v_part, bool meet, class Beside>
  HSTU_DEVICE void logits_group(const char* lds, Beside& beside) {
    s[1 - c] = static_cast<amd::Floats16>(0.0f);
    logits_slots<0, c, k_part, v_part, meet>(lds, beside);
    turn<k_slots>();
  }
  template <int n, int c, int k_part, int v_part, bool meet, class Beside>
  HSTU_DEVICE void logits_slots(const char* lds, Beside& beside) {
    if constexpr (n < k_slots) {
      constexpr int next = n + ahead, share = amd::kProducts * (v_slots + n);
      if constexpr (meet && n == k_slots - ahead) {
        amd::lds_barrier();
        next_v();
      }
      const amd::Words4 a = f[n % ring];
      f[next % ring] =
          next < k_slots ? read_k(lds, k_part, next) : read_v(lds, v_part, next - k_slots);
      multiply<0>(s[1 - c], a, q.chunk[n]);
      activate<c, share>();
      beside.template run<amd::kProducts * n>();
      amd::keep_order();
      if constexpr (amd::kProducts > 1) {
        multiply<1>(s[1 - c], a, q.chunk[n]);
        activate<c, share + 1>();
        beside.template run<amd::kProducts * n + 1>();
        amd::keep_order();
      }
      logits_slots<n + 1, c, k_part, v_part, meet>(lds, beside);
    }
  }

  // With one part a step, part 1 becomes part 0 when the step ends: an element of its logits in
  // each share, since they have to leave the accumulation registers anyhow.
  template <int share>
  HSTU_DEVICE void carry() {
    constexpr int end = amd::kProducts * v_slots - 1;  // where few shares carry what is left
    if constexpr (T::parts == 1 && share == end && end < lead + 15) {
#pragma unroll
      for (int e = max_of(end - lead, 0); e < 16; ++e) s[0][e] = s[1][e];
    } else if constexpr (T::parts == 1 && share >= lead && share < lead + 16) {
      float logit = s[1][share - lead];
      amd::forget(logit);  // here and not later, all of them at once
      s[0][share - lead] = logit;
    }
  }

  // Output of part c from V of part `v_part`. Reads ahead K of part `k_part`, of the next step's
  // tile if `turn_k`, after a barrier if `meet`.
  template <int c, int v_part, int k_part, bool turn_k, bool meet>
  HSTU_DEVICE void output_group(const char* lds) {
    total_before = total;
    output_slots<0, c, v_part, k_part, turn_k, meet>(lds);
    turn<v_slots>();
  }
  template <int n, int c, int v_part, int k_part, bool turn_k, bool meet>
  HSTU_DEVICE void output_slots(const char* lds) {
    if constexpr (n < v_slots) {
      constexpr int next = n + ahead, share = amd::kProducts * n, i = n % v_tiles, j = n / v_tiles;
      if constexpr (n == v_slots - ahead) {
        if constexpr (meet) amd::lds_barrier();
        if constexpr (turn_k) next_k();
      }
      const amd::Words4 a = f[n % ring];
      f[next % ring] =
          next < v_slots ? read_v(lds, v_part, next) : read_k(lds, k_part, next - v_slots);
      multiply<0>(o.tile[i], a, p[c][j]);
      activate<1 - c, share>();
      carry<share>();
      amd::keep_order();
      if constexpr (amd::kProducts > 1) {
        multiply<1>(o.tile[i], a, p[c][j]);
        activate<1 - c, share + 1>();
        carry<share + 1>();
        amd::keep_order();
      }
      output_slots<n + 1, c, v_part, k_part, turn_k, meet>(lds);
    }
  }

  // The reads ahead of a group of `slots` slots stand where the next group looks for them.
  template <int slots>
  HSTU_DEVICE void turn() {
    constexpr int by = slots % ring;
    if (by == 0) return;
    amd::Words4 g[ring];
#pragma unroll
    for (int i = 0; i < ring; ++i) g[i] = f[(i + by) % ring];
#pragma unroll
    for (int i = 0; i < ring; ++i) f[i] = g[i];
  }

  // The output stays in one place.
  HSTU_DEVICE void settle() {
    if constexpr (C::waves_per_simd == 1) return T::settle(o);
#pragma unroll
    for (int i = 0; i < v_tiles; ++i) amd::keep_in_place(o.tile[i]);
  }

  // ---- The same one after the other.
  // Logits of part c of a step.
  HSTU_DEVICE void compute_logits(const char* lds, int c) {
    s[c] = static_cast<amd::Floats16>(0.0f);
#pragma unroll
    for (int n = 0; n < k_slots; ++n) {
      if (n % 4 == 0) amd::keep_order();
      amd::multiply<C::dtype>(s[c], read_k(lds, c, n), q.chunk[n]);
    }
    amd::keep_order();
  }
  // From the logits of part c of a step to the output.
  HSTU_DEVICE void finish(const char* lds, int c, int first_key, bool masked) {
    activate_exactly(c, first_key, masked);
    settle();
#pragma unroll
    for (int n = 0; n < v_slots; ++n) {
      if (n % 4 == 0) amd::keep_order();
      amd::multiply<C::dtype>(o.tile[n % v_tiles], read_v(lds, c, n), p[c][n / v_tiles]);
    }
    amd::keep_order();
    settle();
  }
  // Begins the fast loop: logits of part 0, what output_group() would have done of their
  // activation, and the reads ahead of K of part `k_part`.
  HSTU_DEVICE void begin(const char* lds) {
    compute_logits(lds, 0);
    if constexpr (softmax) rebase(0);
    total_before = total;
    activate<0, 0, amd::kProducts * v_slots>();
  }
  HSTU_DEVICE void read_ahead(const char* lds, int k_part) {
#pragma unroll
    for (int n = 0; n < ahead; ++n) f[n] = read_k(lds, k_part, n);
  }
  // Ends it: forgets what has been done of the activation of a part, which finish() does anew.
  HSTU_DEVICE void drop() { total = total_before; }
};

}  // namespace hstu
