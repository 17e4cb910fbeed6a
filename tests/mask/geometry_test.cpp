// SPDX-License-Identifier: Apache-2.0
// visible_pairs() of a geometry against the closed form of causal self attention without context,
// and against the pairs themselves.
#include "spec/geometry.hpp"

#include "catch.hpp"
#include "mask_cases.hpp"

namespace {

using hstu::jit::Geometry;
using hstu::jit::Problem;

Problem problem_of(const std::vector<MaskCase>& cases) {
  Problem p;
  p.heads = 2;
  p.head_dim_qk = p.head_dim_v = 16;
  p.batch = static_cast<int64_t>(cases.size());
  for (const MaskCase& c : cases) {
    p.uih_q.push_back(c.uih_q);
    p.uih_kv.push_back(c.uih_kv);
    p.num_targets.push_back(c.targets);
  }
  p.cross = cases[0].cross;
  p.causal = cases[0].causal;
  p.mask.local_len = cases[0].local_len;
  p.mask.context_len = cases[0].context_len;
  p.mask.minfull_len = cases[0].minfull_len;
  return p;
}

int64_t closed_form(const MaskCase& c) {
  const int64_t u = c.uih_q, w = c.local_len;
  int64_t pairs = 0;
  for (int64_t i = 0; i < u; ++i) {
    const bool full = w == 0 || i >= u - c.minfull_len;
    pairs += full ? i + 1 : std::min(i + 1, w + 1);
  }
  const bool full = w == 0 || c.minfull_len > 0;
  return pairs + c.targets * ((full ? u : std::min(u, w)) + 1);
}

}  // namespace

TEST_CASE("visible_pairs is the closed form for causal self attention") {
  int64_t compared = 0, different = 0;
  for (int local : {0, 1, 5, 256})
    for (int minfull : {0, 3, 290})
      for (int targets : {0, 1, 20})
        for (int uih : {0, 1, 17, 310, 1004}) {
          const MaskCase c{true, false, local, 0, minfull, targets, uih, uih};
          const auto geometry = make_geometry(problem_of({c, c}));
          REQUIRE(geometry.ok());
          ++compared;
          if (visible_pairs(*geometry) != 2 * closed_form(c)) ++different;
        }
  CHECK(compared == 180);
  CHECK(different == 0);
}

TEST_CASE("visible_pairs counts the pairs") {
  for (bool cross : {false, true})
    for (bool causal : {false, true})
      for (int local : {0, 4})
        for (int minfull : {0, 5}) {
          std::vector<MaskCase> cases;
          for (int n : {0, 1, 6, 13})
            cases.push_back({causal, cross, local, 3, minfull, n % 4, n, cross ? 9 : n});
          const auto geometry = make_geometry(problem_of(cases));
          REQUIRE(geometry.ok());
          int64_t want = 0, dense = 0;
          for (const MaskCase& c : cases) {
            dense += int64_t{c.seqlen_q()} * c.seqlen_kv();
            for (int i = 0; i < c.seqlen_q(); ++i)
              for (int j = 0; j < c.seqlen_kv(); ++j) want += visible_by_ids(c, i, j);
          }
          INFO(cases[0].text());
          CHECK(visible_pairs(*geometry) == want);
          CHECK(dense_pairs(*geometry) == dense);
        }
}
