// SPDX-License-Identifier: Apache-2.0
// From logits to probabilities in the registers of a warpgroup: SiLU, exact and approximate, and
// the exponentials of softmax with their running maxima and sums.
#pragma once

#include "attention/arguments.h"
#include "base/types.h"
#include "tile/hopper.h"

namespace hstu {

template <class C>
struct HopperActivation {
  using T = HopperTileLayer<C>;
  static constexpr bool softmax = C::activation == Activation::softmax;
  static constexpr float log2e = 1.4426950408889634f;

  // Softmax: of a thread's two rows, of log2-scaled logits.
  struct Rows {
    float max[2], sum[2];
  };

  // silu(alpha x). Exact takes scale = alpha log2(e); the approximate one, off by 1e-5 at most,
  // alpha / 2.
  template <bool exact>
  HSTU_DEVICE static float silu(float x, float scale) {
    const float y = x * scale;
    if (exact) return y * (1 / log2e) * nvidia::rcp(1.0f + nvidia::exp2(-y));
    return hopper::multiply_add(y, hopper::tanh(y), y);
  }

  // Probabilities of 16 keys from their logits, as an operand of the second product.
  template <bool exact>
  HSTU_DEVICE static void activate(const float* s, unsigned* p, float scale) {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      p[j] = nvidia::pack<C::dtype>(silu<exact>(s[2 * j], scale), silu<exact>(s[2 * j + 1], scale));
  }

  HSTU_DEVICE static void exponentials(const float* s, unsigned* p, Rows& rows, float scale,
                                       const float (&shift)[2]) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int i = j % 2;
      const float y0 = nvidia::exp2(hopper::multiply_add(s[2 * j], scale, -shift[i]));
      const float y1 = nvidia::exp2(hopper::multiply_add(s[2 * j + 1], scale, -shift[i]));
      rows.sum[i] += y0 + y1;
      p[j] = nvidia::pack<C::dtype>(y0, y1);
    }
  }

  // Exponentials may reach 2^8 before the maximum they are relative to is raised: the result is the
  // same, and after a few keys hardly any step has to scale what was summed up before.
  static constexpr float kMaxSlack = 8.0f;

  // Raises the rows' maxima to those of `keys` new logits, and scales what was summed up before, o
  // too; `shift` becomes what exponentials subtract.
  template <int keys>
  HSTU_DEVICE static void raise(const float* s, Rows& rows, float (&o)[T::o_count], float scale,
                                float (&shift)[2]) {
    // Two of each row: half as many that wait for each other.
    float tops[2][2] = {{-infinity(), -infinity()}, {-infinity(), -infinity()}};
#pragma unroll
    for (int e = 0; e < keys / 2; ++e) {
      float& top = tops[T::slot(e)][e % 2];
      top = larger(top, s[e]);
    }
    float top[2];
    bool grows = false;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      top[i] = larger(tops[i][0], tops[i][1]);
      top[i] = larger(top[i], nvidia::shuffle_xor(top[i], 1));
      top[i] = larger(top[i], nvidia::shuffle_xor(top[i], 2)) * scale;
      grows = grows || top[i] > rows.max[i] + kMaxSlack;
    }
    if (hopper::lanes_where(grows) != 0) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float max = larger(rows.max[i], top[i]);
        const float shrink = max == -infinity() ? 1.0f : nvidia::exp2(rows.max[i] - max);
        rows.max[i] = max;
        rows.sum[i] *= shrink;
#pragma unroll
        for (int n = 0; n < T::o_count; n += 4) {
          o[n + 2 * i] *= shrink;
          o[n + 2 * i + 1] *= shrink;
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) shift[i] = rows.max[i] == -infinity() ? 0.0f : rows.max[i];
  }

  // Softmax wants logits whose scale is positive: maxima are taken, and hidden ones are -infinity,
  // before the scale. Those of a negative one change their sign here; step_scale() is its size.
  template <int count>
  HSTU_DEVICE static void turn(const ForwardArguments& a, float (&s)[count / 2]) {
    if (a.alpha < 0.0f) {
#pragma unroll
      for (int e = 0; e < count / 2; ++e) s[e] = -s[e];
    }
  }
  // What logits are to be scaled with.
  template <bool exact>
  HSTU_DEVICE static float step_scale(const ForwardArguments& a) {
    if (softmax) return (a.alpha < 0.0f ? -a.alpha : a.alpha) * log2e;
    return a.alpha * (exact ? log2e : 0.5f);
  }
};

}  // namespace hstu
