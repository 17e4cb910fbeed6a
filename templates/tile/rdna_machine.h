// SPDX-License-Identifier: Apache-2.0
// The instructions of RDNA3 and RDNA4 machines (gfx11, gfx12; waves of 32) that tile/rdna.h uses,
// one small function each, so that tile/rdna.h itself is plain C++ and can run over an emulation
// of these functions. Lane l of a wave; h = l / 16.
#pragma once

#include "base/types.h"
#include "tile/amd_common.h"

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

using amd::barrier;
using amd::block;
using amd::forget;
using amd::high_halves;
using amd::keep_order;
using amd::log2;
using amd::low_halves;
using amd::rcp;
using amd::read_lds;
using amd::store;
using amd::thread;
using amd::uniform;
using amd::write_lds;

// The LDS of the workgroup, the same wherever it is asked for.
template <int bytes>
HSTU_DEVICE char* workgroup_lds() {
  __shared__ __attribute__((aligned(128))) char lds[bytes];
  return lds;
}

HSTU_DEVICE float exp2(float x) {
#if __has_builtin(__builtin_amdgcn_exp2f)
  return __builtin_amdgcn_exp2f(x);
#else
  return __builtin_exp2f(x);
#endif
}

// The value of lane l ^ 16.
HSTU_DEVICE unsigned other_half(unsigned x) {
  return __builtin_amdgcn_permlanex16(x, x, 0x76543210u, 0xfedcba98u, true, false);
}
HSTU_DEVICE float other_half(float x) {
  return __builtin_bit_cast(float, other_half(__builtin_bit_cast(unsigned, x)));
}

// True in all lanes if `yes` is in one.
HSTU_DEVICE bool any(bool yes) { return __builtin_amdgcn_ballot_w32(yes) != 0; }

// Two floats rounded to nearest even; `low` goes to the low half.
template <Dtype type>
HSTU_DEVICE unsigned pack(float low, float high) {
  return amd::pack_pair<type>(low, high);
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

// Device memory of `bytes` < 2^31 from `base` on, both the same in all lanes. A load of 16 bytes at
// an offset past its end gives zeros and touches no memory.
struct Buffer {
  amd::BufferDescriptor descriptor;
};

HSTU_DEVICE Buffer buffer(const unsigned short* base, int bytes) {
  // Raw: bounds by offset alone, no swizzle.
  return {amd::describe_buffer(base, bytes, 0x31016000)};
}

HSTU_DEVICE Words4 load(const Buffer& from, unsigned offset) {
  return amd::raw_buffer_load(from.descriptor, static_cast<int>(offset), 0, 0);
}

}  // namespace hstu::rdna
