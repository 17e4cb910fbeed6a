// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <random>

#include "catch.hpp"
#include "spec/parse.hpp"

using namespace hstu::jit;
using hstu::SequenceMask;

namespace {

Problem problem_of(const std::string& json) {
  Result<ParsedSpec> spec = parse_spec(json, ".");
  INFO(json);
  if (!spec) FAIL(spec.error().message);
  REQUIRE(spec->problems.size() == 1);
  return spec->problems.front();
}

Plan plan_of(const Problem& problem, const std::string& target) {
  Result<Geometry> geometry = make_geometry(problem);
  REQUIRE(geometry.ok());
  Result<Target> t = find_target(target);
  REQUIRE(t.ok());
  Result<Plan> plan = make_plan(problem, *geometry, *t);
  if (!plan) FAIL(plan.error().message);
  return *plan;
}

std::vector<std::string> target_names() {
  std::vector<std::string> names{"cpu", "cpu:x86-64-v3", "gfx1151", "gfx1200", "sm_89"};
  for (const Target& t : all_targets()) names.push_back(t.name);
  return names;
}

}  // namespace

TEST_CASE("every target has a plan for every head dim, within its LDS and registers") {
  for (const std::string& name : target_names()) {
    for (int qk : {8, 24, 64, 96, 128, 200, 256}) {
      for (int v : {8, 64, 96, 128, 256}) {
        const Problem p = problem_of(fmt::format(
            R"({{"op": "hstu_attention", "heads": 2, "head_dim_qk": {}, "head_dim_v": {},
                 "uih_lengths": [100, 300]}})",
            qk, v));
        const Plan plan = plan_of(p, name);
        INFO(name << " " << qk << "/" << v);
        CHECK(plan.config.head_dim_qk == qk);
        CHECK(plan.config.head_dim_v == v);
        CHECK(plan.config.tile_m > 0);
        CHECK(plan.config.tile_n > 0);
        if (plan.target.vendor != Vendor::cpu) {
          CHECK(plan.estimate.lds_bytes <= plan.target.lds_bytes);
          if (plan.config.stages > 0) {
            // The loading warpgroup hands registers over: it keeps 56 of a share of the file.
            const int computing = plan.config.waves / 4 - 1;
            CHECK(computing * plan.estimate.registers + 56 <= plan.target.registers_per_lane);
            CHECK(plan.estimate.registers <= plan.target.max_registers);
          } else if (std::max(qk, v) <= 128) {
            CHECK(plan.estimate.registers <=
                  std::min(plan.target.max_registers,
                           plan.target.registers_per_lane / plan.config.waves_per_simd));
          }
          CHECK(plan.launch.block == plan.config.waves * plan.target.wave_width);
          CHECK(plan.launch.block <= 1024);
        }
        // The tiles of all sequences fit the grid.
        CHECK(plan.launch.grid == 2 * 2 * ((300 + plan.config.tile_m - 1) / plan.config.tile_m));
        CHECK(plan.why.size() >= 3);
      }
    }
  }
}

TEST_CASE("the plan's structure does not depend on lengths, names, seeds or data") {
  const char* base =
      R"({"op": "hstu_attention", "heads": 4, "head_dim_qk": 128, "uih_lengths": [300, 20],
          "num_targets": 3, "mask": {"local_len": 9, "context_len": 2, "minfull_len": 4}})";
  const char* other =
      R"({"op": "hstu_attention", "name": "x", "heads": 2, "head_dim_qk": 128,
          "uih_lengths": [4000, 1, 7], "num_targets": [20, 1, 0], "alpha": 0.3, "attn_scale": 0.5,
          "mask": {"local_len": 200, "context_len": 1, "minfull_len": 1},
          "data": {"init": "uniform", "seed": 3}})";
  for (const std::string& name : target_names()) {
    const Plan a = plan_of(problem_of(base), name);
    const Plan b = plan_of(problem_of(other), name);
    CHECK(a.entry == b.entry);
    CHECK(nlohmann::json::parse(to_json(a))["config"] ==
          nlohmann::json::parse(to_json(b))["config"]);
  }
  // ... and does depend on structure.
  const Plan plain = plan_of(
      problem_of(
          R"({"op": "hstu_attention", "heads": 4, "head_dim_qk": 128, "uih_lengths": [300]})"),
      "gfx90a");
  CHECK(plain.entry != plan_of(problem_of(base), "gfx90a").entry);
}

