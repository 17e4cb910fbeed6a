// SPDX-License-Identifier: Apache-2.0
// The instructions of CDNA machines (gfx908, gfx90a, gfx942, gfx950) that tile/cdna.h uses, one
// small function each, so that tile/cdna.h itself is plain C++ and can run over an emulation of
// these functions. Lane l of a wave; h = l / 32.
#pragma once

#include "base/types.h"
#include "tile/amd_vectors.h"

namespace hstu::amd {

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

// The same for LDS alone: loads from device memory stay under way.
HSTU_DEVICE void lds_barrier() { asm volatile("s_waitcnt lgkmcnt(0)\n\ts_barrier" ::: "memory"); }

HSTU_DEVICE float exp2(float x) {
#if __has_builtin(__builtin_amdgcn_exp2f)
  return __builtin_amdgcn_exp2f(x);
#elif defined(__gfx908__) || defined(__gfx90a__)
  float y;  // no hazard to pad on these; gfx940 and later have one
  asm("v_exp_f32 %0, %1" : "=v"(y) : "v"(x));
  return y;
#else
  return __builtin_exp2f(x);
#endif
}

// 2^-x: the negation is free, which the compiler cannot know of inline assembly.
HSTU_DEVICE float exp2_negated(float x) {
#if !__has_builtin(__builtin_amdgcn_exp2f) && (defined(__gfx908__) || defined(__gfx90a__))
  float y;
  asm("v_exp_f32 %0, -%1" : "=v"(y) : "v"(x));
  return y;
#else
  return exp2(-x);
#endif
}

HSTU_DEVICE float log2(float x) { return __builtin_log2f(x); }
HSTU_DEVICE float rcp(float x) { return __builtin_amdgcn_rcpf(x); }

// The value of lane l ^ 32.
HSTU_DEVICE float other_half(float x) {
  const int from = (thread() ^ 32) * 4;
  return __builtin_bit_cast(float, __builtin_amdgcn_ds_bpermute(from, __builtin_bit_cast(int, x)));
}

// True in all lanes if `yes` is in one.
HSTU_DEVICE bool any(bool yes) {
#if __has_builtin(__builtin_amdgcn_ballot_w64)
  return __builtin_amdgcn_ballot_w64(yes) != 0;
#else
  return __builtin_amdgcn_uicmp(yes ? 1u : 0u, 0u, 33) != 0;  // 33: not equal
#endif
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
#if defined(__gfx950__)
    typedef float Floats __attribute__((ext_vector_type(2)));
    typedef __bf16 Halves __attribute__((ext_vector_type(2)));
    const Floats x = {low, high};
    return __builtin_bit_cast(unsigned, __builtin_convertvector(x, Halves));
#else
    // NaNs come from arithmetic on 16-bit inputs: their low bits are 0 and cannot carry.
    const unsigned a = __builtin_bit_cast(unsigned, low), b = __builtin_bit_cast(unsigned, high);
    return high_halves(a + 0x7fffu + ((a >> 16) & 1u), b + 0x7fffu + ((b >> 16) & 1u));
#endif
  }
}

// Rounds g * kDownscale to bf16, both at once, where g is a number multiplied by 1 / kDownscale (a
// power of two plus one): the difference to g loses what bf16 has no room for, so the sum keeps the
// number alone, rounded to nearest. Three instructions where pack() takes five. A number above
// 2^111 gives NaN.
constexpr float kDownscale = 1.0f / 65537.0f;
HSTU_DEVICE Floats2 upscaled_rest(Floats2 g) { return g * kDownscale - g; }
HSTU_DEVICE unsigned pack_upscaled(Floats2 g) {
  // If g is a product it must not go into the sum unrounded.
#pragma clang fp contract(off)
  const Floats2 rest = upscaled_rest(g);
  const Floats2 rounded = g + rest;
  const float low = rounded.x, high = rounded.y;
  return high_halves(__builtin_bit_cast(unsigned, low), __builtin_bit_cast(unsigned, high));
}
// Whether pack() to bf16 is one instruction.
#if defined(__gfx950__)
constexpr bool kFastPack = true;
#else
constexpr bool kFastPack = false;
#endif

// Whether multiply() takes 16-bit denormals for zero (ISA documents of MI100 and MI200; from MI300
// on it does not).
#if defined(__gfx908__) || defined(__gfx90a__)
constexpr bool kDropsDenormals = true;
#else
constexpr bool kDropsDenormals = false;
#endif

// Instructions that make up one multiply().
#if defined(__gfx950__)
constexpr int kProducts = 1;
#else
constexpr int kProducts = 2;
#endif

