// SPDX-License-Identifier: Apache-2.0
#include "bench/bench.hpp"

#include <algorithm>

namespace hstu::jit {
namespace {

double percentile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

double flops_per_pair(const Problem& problem) {
  return 2.0 * problem.heads * (static_cast<double>(problem.head_dim_qk) + problem.head_dim_v);
}

}  // namespace

Summary summarize(std::vector<double> milliseconds) {
  if (milliseconds.empty()) return {};
  std::sort(milliseconds.begin(), milliseconds.end());
  return {percentile(milliseconds, 0.5), percentile(milliseconds, 0.1),
          percentile(milliseconds, 0.9), static_cast<int64_t>(milliseconds.size())};
}

double useful_flops(const Problem& problem, const Geometry& geometry) {
  return flops_per_pair(problem) * static_cast<double>(visible_pairs(geometry));
}

double dense_flops(const Problem& problem, const Geometry& geometry) {
  return flops_per_pair(problem) * static_cast<double>(dense_pairs(geometry));
}

double io_bytes(const Problem& problem, const Geometry& geometry) {
  const double per_head_q =
      2.0 * (problem.head_dim_qk + problem.head_dim_v) + (problem.writes_lse() ? 4 : 0);
  const double per_head_kv = 2.0 * (problem.head_dim_qk + problem.head_dim_v);
  return problem.heads * (per_head_q * static_cast<double>(geometry.tokens_q) +
                          per_head_kv * static_cast<double>(geometry.tokens_kv));
}

double tflops(double flops, double milliseconds) {
  return milliseconds > 0 ? flops / milliseconds / 1e9 : 0;
}

}  // namespace hstu::jit
