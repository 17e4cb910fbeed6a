// SPDX-License-Identifier: Apache-2.0
// 2^t and SiLU on vectors, without the math library.
//
// `Exact` gives a few units in the last place of fp32. Without it the relative error is below
// 2^-12, for results that are rounded to bf16 (8 bits) at once. Polynomials: minimax in the
// relative error of 2^f, computed for this file.
#pragma once

#include "cpu/vector.h"

namespace hstu {

constexpr float kLog2E = 1.44269504088896341f;

// 2^t. t of any size: too small gives 0 (or 2^-126 without AVX-512), too large infinity (2^127).
template <bool Exact>
HSTU_INLINE VectorF exp2_of(VectorF t) {
#if defined(__AVX512DQ__)
  VectorF f, e;  // f: t - floor(t), 0 for infinities
  __asm__("vreduceps $9, %1, %0" : "=v"(f) : "v"(t));
  VectorF p;
  if constexpr (Exact) {
    p = splat(0.0018775767f) * f + splat(0.00898934002f);
    p = p * f + splat(0.0558263181f);
    p = p * f + splat(0.240153617f);
    p = p * f + splat(0.693153073f);
    p = p * f + splat(0.999999925f);
  } else {
    p = splat(0.0780245227f) * f + splat(0.226067155f);
    p = p * f + splat(0.69583354f);
    p = p * f + splat(0.999925219f);
  }
  __asm__("vscalefps %2, %1, %0" : "=v"(e) : "v"(p), "v"(t));
  return e;
#else
  t = at_most(at_least(t, splat(-126.0f)), splat(127.0f));
  const VectorF magic = splat(0x1.8p23f);  // its sum with t holds round(t) in the low bits
  const VectorF shifted = t + magic;
  const VectorF f = t - (shifted - magic);
  VectorF p;
  if constexpr (Exact) {
    p = splat(0.00132764722f) * f + splat(0.00967554133f);
    p = p * f + splat(0.0555071327f);
    p = p * f + splat(0.240221197f);
    p = p * f + splat(0.693146967f);
    p = p * f + splat(1.00000007f);
  } else {
    p = splat(0.0551716691f) * f + splat(0.242611122f);
    p = p * f + splat(0.693260985f);
    p = p * f + splat(0.999928074f);
  }
  return (VectorF)((VectorU)p + ((VectorU)shifted << 23));
#endif
}

// x * sigmoid(x) for x = scale * s, given scale and scale_log2 = -scale * log2(e).
template <bool Exact>
HSTU_INLINE VectorF silu(VectorF s, VectorF scale, [[maybe_unused]] VectorF scale_log2) {
  const VectorF x = s * scale;
#if defined(__AVX512DQ__)
  if constexpr (!Exact) {
    // An infinite sum has the reciprocal 0: no clamp is needed for any finite x.
    const VectorF d = exp2_of<false>(s * scale_log2) + splat(1.0f);
    VectorF r;
    __asm__("vrcp14ps %1, %0" : "=v"(r) : "v"(d));
    return x * r;
  }
#endif
  // Below -85 the result is nothing beside any other; the bound keeps x * 2^-126 small too.
  const VectorF bounded = at_least(x, splat(-85.0f));
  const VectorF d = exp2_of<Exact>(bounded * splat(-kLog2E)) + splat(1.0f);
#if defined(__AVX512F__)
  VectorF r;
  __asm__("vrcp14ps %1, %0" : "=v"(r) : "v"(d));
  return bounded * r * (splat(2.0f) - d * r);  // one Newton step instead of the slow division
#else
  return bounded / d;
#endif
}

// Natural logarithm of a finite x > 0, to fp32 accuracy.
inline float log_of(float x) {
  int exponent = static_cast<int>(bits_of(x) >> 23) - 127;
  double m = float_of((bits_of(x) & 0x7fffffu) | 0x3f800000u);
  if (m > 1.41421356) m *= 0.5, ++exponent;
  const double z = (m - 1) / (m + 1), z2 = z * z;  // |z| < 0.172
  double series = 0;
  for (int k = 15; k >= 1; k -= 2) series = series * z2 + 1.0 / k;
  return static_cast<float>(exponent * 0.69314718055994531 + 2 * z * series);
}

}  // namespace hstu
