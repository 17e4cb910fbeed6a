// SPDX-License-Identifier: Apache-2.0
// Makes the kernels of a list on several threads and says how it goes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.hpp"
#include "engine/engine.hpp"
#include "prewarm/jobs.hpp"

namespace hstu::jit {

struct JobResult {
  enum class State { skipped, ready, failed };  // skipped: stopped before it was made
  State state = State::skipped;
  KernelOrigin origin = KernelOrigin::compiled;  // of a ready one
  double compile_ms = 0, prepare_ms = 0;
  std::optional<Error> error;            // of a failed one
  std::shared_ptr<const Kernel> kernel;  // of a ready one, where RunOptions says to keep it
};

// How far a run is.
struct RunCount {
  size_t total = 0, done = 0;  // done: ready or failed
  size_t compiled = 0, cached = 0, failed = 0;
  double prepare_ms = 0;  // of the compiled ones, added up
  double seconds = 0;     // since the run began
};

// Told how a run goes, one call at a time, from several threads.
class RunWatcher {
 public:
  virtual ~RunWatcher() = default;
  virtual void finished(const KernelJob& job, const JobResult& result, const RunCount& count) = 0;
  // About ten times a second, for clocks.
  virtual void tick(const RunCount& count) = 0;
};

struct RunOptions {
  size_t threads = 1;
  bool keep_going = true;  // false: after a failure no further kernel is begun
  bool keep_kernels = false;
  // Also send to the remote what this host had already; needs EngineOptions::keep_artifacts.
  bool fill_remote = false;
  // Set it, and end_running_processes(), to end the run: what is being made is given up and counts
  // as skipped. May be set from a signal handler.
  const std::atomic<bool>* stop = nullptr;
  // Called when threads have not come back for so long after `stop`; it does not return.
  std::function<void()> give_up;
  std::chrono::milliseconds patience{5000};
};

// One result for each job, in the order of the list, in which they are also begun.
std::vector<JobResult> run_jobs(Engine& engine, const std::vector<KernelJob>& jobs,
                                const RunOptions& options, RunWatcher& watcher);

// Whether each kernel is there now: asks every layer, makes and writes nothing. Where it matters
// and is not remembered which compiler this host has, the compiler is asked, once for each target.
struct CheckResult {
  Peek peek;
  std::optional<Error> error;  // the question itself failed
  bool ready() const { return !error && peek.hit; }
};
std::vector<CheckResult> check_jobs(Engine& engine, const std::vector<KernelJob>& jobs,
                                    size_t threads);

}  // namespace hstu::jit
