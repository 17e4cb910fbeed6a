// SPDX-License-Identifier: Apache-2.0
// Block products on vectors: c[Rows][2 panels] (+)= a * b in the packed form of pack.h.
#pragma once

#include "cpu/pack.h"

namespace hstu {

// Rows of a block: what the register file holds beside two panels.
#if defined(__AVX512F__)
constexpr int kVectorRows = 12;
#elif defined(__AVX__)
constexpr int kVectorRows = 6;
#else
constexpr int kVectorRows = 4;
#endif
constexpr int kBlockRows = kAmx ? 32 : kVectorRows;
constexpr int kBlockColumns = 2 * kLanes;

// acc += a * b, a being one lane for all; pairs of bf16 when Pairs.
template <bool Pairs>
HSTU_INLINE void multiply_add(VectorF& acc, const unsigned* a, VectorU b) {
#if defined(__AVX512BF16__)
  if constexpr (Pairs) {
    __asm__("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(b), "m"(*a));
    return;
  }
#endif
  acc += splat(float_of(*a)) * (VectorF)b;
}

// a: rows a_stride lanes apart; b: panels b_stride lanes apart; c: rows c_stride floats apart.
template <bool Pairs, bool Accumulate>
inline void block_product(const unsigned* a, long a_stride, const unsigned* b, long b_stride,
                          int depth, float* c, long c_stride) {
  VectorF acc[kVectorRows][2];
#pragma GCC unroll 16
  for (int r = 0; r < kVectorRows; ++r) {
    acc[r][0] = Accumulate ? load<VectorF>(c + r * c_stride) : VectorF{};
    acc[r][1] = Accumulate ? load<VectorF>(c + r * c_stride + kLanes) : VectorF{};
  }
  for (int d = 0; d < depth; ++d) {
    const VectorU b0 = load<VectorU>(b + d * kLanes);
    const VectorU b1 = load<VectorU>(b + b_stride + d * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kVectorRows; ++r) {
      multiply_add<Pairs>(acc[r][0], a + r * a_stride + d, b0);
      multiply_add<Pairs>(acc[r][1], a + r * a_stride + d, b1);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kVectorRows; ++r) {
    store(c + r * c_stride, acc[r][0]);
    store(c + r * c_stride + kLanes, acc[r][1]);
  }
}

}  // namespace hstu
