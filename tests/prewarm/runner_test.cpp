// SPDX-License-Identifier: Apache-2.0
// Runs of a list of kernels, with a worker that compiles quickly, fails or takes long.
#include "prewarm/runner.hpp"

#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "base/temp_dir.hpp"
#include "support.hpp"

using namespace hstu::jit;
using namespace hstu::jit::test;
namespace cache = hstu::cache;

namespace {

// A worker that compiles something of the right name in 50 ms ("tiny"), rejects everything
// ("tiny-fails") or takes 3 s ("tiny-slow"), and notes what it was asked.
class Worker {
 public:
  explicit Worker(const std::string& mode)
      : path_(dir_.path() + "/" + mode), variable_("HSTU_JIT_WORKER", path_) {
    std::filesystem::create_symlink(HSTU_FAKE_WORKER, path_);
  }
  std::vector<std::string> compiled() const {
    std::ifstream log(path_ + ".log");
    std::vector<std::string> names;
    for (std::string line; std::getline(log, line);) names.push_back(line);
    return names;
  }

 private:
  TempDir dir_ = folder();
  std::string path_;
  Environment variable_;
};

class Watcher : public RunWatcher {
 public:
  void finished(const KernelJob& job, const JobResult& result, const RunCount& count) override {
    names.push_back(job.entry);
    states.push_back(result.state);
    counts.push_back(count);
    if (on_finish) on_finish();
  }
  void tick(const RunCount&) override { ++ticks; }
  std::vector<std::string> names;
  std::vector<JobResult::State> states;
  std::vector<RunCount> counts;
  std::function<void()> on_finish;
  int ticks = 0;
};

JobList jobs() {
  return expanded(
      good(manifest_of(R"({"sweep": {"base": )" + kBase +
                       R"(, "set": {"/head_dim_qk": [32, 64, 96], "/mask/causal": [true, false]}}},
                         {"spec": {"op": "hstu_attention", "heads": 2, "head_dim_qk": 256,
                                   "uih_lengths": 4}, "priority": 9})")),
      {"cpu"});
}

std::unique_ptr<Engine> engine_in(const std::string& dir,
                                  cache::Mode mode = cache::Mode::read_write) {
  EngineOptions options;
  options.cache_dir = dir;
  options.cache_mode = mode;
  options.keep_artifacts = true;
  Result<std::unique_ptr<Engine>> engine = Engine::create(options);
  if (!engine) FAIL(engine.error().message);
  return std::move(*engine);
}

}  // namespace

TEST_CASE("a run makes each kernel once, the important one first, and tells how far it is") {
  const Worker worker("tiny");
  const TempDir dir = folder();
  const JobList list = jobs();
  REQUIRE(list.jobs.size() == 7);
  for (const size_t threads : {size_t{1}, size_t{3}, size_t{100}}) {
    const TempDir place = folder();
    const size_t before = worker.compiled().size();
    Watcher watcher;
    RunOptions options;
    options.threads = threads;
    options.keep_kernels = true;
    const auto results = run_jobs(*engine_in(place.path()), list.jobs, options, watcher);
    REQUIRE(results.size() == 7);
    std::set<std::string> entries;
    for (size_t i = 0; i < 7; ++i) {
      CHECK(results[i].state == JobResult::State::ready);
      CHECK(results[i].origin == KernelOrigin::compiled);
      REQUIRE(results[i].kernel != nullptr);
      CHECK(results[i].kernel->key.request == list.jobs[i].request);
      entries.insert(list.jobs[i].entry);
    }
    const std::vector<std::string> compiled = worker.compiled();
    CHECK(compiled.size() - before == 7);
    CHECK(std::set<std::string>(compiled.begin() + static_cast<ptrdiff_t>(before),
                                compiled.end()) == entries);
    if (threads == 1) {
      CHECK(compiled[before] == list.jobs.front().entry);
      CHECK_THAT(compiled[before], ContainsSubstring("d256x256"));
    }
    REQUIRE(watcher.counts.size() == 7);
    for (size_t i = 0; i < 7; ++i) CHECK(watcher.counts[i].done == i + 1);
    CHECK(watcher.counts.back().compiled == 7);
    CHECK(watcher.counts.back().total == 7);
    // Again: nothing is compiled.
    Watcher second;
    for (const JobResult& r : run_jobs(*engine_in(place.path()), list.jobs, {}, second))
      CHECK(r.origin == KernelOrigin::local);
    CHECK(second.counts.back().cached == 7);
    CHECK(worker.compiled().size() == compiled.size());
    // All are there, and asking makes nothing.
    for (const CheckResult& r : check_jobs(*engine_in(place.path()), list.jobs, 3)) {
      CHECK(r.ready());
      CHECK(r.peek.origin == KernelOrigin::local);
    }
    const TempDir empty = folder();
    for (const CheckResult& r : check_jobs(*engine_in(empty.path()), list.jobs, 3)) {
      CHECK_FALSE(r.ready());
      CHECK_FALSE(r.peek.explanation.empty());
    }
    CHECK(worker.compiled().size() == compiled.size());
  }
}

TEST_CASE("the same entries whether compiled, found, or kept in memory alone") {
  const Worker worker("tiny");
  const TempDir dir = folder();
  const JobList list = jobs();
  Watcher watcher;
  RunOptions options;
  options.keep_kernels = true;
  options.threads = 2;
  const auto cold = run_jobs(*engine_in(dir.path()), list.jobs, options, watcher);
  const auto warm = run_jobs(*engine_in(dir.path()), list.jobs, options, watcher);
  const auto bare = run_jobs(*engine_in("", cache::Mode::off), list.jobs, options, watcher);
  for (size_t i = 0; i < list.jobs.size(); ++i) {
    REQUIRE(cold[i].kernel);
    REQUIRE(warm[i].kernel);
    REQUIRE(bare[i].kernel);
    const cache::Artifact first = cold[i].kernel->artifact();
    for (const auto& other : {warm[i].kernel->artifact(), bare[i].kernel->artifact()}) {
      CHECK(first.key.request == other.key.request);
      CHECK(first.key.toolchain == other.key.toolchain);
      CHECK(first.ingredients == other.ingredients);
      CHECK(first.metadata == other.metadata);
      CHECK(first.payload == other.payload);
    }
  }
}

TEST_CASE("failures are told one by one; --fail-fast begins nothing more") {
  const Worker worker("tiny-fails");
  const TempDir dir = folder();
  const JobList list = jobs();
  Watcher watcher;
  RunOptions options;
  const auto results = run_jobs(*engine_in(dir.path()), list.jobs, options, watcher);
  for (const JobResult& r : results) {
    CHECK(r.state == JobResult::State::failed);
    REQUIRE(r.error);
    CHECK(r.error->kind == ErrorKind::kCompile);
    CHECK_THAT(r.error->message, ContainsSubstring("rejected by the test"));
  }
  CHECK(watcher.counts.back().failed == 7);
  Watcher fast;
  options.keep_going = false;
  const auto some = run_jobs(*engine_in(dir.path()), list.jobs, options, fast);
  CHECK(fast.names.size() == 1);
  CHECK(some[0].state == JobResult::State::failed);
  for (size_t i = 1; i < some.size(); ++i) CHECK(some[i].state == JobResult::State::skipped);
}

TEST_CASE("a run that is stopped begins nothing more and keeps what it has") {
  const Worker worker("tiny");
  const TempDir dir = folder();
  const JobList list = jobs();
  std::atomic<bool> stop{false};
  Watcher watcher;
  watcher.on_finish = [&] { stop = watcher.names.size() >= 2; };
  RunOptions options;
  options.stop = &stop;
  const auto results = run_jobs(*engine_in(dir.path()), list.jobs, options, watcher);
  CHECK(watcher.names.size() == 2);
  for (size_t i = 0; i < results.size(); ++i)
    CHECK(results[i].state == (i < 2 ? JobResult::State::ready : JobResult::State::skipped));
  Watcher rest;
  run_jobs(*engine_in(dir.path()), list.jobs, {}, rest);
  CHECK(rest.counts.back().cached == 2);
  CHECK(rest.counts.back().compiled == 5);
}

TEST_CASE("who waits too long after a stop may give up") {
  const Worker worker("tiny-slow");
  const TempDir dir = folder();
  JobList list = jobs();
  list.jobs.resize(1);
  std::atomic<bool> stop{false};
  std::atomic<int> gave_up{0};
  Watcher watcher;
  RunOptions options;
  options.stop = &stop;
  options.patience = std::chrono::milliseconds(300);
  options.give_up = [&] { ++gave_up; };
  std::thread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    stop = true;
  });
  run_jobs(*engine_in(dir.path()), list.jobs, options, watcher);
  stopper.join();
  CHECK(gave_up >= 1);
  CHECK(watcher.ticks >= 3);
}

TEST_CASE("an empty list is a run without work") {
  const TempDir dir = folder();
  Watcher watcher;
  CHECK(run_jobs(*engine_in(dir.path()), {}, {}, watcher).empty());
  CHECK(watcher.names.empty());
}
