// SPDX-License-Identifier: Apache-2.0
// The manifests that ship with the library: they expand, on every target that they name, into
// kernels that exist, and the suites' one has every kernel of the shipped test specs.
#include <filesystem>
#include <map>
#include <set>

#include "spec/parse.hpp"
#include "support.hpp"

using namespace hstu::jit;
using namespace hstu::jit::test;
namespace fs = std::filesystem;

namespace {

const std::vector<std::string> kFleet{"gfx90a", "gfx942", "sm_90a"};
const std::vector<std::string> kMore{"gfx908", "gfx950", "gfx1100", "gfx1201", "sm_80", "cpu"};

Manifest shipped(const std::string& name) {
  Result<Manifest> manifest = load_manifest(HSTU_MANIFESTS "/" + name);
  if (!manifest) FAIL(manifest.error().message);
  return std::move(*manifest);
}

}  // namespace

TEST_CASE("shipped manifests expand on every target without refusals") {
  for (const char* name : {"ranking.json", "retrieval.json", "ck-suites.json"}) {
    INFO(name);
    const Manifest m = shipped(name);
    CHECK(m.targets == kFleet);
    CHECK(m.warnings.empty());
    const JobList list = expanded(m);
    CHECK(list.refused.empty());
    // The same kernels for each target, but that sm_90a has others for narrow windows: beside those
    // for wide ones or in their place.
    std::map<std::string, size_t> of;
    size_t narrow = 0;
    for (const KernelJob& job : list.jobs) {
      ++of[job.target.name];
      narrow += job.entry.find("n80w") != std::string::npos;
    }
    const size_t of_first = of[kFleet.front()];
    CHECK(of_first > 0);
    CHECK(of["gfx942"] == of_first);
    CHECK(of["sm_90a"] >= of_first);
    CHECK(of["sm_90a"] - narrow <= of_first);
    const JobList more = expanded(m, kMore);
    CHECK(more.refused.empty());
    CHECK(more.jobs.size() >= of_first * kMore.size() / 2);
  }
}

TEST_CASE("the serving manifests begin with the usual case, and stay small") {
  for (const char* name : {"ranking.json", "retrieval.json"}) {
    const JobList list = expanded(shipped(name), {"gfx942"});
    CHECK(list.jobs.size() >= 20);
    CHECK(list.jobs.size() <= 64);
    CHECK(list.jobs.front().problem.head_dim_qk == 128);
    CHECK(list.jobs.front().problem.causal);
  }
}

TEST_CASE("the suites' manifest has every kernel of the shipped specs") {
  const JobList list = expanded(shipped("ck-suites.json"), {"gfx942"});
  std::set<std::string> known;
  for (const KernelJob& job : list.jobs) known.insert(job.request);
  size_t files = 0;
  for (const char* folder : {HSTU_TEST_DATA "/specs", HSTU_TEST_DATA "/specs/large"}) {
    for (const auto& e : fs::directory_iterator(folder)) {
      if (e.path().extension() != ".json" || e.path().stem() == "quickstart") continue;
      ++files;
      INFO(e.path());
      const JobList suite = expanded(good(manifest_of(R"({"file": ")" + e.path().string() + "\"}"),
                                          {{e.path().string(), *read_file(e.path())}}),
                                     {"gfx942"});
      CHECK(suite.refused.empty());
      for (const KernelJob& job : suite.jobs) {
        INFO(job.askers.front().label << ": " << job.entry);
        CHECK(known.count(job.request) == 1);
      }
    }
  }
  CHECK(files > 20);
}
