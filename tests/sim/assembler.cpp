// SPDX-License-Identifier: Apache-2.0
#include "assembler.hpp"

#include <fmt/format.h>

#include <cstdio>

#include "../object/toolchains.hpp"
#include "base/file.hpp"
#include "base/subprocess.hpp"
#include "base/temp_dir.hpp"
#include "catch.hpp"

namespace hstu::test {
namespace {

// Declarations that make one source fit clang (which gets no headers) and hipRTC (which has its
// own).
const char* kClangPrelude = R"(
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define KERNEL(n) extern "C" __global__ void __attribute__((amdgpu_flat_work_group_size(n, n)))
#define THREAD() ((int)__builtin_amdgcn_workitem_id_x())
#define BLOCK() ((int)__builtin_amdgcn_workgroup_id_x())
#define BARRIER() (__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"), \
                   __builtin_amdgcn_s_barrier(), \
                   __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup"))
#define DYNAMIC_LDS(type, name) extern __shared__ type name[]
)";
const char* kRtcPrelude = R"(
#define KERNEL(n) extern "C" __global__ void __launch_bounds__(n)
#define THREAD() ((int)threadIdx.x)
#define BLOCK() ((int)blockIdx.x)
#define BARRIER() __syncthreads()
#define DYNAMIC_LDS(type, name) extern __shared__ type name[]
)";

struct Ran {
  bool started = false, succeeded = false;
  std::string errors;
};

Ran run(std::vector<std::string> argv) {
  Ran ran;
  const auto path = jit::find_program(argv[0]);
  if (!path) return ran;
  jit::ProcessOptions options;
  options.argv = std::move(argv);
  options.argv[0] = *path;
  const auto result = jit::run_process(options);
  if (!result) return ran;
  ran.started = true;
  ran.succeeded = result->succeeded();
  ran.errors = result->errors;
  return ran;
}

std::optional<std::string> bytes_of_file(const std::string& path) {
  const auto bytes = jit::read_file(path);
  return bytes ? std::optional(*bytes) : std::nullopt;
}

std::string descriptor(const std::string& target, const KernelForm& form) {
  std::string text;
  const auto line = [&](const char* name, int value) {
    text += fmt::format("  .amdhsa_{} {}\n", name, value);
  };
  line("group_segment_fixed_size", form.lds);
  line("private_segment_fixed_size", form.scratch);
  line("kernarg_size", form.arguments);
  line("user_sgpr_kernarg_segment_ptr", 1);
  line("system_sgpr_workgroup_id_x", 1);
  line("system_sgpr_workgroup_id_y", form.workgroup_id_y);
  line("system_sgpr_workgroup_id_z", form.workgroup_id_z);
  line("system_vgpr_workitem_id", form.work_item_ids);
  line("next_free_vgpr", is_cdna(target) && target != "gfx908" ? 2 * form.vgprs : form.vgprs);
  line("next_free_sgpr", form.sgprs);
  if (target == "gfx90a" || target == "gfx942") line("accum_offset", form.vgprs);
  line("float_denorm_mode_32", form.denormals_32);
  line("float_denorm_mode_16_64", form.denormals_16_64);
  if (!is_gfx12(target)) line("ieee_mode", form.ieee);
  if (is_wave32(target)) line("wavefront_size32", 1);
  if (form.scratch > 0) {
    line(target == "gfx942" || is_wave32(target) ? "enable_private_segment"
                                                 : "system_sgpr_private_segment_wavefront_offset",
         1);
  }
  return text;
}

}  // namespace

bool is_wave32(const std::string& t) {
  return t.compare(0, 5, "gfx11") == 0 || t.compare(0, 5, "gfx12") == 0;
}
bool is_cdna(const std::string& t) { return !is_wave32(t); }
bool is_gfx12(const std::string& t) { return t.compare(0, 5, "gfx12") == 0; }

void skip(const std::string& test, const std::string& reason) {
  std::printf("SKIPPED: %s: %s\n", test.c_str(), reason.c_str());
}

