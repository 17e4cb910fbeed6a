// SPDX-License-Identifier: Apache-2.0
// Real objects for the tests, by whatever compilers this machine has.
#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "base/subprocess.hpp"

namespace hstu::test {

inline void skipped(const std::string& test, const std::string& reason) {
  std::printf("SKIPPED: %s: %s\n", test.c_str(), reason.c_str());
}

// What a program prints, or nothing where it is missing or fails.
inline std::optional<std::string> output_of(std::vector<std::string> argv) {
  const auto path = jit::find_program(argv[0]);
  if (!path) return std::nullopt;
  jit::ProcessOptions options;
  options.argv = std::move(argv);
  options.argv[0] = *path;
  const auto ran = jit::run_process(options);
  if (!ran || !ran->succeeded()) return std::nullopt;
  return ran->output + ran->errors;
}

inline int count_of(const std::string& text, const std::string& word) {
  int count = 0;
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++count;
  return count;
}

// Kernels in HIP without a header, with the few declarations that clang needs.
inline const char* kAmdPrelude = R"(
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define WORKGROUP(n) __attribute__((amdgpu_flat_work_group_size(n, n)))
#define THREAD() __builtin_amdgcn_workitem_id_x()
#define BARRIER() __builtin_amdgcn_s_barrier()
)";
// The same for hipRTC, which brings its own declarations.
inline const char* kHiprtcPrelude = R"(
#define WORKGROUP(n) __launch_bounds__(n)
#define THREAD() threadIdx.x
#define BARRIER() __syncthreads()
)";
inline const char* kMatrixKernel = R"(
typedef _Float16 half4 __attribute__((ext_vector_type(4)));
typedef float float4_ __attribute__((ext_vector_type(4)));
struct Args { float* out; const half4* in; long rows; int columns; };
extern "C" __global__ void WORKGROUP(64) matrix(Args a) {
  int t = THREAD();
  __shared__ float row[64];
  float4_ sum = {0, 0, 0, 0};
  for (int i = 0; i < 5; ++i)
    sum = __builtin_amdgcn_mfma_f32_16x16x16f16(a.in[t + i], a.in[t + 64 + i], sum, 0, 0, 0);
  row[t] = sum[0];
  BARRIER();
  a.out[t] = __builtin_amdgcn_rcpf(row[63 - t]);
}
)";
// Keeps 80 values alive in 24 registers.
inline const char* kSpillingKernel = R"(
extern "C" __global__ void WORKGROUP(64) __attribute__((amdgpu_num_vgpr(24)))
spilling(float* p, int n) {
  float v[80];
  int t = THREAD();
  for (int i = 0; i < 80; i++) v[i] = p[t + i * 64];
  for (int k = 0; k < n; k++)
#pragma unroll
    for (int i = 0; i < 80; i++) v[i] = v[i] * v[(i * 7 + 1) % 80] + p[k];
  for (int i = 0; i < 80; i++) p[t + i * 64] = v[i];
}
)";

inline std::optional<std::string> clang_object(const std::string& folder, const std::string& target,
                                               const std::string& source) {
  const std::string in = folder + "/kernel.hip", out = folder + "/" + target + ".hsaco";
  if (!jit::write_file_atomic(in, kAmdPrelude + source)) return std::nullopt;
  if (!output_of({"clang++-19", "-x", "hip", "--cuda-device-only", "--offload-arch=" + target,
                  "-nogpuinc", "-nogpulib", "-O3", "-std=c++17", "--no-gpu-bundle-output", in, "-o",
                  out})) {
    return std::nullopt;
  }
  const auto bytes = jit::read_file(out);
  return bytes ? std::optional(*bytes) : std::nullopt;
}

struct AmdKernelText {
  int vgprs = 128, sgprs = 32, agprs = 0, lds_bytes = 0, workgroup = 256;
};
// A code object of one kernel, "kernel", assembled from `code`; s_endpgm is added. Nothing where
// clang-19 or its linker is missing or refuses the text.
std::optional<std::string> assemble_amd(const std::string& folder, const std::string& target,
                                        const std::string& code, const AmdKernelText& = {});

// Compiles in a process of its own: some versions of hipRTC end it.
std::optional<std::string> hiprtc_object(const std::string& folder, const std::string& target,
                                         const std::string& source);
std::optional<std::string> nvrtc_object(const std::string& folder, const std::string& target,
                                        const std::string& source);

}  // namespace hstu::test
