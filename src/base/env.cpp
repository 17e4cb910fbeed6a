// SPDX-License-Identifier: Apache-2.0
#include "base/env.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <set>

#include "base/text.hpp"

extern char** environ;

namespace hstu::jit {
namespace {

constexpr EnvironmentVariable kVariables[] = {
    {"HSTU_JIT_LOG", "log lines on standard error: error, warn (default), info or debug"},
    {"HSTU_JIT_DUMP", "folder that receives source, options, log and object of each compile"},
    {"HSTU_JIT_CACHE_DIR", "folder of the kernel cache (default ~/.cache/hstu-jit)"},
    {"HSTU_JIT_CACHE_MODE", "rw (default), ro, off, or sealed: a miss is an error"},
    {"HSTU_JIT_BUNDLES", "bundles of kernels to read: FILE or FILE@sha256:DIGEST, colons between"},
    {"HSTU_JIT_CACHE_SIZE", "bytes the cache may hold: 500M, 2G (default); 0: no limit"},
    {"HSTU_JIT_BUNDLE_VERIFY", "accepts bundles, e.g. gpg --verify {bundle}.asc {manifest}"},
    {"HSTU_JIT_TRUSTED_UIDS", "numbers of other users whose cache entries are loaded: 1000,1001"},
    {"HSTU_JIT_REMOTE", "remote cache: http(s)://HOST/PATH or redis(s)://HOST[/DATABASE]",
     true},  // it may have a password or a signature in it
    {"HSTU_JIT_REMOTE_MODE", "ro (default) or rw: publish to the remote cache too"},
    {"HSTU_JIT_REMOTE_TOKEN", "secret: bearer token of the web server or password of Redis", true},
    {"HSTU_JIT_REMOTE_TOKEN_FILE", "file with that secret, read anew for each request"},
    {"HSTU_JIT_REMOTE_HEADERS_FILE", "file with secret HTTP headers, lines \"Name: value\""},
    {"HSTU_JIT_REMOTE_CA_FILE", "certificates (PEM) to trust instead of the system's"},
    {"HSTU_JIT_REMOTE_CONNECT_MS", "milliseconds to reach the remote cache (default 1000)"},
    {"HSTU_JIT_REMOTE_TIMEOUT_MS", "milliseconds for one lookup or publish (default 10000)"},
    {"HSTU_JIT_REMOTE_TTL", "seconds that Redis keeps an entry (default: for good)"},
    {"HSTU_JIT_REMOTE_MODULE", "path of hstu-jit-remote.so"},
    {"HSTU_JIT_COMPILE", "worker (default) or inprocess, for hosts that forbid child processes"},
    {"HSTU_JIT_COMPILE_TIMEOUT", "seconds a compile may take (default 120)"},
    {"HSTU_JIT_WORKER", "path of the program hstu-jit-worker"},
    {"HSTU_JIT_EXTRA_FLAGS", "more compiler flags, split at spaces; part of the cache key"},
    {"HSTU_JIT_RECORD",
     "file that receives each kernel asked for: a manifest for hstu-jit prewarm"},
    {"HSTU_JIT_HIPRTC", "path of the hipRTC library (libhiprtc.so or libamdhip64.so)"},
    {"HSTU_JIT_NVRTC", "path of the NVRTC library (libnvrtc.so)"},
    {"HSTU_JIT_CLANG", "path of the clang++ that compiles for AMD targets hipRTC lacks"},
    {"HSTU_JIT_CXX", "path of the C++ compiler of cpu targets"},
    {"HSTU_JIT_HIP", "path of the libamdhip64.so to launch with"},
    {"HSTU_JIT_CUDA", "path of the libcuda.so to launch with"},
    {"HSTU_JIT_OBJDUMP", "path of the llvm-objdump that disassembles AMD code objects"},
    {"HSTU_JIT_OBJDUMP_TIMEOUT", "seconds a disassembler may take (default 30)"},
    {"HSTU_JIT_SIM_THREADS", "threads of simulated GPUs (default: the processors of this process)"},
    {"HSTU_JIT_SIM_LIMIT", "instructions a simulated wave may execute (default 100000000)"},
    {"HSTU_JIT_TEST_CRASH", "for tests: step of a publish at which the program kills itself"},
    {"HSTU_JIT_THREADS", "threads of cpu kernels (default: the processors this process may use)"},
};

}  // namespace

std::span<const EnvironmentVariable> environment_variables() { return kVariables; }

std::optional<std::string> get_env(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

std::vector<std::string> unknown_environment_warnings() {
  std::vector<std::string> known;
  for (const EnvironmentVariable& variable : kVariables) known.emplace_back(variable.name);

  std::set<std::string> unknown;  // sorted, so that the warnings have one order
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    if (name.rfind("HSTU_JIT_", 0) != 0) continue;
    bool found = false;
    for (const std::string& candidate : known) found = found || candidate == name;
    if (!found) unknown.emplace(name);
  }

  std::vector<std::string> warnings;
  for (const std::string& name : unknown) {
    const std::string suggestion = nearest(name, known);
    warnings.push_back(fmt::format(
        "environment variable {} has no meaning here and is ignored{}", printable(name),
        suggestion.empty() ? std::string() : fmt::format("; did you mean {}?", suggestion)));
  }
  return warnings;
}

}  // namespace hstu::jit