TEST_CASE("under a narrow window Hopper's warpgroups each load their own keys") {
  const auto narrow = [](const std::string& more, const std::string& target = "sm_90a") {
    return plan_of(problem_of(R"({"op": "hstu_attention", "heads": 2, "head_dim_qk": 128,
                                  "batch": 2, "uih_lengths": [300, 500], "num_targets": 5, )" +
                              more + "}"),
                   target)
        .config.apart;
  };
  CHECK(narrow(R"("mask": {"local_len": 1})"));
  CHECK(narrow(R"("mask": {"local_len": 16})"));
  CHECK_FALSE(narrow(R"("mask": {"local_len": 17})"));
  CHECK_FALSE(narrow(R"("mask": {"local_len": 0})"));
  CHECK(narrow(R"("mask": {"causal": false, "local_len": 8})"));
  CHECK_FALSE(narrow(R"("mask": {"causal": false, "local_len": 9})"));
  // Rows that see further than the window.
  CHECK_FALSE(narrow(R"("mask": {"local_len": 5, "context_len": 3})"));
  CHECK_FALSE(narrow(R"("mask": {"local_len": 5, "minfull_len": 3})"));
  CHECK(narrow(R"("groups": [{"local_len": 5}, {"local_len": 9}])"));
  CHECK_FALSE(narrow(R"("groups": [{"local_len": 5}, {"local_len": 90}])"));
  CHECK_FALSE(narrow(R"("groups": [{"local_len": 5}, {"local_len": 0}])"));
  for (const char* other : {"sm_80", "sm_100a", "gfx942", "cpu"})
    CHECK_FALSE(narrow(R"("mask": {"local_len": 5})", other));
  // All head dims fit, and one step holds the keys of 64 rows.
  for (int qk : {40, 64, 72, 96, 128, 192, 256}) {
    for (int v : {40, 64, 96, 128, 200, 256}) {
      const Plan plan =
          plan_of(problem_of(fmt::format(R"({{"op": "hstu_attention", "heads": 3, "head_dim_qk": {},
                                      "head_dim_v": {}, "batch": 2, "uih_lengths": [640, 64],
                                      "mask": {{"local_len": 16}}}})",
                                         qk, v)),
                  "sm_90a");
      INFO(qk << "/" << v);
      const int groups = plan.config.tile_m / 64;
      CHECK(plan.config.apart);
      CHECK(plan.config.tile_n == 80);
      CHECK(plan.config.stages % groups == 0);
      CHECK(plan.estimate.lds_bytes <= plan.target.lds_bytes);
      CHECK(groups * plan.estimate.registers + 56 <= plan.target.registers_per_lane);
      CHECK(plan.estimate.full_tiles == 0);
      CHECK(plan.estimate.partial_tiles == 3 * (10 + 1));
    }
  }
}

TEST_CASE("pair, tile and FLOP figures agree with counting them one by one") {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    const auto pick = [&](std::initializer_list<int> values) {
      return values.begin()[random() % values.size()];
    };
    const int u = pick({0, 1, 5, 70, 200}), t = pick({0, 1, 40}), c = pick({0, 3, 80});
    const int n = pick({0, 1, 60}), f = pick({0, 30}), kv = pick({-1, 0, 40, 300});
    std::string json = fmt::format(
        R"({{"op": "hstu_attention", "heads": 3, "head_dim_qk": 64, "head_dim_v": 96,
             "uih_lengths": [{}, {}], "num_targets": {}, "mask": {{"causal": {}, "local_len": {},
             "context_len": {}, "minfull_len": {}}})",
        u, u / 2, t, round % 2 == 0, n, c, f);
    json += kv < 0 ? "}" : fmt::format(R"(, "uih_lengths_kv": {}}})", kv);
    const Problem p = problem_of(json);
    const Geometry g = *make_geometry(p);
    const Plan plan = plan_of(p, "gfx90a");
    int64_t visible_count = 0, dense = 0;
    double full = 0, reached = 0;
    for (int64_t b = 0; b < p.batch; ++b) {
      const SequenceMask m = g.mask_of(b);
      const Geometry::Sequence& s = g.sequences[b];
      dense += int64_t{s.seqlen_q} * s.seqlen_kv;
      for (int row = 0; row < s.seqlen_q; row += plan.config.tile_m) {
        const int row_end = std::min(row + plan.config.tile_m, s.seqlen_q);
        for (int key = 0; key < s.seqlen_kv; key += plan.config.tile_n) {
          const int key_end = std::min(key + plan.config.tile_n, s.seqlen_kv);
          int seen = 0;
          for (int i = row; i < row_end; ++i)
            for (int j = key; j < key_end; ++j) seen += hstu::visible(g.features, m, i, j);
          visible_count += seen;
          full += seen == (row_end - row) * (key_end - key);
          reached += seen > 0;
        }
      }
    }
    INFO(json);
    CHECK(plan.estimate.visible_pairs == 3 * visible_count);
    CHECK(plan.estimate.dense_pairs == 3 * dense);
    CHECK(plan.estimate.useful_flop == Approx(2.0 * (64 + 96) * 3.0 * visible_count));
    // A hull may hold tiles nobody sees, and `full` may miss one; never the other way round.
    CHECK(plan.estimate.full_tiles <= 3 * full);
    CHECK(plan.estimate.full_tiles + plan.estimate.partial_tiles >= 3 * reached);
    if (p.causal && n == 0 && c == 0 && kv < 0) {
      CHECK(plan.estimate.full_tiles == 3 * full);
      CHECK(plan.estimate.full_tiles + plan.estimate.partial_tiles == 3 * reached);
    }
  }
}

