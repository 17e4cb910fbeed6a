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

// Fills q, k, v from the problem's data section, token by token in memory order. Elements between
// strides hold NaN, so that a kernel that reads them shows.
//   normal: N(0,1), uniform: [-1, 1), one std::mt19937 per tensor. q uses the seed itself, k and v
//   use seeds derived from it; with same_qkv all three use the seed, so equal shapes hold equal
//   bits. files: raw little-endian, dense.
// Errors: kSpec (with pointer) for a file whose size is not that of the dense tensor, kFailed for
// one that cannot be read, or when memory runs out.
Result<HostTensors> make_tensors(const Problem& problem, const Geometry& geometry);

// Round to nearest even; NaN stays NaN, overflow is infinite. No floating-point arithmetic, so the
// mode of the hardware has no say.
uint16_t from_float(float value, Dtype dtype);
float to_float(uint16_t bits, Dtype dtype);

// Element of o against reference r: |o - r| <= atol + rtol * |r|, with rtol = 2e-2 (bf16) or 4e-3
// (fp16) and atol = rtol * rms(r over its row), plus 2^-24 in fp16; a fully masked row is exactly
// 0. Over all elements: |o - r| / |r| (Frobenius) <= 5e-3 or 1e-3; in fp16 the first 2^-25 of a
// difference, which rounding to its smallest step may cost, do not count there.
// LSE: 1e-4 + 1e-4 * |r|, -infinity where the reference has it. NaN never passes.
struct ToleranceSpec {
  bool ck = false;  // --ck-tolerance: o and LSE by 1e-5 + 1.6e-2 * |r|, no Frobenius bound
};

struct Comparison {
  bool pass = false;
  int64_t checked = 0;     // elements of o (and lse)
  int64_t mismatches = 0;  // elements outside their own tolerance
  double max_abs = 0;      // of o; infinite if some difference is NaN
  double max_rel = 0;      // |o - r| / max(|r|, rms of the row)
  double rel_frobenius = 0;
  double frobenius_limit = 0;            // infinite: none
  bool has_worst = false;                // something was checked
  std::array<int64_t, 4> worst_index{};  // b, i, h, d of the largest error / tolerance; d = -1: lse
  double worst_got = 0, worst_want = 0;
  std::string summary;  // one line for people
};

// `o` and `lse` laid out by the geometry's strides; `lse` is looked at when the problem writes it.
// Rows: all, or those of rows_to_check(). Runs on all cores.
Comparison compare(const Problem& problem, const Geometry& geometry, const HostTensors& tensors,
                   const std::vector<uint16_t>& o, const std::vector<float>& lse, int tile_m,
                   const ToleranceSpec& tolerance);

// Query rows of sequence b to check for head h, ascending. All when validate.rows is 0; else
// validate.rows rows spread at random over all tokens of the head, and of every sequence the first
// and last row, both sides of each place where the mask changes its form (regions, wide rows,
// window edges), and the edges of tiles of tile_m rows, cut from the first row or, in groups of 64,
// from the last: of all, or of 16 that move with b and h.
std::vector<int32_t> rows_to_check(const Problem& problem, const Geometry& geometry, int64_t b,
                                   int32_t h, int tile_m);

// The whole reference output, rounded to the io dtype, laid out like the kernel's (NaN between
// strides). `lse` is empty unless the problem writes it. Errors: kFailed when memory runs out.
struct ReferenceOutput {
  std::vector<uint16_t> o;
  std::vector<float> lse;
};
Result<ReferenceOutput> reference_output(const Problem& problem, const Geometry& geometry,
                                         const HostTensors& tensors);

}  // namespace hstu::jit
