// SPDX-License-Identifier: Apache-2.0
#include "reference/reference.hpp"

#include <cmath>
#include <limits>

#include "catch.hpp"
#include "check/test_problems.hpp"
#include "reference/rows.hpp"

using namespace hstu::jit;
using hstu::Activation;
using hstu::Dtype;

namespace {

// Four tokens (the last a target) of two dimensions (and six of zeros), window 1: rows 1000, 1100,
// 0110, 0011.
SmallProblem worked_example(Activation activation) {
  SmallProblem s;
  Problem& p = s.problem;
  p.heads = 1;
  p.head_dim_qk = p.head_dim_v = 8;
  p.alpha = 1 / std::sqrt(2.0);
  p.batch = 1;
  p.uih_q = p.uih_kv = {3};
  p.num_targets = {1};
  p.mask.local_len = 1;
  p.activation = activation;
  p.training = activation == Activation::softmax;
  s.build();
  const auto bits = [](std::initializer_list<float> values) {
    std::vector<uint16_t> out;
    for (float value : values) {
      out.push_back(from_float(value, Dtype::bf16));
      if (out.size() % 8 == 2) out.resize(out.size() + 6, 0);
    }
    return out;
  };
  s.tensors = {bits({1, 0, 0, 1, 1, 1, 1, -1}), bits({1, .5, -1, 2, .5, .5, 2, 1}),
               bits({1, 10, 2, 20, 3, 30, 4, 40})};
  return s;
}

double silu(double s) { return s / (1 + std::exp(-s)); }

// Largest difference between two rows, relative to the row's largest value; NaN if any is.
double difference(const ReferenceRow& a, const ReferenceRow& b) {
  double largest = 0, scale = 1e-300;
  for (size_t d = 0; d < a.o.size(); ++d) {
    largest = std::max(largest, std::fabs(a.o[d] - b.o[d]));
    scale = std::max(scale, std::fabs(a.o[d]));
    if (std::isnan(a.o[d] - b.o[d])) return a.o[d] - b.o[d];
  }
  return largest / scale;
}

}  // namespace

TEST_CASE("16-bit values are read exactly") {
  CHECK(to_double(0x3c00, Dtype::fp16) == 1.0);
  CHECK(to_double(0xc500, Dtype::fp16) == -5.0);
  CHECK(to_double(0x0001, Dtype::fp16) == 0x1p-24);
  CHECK(to_double(0x7bff, Dtype::fp16) == 65504.0);
  CHECK(to_double(0xfc00, Dtype::fp16) == -std::numeric_limits<double>::infinity());
  CHECK(std::isnan(to_double(0x7c01, Dtype::fp16)));
  CHECK(to_double(0x3f80, Dtype::bf16) == 1.0);
  CHECK(to_double(0xc0a0, Dtype::bf16) == -5.0);
  CHECK(to_double(0x0001, Dtype::bf16) == 0x1p-133);
  CHECK(std::isnan(to_double(0x7f81, Dtype::bf16)));
}

TEST_CASE("the worked example, SiLU") {
  const SmallProblem s = worked_example(Activation::silu);
  // Published values, whose weights and results were rounded to bf16 (2^-8 each).
  const double published[4][2] = {
      {.1181640625, 1.1796875}, {.62109375, 6.21875}, {.58984375, 5.90625}, {.47265625, 4.71875}};
  // The same by hand, unrounded: dot products of the visible keys are 1; .5, 2; 1, 1; 0, 1.
  const double a = 1 / std::sqrt(2.0);
  const double exact[4] = {silu(a) / 4, (silu(.5 * a) + 2 * silu(2 * a)) / 4,
                           (2 * silu(a) + 3 * silu(a)) / 4, 4 * silu(a) / 4};
  for (int i = 0; i < 4; ++i) {
    const ReferenceRow row = reference_row(s.problem, s.geometry, s.tensors, 0, i, 0);
    REQUIRE(row.o.size() == 8);
    for (int d = 0; d < 2; ++d) {
      CHECK(row.o[d] == Approx(published[i][d]).epsilon(0x1p-7));
      CHECK(row.o[d] == Approx(exact[i] * (d == 0 ? 1 : 10)).epsilon(1e-7));  // alpha is fp32
    }
  }
}

TEST_CASE("the worked example, softmax") {
  const SmallProblem s = worked_example(Activation::softmax);
  const double lse[4] = {.7071068, 1.7115195, 1.4002539, 1.1079403};
  const double published[4][2] = {{1, 10}, {1.7421875, 17.375}, {2.5, 25}, {3.65625, 36.5}};
  // By hand: two keys with dot products .5, 2; 1, 1; 0, 1 after the first row.
  const double a = 1 / std::sqrt(2.0);
  const auto mix = [](double s0, double s1, double v0, double v1) {
    return (std::exp(s0) * v0 + std::exp(s1) * v1) / (std::exp(s0) + std::exp(s1));
  };
  const double exact[4] = {1, mix(.5 * a, 2 * a, 1, 2), 2.5, mix(0, a, 3, 4)};
  for (int i = 0; i < 4; ++i) {
    const ReferenceRow row = reference_row(s.problem, s.geometry, s.tensors, 0, i, 0);
    CHECK(row.lse == Approx(lse[i]).epsilon(1e-6));
    for (int d = 0; d < 2; ++d) {
      CHECK(row.o[d] == Approx(published[i][d]).epsilon(0x1p-7));
      CHECK(row.o[d] == Approx(exact[i] * (d == 0 ? 1 : 10)).epsilon(1e-7));
    }
  }
}

