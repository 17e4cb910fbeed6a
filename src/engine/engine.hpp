// SPDX-License-Identifier: Apache-2.0
// Engine: Problem × Target -> a compiled kernel, from memory, from the cache, or by one compile.
#pragma once

#include <memory>
#include <string>

#include "base/result.hpp"
#include "cache/store.hpp"
#include "compile/compile.hpp"
#include "plan/plan.hpp"
#include "source/source.hpp"
#include "spec/geometry.hpp"
#include "spec/problem.hpp"

namespace hstu::jit {

// Where a kernel came from, in the words of the JSON output.
enum class KernelOrigin { memory, local, compiled };
const char* kernel_origin_name(KernelOrigin origin);

// A code object and everything known about how it came to be.
struct Kernel {
  Plan plan;  // of the problem that asked first; the object fits every problem of its key
  std::string entry;
  cache::Key key;
  std::string object;     // ELF bytes
  std::string toolchain;  // for people: which compiler made it
  double compile_ms = 0;  // what the compile took when it happened
};

struct Prepared {
  std::shared_ptr<const Kernel> kernel;
  Plan plan;  // of this problem: launch grid, estimate
  KernelOrigin origin = KernelOrigin::compiled;
  double prepare_ms = 0;   // plan to object in memory
  double compile_ms = 0;   // 0 when nothing was compiled now
  std::string cache_note;  // why the cache missed, or a warning; one line, may be empty
};

struct EngineOptions {
  std::string cache_dir;  // "" : by the rules of cache/store.hpp
  cache::Mode cache_mode = cache::Mode::read_write;
  CompileOptions compile;
};

// Thread-safe. No lock is held across a file operation or a compile; callers that ask for a kernel
// that is being made wait for that one compile.
class Engine {
 public:
  // Errors: kCache when an explicit cache directory cannot be used.
  static Result<std::unique_ptr<Engine>> create(const EngineOptions& options);
  ~Engine();

  // Errors: kUnsupported (no kernel of ours for this), kCompile, kCache (miss while sealed).
  Result<Prepared> prepare(const Problem& problem, const Geometry& geometry, const Target& target);

  // The key of a source on a target: content only. Ingredients are stored in clear.
  static cache::Ingredients ingredients(const Source& source, const Target& target,
                                        const CompileOptions& options);

  const cache::Store& store() const;

 private:
  struct State;
  explicit Engine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hstu::jit
