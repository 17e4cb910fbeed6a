// SPDX-License-Identifier: Apache-2.0
// The engine over bundles and a remote that is not there.
#include <nlohmann/json.hpp>

#include "base/temp_dir.hpp"
#include "cache/bundle.hpp"
#include "cache/entry.hpp"
#include "support.hpp"

using namespace hstu::jit;
using namespace hstu::jit::test;
namespace cache = hstu::cache;

namespace {

// A bundle of one kernel; its name with the pin.
std::string bundle_of(const std::string& path, const std::string& spec) {
  const TempDir dir = folder();
  EngineOptions options = options_in(dir.path());
  options.keep_artifacts = true;
  auto engine = engine_of(options);
  Result<Prepared> made = prepare(*engine, spec);
  if (!made) FAIL(made.error().message);
  Result<std::string> digest =
      cache::write_bundle(path, {*cache::encode_entry(made->kernel->artifact())}, {});
  if (!digest) FAIL(digest.error().message);
  return path + "@sha256:" + *digest;
}

nlohmann::json stats(const Engine& engine) {
  return nlohmann::json::parse(engine.statistics_json());
}

}  // namespace

TEST_CASE("a pinned bundle serves, and no compiler is looked for or started") {
  const FakeWorker quick("tiny");
  const TempDir dir = folder(), bundles = folder();
  const std::string pinned = bundle_of(bundles.path() + "/a b.hjb", kShort);
  EngineOptions options = options_in(dir.path(), cache::Mode::sealed);
  options.bundles = {pinned};
  const ScopedEnv worker("HSTU_JIT_WORKER", "/nowhere/worker");
  const ScopedEnv compiler("HSTU_JIT_CXX", "/nowhere/c++");
  auto engine = engine_of(options);
  const Case c = case_of(kLong);
  const Result<Peek> peek = engine->peek(c.problem, c.geometry, *find_target("cpu"));
  REQUIRE(peek.ok());
  CHECK(peek->hit);
  CHECK(peek->origin == KernelOrigin::bundle);
  const Result<Prepared> served = prepare(*engine, kLong);
  if (!served) FAIL(served.error().message);
  CHECK(served->origin == KernelOrigin::bundle);
  CHECK(served->compile_ms == 0);
  CHECK(prepare(*engine, kShort)->origin == KernelOrigin::memory);
  const Result<Prepared> missing = prepare(*engine, numbered_spec(0));
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.error().kind == ErrorKind::kCache);
  CHECK_THAT(missing.error().message, ContainsSubstring("bundle: "));
  CHECK(missing.error().message.find('\n') == std::string::npos);
  const nlohmann::json s = stats(*engine);
  CHECK(s["schema"] == "hstu-jit/engine-stats/1");
  CHECK(s["requests"] == 3);
  CHECK(s["hits"] == nlohmann::json({{"memory", 1}, {"bundle", 1}, {"local", 0}, {"remote", 0}}));
  CHECK(s["misses"]["bundle"] == nlohmann::json({{"absent", 1}}));
  CHECK(s["compiles"] == 0);
  CHECK(s["sealed_misses"] == 1);
  CHECK(s["kernels"] == 1);
}

TEST_CASE("bundles of the environment serve too; what cannot be used is done without") {
  const FakeWorker worker("tiny");
  const TempDir dir = folder(), bundles = folder();
  const std::string pinned = bundle_of(bundles.path() + "/k.hjb", kShort);
  const ScopedEnv list("HSTU_JIT_BUNDLES", bundles.path() + "/gone.hjb:" + pinned);
  auto engine = engine_in(dir.path());
  CHECK_THAT(engine->cache().warning(), ContainsSubstring("gone.hjb"));
  CHECK(prepare(*engine, kShort)->origin == KernelOrigin::bundle);
  CHECK(prepare(*engine, numbered_spec(0))->origin == KernelOrigin::compiled);

  EngineOptions named = options_in(dir.path());
  named.bundles = {bundles.path() + "/gone.hjb"};
  const Result<std::unique_ptr<Engine>> refused = Engine::create(named);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().kind == ErrorKind::kCache);
}

TEST_CASE("a remote that is dead or misspelt costs a warning and no kernel") {
  const FakeWorker worker("tiny");
  for (const char* url : {"http://127.0.0.1:9/cache", "gopher://x", "http://"}) {
    INFO(url);
    const TempDir dir = folder();
    const ScopedEnv remote("HSTU_JIT_REMOTE", url);
    auto engine = engine_in(dir.path());
    const Result<Prepared> made = prepare(*engine, kShort);
    REQUIRE(made.ok());
    CHECK(made->origin == KernelOrigin::compiled);
    CHECK(made->cache_note.find('\n') == std::string::npos);
    if (engine->cache().remote() != nullptr) {
      CHECK_THAT(made->cache_note, ContainsSubstring("remote: "));
    } else {
      CHECK_FALSE(engine->cache().warning().empty());
    }
  }
}

TEST_CASE("peek tells what prepare would find, and changes nothing") {
  const FakeWorker worker("tiny");
  const TempDir dir = folder();
  const Case c = case_of(kShort);
  const Target target = *find_target("cpu");
  {
    // Nothing is known here, not even the compiler.
    auto engine = engine_in(dir.path());
    const Result<Peek> peek = engine->peek(c.problem, c.geometry, target);
    REQUIRE(peek.ok());
    CHECK_FALSE(peek->hit);
    CHECK(peek->reason == cache::MissReason::toolchain);
    CHECK(peek->key.toolchain.empty());
    CHECK(engine->statistics().requests == 0);
    CHECK(entries(dir.path()).empty());
    REQUIRE(prepare(*engine, kShort).ok());
    CHECK(engine->peek(c.problem, c.geometry, target)->origin == KernelOrigin::memory);
  }
  auto engine = engine_in(dir.path());
  const Result<Peek> peek = engine->peek(c.problem, c.geometry, target);
  REQUIRE(peek.ok());
  CHECK(peek->hit);
  CHECK(peek->origin == KernelOrigin::local);
  CHECK(engine->statistics().kernels == 0);
  const Case other = case_of(numbered_spec(0));
  const Result<Peek> miss = engine->peek(other.problem, other.geometry, target);
  REQUIRE(miss.ok());
  CHECK(miss->reason == cache::MissReason::absent);
  CHECK(miss->key.toolchain == peek->key.toolchain);
  CHECK(prepare(*engine, kShort)->kernel->key.request == peek->key.request);
}
