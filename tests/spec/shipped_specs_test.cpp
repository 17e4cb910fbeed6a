// SPDX-License-Identifier: Apache-2.0
// The specs that ship with the product: all valid, of distinct names, with the sizes their
// families have.
#include <map>
#include <set>

#include "support.hpp"

namespace hstu::jit::test {
namespace {

std::vector<Problem> shipped(const std::string& name) {
  auto spec = parse_spec(contents(HSTU_TEST_DATA "/specs/" + name + ".json"), "");
  INFO(name + (spec.ok() ? "" : ": " + spec.error().message));
  REQUIRE(spec.ok());
  return spec->problems;
}

Geometry geometry(const Problem& p) {
  auto g = make_geometry(p);
  REQUIRE(g.ok());
  return *g;
}

// Dense floating point operations of one call, in 10^12.
double dense_tflop(const Problem& p) {
  return 2e-12 * p.heads * (p.head_dim_qk + p.head_dim_v) *
         static_cast<double>(dense_pairs(geometry(p)));
}

}  // namespace

TEST_CASE("every shipped spec is valid, comes back from its JSON and has a name of its own") {
  std::set<std::string> names;
  size_t problems = 0;
  for (const std::string& path : shipped_specs()) {
    INFO(path);
    auto spec = parse_spec(contents(path), "");
    INFO((spec.ok() ? "" : spec.error().message));
    REQUIRE(spec.ok());
    for (const Problem& p : spec->problems) {
      INFO(p.name);
      CHECK_FALSE(p.name.empty());
      CHECK(names.insert(p.name).second);
      CHECK(make_geometry(p).ok());
      CHECK(parse_one(to_json(p)) == p);
      ++problems;
    }
  }
  CHECK(problems == names.size());
}

TEST_CASE("families have the number of cases of their tables") {
  const std::map<std::string, size_t> cases{{"k14-silu", 28},
                                            {"k14-softmax", 28},
                                            {"cross-k14-silu", 28},
                                            {"cross-k14-softmax", 28},
                                            {"group-silu", 18},
                                            {"group-softmax", 18},
                                            {"group-special", 3},
                                            {"mask-test", 2},
                                            {"cross-mask-test", 1},
                                            {"k14-dims-96-96-silu", 14},
                                            {"k14-dims-64-64-softmax", 14},
                                            {"quickstart", 1},
                                            {"large/x-silu", 120},
                                            {"large/m-silu", 54},
                                            {"large/a-silu", 12},
                                            {"large/j-silu", 10},
                                            {"large/jl-silu", 6},
                                            {"large/p-silu", 12},
                                            {"large/s-silu", 8}};
  for (const auto& [name, count] : cases) {
    INFO(name);
    CHECK(shipped(name).size() == count);
  }
  for (const Problem& p : shipped("k14-softmax")) CHECK(p.writes_lse());
  for (const Problem& p : shipped("cross-k14-silu"))
    CHECK(p.uih_kv == std::vector<int32_t>(10, 300));
}

TEST_CASE("the mask test has the physical lengths 56, 60, 64") {
  for (const Problem& p : shipped("mask-test")) {
    const Geometry g = geometry(p);
    CHECK(g.seq_offsets_q == std::vector<int32_t>{0, 56, 116, 180});
    CHECK(g.max_seqlen_q == 64);
    CHECK(g.max_seqlen_kv == 64);
  }
  const Geometry cross = geometry(shipped("cross-mask-test")[0]);
  CHECK(cross.seq_offsets_q == std::vector<int32_t>{0, 56, 116, 180});
  CHECK(cross.seq_offsets_kv == std::vector<int32_t>{0, 70, 146, 226});
}

TEST_CASE("the group cases have their scales and longest lengths") {
  const Problem p = shipped("group-silu")[4];  // causal, window 5, context 8, min-full 7, 8 targets
  const Geometry g = geometry(p);
  REQUIRE(g.groups.size() == 3);
  CHECK(g.groups[0].attn_scale == static_cast<float>(1.0 / (310 + 8 + 8)));
  CHECK(g.groups[1].attn_scale == 0.1f);
  CHECK(g.groups[2].attn_scale == static_cast<float>(1.0 / (312 + 8 + 8)));
  CHECK(g.sequences[0].seqlen_q == 316);
  CHECK(g.sequences[6].seqlen_q == 328);
  CHECK(g.sequences[5].group == 0);
  CHECK(g.sequences[6].group == 1);

  const Problem s1 = shipped("group-special")[0];
  CHECK(s1.batch == 32);
  CHECK(s1.groups.size() == 4);
  CHECK(s1.head_dim_v == 64);
  const Geometry special = geometry(s1);
  CHECK(special.alpha == 0.25f);
  CHECK(special.sequences[5].seqlen_q == 188 + 475);
  CHECK(special.max_seqlen_q == 768 + 475);  // the largest target count is in the first group
  CHECK(special.groups[3].local_len == 32);
  CHECK(special.groups[3].minfull_len == 26);
  CHECK(special.groups[3].attn_scale == 0.0013f);
  CHECK(shipped("group-special")[1].heads == 109);
}

TEST_CASE("the benchmark sets have their published operation counts") {
  // Dense 10^12 operations of one call, and the fraction the mask keeps.
  const std::map<std::string, std::pair<double, double>> m{
      {"m-mattn0-full0-b8-uih1004-bf16-silu", {.0169, .50}},
      {"m-mattn0-full0-b8-uih4076-bf16-silu", {.2739, .50}},
      {"m-mattn0-full0-b32-uih16364-bf16-silu", {17.57, .50}},
      {"m-mattn256-full256-b8-uih1004-bf16-silu", {.0169, .384}},
      {"m-mattn256-full256-b8-uih16364-bf16-silu", {4.394, .0316}},
      {"m-mattn256-full256-b32-uih3052-bf16-silu", {.6147, .156}},
      {"m-mattn256-full256-b32-uih8172-bf16-silu", {4.388, .062}}};
  size_t found = 0;
  for (const Problem& p : shipped("large/m-silu")) {
    const auto want = m.find(p.name);
    if (want == m.end()) continue;
    INFO(p.name);
    const Geometry g = geometry(p);
    CHECK(dense_tflop(p) == Approx(want->second.first).epsilon(.004));
    CHECK(double(visible_pairs(g)) / double(dense_pairs(g)) ==
          Approx(want->second.second).epsilon(.01));
    ++found;
  }
  CHECK(found == m.size());
  const std::map<std::string, std::pair<double, double>> jl{
      {"jl-local5-1024-bf16-silu", {.0213, .0089}},
      {"jl-local5-4096-bf16-silu", {.3052, .0024}},
      {"jl-local5-16384-bf16-silu", {6.829, .0005}}};
  for (const Problem& p : shipped("large/jl-silu")) {
    const auto want = jl.find(p.name);
    if (want == jl.end()) continue;
    INFO(p.name);
    const Geometry g = geometry(p);
    CHECK(dense_tflop(p) == Approx(want->second.first).epsilon(.004));
    CHECK(double(visible_pairs(g)) / double(dense_pairs(g)) ==
          Approx(want->second.second).margin(.00006));
  }
}

}  // namespace hstu::jit::test