TEST_CASE("what a target cannot run is said with exit kind unsupported") {
  Problem p = problem_of(
      R"({"op": "hstu_attention", "heads": 2, "head_dim_qk": 64, "uih_lengths": [10],
          "strides": {"q": [0, 132, 66]}})");
  Result<Geometry> g = make_geometry(p);
  REQUIRE(g.ok());
  CHECK(make_plan(p, *g, *find_target("cpu")).ok());
  for (const char* name : {"gfx90a", "gfx1100", "sm_90a"}) {
    Result<Plan> plan = make_plan(p, *g, *find_target(name));
    REQUIRE_FALSE(plan.ok());
    CHECK(plan.error().kind == ErrorKind::kUnsupported);
    CHECK(plan.error().pointer == "/strides/q");
  }
  // A broadcast key row has stride 0: fine on cpu, out of reach of AMD buffer loads.
  p = problem_of(
      R"({"op": "hstu_attention", "heads": 2, "head_dim_qk": 64, "uih_lengths": [10],
          "strides": {"k": [0, 0, 64]}})");
  g = make_geometry(p);
  REQUIRE(g.ok());
  CHECK(make_plan(p, *g, *find_target("cpu")).ok());
  CHECK(make_plan(p, *g, *find_target("sm_90a")).ok());
  REQUIRE_FALSE(make_plan(p, *g, *find_target("gfx942")).ok());
  CHECK(make_plan(p, *g, *find_target("gfx942")).error().pointer == "/strides/k");
  Result<Target> unknown = find_target("gfx94");
  REQUIRE_FALSE(unknown.ok());
  CHECK(unknown.error().kind == ErrorKind::kUnsupported);
  CHECK_THAT(unknown.error().message, ContainsSubstring("did you mean \"gfx942\""));
}

TEST_CASE("grids beyond 65,535 workgroups and empty batches are planned") {
  const Plan big =
      plan_of(problem_of(R"({"op": "hstu_attention", "heads": 64, "head_dim_qk": 64, "batch": 4096,
                     "uih_lengths": 100})"),
              "gfx942");
  CHECK(big.launch.grid >= 64 * 4096);
  const Plan none =
      plan_of(problem_of(R"({"op": "hstu_attention", "heads": 4, "head_dim_qk": 64, "batch": 0,
                     "uih_lengths": 100})"),
              "gfx942");
  CHECK(none.launch.grid == 0);
  CHECK(none.estimate.bound == "empty");
}

TEST_CASE("plan JSON has the documented members") {
  const auto j = nlohmann::json::parse(to_json(plan_of(
      problem_of(R"({"op": "hstu_attention", "heads": 4, "head_dim_qk": 128, "uih_lengths": [9]})"),
      "gfx942")));
  CHECK(j["schema"] == "hstu-jit/plan/1");
  CHECK(j["target"] == "gfx942");
  for (const char* key : {"template", "config", "launch", "estimate", "why"})
    CHECK(j.contains(key));
}
