// SPDX-License-Identifier: Apache-2.0
#include "toolchains.hpp"

#include <dlfcn.h>
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
