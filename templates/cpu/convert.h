// SPDX-License-Identifier: Apache-2.0
// 16-bit floats <-> fp32, round to nearest even, a vector at a time.
#pragma once

#include "cpu/vector.h"

namespace hstu {

HSTU_INLINE VectorU widen(VectorH h) {
#if defined(__AVX512F__)
  VectorU u;  // g++ 12 makes four instructions of the conversion
  __asm__("vpmovzxwd %1, %0" : "=v"(u) : "v"(h));
  return u;
#else
  return __builtin_convertvector(h, VectorU);
#endif
}
HSTU_INLINE VectorH narrow(VectorU u) { return __builtin_convertvector(u, VectorH); }

template <Dtype D>
HSTU_INLINE VectorF to_float(VectorH h) {
  if constexpr (D == Dtype::bf16) {
    return (VectorF)(widen(h) << 16);
  } else {
#if defined(__F16C__)
    VectorF f;
    __asm__("vcvtph2ps %1, %0" : "=v"(f) : "v"(h));
    return f;
#else
    // Exponent and fraction moved into place are short by 2^112; infinities and NaN need the rest.
    const VectorU u = widen(h), magnitude = (u & 0x7fffu) << 13;
    const VectorF scaled = (VectorF)magnitude * splat(0x1p112f);
    const VectorI special = magnitude >= splat(0x0f800000u);
    const VectorU fixed = select(special, magnitude | splat(0x7f800000u), (VectorU)scaled);
    return (VectorF)(fixed | (u & 0x8000u) << 16);
#endif
  }
}

template <Dtype D>
HSTU_INLINE VectorH from_float(VectorF f) {
  [[maybe_unused]] const VectorU u = (VectorU)f;
  if constexpr (D == Dtype::bf16) {
#if defined(__AVX512BF16__)
    VectorH h;
    __asm__("vcvtneps2bf16 %1, %0" : "=v"(h) : "v"(f));
    return h;
#else
    const VectorU rounded = u + ((u >> 16 & 1u) + 0x7fffu);
    return narrow(select(f == f, rounded, u | 0x400000u) >> 16);
#endif
  } else {
#if defined(__F16C__)
    VectorH h;
    __asm__("vcvtps2ph $0, %1, %0" : "=v"(h) : "v"(f));
    return h;
#else
    const VectorU magnitude = u & 0x7fffffffu;
    // Normal: drop 13 bits with rounding, move the exponent. Below 2^-14: the adder of fp32 rounds
    // to the step of subnormals. From 65536 on: infinity, or a quiet NaN.
    const VectorU normal = (magnitude + (0xc8000fffu + (magnitude >> 13 & 1u))) >> 13;
    const VectorU small = (VectorU)((VectorF)magnitude + splat(0.5f)) - 0x3f000000u;
    const VectorU huge = select(f == f, splat(0x7c00u), splat(0x7e00u));
    VectorU h = select(magnitude < splat(0x38800000u), small, normal);
    h = select(magnitude >= splat(0x47800000u), huge, h);
    return narrow(h | (u >> 16 & 0x8000u));
#endif
  }
}

template <Dtype D>
HSTU_INLINE VectorF round_to(VectorF f) {
  return to_float<D>(from_float<D>(f));
}

#if defined(__AVX512BF16__)
// Two vectors as bf16, low in the lower half.
HSTU_INLINE VectorU bf16_pair(VectorF low, VectorF high) {
  VectorU r;
  __asm__("vcvtne2ps2bf16 %1, %2, %0" : "=v"(r) : "v"(low), "v"(high));
  return r;
}
#endif

}  // namespace hstu
