// SPDX-License-Identifier: Apache-2.0
// Double-precision reference of the attention operator, written for reading, not for speed.
// rows.hpp computes the same rows fast enough to validate whole problems.
#pragma once

#include <cstdint>
#include <vector>

#include "spec/geometry.hpp"
#include "spec/problem.hpp"

namespace hstu::jit {

// Inputs as 16-bit storage, laid out by the geometry's strides.
struct HostTensors {
  std::vector<uint16_t> q, k, v;
};

// One output row (all head_dim_v values) and, under softmax with training, its LSE.
struct ReferenceRow {
  std::vector<double> o;
  double lse = 0;
};

double to_double(uint16_t bits, Dtype dtype);

// Element index of token i of sequence b, head h, first dimension: in a tensor of the query side
// (q, o, lse) or of the key side (k, v), given that tensor's strides.
int64_t query_offset(const Geometry& geometry, const Strides& strides, int64_t b, int64_t i,
                     int64_t h);
int64_t key_offset(const Geometry& geometry, const Strides& strides, int64_t b, int64_t j,
                   int64_t h);

// Row i of sequence b, head h. Exact in double: no intermediate rounding. A fully masked row gives
// o = 0 and lse = -infinity. Formula: s = alpha * q.k; SiLU: o = attn_scale * sum s*sigmoid(s)*v;
// softmax: o = attn_scale * sum softmax(s)*v, lse = log(sum exp(s)).
ReferenceRow reference_row(const Problem& problem, const Geometry& geometry,
                           const HostTensors& tensors, int64_t b, int32_t i, int32_t h);

}  // namespace hstu::jit
