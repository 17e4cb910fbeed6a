// SPDX-License-Identifier: Apache-2.0
// From a manifest to its kernels: shared ones once, in order, dealt to shards.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "support.hpp"

using namespace hstu::jit;
using namespace hstu::jit::test;

namespace {

std::string spec(int dim, const std::string& more = "") {
  return fmt::format(R"({{"spec": {{"op": "hstu_attention", "name": "d{0}", "heads": 2,
      "head_dim_qk": {0}, "uih_lengths": [40, 9]}}{1}}})",
                     dim, more);
}

// Many kernels for two targets.
Manifest many() {
  return good(manifest_of(
      R"({"sweep": {"base": )" + kBase +
          R"(, "set": {"/head_dim_qk": [32, 64, 96, 128, 256], "/mask/causal": [true, false],
             "/mask/local_len": [0, 7], "/layout": ["jagged"], "/dtype": ["bf16", "fp16"],
             "/activation": ["silu", "softmax"]}}})",
      R"("targets": ["gfx90a", "gfx1100"], )"));
}

std::vector<std::string> requests(const JobList& list) {
  std::vector<std::string> all;
  for (const KernelJob& job : list.jobs) all.push_back(job.request);
  return all;
}

}  // namespace

TEST_CASE("specs that differ in lengths, heads and seeds are one kernel with all its askers") {
  const std::string longer =
      R"({"spec": {"op": "hstu_attention", "name": "long", "heads": 8, "head_dim_qk": 64,
          "uih_lengths": [900, 1], "data": {"seed": 5}}, "priority": 7})";
  const Manifest m = good(manifest_of(spec(64) + "," + longer + "," + spec(128)));
  const JobList list = expanded(m, {"gfx90a"});
  REQUIRE(list.jobs.size() == 2);
  CHECK(list.refused.empty());
  CHECK(list.targets == std::vector<std::string>{"gfx90a"});
  // The higher priority of the two counts, so it comes first.
  const KernelJob& shared = list.jobs[0];
  CHECK(shared.priority == 7);
  REQUIRE(shared.askers.size() == 2);
  CHECK(shared.askers[0].label == "d64");
  CHECK(shared.askers[1].label == "long");
  CHECK(shared.askers[1].pointer == "/specs/1");
  CHECK(shared.request.size() == 64);
  CHECK(list.jobs[1].askers.size() == 1);
}

TEST_CASE("higher priorities first, equal ones in the order of the manifest") {
  const Manifest m = good(manifest_of(spec(32) + "," + spec(64, R"(, "priority": 9)") + "," +
                                      spec(96, R"(, "priority": 0)") + "," + spec(128) + "," +
                                      spec(256, R"(, "priority": 9)")));
  std::vector<std::string> order;
  for (const KernelJob& job : expanded(m, {"gfx90a"}).jobs)
    order.push_back(job.askers.front().label);
  CHECK(order == std::vector<std::string>{"d64", "d256", "d32", "d128", "d96"});
}

TEST_CASE("which targets: those wanted now, the entry's own, the manifest's, the spec's") {
  const std::string own = R"(, "targets": ["gfx942", "gfx90a"])";
  const std::string both = R"("targets": ["gfx90a", "sm_80"], )";
  const auto targets_of = [](const JobList& list) {
    std::multiset<std::string> names;
    for (const KernelJob& job : list.jobs) names.insert(job.target.name);
    return names;
  };
  using Names = std::multiset<std::string>;
  const Manifest m = good(manifest_of(spec(64) + "," + spec(128, own), both));
  CHECK(targets_of(expanded(m)) == Names{"gfx90a", "sm_80", "gfx942", "gfx90a"});
  CHECK(targets_of(expanded(m, {"gfx942"})) == Names{"gfx942", "gfx942"});
  CHECK(targets_of(expanded(m, {"sm_80"})) == Names{"sm_80"});
  CHECK(targets_of(expanded(m, {"gfx90a", "gfx90a"})) == Names{"gfx90a", "gfx90a"});

  const std::string named = R"({"spec": {"op": "hstu_attention", "heads": 2, "head_dim_qk": 64,
      "uih_lengths": 3, "target": "gfx1100"}})";
  CHECK(targets_of(expanded(good(manifest_of(named)))) == Names{"gfx1100"});
  CHECK(targets_of(expanded(good(manifest_of(named, both)))) == Names{"gfx90a", "sm_80"});

  const Result<JobList> none = expand(good(manifest_of(spec(64))), {}, {});
  REQUIRE_FALSE(none.ok());
  CHECK(none.error().kind == ErrorKind::kSpec);
  CHECK_THAT(none.error().message, ContainsSubstring("--targets"));
  const Result<JobList> unknown = expand(m, {"gfx90b"}, {});
  REQUIRE_FALSE(unknown.ok());
  CHECK(unknown.error().kind == ErrorKind::kUnsupported);
  const Manifest odd = good(manifest_of(spec(64), R"("targets": ["gfx90a", "gfx9"], )"));
  CHECK_FALSE(expand(odd, {}, {}).ok());
  CHECK(expand(odd, {}, {}).error().pointer == "/targets");
  CHECK(targets_of(expanded(odd, {"gfx90a"})) == Names{"gfx90a"});
}

