// SPDX-License-Identifier: Apache-2.0
// Timing statistics, FLOP and byte accounting.
#pragma once

#include <cstdint>
#include <vector>

#include "spec/geometry.hpp"
#include "spec/problem.hpp"

namespace hstu::jit {

// Of run times in milliseconds. Percentiles interpolate linearly between the sorted times; all
// zero without runs.
struct Summary {
  double median = 0, p10 = 0, p90 = 0;
  int64_t runs = 0;
};
Summary summarize(std::vector<double> milliseconds);

// FLOP of the two matrix products, all heads: 2 * (head_dim_qk + head_dim_v) per pair. Useful: the
// pairs the mask keeps. Dense: all pairs of physical lengths, as if there were no mask.
double useful_flops(const Problem& problem, const Geometry& geometry);
double dense_flops(const Problem& problem, const Geometry& geometry);

// Bytes of q, k, v read once and of o (and lse) written once.
double io_bytes(const Problem& problem, const Geometry& geometry);

// 0 when no time passed.
double tflops(double flops, double milliseconds);

}  // namespace hstu::jit