// Instruction `part` of multiply(), which describes the operands.
template <Dtype type, int part>
HSTU_DEVICE void multiply_part(Floats16& c, Words4 a, Words4 b) {
  typedef short Shorts2 __attribute__((ext_vector_type(2)));
  typedef short Shorts4 __attribute__((ext_vector_type(4)));
  typedef _Float16 Halves4 __attribute__((ext_vector_type(4)));
#if defined(__gfx950__)
  typedef _Float16 Halves8 __attribute__((ext_vector_type(8)));
  typedef __bf16 Brains8 __attribute__((ext_vector_type(8)));
  if constexpr (type == Dtype::fp16)
    c = __builtin_amdgcn_mfma_f32_32x32x16_f16(__builtin_bit_cast(Halves8, a),
                                               __builtin_bit_cast(Halves8, b), c, 0, 0, 0);
  else
    c = __builtin_amdgcn_mfma_f32_32x32x16_bf16(__builtin_bit_cast(Brains8, a),
                                                __builtin_bit_cast(Brains8, b), c, 0, 0, 0);
#else
#if defined(__gfx908__)
  if constexpr (type == Dtype::bf16) {
#pragma unroll
    for (int i = 2 * part; i < 2 * part + 2; ++i) {
      const unsigned x = a[i], y = b[i];
      c = __builtin_amdgcn_mfma_f32_32x32x4bf16(__builtin_bit_cast(Shorts2, x),
                                                __builtin_bit_cast(Shorts2, y), c, 0, 0, 0);
    }
    return;
  }
#endif
  const Words2 x = {a[2 * part], a[2 * part + 1]}, y = {b[2 * part], b[2 * part + 1]};
#if !defined(__gfx908__)
  if constexpr (type == Dtype::bf16)
    c = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(__builtin_bit_cast(Shorts4, x),
                                                 __builtin_bit_cast(Shorts4, y), c, 0, 0, 0);
  else
#endif
    c = __builtin_amdgcn_mfma_f32_32x32x8f16(__builtin_bit_cast(Halves4, x),
                                             __builtin_bit_cast(Halves4, y), c, 0, 0, 0);
#endif
}

// c += a . b for a 32x16 matrix a and a 16x32 matrix b. Lane l holds the 8 elements of row l % 32
// of a, and of column l % 32 of b, that h selects: any split of the 16, the same for a and b. c[r]
// is at row 8 (r / 4) + 4 h + r % 4, column l % 32.
template <Dtype type>
HSTU_DEVICE void multiply(Floats16& c, Words4 a, Words4 b) {
  multiply_part<type, 0>(c, a, b);
  if constexpr (kProducts == 2) multiply_part<type, 1>(c, a, b);
}

// Says that x belongs in accumulation registers, where the wave has twice the registers only
// because of them. Without it the compiler carries x in both kinds and copies it at each turn of a
// loop.
HSTU_DEVICE void keep_in_accumulators(Floats16& x) { asm("" : "+a"(x)); }

// Says that x is changed in place from here on. Without it compilers may carry an accumulator that
// several loops share in two sets of registers.
HSTU_DEVICE void keep_in_place(Floats16& x) { asm volatile("" : "+v"(x)); }

// Nothing moves across: bounds what the scheduler keeps in registers at once.
HSTU_DEVICE void keep_order() { __builtin_amdgcn_sched_barrier(0); }

// gfx908 multiplies into accumulation registers only.
#if defined(__gfx908__)
constexpr bool kSeparateAccumulators = true;
#else
constexpr bool kSeparateAccumulators = false;
#endif

// Hides where x comes from: what follows from it is worked out here again, not kept in registers
// from before a loop.
HSTU_DEVICE void forget(unsigned& x) { asm volatile("" : "+v"(x)); }
HSTU_DEVICE void forget(float& x) { asm volatile("" : "+v"(x)); }

// The kernel's one argument, read anew: where it is read first, compilers read a good part of it at
// once, and they would keep all that for the end of the kernel.
template <class A>
HSTU_DEVICE const A& argument_again(const A&) {
  typedef const __attribute__((address_space(4))) A* Pointer;
  const auto address = (unsigned long long)__builtin_amdgcn_kernarg_segment_ptr();
  unsigned low = static_cast<unsigned>(address), high = static_cast<unsigned>(address >> 32);
  forget(low);
  forget(high);
  const auto again = static_cast<unsigned long long>(static_cast<unsigned>(uniform(high))) << 32 |
                     static_cast<unsigned>(uniform(low));
  return *(const A*)(Pointer)again;
}

// Device memory of `bytes` < 2^31 from `base` on, both the same in all lanes. A load of 16 bytes at
// an offset past its end gives zeros and touches no memory.
struct Buffer {
  typedef int Descriptor __attribute__((ext_vector_type(4)));
  Descriptor descriptor;
};

// uniform(): should the compiler have worked one of them out in vector registers, it would turn
// every load into a loop over lanes.
HSTU_DEVICE Buffer buffer(const unsigned short* base, int bytes) {
  const auto address = reinterpret_cast<unsigned long long>(base);
  return {{uniform(static_cast<int>(address)), uniform(static_cast<int>(address >> 32) & 0xffff),
           uniform(bytes), 0x00027000}};  // raw, 32-bit elements, no swizzle
}

// The one way to this instruction that LLVM 14 to 21 share is its intrinsic's name.
__device__ Words4 raw_buffer_load(Buffer::Descriptor descriptor, int offset, int scalar_offset,
                                  int policy) __asm("llvm.amdgcn.raw.buffer.load.v4i32");

HSTU_DEVICE Words4 load(const Buffer& from, unsigned offset) {
  return raw_buffer_load(from.descriptor, static_cast<int>(offset), 0, 0);
}

// Waits for a load here, and not at a first use that a loop repeats: there the compiler would wait
// for the loop's own loads too.
HSTU_DEVICE void await(Words4& x) { asm volatile("" : "+v"(x)); }

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

// 16-byte units that one phase of a wide LDS access covers without conflict.
#if defined(__gfx950__)
constexpr int kLdsLineBits = 4;
#else
constexpr int kLdsLineBits = 3;
#endif

}  // namespace hstu::amd
