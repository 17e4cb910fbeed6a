// SPDX-License-Identifier: Apache-2.0
// A program that uses the engine, then forks.
#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <thread>

#include "base/temp_dir.hpp"
#include "support.hpp"

using namespace hstu::jit;
using namespace hstu::jit::test;

namespace {

// The exit code of the child, or minus the signal that ended it; -1000 after `seconds`.
int in_child(const std::function<int()>& work, unsigned seconds = 60) {
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    ::alarm(seconds);
    ::_exit(work());
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) return WTERMSIG(status) == SIGALRM ? -1000 : -WTERMSIG(status);
  return WEXITSTATUS(status);
}

}  // namespace

TEST_CASE("a child made by fork has its parent's kernels and can make others") {
  const TempDir dir = folder();
  const FakeWorker worker("tiny");
  auto engine = engine_in(dir.path());
  REQUIRE(prepare(*engine, kShort).ok());
  CHECK(in_child([&] {
          const Result<Prepared> had = prepare(*engine, kShort);
          if (!had.ok() || had->origin != KernelOrigin::memory) return 1;
          const Result<Prepared> made = prepare(*engine, numbered_spec(3));
          if (!made.ok() || made->origin != KernelOrigin::compiled) return 2;
          engine.reset();
          return 0;
        }) == 0);
  // What the child made is in the cache, and nothing of the parent's is gone.
  CHECK(prepare(*engine, numbered_spec(3))->origin == KernelOrigin::local);
  CHECK(prepare(*engine, kShort)->origin == KernelOrigin::memory);
  CHECK(prepare(*engine, numbered_spec(4))->origin == KernelOrigin::compiled);
}

TEST_CASE("a child forked while threads compile and wait makes those kernels itself") {
  const TempDir dir = folder();
  const FakeWorker worker("tiny-slow");
  auto engine = engine_in(dir.path());
  REQUIRE(prepare(*engine, kShort).ok());
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] { CHECK(prepare(*engine, numbered_spec(3)).ok()); });
  while (worker.compiled().size() < 2 || engine->statistics().waits < 2) std::this_thread::yield();
  CHECK(in_child([&] {
          if (prepare(*engine, kShort)->origin != KernelOrigin::memory) return 1;
          // By waiting for the parent's publication, or by a compile of its own.
          if (!prepare(*engine, numbered_spec(3)).ok()) return 2;
          engine.reset();
          return 0;
        }) == 0);
  for (std::thread& t : threads) t.join();
}

TEST_CASE("forks at any moment of a busy engine leave children that work") {
  const TempDir dir = folder();
  const FakeWorker worker("tiny");
  auto engine = engine_in(dir.path());
  REQUIRE(prepare(*engine, kShort).ok());
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&, i] {
      const Case c = case_of(i ? kShort : kLong);
      const Target target = *find_target("cpu");
      while (!stop) CHECK(engine->prepare(c.problem, c.geometry, target).ok());
    });
  for (int i = 0; i < 40; ++i) {
    CHECK(in_child([&] { return prepare(*engine, kShort).ok() ? 0 : 1; }, 20) == 0);
  }
  stop = true;
  for (std::thread& t : threads) t.join();
}
