// SPDX-License-Identifier: Apache-2.0
#include "prewarm/runner.hpp"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <system_error>
#include <thread>

namespace hstu::jit {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// As many threads as can be had, at least the calling one, each taking numbers below `count` until
// there are none.
class Crew {
 public:
  explicit Crew(size_t count) : count_(count) {}
  std::optional<size_t> next() {
    const size_t number = next_.fetch_add(1, std::memory_order_relaxed);
    return number < count_ ? std::optional<size_t>(number) : std::nullopt;
  }

 private:
  const size_t count_;
  std::atomic<size_t> next_{0};
};

class Run {
 public:
  Run(Engine& engine, const std::vector<KernelJob>& jobs, const RunOptions& options,
      RunWatcher& watcher)
      : engine_(engine),
        jobs_(jobs),
        options_(options),
        watcher_(watcher),
        crew_(jobs.size()),
        results_(jobs.size()) {
    count_.total = jobs.size();
  }

  std::vector<JobResult> run();

 private:
  bool stopped() const { return options_.stop != nullptr && *options_.stop; }
  void work();
  JobResult make(const KernelJob& job);
  void finish(size_t number, JobResult result);
  void watch();

  Engine& engine_;
  const std::vector<KernelJob>& jobs_;
  const RunOptions& options_;
  RunWatcher& watcher_;
  Crew crew_;
  const Clock::time_point start_ = Clock::now();
  std::mutex mutex_;  // guards what follows, and the watcher
  std::condition_variable change_;
  std::vector<JobResult> results_;
  RunCount count_;
  size_t working_ = 0;
  bool failed_ = false;
};

JobResult Run::make(const KernelJob& job) {
  JobResult result;
  Result<Geometry> geometry = make_geometry(job.problem);
  Result<Prepared> prepared = geometry ? engine_.prepare(job.problem, *geometry, job.target)
                                       : Result<Prepared>(geometry.error());
  if (!prepared) {
    result.state = JobResult::State::failed;
    result.error = std::move(prepared).error();
    return result;
  }
  result.state = JobResult::State::ready;
  result.origin = prepared->origin;
  result.compile_ms = prepared->compile_ms;
  result.prepare_ms = prepared->prepare_ms;
  // New ones were sent by the engine.
  if (options_.fill_remote &&
      (result.origin == KernelOrigin::local || result.origin == KernelOrigin::bundle)) {
    // Told by the remote itself, once for each cause, and counted by the cache.
    (void)engine_.cache().publish_remote(prepared->kernel->artifact()).ok();
  }
  if (options_.keep_kernels) result.kernel = std::move(prepared->kernel);
  return result;
}

void Run::finish(size_t number, JobResult result) {
  const std::lock_guard<std::mutex> lock(mutex_);
  // A compile that was killed by the stop is no failure of its kernel.
  if (result.state == JobResult::State::failed && stopped()) return;
  ++count_.done;
  if (result.state == JobResult::State::failed) {
    ++count_.failed;
    failed_ = true;
  } else if (result.origin == KernelOrigin::compiled) {
    ++count_.compiled;
    count_.prepare_ms += result.prepare_ms;
  } else {
    ++count_.cached;
  }
  count_.seconds = seconds_since(start_);
  results_[number] = std::move(result);
  watcher_.finished(jobs_[number], results_[number], count_);
}

void Run::work() {
  while (!stopped()) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (failed_ && !options_.keep_going) break;
    }
    const std::optional<size_t> number = crew_.next();
    if (!number) break;
    JobResult result;
    try {
      result = make(jobs_[*number]);
    } catch (const std::exception& e) {  // no memory
      result.state = JobResult::State::failed;
      result.error = Error{ErrorKind::kFailed, std::string("no kernel made: ") + e.what(), "", ""};
    }
    finish(*number, std::move(result));
  }
}

// The calling thread keeps the clock and the patience while the others work.
void Run::watch() {
  std::optional<Clock::time_point> since;
  std::unique_lock<std::mutex> lock(mutex_);
  while (!change_.wait_for(lock, std::chrono::milliseconds(100), [&] { return working_ == 0; })) {
    count_.seconds = seconds_since(start_);
    watcher_.tick(count_);
    if (!stopped()) continue;
    if (!since) since = Clock::now();
    if (Clock::now() - *since > options_.patience && options_.give_up) options_.give_up();
  }
}

std::vector<JobResult> Run::run() {
  std::vector<std::thread> threads;
  const size_t wanted = std::clamp<size_t>(options_.threads, 1, std::max<size_t>(jobs_.size(), 1));
  for (size_t i = 0; i < wanted; ++i) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ++working_;
    }
    const auto body = [this] {
      work();
      const std::lock_guard<std::mutex> lock(mutex_);
      --working_;
      change_.notify_all();
    };
    try {
      threads.emplace_back(body);
    } catch (const std::system_error&) {
      if (threads.empty())
        body();  // no thread to be had: this one does it all
      else {
        const std::lock_guard<std::mutex> lock(mutex_);
        --working_;
      }
      break;
    }
  }
  watch();
  for (std::thread& thread : threads) thread.join();
  return std::move(results_);
}

}  // namespace

std::vector<JobResult> run_jobs(Engine& engine, const std::vector<KernelJob>& jobs,
                                const RunOptions& options, RunWatcher& watcher) {
  return Run(engine, jobs, options, watcher).run();
}

namespace {

void look(Engine& engine, const KernelJob& job, CheckResult& result) {
  try {
    Result<Geometry> geometry = make_geometry(job.problem);
    Result<Peek> peek =
        geometry ? engine.peek(job.problem, *geometry, job.target) : Result<Peek>(geometry.error());
    if (peek)
      result.peek = std::move(*peek);
    else
      result.error = std::move(peek).error();
  } catch (const std::exception& e) {  // no memory: nothing may leave a thread
    result.error = Error{ErrorKind::kFailed, std::string("cannot look: ") + e.what(), "", ""};
  }
}

// Looks for the jobs of these numbers.
void look_for(Engine& engine, const std::vector<KernelJob>& jobs,
              const std::vector<size_t>& numbers, size_t threads,
              std::vector<CheckResult>& results) {
  Crew crew(numbers.size());
  const auto work = [&] {
    while (const std::optional<size_t> at = crew.next()) {
      look(engine, jobs[numbers[*at]], results[numbers[*at]]);
    }
  };
  std::vector<std::thread> helpers;
  try {
    for (size_t i = 1; i < std::min(threads, numbers.size()); ++i) helpers.emplace_back(work);
  } catch (const std::system_error&) {
    // Fewer threads do it too.
  }
  work();
  for (std::thread& thread : helpers) thread.join();
}

}  // namespace

std::vector<CheckResult> check_jobs(Engine& engine, const std::vector<KernelJob>& jobs,
                                    size_t threads) {
  std::vector<CheckResult> results(jobs.size());
  std::vector<size_t> numbers(jobs.size());
  std::iota(numbers.begin(), numbers.end(), size_t{0});
  look_for(engine, jobs, numbers, threads, results);
  // Once more where it matters which compiler is here and nobody knew: a node that was filled from
  // elsewhere has never compiled.
  std::vector<size_t> unknown;
  std::set<std::string> asked;
  for (const size_t number : numbers) {
    const CheckResult& result = results[number];
    if (result.error || result.peek.hit || !result.peek.key.toolchain.empty()) continue;
    if (asked.insert(jobs[number].target.name).second) engine.ask_compiler(jobs[number].target);
    unknown.push_back(number);
  }
  look_for(engine, jobs, unknown, threads, results);
  return results;
}

}  // namespace hstu::jit
