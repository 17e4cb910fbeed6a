// SPDX-License-Identifier: Apache-2.0
// Vectors of 32-bit lanes as wide as the level allows, through the compilers' vector extension: no
// header, g++ 12 and clang 14 alike. Instructions the extension cannot say are inline assembly.
#pragma once

#include "base/types.h"

namespace hstu {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

typedef float VectorF __attribute__((vector_size(kLanes * 4)));
typedef int VectorI __attribute__((vector_size(kLanes * 4)));
typedef unsigned VectorU __attribute__((vector_size(kLanes * 4)));
typedef unsigned short VectorH __attribute__((vector_size(kLanes * 2)));  // 16-bit values

#define HSTU_INLINE inline __attribute__((always_inline))

template <typename V, typename T>
HSTU_INLINE V load(const T* from) {
  V v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}

template <typename V, typename T>
HSTU_INLINE void store(T* to, V v) {
  __builtin_memcpy(to, &v, sizeof v);
}

HSTU_INLINE unsigned bits_of(float x) {
  unsigned u;
  __builtin_memcpy(&u, &x, 4);
  return u;
}
HSTU_INLINE float float_of(unsigned u) {
  float x;
  __builtin_memcpy(&x, &u, 4);
  return x;
}

HSTU_INLINE VectorU splat(unsigned x) { return VectorU{} + x; }
HSTU_INLINE VectorI splat(int x) { return VectorI{} + x; }
HSTU_INLINE VectorF splat(float x) { return (VectorF)splat(bits_of(x)); }

// mask: all ones or all zeros per lane, as comparisons give.
HSTU_INLINE VectorF select(VectorI mask, VectorF yes, VectorF no) { return mask ? yes : no; }
HSTU_INLINE VectorU select(VectorI mask, VectorU yes, VectorU no) { return mask ? yes : no; }

// 0, 1, 2, ...
HSTU_INLINE VectorI lane_index() {
  VectorI v{};
  for (int i = 0; i < kLanes; ++i) v[i] = i;
  return v;
}

// Larger and smaller of two; a NaN in x stays, one in bound does not.
HSTU_INLINE VectorF at_least(VectorF x, VectorF bound) {
#if defined(__AVX__)
  VectorF r;
  __asm__("vmaxps %1, %2, %0" : "=v"(r) : "v"(x), "v"(bound));
  return r;
#else
  return select(x < bound, bound, x);
#endif
}
HSTU_INLINE VectorF at_most(VectorF x, VectorF bound) {
#if defined(__AVX__)
  VectorF r;
  __asm__("vminps %1, %2, %0" : "=v"(r) : "v"(x), "v"(bound));
  return r;
#else
  return select(x > bound, bound, x);
#endif
}

HSTU_INLINE float largest(VectorF v) {
  float m = v[0];
  for (int i = 1; i < kLanes; ++i) m = v[i] > m || v[i] != v[i] ? v[i] : m;
  return m;
}
HSTU_INLINE float sum(VectorF v) {
  float part[kLanes];
  store(part, v);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) part[i] += part[i + width];
  return part[0];
}

// Result lane l is lane I[l] of a, or lane I[l] - kLanes of b.
template <int... I>
struct Shuffle {
  static HSTU_INLINE VectorU of(VectorU a, VectorU b) {
    return __builtin_shufflevector(a, b, I...);
  }
};
// The two halves of a step that swaps blocks of H lanes between rows H apart.
template <int H, int L, int... I>
struct SwapLow : SwapLow<H, L - 1, ((L - 1) & H) == 0 ? L - 1 : kLanes + L - 1 - H, I...> {};
template <int H, int... I>
struct SwapLow<H, 0, I...> : Shuffle<I...> {};
template <int H, int L, int... I>
struct SwapHigh : SwapHigh<H, L - 1, ((L - 1) & H) == 0 ? L - 1 + H : kLanes + L - 1, I...> {};
template <int H, int... I>
struct SwapHigh<H, 0, I...> : Shuffle<I...> {};

template <int H>
HSTU_INLINE void transpose_step(VectorU (&rows)[kLanes]) {
  if constexpr (H > 0) {
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      if ((i & H) != 0) continue;
      const VectorU a = rows[i], b = rows[i + H];
      rows[i] = SwapLow<H, kLanes>::of(a, b);
      rows[i + H] = SwapHigh<H, kLanes>::of(a, b);
    }
    transpose_step<H / 2>(rows);
  }
}
// rows[i][l] becomes rows[l][i].
HSTU_INLINE void transpose(VectorU (&rows)[kLanes]) { transpose_step<kLanes / 2>(rows); }

}  // namespace hstu
