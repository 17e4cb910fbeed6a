// SPDX-License-Identifier: Apache-2.0
// AMX tiles: registers 0..7, each 16 rows of 64 bytes. 0-3 accumulate a block of 32 x 32, 4-5 hold
// its left operand, 6-7 its right one.
#pragma once

#include "cpu/pack.h"

#if defined(__AMX_BF16__) && defined(__AMX_TILE__)
namespace hstu {

struct AmxConfiguration {
  alignas(64) unsigned char bytes[64] = {};
  constexpr AmxConfiguration() {
    bytes[0] = 1;  // palette
    for (int t = 0; t < 8; ++t) {
      bytes[16 + 2 * t] = 64;  // bytes of a row
      bytes[48 + t] = 16;      // rows
    }
  }
};

HSTU_INLINE void amx_begin() {
  const AmxConfiguration configuration;
  __asm__ volatile("ldtilecfg %0" ::"m"(configuration));
}
HSTU_INLINE void amx_end() { __asm__ volatile("tilerelease"); }

template <int T>
HSTU_INLINE void tile_load(const void* from, long stride_bytes) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride_bytes), "i"(T)
                   : "memory");
}
template <int T>
HSTU_INLINE void tile_store(void* to, long stride_bytes) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride_bytes), "i"(T)
                   : "memory");
}
template <int T>
HSTU_INLINE void tile_zero() {
  __asm__ volatile("tilezero %%tmm%c0" ::"i"(T));
}
template <int C, int A, int B>
HSTU_INLINE void tile_multiply_add() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
}

// The 32 x 32 block at c, rows c_stride floats apart.
HSTU_INLINE void amx_load_block(const float* c, long c_stride) {
  tile_load<0>(c, c_stride * 4);
  tile_load<1>(c + 16, c_stride * 4);
  tile_load<2>(c + 16 * c_stride, c_stride * 4);
  tile_load<3>(c + 16 * c_stride + 16, c_stride * 4);
}
HSTU_INLINE void amx_store_block(float* c, long c_stride) {
  tile_store<0>(c, c_stride * 4);
  tile_store<1>(c + 16, c_stride * 4);
  tile_store<2>(c + 16 * c_stride, c_stride * 4);
  tile_store<3>(c + 16 * c_stride + 16, c_stride * 4);
}
HSTU_INLINE void amx_zero_block() {
  tile_zero<0>();
  tile_zero<1>();
  tile_zero<2>();
  tile_zero<3>();
}

// One step of 32 summed elements: a and b as in block_product, at the step's depth.
HSTU_INLINE void amx_step(const unsigned* a, long a_stride, const unsigned* b, long b_stride) {
  tile_load<6>(b, 64);
  tile_load<4>(a, a_stride * 4);
  tile_multiply_add<0, 4, 6>();
  tile_load<7>(b + b_stride, 64);
  tile_multiply_add<1, 4, 7>();
  tile_load<5>(a + 16 * a_stride, a_stride * 4);
  tile_multiply_add<2, 5, 6>();
  tile_multiply_add<3, 5, 7>();
}

}  // namespace hstu
#endif
