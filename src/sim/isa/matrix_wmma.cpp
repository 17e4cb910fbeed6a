// SPDX-License-Identifier: Apache-2.0
// WMMA of gfx11 and gfx12, waves of 32: D = A * B + C, 16x16x16 (or x32).
//   gfx11: A has row l % 16 and every k in each lane; both halves of the wave must hold the same.
//          C and D: register r of lane l is row 2r + l / 16, column l % 16; 16-bit accumulators lie
//          in the half that op_sel bit 2 names.
//   gfx12: A has row l % 16, k from (k / 2) * (l / 16) on. C and D: row 8 * (l / 16) + r; 16-bit
//          accumulators are packed, two rows to a register.
// 16-bit accumulators are summed in single precision and rounded once.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "sim/isa/matrix.hpp"
#include "sim/isa/vector_tables.hpp"

namespace hstu::jit::sim {
namespace {

using enum Element;

enum class Accumulator { f32, f16, bf16, i32 };
struct Shape {
  const char* mnemonic;
  Element a, b;
  Accumulator accumulator;
  int k;
  int clocks11, clocks12;  // of the SIMD; 0: has it not
};
constexpr Shape kShapes[] = {
    {"v_wmma_f32_16x16x16_f16", f16, f16, Accumulator::f32, 16, 32, 16},
    {"v_wmma_f32_16x16x16_bf16", bf16, bf16, Accumulator::f32, 16, 32, 16},
    {"v_wmma_f16_16x16x16_f16", f16, f16, Accumulator::f16, 16, 32, 16},
    {"v_wmma_bf16_16x16x16_bf16", bf16, bf16, Accumulator::bf16, 16, 32, 16},
    {"v_wmma_i32_16x16x16_iu8", i8, i8, Accumulator::i32, 16, 32, 8},
    {"v_wmma_i32_16x16x16_iu4", i4, i4, Accumulator::i32, 16, 16, 8},
    {"v_wmma_i32_16x16x32_iu4", i4, i4, Accumulator::i32, 32, 0, 8},
    {"v_wmma_f32_16x16x16_fp8_fp8", fp8, fp8, Accumulator::f32, 16, 0, 8},
    {"v_wmma_f32_16x16x16_fp8_bf8", fp8, bf8, Accumulator::f32, 16, 0, 8},
    {"v_wmma_f32_16x16x16_bf8_fp8", bf8, fp8, Accumulator::f32, 16, 0, 8},
    {"v_wmma_f32_16x16x16_bf8_bf8", bf8, bf8, Accumulator::f32, 16, 0, 8},
};

constexpr int kSide = 16, kMostK = 32;

struct Form {
  const Shape& shape;
  bool gfx11;
  int input_registers, sum_registers, per_lane;
};

bool is_wide(Accumulator a) { return a == Accumulator::f32 || a == Accumulator::i32; }

bool fits(Wave& wave, const Instruction& i, const Form& form) {
  if ((form.gfx11 ? form.shape.clocks11 : form.shape.clocks12) == 0 || wave.machine().cdna()) {
    wave.fail("this target has no such matrix instruction");
    return false;
  }
  if (wave.width() != 32) {
    wave.fail("WMMA is simulated for waves of 32 lanes only");
    return false;
  }
  const int needed[] = {form.sum_registers, form.input_registers, form.input_registers,
                        form.sum_registers};
  for (int o = 0; o < 4; ++o) {
    const Operand& operand = i.operand[o];
    const bool accumulator_constant = o == 3 && operand.kind == OperandKind::constant;
    const bool vector = operand.kind == OperandKind::vector && operand.registers == needed[o];
    if (i.operands == 4 && (accumulator_constant || vector)) continue;
    wave.fail(fmt::format("operand {} should be {} vector registers", o + 1, needed[o]));
    return false;
  }
  return true;
}

// On gfx11 lanes 16 to 31 repeat lanes 0 to 15.
bool repeats(Wave& wave, const Operand& o, int registers) {
  for (int r = 0; r < registers; ++r) {
    const Row& row = wave.claim_source(o, r, wave.all_lanes());
    for (int l = 0; l < kSide; ++l) {
      if (row.lane[l] == row.lane[l + kSide]) continue;
      wave.fail(fmt::format("WMMA operand {}: register {} of lane {} differs from lane {}; both "
                            "halves of the wave must hold the same",
                            wave.origin(o), r, l + kSide, l),
                l + kSide);
      return false;
    }
  }
  return true;
}

// One element of A or B: the register lane it is in, as lane and place within the lane.
struct Place {
  int lane, at;
};
Place input_place(const Form& form, int row, int k) {
  if (form.gfx11) return {row, k};
  return {row + kSide * (k / form.per_lane), k % form.per_lane};
}
struct SumPlace {
  int element, lane;
};
SumPlace sum_place(const Form& form, int row, int column) {
  if (form.gfx11) return {row / 2, column + kSide * (row % 2)};
  return {row % 8, column + kSide * (row / 8)};
}

// [k][row], as floats. neg_lo negates the even elements, neg_hi the odd ones.
void widen(Wave& wave, const Form& form, const Instruction& i, int operand, Element element,
           float* out) {
  const Operand& o = i.operand[operand];
  const Row* registers[8];
  for (int r = 0; r < form.input_registers; ++r) {
    registers[r] = &wave.claim_source(o, r, wave.all_lanes());
  }
  const bool negate[2] = {(i.modifiers.neg_lo >> (operand - 1) & 1) != 0,
                          (i.modifiers.neg_hi >> (operand - 1) & 1) != 0};
  for (int at = 0; at < form.per_lane; ++at) {
    float lanes[kMaxLanes];
    widen_lanes(element, registers, at, false, lanes);
    if (negate[at % 2]) {
      for (float& x : lanes) x = -x;
    }
    for (int k = at; k < form.shape.k; k += form.per_lane) {
      const Place place = input_place(form, 0, k);
      std::memcpy(out + k * kSide, lanes + place.lane, kSide * sizeof(float));
    }
  }
}

// Where a row of C and D begins: 16 lanes of a register, 32 bits each or one half of them.
struct RowPlace {
  int register_number, lane;
  u32 shift;
};
RowPlace row_place(const Form& form, const Modifiers& m, int row) {
  const SumPlace place = sum_place(form, row, 0);
  if (is_wide(form.shape.accumulator)) return {place.element, place.lane, 0};
  if (form.gfx11) return {place.element, place.lane, m.op_sel >> 2 & 1 ? 16u : 0u};
  return {place.element / 2, place.lane, 16u * static_cast<u32>(place.element % 2)};
}

void wmma_float(Wave& wave, const Instruction& i, const Form& form) {
  const Accumulator kind = form.shape.accumulator;
  alignas(64) float a[kMostK * kSide], b[kMostK * kSide];
  widen(wave, form, i, 1, form.shape.a, a);
  widen(wave, form, i, 2, form.shape.b, b);
  const Modifiers& m = i.modifiers;
  const Operand &d = i.operand[0], &c = i.operand[3];
  // All rows of C as bits of floats.
  alignas(64) u32 sums[kSide][kSide];
  u32* rows[kSide];
  for (int row = 0; row < kSide; ++row) {
    rows[row] = sums[row];
    const RowPlace place = row_place(form, m, row);
    if (c.kind == OperandKind::constant) {
      std::fill(rows[row], rows[row] + kSide, static_cast<u32>(c.bits));
    } else {
      const Row& from = wave.claim_source(c, place.register_number, wave.all_lanes());
      std::copy_n(from.lane + place.lane, kSide, rows[row]);
    }
    const u32 shift = c.kind == OperandKind::constant ? 0 : place.shift;
    for (u32& x : sums[row]) {
      if (kind == Accumulator::f16) x = to_bits(f16_to_f32(x >> shift & 0xffff));
      if (kind == Accumulator::bf16) x = to_bits(bf16_to_f32(x >> shift & 0xffff));
      if (m.neg_hi >> 2 & 1) x &= 0x7fffffffu;  // of the addend this means abs
      if (m.neg_lo >> 2 & 1) x ^= 0x80000000u;
    }
  }
  multiply_rows({kSide, kSide, form.shape.k, rows, a, b}, false);
  for (int row = 0; row < kSide; ++row) {
    const RowPlace place = row_place(form, m, row);
    u32* to = wave.claim_row(d, place.register_number, wave.all_lanes()).lane + place.lane;
    if (kind == Accumulator::f32) {
      std::copy_n(rows[row], kSide, to);
      continue;
    }
    for (int n = 0; n < kSide; ++n) {
      const float x = to_float(sums[row][n]);
      const u32 half = kind == Accumulator::f16 ? f32_to_f16(x) : f32_to_bf16(x);
      to[n] = (to[n] & ~(0xffffu << place.shift)) | half << place.shift;
    }
  }
}

// neg_lo says that A (bit 0) or B (bit 1) is signed.
void wmma_integer(Wave& wave, const Instruction& i, const Form& form) {
  const int bits = element_bits(form.shape.a);
  const auto element = [&](int operand, int row, int k) -> i32 {
    const Place place = input_place(form, row, k);
    const int first = place.at * bits;
    const Row& from = wave.claim_source(i.operand[operand], first / 32, wave.all_lanes());
    const u32 top = from.lane[place.lane] << (32 - bits - first % 32);
    const bool is_signed = i.modifiers.neg_lo >> (operand - 1) & 1;
    return is_signed ? static_cast<i32>(top) >> (32 - bits) : static_cast<i32>(top >> (32 - bits));
  };
  i64 sums[kSide][kSide];
  const Operand &d = i.operand[0], &c = i.operand[3];
  for (int row = 0; row < kSide; ++row) {
    for (int n = 0; n < kSide; ++n) {
      const SumPlace place = sum_place(form, row, n);
      u32 addend = static_cast<u32>(c.bits);
      if (c.kind != OperandKind::constant) {
        addend = wave.claim_source(c, place.element, wave.all_lanes()).lane[place.lane];
      }
      i64 sum = static_cast<i32>(addend);
      for (int k = 0; k < form.shape.k; ++k) sum += i64{element(1, row, k)} * element(2, n, k);
      if (i.modifiers.clamp) sum = std::clamp<i64>(sum, INT32_MIN, INT32_MAX);
      sums[row][n] = sum;
    }
  }
  for (int row = 0; row < kSide; ++row) {
    for (int n = 0; n < kSide; ++n) {
      const SumPlace place = sum_place(form, row, n);
      wave.claim_row(d, place.element, wave.all_lanes()).lane[place.lane] =
          static_cast<u32>(sums[row][n]);
    }
  }
}

void wmma(Wave& wave, const Instruction& i) {
  const Shape& shape = kShapes[i.opcode->argument];
  const bool gfx11 = wave.gfx() < 0x1200;
  const int bits = element_bits(shape.a), per_lane = gfx11 ? shape.k : shape.k / 2;
  const Form form{shape, gfx11, per_lane * bits / 32, is_wide(shape.accumulator) || gfx11 ? 8 : 4,
                  per_lane};
  if (!fits(wave, i, form)) return;
  if (gfx11 && !(repeats(wave, i.operand[1], form.input_registers) &&
                 repeats(wave, i.operand[2], form.input_registers))) {
    return;
  }
  if (shape.accumulator == Accumulator::i32) {
    wmma_integer(wave, i, form);
  } else {
    wmma_float(wave, i, form);
  }
}

std::vector<Opcode> lines() {
  std::vector<Opcode> all;
  for (size_t index = 0; index < std::size(kShapes); ++index) {
    const Shape& s = kShapes[index];
    const ConstantType constants = s.accumulator == Accumulator::f32    ? ConstantType::f32
                                   : s.accumulator == Accumulator::f16  ? ConstantType::f16
                                   : s.accumulator == Accumulator::bf16 ? ConstantType::bf16
                                                                        : ConstantType::b32;
    all.push_back({s.mnemonic, wmma, OpClass::matrix, constants, static_cast<int16_t>(index)});
  }
  return all;
}

}  // namespace

std::span<const Opcode> wmma_opcodes() {
  static const std::vector<Opcode> kLines = lines();
  return kLines;
}

uint32_t wmma_passes(int shape, uint32_t gfx) {
  if (gfx < 0x1100) return 0;
  const int clocks = gfx < 0x1200 ? kShapes[shape].clocks11 : kShapes[shape].clocks12;
  return static_cast<uint32_t>(clocks / 4);
}

}  // namespace hstu::jit::sim