TEST_CASE("what a target has no kernel for is set aside with its reason") {
  // Rows that are not aligned to 16 bytes.
  const std::string odd = R"({"spec": {"op": "hstu_attention", "heads": 2, "head_dim_qk": 32,
      "uih_lengths": [40, 9], "strides": {"q": [0, 68, 34]}}})";
  const Manifest m = good(manifest_of(spec(64) + "," + odd));
  const JobList list = expanded(m, {"gfx90a"});
  CHECK(list.jobs.size() == 1);
  REQUIRE(list.refused.size() == 1);
  CHECK(list.refused[0].asker.pointer == "/specs/1");
  CHECK(list.refused[0].target == "gfx90a");
  CHECK(list.refused[0].error.kind == ErrorKind::kUnsupported);
}

TEST_CASE("shards share no kernel, together are the whole, and are even for each target") {
  const Manifest m = many();
  const JobList whole = expanded(m);
  const std::vector<std::string> order = requests(whole);
  const std::set<std::string> all(order.begin(), order.end());
  REQUIRE(all.size() == order.size());
  REQUIRE(all.size() >= 60);
  for (const size_t count : {size_t{1}, size_t{2}, size_t{3}, size_t{7}, all.size() + 5}) {
    std::set<std::string> seen;
    std::map<std::string, std::pair<size_t, size_t>> sizes;  // of a target: least, most
    for (size_t i = 0; i < count; ++i) {
      JobList part = whole;
      keep_shard(part, {i, count});
      std::map<std::string, size_t> of_target;
      for (const std::string& name : whole.targets) of_target[name] = 0;
      for (const KernelJob& job : part.jobs) {
        CHECK(seen.insert(job.request).second);
        ++of_target[job.target.name];
      }
      // In the order of the whole.
      const std::vector<std::string> kept = requests(part);
      auto at = order.begin();
      for (const std::string& request : kept) {
        at = std::find(at, order.end(), request);
        REQUIRE(at != order.end());
      }
      for (const auto& [name, n] : of_target) {
        auto& [least, most] = sizes.try_emplace(name, n, n).first->second;
        least = std::min(least, n);
        most = std::max(most, n);
      }
    }
    CHECK(seen == all);
    for (const auto& [name, range] : sizes) CHECK(range.second - range.first <= 1);
  }
}

TEST_CASE("a kernel's shard does not depend on priorities or the order of the manifest") {
  const auto part_of = [](const std::string& entries) {
    JobList list = expanded(good(manifest_of(entries)), {"gfx90a", "gfx942"});
    keep_shard(list, {1, 3});
    std::vector<std::string> all = requests(list);
    std::sort(all.begin(), all.end());
    return all;
  };
  const auto first = part_of(spec(32) + "," + spec(64) + "," + spec(96) + "," + spec(128));
  CHECK(first.size() >= 2);
  CHECK(first == part_of(spec(128, R"(, "priority": 9)") + "," + spec(96) + "," +
                         spec(64, R"(, "priority": 1)") + "," + spec(32)));
}

TEST_CASE("the words of --shard") {
  const auto shard = [](const char* text) {
    const Result<Shard> s = parse_shard(text);
    if (!s) {
      CHECK(s.error().kind == ErrorKind::kUsage);
      CHECK(one_line(s.error().message));
      return std::string("refused");
    }
    return fmt::format("{}/{}", s->index, s->count);
  };
  CHECK(shard("0/1") == "0/1");
  CHECK(shard("2/7") == "2/7");
  for (const char* text :
       {"", "/", "1", "1/", "/2", "2/2", "3/2", "-1/2", "0/0", "1/2/3", "a/b", " 0/2", "0/2 ",
        "0/99999999999999999999", "0x0/2", "kubernetes", "kubernetes/0", "slurm/3", "Slurm"}) {
    INFO(text);
    CHECK(shard(text) == "refused");
  }
  {
    const Environment id("SLURM_ARRAY_TASK_ID", "12"), least("SLURM_ARRAY_TASK_MIN", "10"),
        count("SLURM_ARRAY_TASK_COUNT", "4"), step("SLURM_ARRAY_TASK_STEP", "1");
    CHECK(shard("slurm") == "2/4");
    const Environment gaps("SLURM_ARRAY_TASK_STEP", "2");
    CHECK(shard("slurm") == "refused");
  }
  {
    const Environment id("SLURM_ARRAY_TASK_ID", "14"), least("SLURM_ARRAY_TASK_MIN", "10"),
        count("SLURM_ARRAY_TASK_COUNT", "4");
    CHECK(shard("slurm") == "refused");
    const Environment words("SLURM_ARRAY_TASK_ID", "many");
    CHECK(shard("slurm") == "refused");
  }
  const Environment none("SLURM_ARRAY_TASK_ID", "");
  CHECK(shard("slurm") == "refused");
  {
    const Environment index("JOB_COMPLETION_INDEX", "3");
    CHECK(shard("kubernetes/4") == "3/4");
    CHECK(shard("kubernetes/3") == "refused");
  }
  const Environment unset("JOB_COMPLETION_INDEX", "");
  CHECK(shard("kubernetes/4") == "refused");
}
