// SPDX-License-Identifier: Apache-2.0
#include "bench/bench.hpp"

#include "check/test_problems.hpp"

using namespace hstu::jit;

TEST_CASE("statistics of run times") {
  const Summary none = summarize({});
  CHECK(none.runs == 0);
  CHECK(none.median == 0);
  const Summary one = summarize({3.5});
  CHECK(one.median == 3.5);
  CHECK(one.p10 == 3.5);
  CHECK(one.p90 == 3.5);
  // 0..10 in no order: the percentiles are the values themselves.
  const Summary eleven = summarize({10, 3, 1, 2, 9, 0, 4, 8, 5, 7, 6});
  CHECK(eleven.runs == 11);
  CHECK(eleven.median == Approx(5));
  CHECK(eleven.p10 == Approx(1));
  CHECK(eleven.p90 == Approx(9));
  CHECK(summarize({1, 2, 3, 4}).median == Approx(2.5));
}

TEST_CASE("work is counted by pairs") {
  Problem p;
  p.heads = 4;
  p.head_dim_qk = 128;
  p.head_dim_v = 64;
  p.batch = 2;
  p.uih_q = p.uih_kv = {3, 5};
  p.num_targets = {0, 0};
  const auto geometry = make_geometry(p);
  REQUIRE(geometry.ok());
  CHECK(dense_flops(p, *geometry) == 4.0 * 2 * 192 * (9 + 25));
  CHECK(useful_flops(p, *geometry) == 4.0 * 2 * 192 * (6 + 15));
  CHECK(io_bytes(p, *geometry) == 8.0 * 4 * 2 * (128 + 128 + 64 + 64));
  CHECK(tflops(2e12, 1000) == Approx(2));
  CHECK(tflops(2e12, 0) == 0);
}
