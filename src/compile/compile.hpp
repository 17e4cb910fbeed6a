// SPDX-License-Identifier: Apache-2.0
// Source -> code object, out of process: hipRTC, NVRTC, offline clang, host c++.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "source/source.hpp"
#include "target/target.hpp"

namespace hstu::jit {

// hipRTC for targets it knows, clang for AMD targets it lacks, NVRTC, or the host's C++ compiler.
enum class Driver { hiprtc, nvrtc, clang, host };
const char* driver_name(Driver driver);

// A compiler found on this machine and its identity.
struct Toolchain {
  Driver driver = Driver::host;
  std::string library;  // path of the library or program
  std::string id;       // digest: build ids (or version and content) and a probe object
  std::string version;  // for people: "hipRTC 5.2.21153, LLVM 15.0.6"
};

struct CompileOptions {
  std::chrono::milliseconds timeout{120000};
  std::string dump_dir;                  // HSTU_JIT_DUMP: source, options, log, object per key
  std::vector<std::string> extra_flags;  // HSTU_JIT_EXTRA_FLAGS; part of the request key
  int nice = 0;                          // of the worker, above this process's own
};

// From HSTU_JIT_COMPILE_TIMEOUT, HSTU_JIT_DUMP and HSTU_JIT_EXTRA_FLAGS. Errors: kUsage.
Result<CompileOptions> compile_options_from_environment();

struct CodeObject {
  std::string bytes;  // ELF: AMDGPU code object, cubin, or shared object (cpu)
  std::string log;    // what the compiler said
  double milliseconds = 0;
  Toolchain toolchain;
};

// Options handed to the compiler, in the spelling of the driver, without paths: part of the key.
std::vector<std::string> canonical_options(const Target& target, Driver driver,
                                           const CompileOptions& options);

// The toolchain that would serve this target here. Remembered per library path, size, mtime and
// build id in `state_dir` (may be empty), so that a warm start spawns no compiler.
// Errors: kCompile, naming what was looked for and what to install.
Result<Toolchain> find_toolchain(const Target& target, const std::string& state_dir);
// The same where it is remembered: starts and writes nothing.
std::optional<Toolchain> remembered_toolchain(const Target& target, const std::string& state_dir);
// Whether there is anything here that find_toolchain would ask.
bool has_compiler_candidates(const Target& target);

// Compiles in a worker process. Never crashes, never waits past the timeout.
// Errors: kCompile (message: first diagnostic, or the signal, or the time-out; detail: log, path of
// the kept source, command that reproduces it).
Result<CodeObject> compile(const Source& source, const Target& target, const Toolchain& toolchain,
                           const CompileOptions& options);

}  // namespace hstu::jit
