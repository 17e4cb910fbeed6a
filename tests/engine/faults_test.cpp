// SPDX-License-Identifier: Apache-2.0
// Compiles that fail, hang or give something else, with many callers waiting.
#include <atomic>
#include <thread>

#include "base/temp_dir.hpp"
#include "support.hpp"

using namespace hstu::jit;
using namespace hstu::jit::test;
using std::chrono::milliseconds;

namespace {

// Every thread asks for the same kernel at one moment.
std::vector<Result<Prepared>> herd(Engine& engine, int size, const std::string& spec) {
  const Case c = case_of(spec);
  const Target target = *find_target("cpu");
  std::vector<std::optional<Result<Prepared>>> results(static_cast<size_t>(size));
  std::atomic<int> ready{0};
  std::vector<std::thread> threads;
  for (auto& result : results)
    threads.emplace_back([&] {
      ++ready;
      while (ready < size) std::this_thread::yield();
      result = engine.prepare(c.problem, c.geometry, target);
    });
  for (std::thread& t : threads) t.join();
  std::vector<Result<Prepared>> list;
  for (auto& result : results) list.push_back(std::move(*result));
  return list;
}

}  // namespace

TEST_CASE("a failing kernel is compiled once for all who ask, and again later") {
  const TempDir dir = folder();
  const FakeWorker worker("tiny-fails");
  EngineOptions options = options_in(dir.path());
  options.failure_memory = milliseconds(700);
  auto engine = engine_of(options);
  for (const Result<Prepared>& result : herd(*engine, 24, kShort)) {
    REQUIRE_FALSE(result.ok());
    CHECK(result.error().kind == ErrorKind::kCompile);
    CHECK_THAT(result.error().message, ContainsSubstring("rejected by the test"));
  }
  CHECK(worker.compiled().size() == 1);
  CHECK(engine->statistics().repeated_failures == 23);
  CHECK(engine->statistics().compile_failures == 1);
  std::this_thread::sleep_for(milliseconds(750));
  CHECK_FALSE(prepare(*engine, kShort).ok());
  CHECK(worker.compiled().size() == 2);
  CHECK(entries(dir.path()).empty());
}

TEST_CASE("a herd that asks for a good kernel waits for one compile") {
  const TempDir dir = folder();
  const FakeWorker worker("tiny");
  auto engine = engine_in(dir.path());
  int compiled = 0;
  for (const Result<Prepared>& result : herd(*engine, 24, kShort)) {
    REQUIRE(result.ok());
    compiled += result->origin == KernelOrigin::compiled ? 1 : 0;
  }
  CHECK(compiled == 1);
  CHECK(worker.compiled().size() == 1);
  const EngineStatistics s = engine->statistics();
  CHECK(s.requests == 24);
  CHECK(s.memory_hits == 23);
  CHECK(s.compiles == 1);
  CHECK(s.kernels == 1);
}

TEST_CASE("a hit is not held up by a compile, and a worker that hangs ends at the time-out") {
  const TempDir dir = folder();
  EngineOptions options = options_in(dir.path());
  {
    const FakeWorker quick("tiny");
    REQUIRE(prepare(*engine_of(options), kShort).ok());  // the compiler is remembered from now on
  }
  options.compile.timeout = milliseconds(800);
  const FakeWorker worker("tiny-slow");
  auto engine = engine_of(options);
  REQUIRE(prepare(*engine, kShort).ok());
  std::thread slow([&] {
    const Result<Prepared> hung = prepare(*engine, numbered_spec(3));
    CHECK_FALSE(hung.ok());
  });
  while (worker.compiled().empty()) std::this_thread::sleep_for(milliseconds(1));
  const auto start = std::chrono::steady_clock::now();
  CHECK(prepare(*engine, kShort)->origin == KernelOrigin::memory);
  CHECK(std::chrono::steady_clock::now() - start < milliseconds(400));
  slow.join();
  CHECK(std::chrono::steady_clock::now() - start < milliseconds(5000));
  CHECK(engine->statistics().waits == 0);
}

TEST_CASE("an object that is for another machine, or without the kernel, reaches nobody") {
  for (const char* mode : {"tiny-strange", "tiny-foreign"}) {
    INFO(mode);
    const TempDir dir = folder();
    {
      const FakeWorker worker(mode);
      const Result<Prepared> result = prepare(*engine_in(dir.path()), kShort);
      REQUIRE_FALSE(result.ok());
      CHECK(result.error().kind == ErrorKind::kCompile);
      CHECK_THAT(result.error().message, ContainsSubstring("the compiler's object"));
      CHECK(result.error().message.find('\n') == std::string::npos);
    }
    CHECK(entries(dir.path()).empty());
    const FakeWorker honest("tiny");
    CHECK(prepare(*engine_in(dir.path()), kShort).ok());
  }
}
