// SPDX-License-Identifier: Apache-2.0
// Instructions that all AMD machines have, one small function each. Included by the machine files,
// which add their own; tile layers include only those.
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

HSTU_DEVICE float log2(float x) { return __builtin_log2f(x); }
HSTU_DEVICE float rcp(float x) { return __builtin_amdgcn_rcpf(x); }

// Both low, or both high, halves of two words: {low, high}.
HSTU_DEVICE unsigned low_halves(unsigned low, unsigned high) {
  return __builtin_amdgcn_perm(high, low, 0x05040100u);
}
HSTU_DEVICE unsigned high_halves(unsigned low, unsigned high) {
  return __builtin_amdgcn_perm(high, low, 0x07060302u);
}

// Two floats rounded to nearest even by instructions that every machine has; `low` goes to the low
// half.
template <Dtype type>
HSTU_DEVICE unsigned pack_pair(float low, float high) {
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

// Nothing moves across: fixes the order of what stands before and after it.
HSTU_DEVICE void keep_order() { __builtin_amdgcn_sched_barrier(0); }

// Hides where x comes from: what follows from it is worked out here again, not kept in registers
// from before a loop.
HSTU_DEVICE void forget(unsigned& x) { asm volatile("" : "+v"(x)); }
HSTU_DEVICE void forget(int& x) { asm volatile("" : "+v"(x)); }
HSTU_DEVICE void forget(float& x) { asm volatile("" : "+v"(x)); }

typedef int BufferDescriptor __attribute__((ext_vector_type(4)));

// `format` is the fourth word, the machine's own. uniform(): should the compiler have worked one of
// them out in vector registers, it would turn every load into a loop over lanes.
HSTU_DEVICE BufferDescriptor describe_buffer(const unsigned short* base, int bytes, int format) {
  const auto address = reinterpret_cast<unsigned long long>(base);
  return {uniform(static_cast<int>(address)), uniform(static_cast<int>(address >> 32)) & 0xffff,
          uniform(bytes), format};
}

// The one way to this instruction that all LLVM versions share is its intrinsic's name.
__device__ Words4 raw_buffer_load(BufferDescriptor descriptor, int offset, int scalar_offset,
                                  int policy) __asm("llvm.amdgcn.raw.buffer.load.v4i32");

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

}  // namespace hstu::amd
