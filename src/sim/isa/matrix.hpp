// SPDX-License-Identifier: Apache-2.0
// Matrix units: D = A * B + C over the registers of a wave, EXEC ignored. Shapes are a table; where
// an element lives follows from one formula (see MatrixLayout), the arithmetic from one loop.
//
// Numbers: products of 16-bit and smaller floats are exact in single precision and are added to the
// accumulator one k after the other, k ascending, rounding to nearest even each time; products of
// f32 are fused with the addition. Hardware may add in another order and with other roundings.
#pragma once

#include <cstdint>
#include <string_view>

#include "sim/isa/instruction.hpp"
#include "sim/isa/lanes.hpp"

namespace hstu::jit::sim {

enum class Element : uint8_t { f64, f32, xf32, f16, bf16, fp8, bf8, fp6, bf6, fp4, i8, i4 };
int element_bits(Element element);

struct MatrixShape {
  const char* mnemonic;
  Element a, b;
  int m, n, k, blocks;
  int flops_per_clock[4];  // of a compute unit: gfx908, gfx90a, gfx942, gfx950; 0: has it not
};

// Where the lanes of a wave of 64 hold A (and B, with its column for the row): lane l has row l % m
// of block (l / m) % blocks and `per_lane` consecutive k from per_lane * (l / (m * blocks)) on.
// C and D: column l % n; rows go to the lane groups in packets of 4 (of 1 for f64), then to the
// next registers. Blocks follow each other in the registers, but for m = 4 in the lanes.
struct MatrixLayout {
  int m, k, blocks, per_lane;
  explicit MatrixLayout(const MatrixShape& s)
      : m(s.m), k(s.k), blocks(s.blocks), per_lane(s.m * s.k * s.blocks / 64) {}
  int row(int lane) const { return lane % m; }
  int block(int lane) const { return lane / m % blocks; }
  int first_k(int lane) const { return per_lane * (lane / (m * blocks)); }
};
struct AccumulatorPlace {
  int element, lane;  // element: register, or pair of registers for f64
};
AccumulatorPlace accumulator_place(const MatrixShape& shape, int block, int row, int column);

// Passes of 4 clocks that the matrix unit of a SIMD is busy with an instruction of the table.
uint32_t matrix_passes(const Opcode& opcode, uint32_t gfx);
uint32_t mfma_passes(int shape, uint32_t gfx);
uint32_t wmma_passes(int shape, uint32_t gfx);

// sum[i][0..columns) += a[k][i] * b[k][0..columns), k ascending; sums are the bits of floats, in
// the registers.
struct RowProduct {
  int rows, columns, k;
  uint32_t* const* sum;
  const float* a;  // [k][rows]
  const float* b;  // [k][columns]
};
void multiply_rows(const RowProduct& product, bool fused);

// The floats of one operand's register lanes: `element` number `at` within each lane.
// Elements of 16 bits and less are taken from the register that holds them.
void widen_lanes(Element element, const Row* const* registers, int at, bool fnuz, float* out);

}  // namespace hstu::jit::sim
