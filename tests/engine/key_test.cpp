// SPDX-License-Identifier: Apache-2.0
// The key in memory is the generated configuration; the request key is the digest of everything the
// compiler sees. One must be exactly as fine as the other.
#include <map>
#include <random>

#include "base/temp_dir.hpp"
#include "cache/entry.hpp"
#include "support.hpp"

using namespace hstu::jit;
using namespace hstu::jit::test;
namespace cache = hstu::cache;

namespace {

// Any problem a spec can state, by what decides about kernels and by what does not.
Problem random_problem(std::mt19937& random) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  Problem p;
  p.name = std::to_string(below(1000));
  p.dtype = below(2) ? hstu::Dtype::bf16 : hstu::Dtype::fp16;
  p.heads = 1 + below(8);
  p.head_dim_qk = below(4) ? 64 : 8 * (1 + below(32));
  p.head_dim_v = below(8) ? p.head_dim_qk : 8 * (1 + below(32));
  p.layout = below(2) ? Layout::jagged : Layout::batched;
  p.batch = 2 * (1 + below(3));
  p.cross = below(4) == 0;
  p.causal = below(2) == 0;
  p.activation = below(2) ? hstu::Activation::silu : hstu::Activation::softmax;
  p.training = below(2) == 0;
  p.alpha = below(3) * 0.25;
  p.attn_scale = below(3) * 0.5;
  p.data.seed = random();
  const int uih = 1 + below(300), targets = p.cross ? 0 : below(3) * below(4);
  for (int64_t b = 0; b < p.batch; ++b) {
    p.uih_q.push_back(p.layout == Layout::jagged ? 1 + below(300) : uih);
    p.uih_kv.push_back(p.cross ? p.uih_q.back() + below(50) * (p.layout == Layout::jagged)
                               : p.uih_q.back());
    p.num_targets.push_back(targets);
  }
  const auto mask = [&] {
    GroupSpec m;
    m.local_len = below(2) * below(60);
    m.context_len = p.cross ? 0 : below(2) * below(20);
    m.minfull_len = m.local_len > 0 ? below(2) * below(20) : 0;
    return m;
  };
  if (below(4) == 0 && !p.cross) {
    p.groups = {mask(), mask()};
  } else {
    p.mask = mask();
  }
  return p;
}

}  // namespace

TEST_CASE("equal configurations have equal request keys, and other configurations other ones") {
  std::mt19937 random(20261130);
  std::map<std::string, std::string> request_of, seed_of;
  const CompileOptions options;
  int shared = 0, planned = 0;
  for (int i = 0; i < 1500; ++i) {
    const Problem problem = random_problem(random);
    const Result<Geometry> geometry = make_geometry(problem);
    if (!geometry) continue;
    const auto targets = all_targets();
    Target target = i % 2 ? *find_target("gfx942") : targets[random() % targets.size()];
    if (target.vendor == Vendor::cpu) target = *find_target("cpu");
    const Result<Plan> plan = make_plan(problem, *geometry, target, PlanDetail::launch);
    if (!plan) continue;
    ++planned;
    const std::string seed = target.name + "\n" + source_seed(*plan);
    const Result<Source> source = write_source(*plan, "{}");
    REQUIRE(source.ok());
    const std::string request =
        cache::request_digest(Engine::ingredients(*source, target, options));
    const auto [by_seed, new_seed] = request_of.emplace(seed, request);
    const auto [by_request, new_request] = seed_of.emplace(request, seed);
    INFO(seed);
    CHECK(by_seed->second == request);
    CHECK(by_request->second == seed);
    shared += new_seed ? 0 : 1;
  }
  // Else the test says nothing: there must be many kernels, and many problems that share one.
  CHECK(planned > 1000);
  CHECK(request_of.size() > 300);
  CHECK(shared > 50);
}

TEST_CASE("a plan for launching is the full plan without estimate and reasons") {
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    const Problem problem = random_problem(random);
    const Result<Geometry> geometry = make_geometry(problem);
    if (!geometry) continue;
    for (const char* name : {"cpu", "gfx90a", "gfx942", "gfx1100", "sm_90a"}) {
      const Target target = *find_target(name);
      const Result<Plan> full = make_plan(problem, *geometry, target);
      const Result<Plan> quick = make_plan(problem, *geometry, target, PlanDetail::launch);
      REQUIRE(full.ok() == quick.ok());
      if (!full) continue;
      CHECK(source_seed(*full) == source_seed(*quick));
      CHECK(full->launch.grid == quick->launch.grid);
      CHECK(full->launch.block == quick->launch.block);
      CHECK(full->launch.dynamic_lds_bytes == quick->launch.dynamic_lds_bytes);
      CHECK(quick->why.empty());
      CHECK_FALSE(full->why.empty());
    }
  }
}

TEST_CASE("two compiles of one kernel make the same entry, byte for byte") {
  std::vector<std::string> bytes;
  for (int i = 0; i < 2; ++i) {
    const TempDir dir = folder();
    EngineOptions options = options_in(dir.path());
    options.keep_artifacts = true;
    auto engine = engine_of(options);
    Result<Prepared> made = prepare(*engine, i ? kLong : kShort);
    REQUIRE(made.ok());
    CHECK(made->kernel->compile_ms > 0);
    REQUIRE(entries(dir.path()).size() == 1);
    bytes.push_back(*read_file(entries(dir.path()).front()));
    Result<std::string> encoded = cache::encode_entry(made->kernel->artifact());
    REQUIRE(encoded.ok());
    CHECK(*encoded == bytes.back());
    // The same from another process's entry, and from memory.
    auto second = engine_of(options);
    for (const KernelOrigin origin : {KernelOrigin::local, KernelOrigin::memory}) {
      Result<Prepared> again = prepare(*second, kShort);
      REQUIRE(again.ok());
      CHECK(again->origin == origin);
      CHECK(again->kernel->compile_ms == 0);
      CHECK(*cache::encode_entry(again->kernel->artifact()) == bytes.back());
    }
  }
  CHECK(bytes[0] == bytes[1]);
  CHECK(bytes[0].find("compile_ms") == std::string::npos);
}