TEST_CASE("attn_scale multiplies in both modes, and leaves LSE alone") {
  const auto activation = GENERATE(Activation::silu, Activation::softmax);
  SmallProblem s;
  s.problem = jagged_problem();
  s.problem.activation = activation;
  s.problem.training = activation == Activation::softmax;
  s.problem.attn_scale = 1;
  s.build();
  const ReferenceRow one = reference_row(s.problem, s.geometry, s.tensors, 0, 20, 1);
  s.problem.attn_scale = 0.125;
  s.build();
  const ReferenceRow eighth = reference_row(s.problem, s.geometry, s.tensors, 0, 20, 1);
  for (size_t d = 0; d < one.o.size(); ++d) CHECK(eighth.o[d] == Approx(one.o[d] / 8));
  if (activation == Activation::softmax) {
    CHECK(eighth.lse == one.lse);
    s.problem.attn_scale = 0;  // unset: 1
    s.build();
    const ReferenceRow unset = reference_row(s.problem, s.geometry, s.tensors, 0, 20, 1);
    CHECK(unset.o == one.o);
  }
}

TEST_CASE("a fully masked row is zero with LSE -infinity") {
  const auto activation = GENERATE(Activation::silu, Activation::softmax);
  SmallProblem s;
  s.problem = cross_problem();
  s.problem.activation = activation;
  s.problem.training = true;
  s.build();
  // Sequence 0: 37 queries before the targets, 20 keys: the first 17 rows see nothing.
  for (int i : {0, 16}) {
    const ReferenceRow row = reference_row(s.problem, s.geometry, s.tensors, 0, i, 0);
    CHECK(row.o == std::vector<double>(16, 0.0));
    CHECK(row.lse == -std::numeric_limits<double>::infinity());
    const std::vector<int32_t> rows{i};
    ReferenceRows fast(s.problem, s.geometry, s.tensors, 0, 0, rows);
    CHECK(fast.row(i).o == row.o);
    CHECK(fast.row(i).lse == row.lse);
  }
  const ReferenceRow row = reference_row(s.problem, s.geometry, s.tensors, 0, 17, 0);
  CHECK(row.o[0] != 0);
}

TEST_CASE("a masked infinity or NaN does not show") {
  SmallProblem s;
  s.problem = jagged_problem();
  s.build();
  const ReferenceRow before = reference_row(s.problem, s.geometry, s.tensors, 0, 20, 1);
  const int64_t k = key_offset(s.geometry, s.geometry.k, 0, 21, 1);
  const int64_t v = key_offset(s.geometry, s.geometry.v, 0, 21, 1);
  s.tensors.k[k] = 0x7f80;
  s.tensors.v[v] = 0x7fff;
  CHECK(reference_row(s.problem, s.geometry, s.tensors, 0, 20, 1).o == before.o);
  const std::vector<int32_t> rows{20, 21};
  ReferenceRows fast(s.problem, s.geometry, s.tensors, 0, 1, rows);
  CHECK(difference(before, fast.row(20)) < 1e-12);
  CHECK(std::isnan(fast.row(21).o[0]));
}

TEST_CASE("the fast rows are the readable rows") {
  std::vector<Problem> problems{jagged_problem(), batched_problem(), cross_problem()};
  Problem wide_open = jagged_problem();
  wide_open.causal = false;
  wide_open.mask = {};
  problems.push_back(wide_open);
  Problem windowed_cross = cross_problem();
  windowed_cross.mask = {4, 2, 3, 0, 0};
  windowed_cross.causal = false;
  problems.push_back(windowed_cross);
  Problem grouped = jagged_problem();
  grouped.groups = {{2, 5, 1, 0, 0}, {0, 1, 0, 0.25, 0}};
  problems.push_back(grouped);
  Problem strided = batched_problem();
  strided.q_strides = StrideSpec{8000, 160, 30};
  strided.k_strides = StrideSpec{20000, 200, 64};
  problems.push_back(strided);
  int64_t compared = 0;
  for (const Problem& problem : problems)
    for (Dtype dtype : {Dtype::fp16, Dtype::bf16})
      for (Activation activation : {Activation::silu, Activation::softmax}) {
        SmallProblem s;
        s.problem = problem;
        s.problem.dtype = dtype;
        s.problem.activation = activation;
        s.problem.training = activation == Activation::softmax;
        s.build();
        double worst = 0;
        for (int64_t b = 0; b < s.problem.batch; ++b)
          for (int32_t h = 0; h < s.problem.heads; ++h) {
            const std::vector<int32_t> rows = rows_to_check(s.problem, s.geometry, b, h, 0);
            REQUIRE(static_cast<int32_t>(rows.size()) == s.geometry.sequences[b].seqlen_q);
            ReferenceRows fast(s.problem, s.geometry, s.tensors, b, h, rows);
            for (int32_t i : rows) {
              const ReferenceRow want = reference_row(s.problem, s.geometry, s.tensors, b, i, h);
              const ReferenceRow& got = fast.row(i);
              const double here = difference(want, got);
              if (!(here <= worst)) worst = here;
              if (activation == Activation::softmax && want.lse != got.lse &&
                  !(std::fabs(want.lse - got.lse) < 1e-12))
                worst = 1;
              ++compared;
            }
          }
        CHECK(worst < 1e-12);
      }
  CHECK(compared > 1000);
}
