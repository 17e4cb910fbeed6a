// SPDX-License-Identifier: Apache-2.0
// The kernel language where no run-time header brings it (plain clang without HIP's headers), and
// the two declarations every kernel entry needs.
//   HSTU_KERNEL(threads, waves_per_simd)  before `void name(...)`: a kernel for workgroups of
//                                         exactly `threads`, registers budgeted for that occupancy
//   HSTU_LDS(name, bytes)                 a workgroup's memory, `char*`, aligned to 16 (NVIDIA 128)
#pragma once

#if defined(__HIP__) && !defined(__global__)
#define __global__ __attribute__((global))
#endif
#if defined(__HIP__) && !defined(__device__)
#define __device__ __attribute__((device))
#endif
#if defined(__HIP__) && !defined(__host__)
#define __host__ __attribute__((host))
#endif
#if defined(__HIP__) && !defined(__shared__)
#define __shared__ __attribute__((shared))
#endif
#if defined(__HIP__) && !defined(__forceinline__)
#define __forceinline__ inline __attribute__((always_inline))
#endif

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
// 4 SIMDs (schedulers) of a multiprocessor hold waves_per_simd warps each.
#define HSTU_KERNEL(threads, waves_per_simd) \
  extern "C" __global__ __launch_bounds__(   \
      threads, (waves_per_simd)*128 > (threads) ? (waves_per_simd)*128 / (threads) : 1)
#define HSTU_LDS(name, bytes) __shared__ __align__(128) char name[bytes]
#else
#define HSTU_KERNEL(threads, waves_per_simd)                                          \
  extern "C" __global__ __attribute__((amdgpu_flat_work_group_size(threads, threads), \
                                       amdgpu_waves_per_eu(waves_per_simd, waves_per_simd)))
#define HSTU_LDS(name, bytes) __shared__ __attribute__((aligned(16))) char name[bytes]
#endif
