// SPDX-License-Identifier: Apache-2.0
// Words every template uses. Included by device code (hipRTC, NVRTC, clang) and by the host.
#pragma once

// HSTU_HOST_DEVICE: callable from kernels and from the host compiler.
#if defined(__CUDACC_RTC__) || defined(__CUDACC__) || defined(__HIP__) || defined(__HIPCC_RTC__)
#define HSTU_HOST_DEVICE __host__ __device__ __forceinline__
#define HSTU_DEVICE __device__ __forceinline__
#else
#define HSTU_HOST_DEVICE inline
#define HSTU_DEVICE inline
#endif

namespace hstu {

// Storage type of q, k, v and o. 16-bit values travel as unsigned short.
enum class Dtype { fp16, bf16 };

enum class Activation { silu, softmax };

HSTU_HOST_DEVICE constexpr int min_of(int a, int b) { return a < b ? a : b; }
HSTU_HOST_DEVICE constexpr int max_of(int a, int b) { return a > b ? a : b; }
HSTU_HOST_DEVICE constexpr float min_of(float a, float b) { return a < b ? a : b; }
HSTU_HOST_DEVICE constexpr float max_of(float a, float b) { return a > b ? a : b; }
HSTU_HOST_DEVICE constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
HSTU_HOST_DEVICE constexpr int round_up(int a, int b) { return ceil_div(a, b) * b; }

// The larger of two numbers by one instruction, or half of one: of a comparison and a choice
// compilers make two, and more of a row of them. A NaN is passed over.
HSTU_DEVICE float larger(float a, float b) {
#if defined(__CUDACC_RTC__)
  return fmaxf(a, b);
#else
  return __builtin_fmaxf(a, b);
#endif
}

// x, which all lanes hold the same value of. AMD compilers do not know that of what is loaded by a
// pointer from the kernel's arguments, and would guard every branch that depends on it.
HSTU_DEVICE int same_in_all_lanes(int x) {
#if defined(__AMDGCN__)
  return __builtin_amdgcn_readfirstlane(x);
#else
  return x;
#endif
}

HSTU_HOST_DEVICE constexpr float infinity() {
#if defined(__CUDACC_RTC__)
  return __builtin_bit_cast(float, 0x7f800000u);  // NVRTC has no __builtin_huge_valf
#else
  return __builtin_huge_valf();
#endif
}

}  // namespace hstu