std::optional<std::string> assemble(const std::string& target, const std::string& body,
                                    const KernelForm& form) {
  std::string arguments;
  for (int at = 0; at < form.arguments; at += 8) {
    arguments += fmt::format(
        "      - {{.size: 8, .offset: {}, .value_kind: global_buffer, .address_space: global}}\n",
        at);
  }
  const std::string text = fmt::format(
      R"(.text
.globl probe
.p2align 8
.type probe,@function
probe:
{}
  s_endpgm
.Lend:
.size probe, .Lend-probe
.rodata
.p2align 6
.amdhsa_kernel probe
{}.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.version: [1, {}]
amdhsa.target: amdgcn-amd-amdhsa--{}
amdhsa.kernels:
  - .name: probe
    .symbol: probe.kd
    .kernarg_segment_size: {}
    .kernarg_segment_align: 8
    .group_segment_fixed_size: {}
    .private_segment_fixed_size: {}
    .wavefront_size: {}
    .sgpr_count: {}
    .vgpr_count: {}
    .max_flat_workgroup_size: {}
{}{}...
.end_amdgpu_metadata
)",
      body, descriptor(target, form), form.code_object == 4 ? 1 : 2, target, form.arguments,
      form.lds, form.scratch, is_wave32(target) ? 32 : 64, form.sgprs, form.vgprs,
      form.max_workgroup, arguments.empty() ? "" : "    .args:\n", arguments);
  const auto folder = jit::TempDir::create("hstu-sim-asm");
  REQUIRE(folder.ok());
  const std::string in = folder->path() + "/probe.s", out = folder->path() + "/probe.hsaco";
  REQUIRE(jit::write_file_atomic(in, text).ok());
  const Ran ran =
      run({"clang-19", "-x", "assembler", "--target=amdgcn-amd-amdhsa", "-mcpu=" + target,
           fmt::format("-mcode-object-version={}", form.code_object), in, "-o", out});
  if (!ran.started) return std::nullopt;
  INFO(target << ": " << ran.errors.substr(0, 4000));
  REQUIRE(ran.succeeded);
  return bytes_of_file(out);
}

std::string assembler_complaint(const std::string& target, const std::string& code) {
  const auto folder = jit::TempDir::create("hstu-sim-asm");
  REQUIRE(folder.ok());
  const std::string in = folder->path() + "/probe.s", out = folder->path() + "/probe.o";
  REQUIRE(jit::write_file_atomic(in, code + "\n").ok());
  const Ran ran = run({"clang-19", "-x", "assembler", "--target=amdgcn-amd-amdhsa",
                       "-mcpu=" + target, "-c", in, "-o", out});
  return ran.started && ran.succeeded ? "" : "rejected: " + ran.errors;
}

std::optional<std::string> clang_kernel(const std::string& target, const std::string& source,
                                        const std::vector<std::string>& options) {
  const auto folder = jit::TempDir::create("hstu-sim-hip");
  REQUIRE(folder.ok());
  const std::string in = folder->path() + "/kernel.hip", out = folder->path() + "/kernel.hsaco";
  REQUIRE(jit::write_file_atomic(in, kClangPrelude + source).ok());
  std::vector<std::string> argv = {
      "clang++-19", "-x",        "hip",        "--cuda-device-only", "--offload-arch=" + target,
      "-nogpuinc",  "-nogpulib", "-std=c++17", "-ffp-contract=off",  "--no-gpu-bundle-output"};
  argv.insert(argv.end(), options.begin(), options.end());
  argv.insert(argv.end(), {in, "-o", out});
  const Ran ran = run(argv);
  if (!ran.started) return std::nullopt;
  INFO(target << ": " << ran.errors.substr(0, 4000));
  REQUIRE(ran.succeeded);
  return bytes_of_file(out);
}

std::optional<std::string> hiprtc_kernel(const std::string& target, const std::string& source) {
  const auto folder = jit::TempDir::create("hstu-sim-rtc");
  REQUIRE(folder.ok());
  return hiprtc_object(folder->path(), target, kRtcPrelude + source);
}

}  // namespace hstu::test
