// SPDX-License-Identifier: Apache-2.0
// Test data, tolerances and comparison of a kernel's output with the reference.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "reference/reference.hpp"

namespace hstu::jit {

// Fills q, k, v from the problem's data section. normal: N(0,1); uniform: [-1, 1); streams of one
// seed differ per tensor unless same_qkv. files: raw little-endian, sizes checked.
Result<HostTensors> make_tensors(const Problem& problem, const Geometry& geometry);

uint16_t from_float(float value, Dtype dtype);  // round to nearest even
float to_float(uint16_t bits, Dtype dtype);

struct ToleranceSpec {
  bool ck = false;  // --ck-tolerance: 1e-5 + 1.6e-2 * |r|
};

struct Comparison {
  bool pass = false;
  int64_t checked = 0;      // elements of o (and lse)
  int64_t mismatches = 0;
  double max_abs = 0, max_rel = 0, rel_frobenius = 0;
  double frobenius_limit = 0;
  bool has_worst = false;
  std::array<int64_t, 4> worst_index{};  // b, i, h, d; d = -1: lse
  double worst_got = 0, worst_want = 0;
  std::string summary;      // one line for people
};

// `o` and `lse` laid out by the geometry's strides. Rows: all, or sampled per head with the boundary
// rows (first, last, region and tile edges) always. Runs on all cores.
Comparison compare(const Problem& problem, const Geometry& geometry, const HostTensors& tensors,
                   const std::vector<uint16_t>& o, const std::vector<float>& lse, int tile_m,
                   const ToleranceSpec& tolerance);

}  // namespace hstu::jit
