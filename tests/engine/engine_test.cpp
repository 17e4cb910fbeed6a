// SPDX-License-Identifier: Apache-2.0
// The engine with real compiles by this host's C++ compiler.
#include <atomic>
#include <thread>

#include "base/temp_dir.hpp"
#include "support.hpp"

using namespace hstu::jit;
using namespace hstu::jit::test;
namespace cache = hstu::cache;

TEST_CASE("a kernel is compiled once, then comes from memory, then from the cache") {
  const TempDir dir = folder();
  std::string object;
  {
    auto engine = engine_in(dir.path());
    Result<Prepared> first = prepare(*engine, kShort);
    if (!first) FAIL(first.error().message << first.error().detail);
    CHECK(first->origin == KernelOrigin::compiled);
    CHECK(first->compile_ms > 0);
    object = first->kernel->object;
    CHECK(object.substr(0, 4) ==
          "\x7f"
          "ELF");
    Result<Prepared> again = prepare(*engine, kShort);
    REQUIRE(again.ok());
    CHECK(again->origin == KernelOrigin::memory);
    CHECK(again->kernel == first->kernel);
    // Other lengths, heads, name and seed: the same kernel, another grid.
    Result<Prepared> other = prepare(*engine, kLong);
    REQUIRE(other.ok());
    CHECK(other->origin == KernelOrigin::memory);
    CHECK(other->plan.launch.grid != first->plan.launch.grid);
  }
  CHECK(entries(dir.path()).size() == 1);
  auto engine = engine_in(dir.path());
  Result<Prepared> warm = prepare(*engine, kLong);
  REQUIRE(warm.ok());
  CHECK(warm->origin == KernelOrigin::local);
  CHECK(warm->compile_ms == 0);
  CHECK(warm->kernel->object == object);
}

TEST_CASE("threads that ask for one kernel wait for one compile") {
  const TempDir dir = folder();
  auto engine = engine_in(dir.path());
  std::atomic<int> compiled{0}, memory{0}, failed{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      Result<ParsedSpec> spec = parse_spec(i % 2 ? kShort : kLong, ".");
      const Problem& p = spec->problems.front();
      Result<Prepared> r = engine->prepare(p, *make_geometry(p), *find_target("cpu"));
      if (!r)
        ++failed;
      else
        ++(r->origin == KernelOrigin::compiled ? compiled : memory);
    });
  for (std::thread& t : threads) t.join();
  CHECK(failed == 0);
  CHECK(compiled == 1);
  CHECK(memory == 7);
}

TEST_CASE("a corrupt entry is recompiled and says so") {
  const FakeWorker worker("tiny");
  const TempDir dir = folder();
  REQUIRE(prepare(*engine_in(dir.path()), kShort).ok());
  REQUIRE(entries(dir.path()).size() == 1);
  const std::string entry = entries(dir.path()).front();
  std::string bytes = *read_file(entry);
  bytes[bytes.size() - 100] = static_cast<char>(bytes[bytes.size() - 100] ^ 1);
  REQUIRE(write_file_atomic(entry, bytes).ok());
  Result<Prepared> r = prepare(*engine_in(dir.path()), kShort);
  REQUIRE(r.ok());
  CHECK(r->origin == KernelOrigin::compiled);
  CHECK_THAT(r->cache_note, ContainsSubstring("damaged"));
  CHECK(prepare(*engine_in(dir.path()), kShort)->origin == KernelOrigin::local);
}

TEST_CASE("without a compiler the cache still serves, and a miss says what to install") {
  const TempDir dir = folder();
  REQUIRE(prepare(*engine_in(dir.path()), kShort).ok());
  const ScopedEnv path("PATH", "/nonexistent");
  const ScopedEnv cxx("HSTU_JIT_CXX", "/nonexistent/c++");
  Result<Prepared> served = prepare(*engine_in(dir.path()), kShort);
  if (!served) FAIL(served.error().message);
  CHECK(served->origin == KernelOrigin::local);
  CHECK_THAT(served->cache_note, ContainsSubstring("without a compiler"));
  const TempDir empty = folder();
  Result<Prepared> missing = prepare(*engine_in(empty.path()), kShort);
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.error().kind == ErrorKind::kCompile);
  CHECK(missing.error().message.find('\n') == std::string::npos);
}

TEST_CASE("a failed compile is an error with its log, and is not remembered") {
  const TempDir dir = folder();
  EngineOptions options;
  options.cache_dir = dir.path();
  options.compile.extra_flags = {"-DHSTU_JIT_TEST_BROKEN", "-includeno-such-file.h"};
  std::unique_ptr<Engine> engine = std::move(*Engine::create(options));
  for (int i = 0; i < 2; ++i) {
    Result<Prepared> r = prepare(*engine, kShort);
    REQUIRE_FALSE(r.ok());
    CHECK(r.error().kind == ErrorKind::kCompile);
    CHECK(r.error().message.find('\n') == std::string::npos);
    CHECK_THAT(r.error().detail, ContainsSubstring("no-such-file.h"));
  }
  CHECK(entries(dir.path()).empty());
  CHECK(prepare(*engine_in(dir.path()), kShort).ok());
}

TEST_CASE("sealed, read-only, off and unwritable caches") {
  const FakeWorker worker("tiny");
  const TempDir dir = folder();
  Result<Prepared> sealed = prepare(*engine_in(dir.path(), cache::Mode::sealed), kShort);
  REQUIRE_FALSE(sealed.ok());
  CHECK(sealed.error().kind == ErrorKind::kCache);

  CHECK(prepare(*engine_in(dir.path(), cache::Mode::read_only), kShort)->origin ==
        KernelOrigin::compiled);
  {
    // Nothing is written there, and what this process found out about its compiler is known all
    // the same.
    auto engine = engine_in(dir.path(), cache::Mode::read_only);
    const Case c = case_of(numbered_spec(1));
    const Result<Peek> peek = engine->peek(c.problem, c.geometry, *find_target("cpu"));
    REQUIRE(peek.ok());
    CHECK(peek->reason == cache::MissReason::absent);
    CHECK(peek->key.toolchain.size() == 64);
  }
  CHECK(prepare(*engine_in(dir.path(), cache::Mode::off), kShort).ok());
  CHECK(std::filesystem::is_empty(dir.path()));

  REQUIRE(prepare(*engine_in(dir.path()), kShort).ok());
  CHECK(prepare(*engine_in(dir.path(), cache::Mode::sealed), kShort)->origin ==
        KernelOrigin::local);
  CHECK(prepare(*engine_in(dir.path(), cache::Mode::off), kShort)->origin ==
        KernelOrigin::compiled);

  EngineOptions options;
  options.cache_dir = "/proc/hstu-jit-cannot-be";
  Result<std::unique_ptr<Engine>> engine = Engine::create(options);
  REQUIRE_FALSE(engine.ok());
  CHECK(engine.error().kind == ErrorKind::kCache);
}
