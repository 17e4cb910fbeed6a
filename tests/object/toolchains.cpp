// SPDX-License-Identifier: Apache-2.0
#include "toolchains.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hstu::test {
namespace {

// hipRTC and NVRTC have one shape; only names differ.
struct Compiler {
  std::vector<const char*> libraries;
  std::string create, compile, size, code;
};

template <typename Function>
Function symbol(void* library, const std::string& name) {
  return reinterpret_cast<Function>(dlsym(library, name.c_str()));
}

bool compile_here(const Compiler& compiler, const std::string& option, const std::string& source,
                  const std::string& out) {
  void* library = nullptr;
  for (const char* name : compiler.libraries) {
    if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) return false;
  const auto create =
      symbol<int (*)(void**, const char*, const char*, int, const char**, const char**)>(
          library, compiler.create);
  const auto compile = symbol<int (*)(void*, int, const char**)>(library, compiler.compile);
  const auto size = symbol<int (*)(void*, size_t*)>(library, compiler.size);
  const auto code = symbol<int (*)(void*, char*)>(library, compiler.code);
  if (!create || !compile || !size || !code) return false;
  void* program = nullptr;
  const char* options[] = {option.c_str()};
  size_t bytes = 0;
  if (create(&program, source.c_str(), "kernel.hip", 0, nullptr, nullptr) != 0) return false;
  if (compile(program, 1, options) != 0 || size(program, &bytes) != 0) return false;
  std::string object(bytes, '\0');
  return code(program, object.data()) == 0 && jit::write_file_atomic(out, object).ok();
}

std::optional<std::string> compile_apart(const Compiler& compiler, const std::string& option,
                                         const std::string& source, const std::string& out) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) _exit(compile_here(compiler, option, source, out) ? 0 : 1);
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return std::nullopt;
  }
  const auto bytes = jit::read_file(out);
  return bytes ? std::optional(*bytes) : std::nullopt;
}

}  // namespace

std::optional<std::string> assemble_amd(const std::string& folder, const std::string& target,
                                        const std::string& code, const AmdKernelText& kernel) {
  const bool wave32 = target.substr(0, 5) == "gfx11" || target.substr(0, 5) == "gfx12";
  const bool unified = target == "gfx90a" || target == "gfx942" || target == "gfx950";
  const std::string text = fmt::format(
      R"(.amdgcn_target "amdgcn-amd-amdhsa--{0}"
.text
.globl kernel
.p2align 8
.type kernel,@function
kernel:
{1}
  s_endpgm
.Lend:
.size kernel, .Lend-kernel
.rodata
.p2align 6
.amdhsa_kernel kernel
  .amdhsa_group_segment_fixed_size {5}
  .amdhsa_next_free_vgpr {2}
  .amdhsa_next_free_sgpr {3}
  {7}
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.version: [1, 1]
amdhsa.kernels:
  - .name: kernel
    .symbol: kernel.kd
    .kernarg_segment_size: 8
    .kernarg_segment_align: 8
    .group_segment_fixed_size: {5}
    .private_segment_fixed_size: 0
    .wavefront_size: {8}
    .sgpr_count: {3}
    .vgpr_count: {2}
    .agpr_count: {4}
    .max_flat_workgroup_size: {6}
...
.end_amdgpu_metadata
)",
      target, code, kernel.vgprs, kernel.sgprs, kernel.agprs, kernel.lds_bytes, kernel.workgroup,
      unified  ? fmt::format(".amdhsa_accum_offset {}", (kernel.vgprs - kernel.agprs + 3) / 4 * 4)
      : wave32 ? ".amdhsa_wavefront_size32 1"
               : "",
      wave32 ? 32 : 64);
  const std::string in = folder + "/kernel.s", out = folder + "/kernel.hsaco";
  if (!jit::write_file_atomic(in, text)) return std::nullopt;
  if (!output_of({"clang-19", "-x", "assembler", "--target=amdgcn-amd-amdhsa", "-mcpu=" + target,
                  in, "-o", out})) {
    return std::nullopt;
  }
  const auto bytes = jit::read_file(out);
  return bytes ? std::optional(*bytes) : std::nullopt;
}

std::optional<std::string> hiprtc_object(const std::string& folder, const std::string& target,
                                         const std::string& source) {
  const Compiler compiler{
      {"libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so", "libamdhip64.so.5", "libamdhip64.so"},
      "hiprtcCreateProgram",
      "hiprtcCompileProgram",
      "hiprtcGetCodeSize",
      "hiprtcGetCode"};
  return compile_apart(compiler, "--offload-arch=" + target, kHiprtcPrelude + source,
                       folder + "/hiprtc.hsaco");
}

std::optional<std::string> nvrtc_object(const std::string& folder, const std::string& target,
                                        const std::string& source) {
  const Compiler compiler{
      {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "/usr/local/cuda/lib64/libnvrtc.so"},
      "nvrtcCreateProgram",
      "nvrtcCompileProgram",
      "nvrtcGetCUBINSize",
      "nvrtcGetCUBIN"};
  return compile_apart(compiler, "-arch=" + target, source, folder + "/nvrtc.cubin");
}

}  // namespace hstu::test
