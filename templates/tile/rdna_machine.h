// SPDX-License-Identifier: Apache-2.0
// The instructions of RDNA3 and RDNA4 machines (gfx11, gfx12; waves of 32) that tile/rdna.h uses,
// one small function each, so that tile/rdna.h itself is plain C++ and can run over an emulation
// of these functions. Lane l of a wave; h = l / 16.
#pragma once

#include "base/types.h"
#include "tile/amd_vectors.h"

namespace hstu::rdna {

using amd::Words2;
using amd::Words4;
typedef unsigned Words8 __attribute__((ext_vector_type(8)));
typedef float Floats8 __attribute__((ext_vector_type(8)));

// Operands and accumulators of the 16x16x16 matrix instruction.
//   gfx12: lane l holds elements 8h .. 8h + 7 of row (a) or column (b) l % 16;
//          c[r] is at row 8h + r, column l % 16
//   gfx11: lane l holds all 16 elements, the same in both halves; c[r] is at row 2r + h
#if defined(__gfx1200__) || defined(__gfx1201__)
constexpr bool kSplit = true;
typedef Words4 Operand;
#else
constexpr bool kSplit = false;
typedef Words8 Operand;
#endif

HSTU_DEVICE int thread() { return static_cast<int>(__builtin_amdgcn_workitem_id_x()); }
HSTU_DEVICE long long block() { return __builtin_amdgcn_workgroup_id_x(); }

// Value of the wave's first lane; tells the compiler that it is the same in all of them.
HSTU_DEVICE int uniform(int x) { return __builtin_amdgcn_readfirstlane(x); }

// All earlier LDS accesses of the workgroup come before all later ones.
HSTU_DEVICE void barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

HSTU_DEVICE float exp2(float x) {
#if __has_builtin(__builtin_amdgcn_exp2f)
  return __builtin_amdgcn_exp2f(x);
#else
  return __builtin_exp2f(x);
#endif
}
HSTU_DEVICE float log2(float x) { return __builtin_log2f(x); }
HSTU_DEVICE float rcp(float x) { return __builtin_amdgcn_rcpf(x); }

// The value of lane l ^ 16.
HSTU_DEVICE unsigned other_half(unsigned x) {
  return __builtin_amdgcn_permlanex16(x, x, 0x76543210u, 0xfedcba98u, true, false);
}
HSTU_DEVICE float other_half(float x) {
  return __builtin_bit_cast(float, other_half(__builtin_bit_cast(unsigned, x)));
}

// Both low, or both high, halves of two words: {low, high}.
HSTU_DEVICE unsigned low_halves(unsigned low, unsigned high) {
  return __builtin_amdgcn_perm(high, low, 0x05040100u);
}
HSTU_DEVICE unsigned high_halves(unsigned low, unsigned high) {
  return __builtin_amdgcn_perm(high, low, 0x07060302u);
}

// Two floats rounded to nearest even; `low` goes to the low half.
template <Dtype type>
HSTU_DEVICE unsigned pack(float low, float high) {
  if constexpr (type == Dtype::fp16) {
    typedef _Float16 Halves __attribute__((ext_vector_type(2)));
    const Halves y = {static_cast<_Float16>(low), static_cast<_Float16>(high)};
    return __builtin_bit_cast(unsigned, y);
  } else {
    // NaNs come from arithmetic on 16-bit inputs: their low bits are 0 and cannot carry.
    const unsigned a = __builtin_bit_cast(unsigned, low), b = __builtin_bit_cast(unsigned, high);
    return high_halves(a + 0x7fffu + ((a >> 16) & 1u), b + 0x7fffu + ((b >> 16) & 1u));
  }
}

// c += a . b
template <Dtype type>
HSTU_DEVICE void multiply(Floats8& c, Operand a, Operand b) {
#if defined(__gfx1200__) || defined(__gfx1201__)
  typedef short Brains __attribute__((ext_vector_type(8)));
  typedef _Float16 Halves __attribute__((ext_vector_type(8)));
  if constexpr (type == Dtype::fp16)
    c = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(__builtin_bit_cast(Halves, a),
                                                         __builtin_bit_cast(Halves, b), c);
  else
    c = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(__builtin_bit_cast(Brains, a),
                                                          __builtin_bit_cast(Brains, b), c);
#else
  typedef short Brains __attribute__((ext_vector_type(16)));
  typedef _Float16 Halves __attribute__((ext_vector_type(16)));
  if constexpr (type == Dtype::fp16)
    c = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(__builtin_bit_cast(Halves, a),
                                                   __builtin_bit_cast(Halves, b), c);
  else
    c = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(__builtin_bit_cast(Brains, a),
                                                    __builtin_bit_cast(Brains, b), c);
#endif
}

// Nothing moves across: bounds what the scheduler keeps in registers at once.
HSTU_DEVICE void keep_order() { __builtin_amdgcn_sched_barrier(0); }

// Device memory of `bytes` < 2^31 from `base` on, both the same in all lanes. A load of 16 bytes at
// an offset past its end gives zeros and touches no memory.
struct Buffer {
  typedef int Descriptor __attribute__((ext_vector_type(4)));
  Descriptor descriptor;
};

HSTU_DEVICE Buffer buffer(const unsigned short* base, int bytes) {
  const auto address = reinterpret_cast<unsigned long long>(base);
  return {{uniform(static_cast<int>(address)), uniform(static_cast<int>((address >> 32) & 0xffffu)),
           uniform(bytes), 0x31016000}};  // raw: bounds by offset alone, no swizzle
}

// The one way to this instruction that all LLVM versions share is its intrinsic's name.
__device__ Words4 raw_buffer_load(Buffer::Descriptor descriptor, int offset, int scalar_offset,
                                  int policy) __asm("llvm.amdgcn.raw.buffer.load.v4i32");

HSTU_DEVICE Words4 load(const Buffer& from, unsigned offset) {
  return raw_buffer_load(from.descriptor, static_cast<int>(offset), 0, 0);
}

HSTU_DEVICE void store(unsigned short* to, Words4 x) { *reinterpret_cast<Words4*>(to) = x; }

// LDS at a byte offset, aligned to the size of the access.
HSTU_DEVICE Words4 read_lds(const char* lds, int offset) {
  typedef const __attribute__((address_space(3))) char* Local;
  return *(const __attribute__((address_space(3))) Words4*)((Local)lds + offset);
}
HSTU_DEVICE void write_lds(char* lds, int offset, Words4 x) {
  typedef __attribute__((address_space(3))) char* Local;
  *(__attribute__((address_space(3))) Words4*)((Local)lds + offset) = x;
}
HSTU_DEVICE void write_lds(char* lds, int offset, Words2 x) {
  typedef __attribute__((address_space(3))) char* Local;
  *(__attribute__((address_space(3))) Words2*)((Local)lds + offset) = x;
}

}  // namespace hstu::rdna
