// SPDX-License-Identifier: Apache-2.0
// Small problems for the tests of the reference and of the comparison.
#pragma once

#include <vector>

#include "catch.hpp"
#include "check/check.hpp"

struct SmallProblem {
  hstu::jit::Problem problem;
  hstu::jit::Geometry geometry;
  hstu::jit::HostTensors tensors;

  // Derives geometry and data from the problem as it now is.
  void build() {
    auto made = hstu::jit::make_geometry(problem);
    INFO((made.ok() ? std::string() : made.error().message));
    REQUIRE(made.ok());
    geometry = *made;
    auto data = make_tensors(problem, geometry);
    REQUIRE(data.ok());
    tensors = *data;
  }
};

// Jagged, causal, window, context, min-full and targets; lengths of all kinds, the empty one too.
inline hstu::jit::Problem jagged_problem() {
  hstu::jit::Problem p;
  p.heads = 3;
  p.head_dim_qk = 24;
  p.head_dim_v = 16;
  p.batch = 4;
  p.uih_q = {37, 0, 1, 21};
  p.uih_kv = p.uih_q;
  p.num_targets = {5, 0, 2, 0};
  p.mask.local_len = 6;
  p.mask.context_len = 3;
  p.mask.minfull_len = 4;
  return p;
}

inline hstu::jit::Problem cross_problem() {
  hstu::jit::Problem p = jagged_problem();
  p.cross = true;
  p.uih_kv = {20, 5, 9, 40};  // shorter and longer than the queries
  p.mask.context_len = 0;
  p.mask.local_len = 0;
  return p;
}

inline hstu::jit::Problem batched_problem() {
  hstu::jit::Problem p = jagged_problem();
  p.layout = hstu::jit::Layout::batched;
  p.uih_q = p.uih_kv = {30, 30, 30, 30};
  return p;
}
