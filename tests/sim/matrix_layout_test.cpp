// SPDX-License-Identifier: Apache-2.0
// Where matrix elements live and how long matrix instructions take, against the lists of the ISA
// documents written out by hand, and the product loop against exact sums.
#include <cmath>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "catch.hpp"
#include "object/machine.hpp"
#include "sim/isa/matrix.hpp"
#include "sim/isa/tables.hpp"
#include "sim/machine.hpp"
#include "sim/tally.hpp"

namespace hstu::jit::sim {
namespace {

MatrixShape shape(Element element, int m, int k, int blocks) {
  return {"", element, element, m, m, k, blocks, {}};
}

TEST_CASE("simulator: accumulators of one 32 x 32 block") {
  const MatrixShape s = shape(Element::f16, 32, 8, 1);
  for (int r = 0; r < 16; ++r) {
    for (int lane = 0; lane < 64; ++lane) {
      const int row = 8 * (r / 4) + 4 * (lane / 32) + r % 4, column = lane % 32;
      const AccumulatorPlace place = accumulator_place(s, 0, row, column);
      CHECK(place.element == r);
      CHECK(place.lane == lane);
    }
  }
}

TEST_CASE("simulator: accumulators of 16 x 16 blocks, also of doubles") {
  for (int blocks : {1, 4}) {
    const MatrixShape s = shape(Element::f16, 16, 4, blocks);
    for (int block = 0; block < blocks; ++block) {
      for (int r = 0; r < 4; ++r) {
        for (int lane = 0; lane < 64; ++lane) {
          const AccumulatorPlace place =
              accumulator_place(s, block, 4 * (lane / 16) + r, lane % 16);
          CHECK(place.element == 4 * block + r);
          CHECK(place.lane == lane);
        }
      }
    }
  }
  // Doubles: the rows go round the lane groups one by one.
  const MatrixShape s = shape(Element::f64, 16, 4, 1);
  for (int r = 0; r < 4; ++r) {
    for (int lane = 0; lane < 64; ++lane) {
      const AccumulatorPlace place = accumulator_place(s, 0, 4 * r + lane / 16, lane % 16);
      CHECK(place.element == r);
      CHECK(place.lane == lane);
    }
  }
}

TEST_CASE("simulator: accumulators of 4 x 4 blocks") {
  const MatrixShape s = shape(Element::f16, 4, 4, 16);
  for (int r = 0; r < 4; ++r) {
    for (int lane = 0; lane < 64; ++lane) {
      const AccumulatorPlace place = accumulator_place(s, lane / 4, r, lane % 4);
      CHECK(place.element == r);
      CHECK(place.lane == lane);
    }
  }
  const MatrixShape doubles = shape(Element::f64, 4, 4, 4);
  for (int lane = 0; lane < 64; ++lane) {
    const AccumulatorPlace place = accumulator_place(doubles, lane / 4 % 4, lane / 16, lane % 4);
    CHECK(place.element == 0);
    CHECK(place.lane == lane);
  }
}

TEST_CASE("simulator: operands of matrix instructions") {
  struct Case {
    MatrixShape s;
    int per_lane, lane, row, block, first_k;
  };
  const Case cases[] = {
      {shape(Element::f16, 32, 8, 1), 4, 37, 5, 0, 4},
      {shape(Element::bf16, 32, 16, 1), 8, 37, 5, 0, 8},
      {shape(Element::f16, 16, 16, 1), 4, 37, 5, 0, 8},
      {shape(Element::f16, 16, 32, 1), 8, 53, 5, 0, 24},
      {shape(Element::bf16, 32, 4, 1), 2, 63, 31, 0, 2},
      {shape(Element::f32, 32, 1, 2), 1, 37, 5, 1, 0},
      {shape(Element::f32, 16, 4, 1), 1, 37, 5, 0, 2},
      {shape(Element::f16, 16, 4, 4), 4, 37, 5, 2, 0},
      {shape(Element::f16, 4, 4, 16), 4, 37, 1, 9, 0},
      {shape(Element::i8, 32, 16, 1), 8, 37, 5, 0, 8},
      {shape(Element::f64, 4, 4, 4), 1, 37, 1, 1, 2},
  };
  for (const Case& c : cases) {
    const MatrixLayout layout(c.s);
    CAPTURE(c.s.m, c.s.k, c.s.blocks);
    CHECK(layout.per_lane == c.per_lane);
    CHECK(layout.row(c.lane) == c.row);
    CHECK(layout.block(c.lane) == c.block);
    CHECK(layout.first_k(c.lane) == c.first_k);
  }
}

TEST_CASE("simulator: products add in the order of k, in single precision") {
  std::mt19937 random(7);
  const auto value = [&] { return static_cast<float>(static_cast<int>(random())) * 0x1p-31f; };
  for (const int columns : {4, 16, 32}) {
    for (const bool fused : {false, true}) {
      const int rows = columns, k = 8;
      const auto count = static_cast<size_t>(rows) * static_cast<size_t>(k);
      std::vector<float> a(count), b(count);
      for (float& x : a) x = value();
      for (float& x : b) x = value();
      std::vector<std::vector<uint32_t>> sums(static_cast<size_t>(rows));
      std::vector<uint32_t*> pointers;
      std::vector<std::vector<float>> want;
      for (int i = 0; i < rows; ++i) {
        want.emplace_back();
        for (int j = 0; j < columns; ++j) {
          float sum = value();
          sums[static_cast<size_t>(i)].push_back(to_bits(sum));
          for (int t = 0; t < k; ++t) {
            const float x = a[static_cast<size_t>(t * rows + i)];
            const float y = b[static_cast<size_t>(t * columns + j)];
            volatile float product = x * y;
            sum = fused ? std::fma(x, y, sum) : product + sum;
          }
          want.back().push_back(sum);
        }
        pointers.push_back(sums[static_cast<size_t>(i)].data());
      }
      multiply_rows({rows, columns, k, pointers.data(), a.data(), b.data()}, fused);
      int wrong = 0;
      for (size_t i = 0; i < sums.size(); ++i) {
        for (size_t j = 0; j < sums[i].size(); ++j) wrong += sums[i][j] != to_bits(want[i][j]);
      }
      CAPTURE(columns, fused);
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("simulator: passes of matrix instructions") {
  const auto passes = [](const char* name, uint32_t gfx) {
    return matrix_passes(*find_opcode(name), gfx);
  };
  CHECK(passes("v_mfma_f32_32x32x8f16", 0x908) == 16);
  CHECK(passes("v_mfma_f32_32x32x4bf16", 0x908) == 16);
  CHECK(passes("v_mfma_f32_32x32x8bf16_1k", 0x90a) == 16);
  CHECK(passes("v_mfma_f32_16x16x16f16", 0x90a) == 8);
  CHECK(passes("v_mfma_f32_32x32x2f32", 0x90a) == 16);
  CHECK(passes("v_mfma_f64_16x16x4f64", 0x90a) == 8);
  CHECK(passes("v_mfma_f32_4x4x4f16", 0x90a) == 2);
  CHECK(passes("v_mfma_f32_32x32x8_f16", 0x942) == 8);
  CHECK(passes("v_mfma_f32_16x16x16_bf16", 0x942) == 4);
  CHECK(passes("v_mfma_f32_32x32x16_bf16", 0x950) == 8);
  CHECK(passes("v_mfma_f32_16x16x32_f16", 0x950) == 4);
  CHECK(passes("v_wmma_f32_16x16x16_f16", 0x1100) == 8);
  CHECK(passes("v_wmma_f32_16x16x16_f16", 0x1201) == 4);
  CHECK(passes("v_mfma_f32_32x32x16_f16", 0x942) == 0);  // has it not
}

// Two tables from two sources: peak rates here, durations in the issue model.
TEST_CASE("simulator: passes of matrix instructions agree with the issue model") {
  for (const Machine& machine : machines()) {
    const auto model = object::find_machine(machine.target, {});
    REQUIRE(model.ok());
    int compared = 0;
    for (const Opcode& opcode : matrix_opcodes()) {
      const uint32_t passes = matrix_passes(opcode, machine.gfx);
      if (passes == 0) continue;
      INFO(std::string(machine.target) << " " << opcode.mnemonic);
      const auto clocks = object::matrix_clocks(*model, opcode.mnemonic);
      REQUIRE(clocks.has_value());
      CHECK(static_cast<uint32_t>(*clocks) == 4 * passes);
      ++compared;
    }
    CHECK(compared > 0);
  }
}

TEST_CASE("simulator: matrix instructions of unknown duration are counted apart") {
  const auto rates = object::find_machine("gfx942", {});
  REQUIRE(rates.ok());
  LaunchCounters c;
  add_clocks(c, *rates, "matrix", "v_mfma_f32_32x32x8_f16", 10);
  CHECK(c.matrix_passes == 80);
  CHECK(c.matrix_unknown == 0);
  CHECK(to_text(c, "gfx942").find("unknown") == std::string::npos);
  add_clocks(c, *rates, "matrix", "v_mfma_f32_64x64x99_f3", 7);
  add_clocks(c, *rates, "matrix", "v_smfmac_f32_1x1x1_f3", 1);
  CHECK(c.matrix_passes == 80);
  CHECK(c.matrix_unknown == 8);
  CHECK(c.first_unknown == "v_mfma_f32_64x64x99_f3");
  for (const std::string& report : {to_text(c, "gfx942"), bound_of(c, "gfx942").arithmetic}) {
    CHECK(report.find("8 instructions") != std::string::npos);
    CHECK(report.find("v_mfma_f32_64x64x99_f3") != std::string::npos);
  }
  CHECK(to_json(c, "gfx942").find("\"matrix_unknown\": 8") != std::string::npos);
}

}  // namespace
}  // namespace hstu::jit::sim
