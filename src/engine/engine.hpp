// SPDX-License-Identifier: Apache-2.0
// Engine: Problem × Target -> a compiled kernel, from memory, from the cache, or by one compile.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "cache/cache.hpp"
#include "compile/compile.hpp"
#include "plan/plan.hpp"
#include "source/source.hpp"
#include "spec/geometry.hpp"
#include "spec/problem.hpp"

namespace hstu::jit {

// Where a kernel came from, in the words of the JSON output: memory (this process had it), bundle,
// local, remote (the layers of the cache), compiled.
enum class KernelOrigin { memory, bundle, local, remote, compiled };
const char* kernel_origin_name(KernelOrigin origin);

// A code object and everything known about how it came to be.
struct Kernel {
  Plan plan;  // of the problem that asked first; the object fits every problem of its key
  std::string entry;
  cache::Key key;
  std::string object;     // ELF bytes
  std::string toolchain;  // for people: which compiler made it
  double compile_ms = 0;  // when this process compiled it; entries of the cache hold no times
  std::string metadata;   // of its entry in the cache
  cache::Ingredients ingredients;  // with EngineOptions::keep_artifacts, else empty

  // The cache entry: the same bytes whoever made or kept it. Needs keep_artifacts.
  cache::Artifact artifact() const;
};

struct Prepared {
  std::shared_ptr<const Kernel> kernel;
  Plan plan;  // of this problem
  KernelOrigin origin = KernelOrigin::compiled;
  double prepare_ms = 0;   // plan to object in memory
  double compile_ms = 0;   // 0 when nothing was compiled now
  std::string cache_note;  // why the cache missed, or a warning; one line, may be empty
};

// What prepare() would find now.
struct Peek {
  bool hit = false;
  KernelOrigin origin = KernelOrigin::compiled;  // of a hit
  cache::MissReason reason = cache::MissReason::none;
  std::string explanation;  // one line
  cache::Key key;           // toolchain "" when no compiler is known
};

struct EngineOptions {
  std::string cache_dir;  // "" : by the rules of cache/store.hpp
  cache::Mode cache_mode = cache::Mode::read_write;
  std::vector<std::string> bundles;  // as cache::CacheOptions::bundles
  CompileOptions compile;
  bool wait_for_remote = false;  // publish to the remote before prepare() returns
  bool keep_artifacts = false;  // Kernel::artifact() works; costs the source's size for each kernel
  // A failed kernel is not compiled again so soon: callers in this time get the same error.
  std::chrono::milliseconds failure_memory{1000};
};

// Counted since create().
struct EngineStatistics {
  uint64_t requests = 0;
  uint64_t memory_hits = 0;
  uint64_t waits = 0;          // for another thread's work on the same kernel
  uint64_t wait_timeouts = 0;  // of them, given up
  uint64_t bundle_hits = 0, local_hits = 0, remote_hits = 0;
  uint64_t compiles = 0, compile_failures = 0;  // failures are among the compiles
  uint64_t repeated_failures = 0;               // answered with the error of a moment ago
  uint64_t sealed_misses = 0;
  uint64_t kernels = 0;  // in memory now
  double compile_ms = 0;
  cache::CacheStatistics cache;
};

// Thread-safe. No lock is held across a file operation or a compile; callers that ask for a kernel
// that is being made wait for that one compile, at most about twice the compile's time-out.
//
// A child made by fork() may go on using the engine: it has the kernels that were ready, makes what
// its parent was making itself, and takes nothing from its parent. Only with
// HSTU_JIT_COMPILE=inprocess, a fork during a compile leaves the child without a compiler.
class Engine {
 public:
  // Errors: kCache when an explicit cache directory or bundle cannot be used.
  static Result<std::unique_ptr<Engine>> create(const EngineOptions& options);
  ~Engine();

  // Errors: kUnsupported (no kernel of ours for this), kCompile, kCache (miss while sealed),
  // kTimeout (another thread did not finish this kernel in time). PlanDetail::launch keeps the hit
  // in memory to microseconds whatever the batch.
  Result<Prepared> prepare(const Problem& problem, const Geometry& geometry, const Target& target,
                           PlanDetail detail = PlanDetail::full);

  // Asks all layers, and compiles, starts, writes and counts nothing: where the compiler's identity
  // is not remembered and was not asked for, only bundles can answer. Errors: kUnsupported.
  Result<Peek> peek(const Problem& problem, const Geometry& geometry, const Target& target);

  // Finds out which compiler serves the target, for peek(): starts it where that is not remembered,
  // and writes nothing.
  void ask_compiler(const Target& target);

  // The key of a source on a target: content only. Ingredients are stored in clear.
  static cache::Ingredients ingredients(const Source& source, const Target& target,
                                        const CompileOptions& options);

  const cache::Cache& cache() const;
  const cache::Store& store() const;  // the local layer
  EngineStatistics statistics() const;
  std::string statistics_json() const;  // one object, schema "hstu-jit/engine-stats/1"

 private:
  struct State;
  explicit Engine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hstu::jit
