// SPDX-License-Identifier: Apache-2.0
// MFMA of gfx908 to gfx950.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "sim/isa/matrix.hpp"
#include "sim/isa/vector_tables.hpp"

namespace hstu::jit::sim {
namespace {

using enum Element;

// What the gfx90a and gfx942 spellings of one instruction share. Rates per clock and compute unit
// are those of AMD's data sheets; those of gfx908 hold for gfx90a's older bf16 forms too.
constexpr MatrixShape kShapes[] = {
    // mnemonic, A, B, m, n, k, blocks, FLOP per clock of gfx908, gfx90a, gfx942, gfx950
    {"v_mfma_f32_32x32x1f32", f32, f32, 32, 32, 1, 2, {256, 256, 0, 0}},
    {"v_mfma_f32_16x16x1f32", f32, f32, 16, 16, 1, 4, {256, 256, 0, 0}},
    {"v_mfma_f32_4x4x1f32", f32, f32, 4, 4, 1, 16, {256, 256, 0, 0}},
    {"v_mfma_f32_32x32x2f32", f32, f32, 32, 32, 2, 1, {256, 256, 0, 0}},
    {"v_mfma_f32_16x16x4f32", f32, f32, 16, 16, 4, 1, {256, 256, 0, 0}},
    {"v_mfma_f32_32x32x1_2b_f32", f32, f32, 32, 32, 1, 2, {0, 0, 256, 256}},
    {"v_mfma_f32_16x16x1_4b_f32", f32, f32, 16, 16, 1, 4, {0, 0, 256, 256}},
    {"v_mfma_f32_4x4x1_16b_f32", f32, f32, 4, 4, 1, 16, {0, 0, 256, 256}},
    {"v_mfma_f32_32x32x2_f32", f32, f32, 32, 32, 2, 1, {0, 0, 256, 256}},
    {"v_mfma_f32_16x16x4_f32", f32, f32, 16, 16, 4, 1, {0, 0, 256, 256}},
    {"v_mfma_f32_16x16x8_xf32", xf32, xf32, 16, 16, 8, 1, {0, 0, 1024, 0}},
    {"v_mfma_f32_32x32x4_xf32", xf32, xf32, 32, 32, 4, 1, {0, 0, 1024, 0}},
    {"v_mfma_f32_16x16x8xf32", xf32, xf32, 16, 16, 8, 1, {0, 0, 1024, 0}},
    {"v_mfma_f32_32x32x4xf32", xf32, xf32, 32, 32, 4, 1, {0, 0, 1024, 0}},

    {"v_mfma_f32_32x32x4f16", f16, f16, 32, 32, 4, 2, {1024, 1024, 0, 0}},
    {"v_mfma_f32_16x16x4f16", f16, f16, 16, 16, 4, 4, {1024, 1024, 0, 0}},
    {"v_mfma_f32_4x4x4f16", f16, f16, 4, 4, 4, 16, {1024, 1024, 0, 0}},
    {"v_mfma_f32_32x32x8f16", f16, f16, 32, 32, 8, 1, {1024, 1024, 0, 0}},
    {"v_mfma_f32_16x16x16f16", f16, f16, 16, 16, 16, 1, {1024, 1024, 0, 0}},
    {"v_mfma_f32_32x32x4_2b_f16", f16, f16, 32, 32, 4, 2, {0, 0, 1024, 1024}},
    {"v_mfma_f32_16x16x4_4b_f16", f16, f16, 16, 16, 4, 4, {0, 0, 1024, 1024}},
    {"v_mfma_f32_4x4x4_16b_f16", f16, f16, 4, 4, 4, 16, {0, 0, 1024, 1024}},
    {"v_mfma_f32_32x32x8_f16", f16, f16, 32, 32, 8, 1, {0, 0, 2048, 2048}},
    {"v_mfma_f32_16x16x16_f16", f16, f16, 16, 16, 16, 1, {0, 0, 2048, 2048}},
    {"v_mfma_f32_32x32x16_f16", f16, f16, 32, 32, 16, 1, {0, 0, 0, 4096}},
    {"v_mfma_f32_16x16x32_f16", f16, f16, 16, 16, 32, 1, {0, 0, 0, 4096}},

    {"v_mfma_f32_32x32x2bf16", bf16, bf16, 32, 32, 2, 2, {512, 512, 0, 0}},
    {"v_mfma_f32_16x16x2bf16", bf16, bf16, 16, 16, 2, 4, {512, 512, 0, 0}},
    {"v_mfma_f32_4x4x2bf16", bf16, bf16, 4, 4, 2, 16, {512, 512, 0, 0}},
    {"v_mfma_f32_32x32x4bf16", bf16, bf16, 32, 32, 4, 1, {512, 512, 0, 0}},
    {"v_mfma_f32_16x16x8bf16", bf16, bf16, 16, 16, 8, 1, {512, 512, 0, 0}},
    {"v_mfma_f32_32x32x4bf16_1k", bf16, bf16, 32, 32, 4, 2, {0, 1024, 0, 0}},
    {"v_mfma_f32_16x16x4bf16_1k", bf16, bf16, 16, 16, 4, 4, {0, 1024, 0, 0}},
    {"v_mfma_f32_4x4x4bf16_1k", bf16, bf16, 4, 4, 4, 16, {0, 1024, 0, 0}},
    {"v_mfma_f32_32x32x8bf16_1k", bf16, bf16, 32, 32, 8, 1, {0, 1024, 0, 0}},
    {"v_mfma_f32_16x16x16bf16_1k", bf16, bf16, 16, 16, 16, 1, {0, 1024, 0, 0}},
    {"v_mfma_f32_32x32x4_2b_bf16", bf16, bf16, 32, 32, 4, 2, {0, 0, 1024, 1024}},
    {"v_mfma_f32_16x16x4_4b_bf16", bf16, bf16, 16, 16, 4, 4, {0, 0, 1024, 1024}},
    {"v_mfma_f32_4x4x4_16b_bf16", bf16, bf16, 4, 4, 4, 16, {0, 0, 1024, 1024}},
    {"v_mfma_f32_32x32x8_bf16", bf16, bf16, 32, 32, 8, 1, {0, 0, 2048, 2048}},
    {"v_mfma_f32_16x16x16_bf16", bf16, bf16, 16, 16, 16, 1, {0, 0, 2048, 2048}},
    {"v_mfma_f32_32x32x16_bf16", bf16, bf16, 32, 32, 16, 1, {0, 0, 0, 4096}},
    {"v_mfma_f32_16x16x32_bf16", bf16, bf16, 16, 16, 32, 1, {0, 0, 0, 4096}},

    {"v_mfma_f32_16x16x32_fp8_fp8", fp8, fp8, 16, 16, 32, 1, {0, 0, 4096, 4096}},
    {"v_mfma_f32_16x16x32_fp8_bf8", fp8, bf8, 16, 16, 32, 1, {0, 0, 4096, 4096}},
    {"v_mfma_f32_16x16x32_bf8_fp8", bf8, fp8, 16, 16, 32, 1, {0, 0, 4096, 4096}},
    {"v_mfma_f32_16x16x32_bf8_bf8", bf8, bf8, 16, 16, 32, 1, {0, 0, 4096, 4096}},
    {"v_mfma_f32_32x32x16_fp8_fp8", fp8, fp8, 32, 32, 16, 1, {0, 0, 4096, 4096}},
    {"v_mfma_f32_32x32x16_fp8_bf8", fp8, bf8, 32, 32, 16, 1, {0, 0, 4096, 4096}},
    {"v_mfma_f32_32x32x16_bf8_fp8", bf8, fp8, 32, 32, 16, 1, {0, 0, 4096, 4096}},
    {"v_mfma_f32_32x32x16_bf8_bf8", bf8, bf8, 32, 32, 16, 1, {0, 0, 4096, 4096}},

    {"v_mfma_i32_32x32x4i8", i8, i8, 32, 32, 4, 2, {1024, 1024, 0, 0}},
    {"v_mfma_i32_16x16x4i8", i8, i8, 16, 16, 4, 4, {1024, 1024, 0, 0}},
    {"v_mfma_i32_4x4x4i8", i8, i8, 4, 4, 4, 16, {1024, 1024, 0, 0}},
    {"v_mfma_i32_32x32x8i8", i8, i8, 32, 32, 8, 1, {1024, 1024, 0, 0}},
    {"v_mfma_i32_16x16x16i8", i8, i8, 16, 16, 16, 1, {1024, 1024, 0, 0}},
    {"v_mfma_i32_32x32x4_2b_i8", i8, i8, 32, 32, 4, 2, {0, 0, 1024, 1024}},
    {"v_mfma_i32_16x16x4_4b_i8", i8, i8, 16, 16, 4, 4, {0, 0, 1024, 1024}},
    {"v_mfma_i32_4x4x4_16b_i8", i8, i8, 4, 4, 4, 16, {0, 0, 1024, 1024}},
    {"v_mfma_i32_32x32x16_i8", i8, i8, 32, 32, 16, 1, {0, 0, 4096, 4096}},
    {"v_mfma_i32_16x16x32_i8", i8, i8, 16, 16, 32, 1, {0, 0, 4096, 4096}},
    {"v_mfma_i32_32x32x16i8", i8, i8, 32, 32, 16, 1, {0, 0, 4096, 4096}},
    {"v_mfma_i32_16x16x32i8", i8, i8, 16, 16, 32, 1, {0, 0, 4096, 4096}},
    {"v_mfma_i32_32x32x32_i8", i8, i8, 32, 32, 32, 1, {0, 0, 0, 8192}},
    {"v_mfma_i32_16x16x64_i8", i8, i8, 16, 16, 64, 1, {0, 0, 0, 8192}},

    {"v_mfma_f64_16x16x4f64", f64, f64, 16, 16, 4, 1, {0, 256, 0, 0}},
    {"v_mfma_f64_4x4x4f64", f64, f64, 4, 4, 4, 4, {0, 128, 0, 0}},
    {"v_mfma_f64_16x16x4_f64", f64, f64, 16, 16, 4, 1, {0, 0, 256, 128}},
    {"v_mfma_f64_4x4x4_4b_f64", f64, f64, 4, 4, 4, 4, {0, 0, 128, 64}},
};

constexpr int kMostPerLane = 16;

int rate_index(uint32_t gfx) {
  return gfx == 0x908 ? 0 : gfx == 0x90a ? 1 : gfx == 0x942 ? 2 : gfx == 0x950 ? 3 : -1;
}

// ---- Operands. Lanes of B may be exchanged as a whole (blgp), blocks of A shared (cbsz, abid).
int b_lane(int blgp, int lane) {
  switch (blgp) {
    case 1:  // the first half to both
      return lane % 32;
    case 2:
      return lane % 32 + 32;
    case 3:  // turned by 16 lanes
      return (lane + 16) % 64;
    case 4:
    case 5:
    case 6:
    case 7:  // one row of 16 lanes to all
      return lane % 16 + 16 * (blgp - 4);
  }
  return lane;
}
int a_block(const Modifiers& m, int block) {
  const int shared = 1 << m.cbsz;
  return m.cbsz == 0 ? block : (block & ~(shared - 1)) | (m.abid & (shared - 1));
}

bool has_registers(Wave& wave, const Instruction& i, int operand, int needed) {
  const Operand& o = i.operand[operand];
  const bool is_accumulator_constant = operand == 3 && o.kind == OperandKind::constant;
  if (is_accumulator_constant || (o.kind == OperandKind::vector && o.registers == needed)) {
    return true;
  }
  wave.fail(fmt::format("operand {} should be {} vector registers", operand + 1, needed));
  return false;
}

bool fits(Wave& wave, const Instruction& i, const MatrixShape& s, int accumulator_registers) {
  const int rate = rate_index(wave.gfx());
  if (rate < 0 || s.flops_per_clock[rate] == 0) {
    wave.fail("this target has no such matrix instruction");
    return false;
  }
  if (i.operands != 4) {
    wave.fail("a matrix instruction has 4 operands");
    return false;
  }
  if (i.modifiers.cbsz > 4 || 1 << i.modifiers.cbsz > s.blocks) {
    wave.fail(fmt::format("cbsz {} shares more than the {} blocks", i.modifiers.cbsz, s.blocks));
    return false;
  }
  const int per_lane = MatrixLayout(s).per_lane;
  return has_registers(wave, i, 0, accumulator_registers) &&
         has_registers(wave, i, 1, per_lane * element_bits(s.a) / 32) &&
         has_registers(wave, i, 2, per_lane * element_bits(s.b) / 32) &&
         has_registers(wave, i, 3, accumulator_registers);
}

// The registers of D, holding C.
void start_sums(Wave& wave, const Instruction& i, int registers, Row** sum) {
  const Operand &d = i.operand[0], &c = i.operand[3];
  const u64 all = wave.all_lanes();
  if (c.kind == OperandKind::constant) {
    for (int r = 0; r < registers; ++r) {
      sum[r] = &wave.claim_row(d, r, all);
      // Doubles are pairs of registers.
      const bool upper = i.opcode->constants == ConstantType::f64 && r % 2 == 1;
      const auto value = static_cast<u32>(c.bits >> (upper ? 32 : 0));
      std::fill(std::begin(sum[r]->lane), std::end(sum[r]->lane), value);
    }
    return;
  }
  if (c.index == d.index) {
    for (int r = 0; r < registers; ++r) {
      wave.claim_source(c, r, all);
      sum[r] = &wave.claim_row(d, r, all);
    }
    return;
  }
  Row held[32];
  for (int r = 0; r < registers; ++r) held[r] = wave.claim_source(c, r, all);
  for (int r = 0; r < registers; ++r) {
    sum[r] = &wave.claim_row(d, r, all);
    *sum[r] = held[r];
  }
}

// ---- Floats: both operands as [block][k][row or column].
struct Operands {
  alignas(64) float a[64 * kMostPerLane], b[64 * kMostPerLane];
};

void widen_operand(Wave& wave, const Operand& o, Element element, const MatrixLayout& layout,
                   int blgp, bool flush, float* out) {
  const Row* registers[kMostPerLane];
  const int count = layout.per_lane * element_bits(element) / 32;
  for (int r = 0; r < count; ++r) registers[r] = &wave.claim_source(o, r, wave.all_lanes());
  for (int e = 0; e < layout.per_lane; ++e) {
    alignas(64) float lanes[kMaxLanes], moved[kMaxLanes];
    widen_lanes(element, registers, e, wave.gfx() == 0x942, lanes);
    if (flush) {
      const float least = element == f16 ? 0x1p-14f : 0x1p-126f;  // normal number
      for (float& x : lanes) x = std::fabs(x) < least ? std::copysign(0.0f, x) : x;
    }
    const float* from = lanes;
    if (blgp != 0) {
      for (int l = 0; l < kMaxLanes; ++l) moved[l] = lanes[b_lane(blgp, l)];
      from = moved;
    }
    // Lanes of one block and k are consecutive rows.
    for (int l = 0; l < kMaxLanes; l += layout.m) {
      const int k = layout.first_k(l) + e;
      std::memcpy(out + (layout.block(l) * layout.k + k) * layout.m, from + l,
                  static_cast<size_t>(layout.m) * sizeof(float));
    }
  }
}

void mfma_f32(Wave& wave, const Instruction& i) {
  const MatrixShape& s = kShapes[i.opcode->argument];
  const int registers = s.m * s.n * s.blocks / 64;
  if (!fits(wave, i, s, registers)) return;
  const MatrixLayout layout(s);
  // gfx90a reads and writes no denormals with 16-bit sources.
  const bool flush = wave.gfx() == 0x90a && element_bits(s.a) == 16;
  Operands operands;
  widen_operand(wave, i.operand[1], s.a, layout, 0, flush, operands.a);
  widen_operand(wave, i.operand[2], s.b, layout, i.modifiers.blgp, flush, operands.b);
  Row* sum[32];
  start_sums(wave, i, registers, sum);
  const bool fused = s.a == f32 || s.a == xf32;
  for (int block = 0; block < s.blocks; ++block) {
    u32* rows[32];
    for (int row = 0; row < s.m; ++row) {
      const AccumulatorPlace place = accumulator_place(s, block, row, 0);
      rows[row] = sum[place.element]->lane + place.lane;
    }
    multiply_rows({s.m, s.n, s.k, rows, operands.a + a_block(i.modifiers, block) * s.k * s.m,
                   operands.b + block * s.k * s.n},
                  fused);
  }
  if (!flush) return;
  for (int r = 0; r < registers; ++r) {
    for (u32& x : sum[r]->lane) x = (x & 0x7f800000u) == 0 ? x & 0x80000000u : x;
  }
}

// ---- Integers, wrapping around.
void mfma_i32(Wave& wave, const Instruction& i) {
  const MatrixShape& s = kShapes[i.opcode->argument];
  const int registers = s.m * s.n * s.blocks / 64;
  if (!fits(wave, i, s, registers)) return;
  const MatrixLayout layout(s);
  // [block][k][row]
  i32 a[64 * kMostPerLane], b[64 * kMostPerLane];
  for (int l = 0; l < kMaxLanes; ++l) {
    const int at = layout.block(l) * s.k * s.m + layout.row(l);
    const int from = b_lane(i.modifiers.blgp, l);
    for (int e = 0; e < layout.per_lane; ++e) {
      const auto byte_of = [&](const Operand& o, int lane) {
        const Row& row = wave.claim_source(o, e / 4, wave.all_lanes());
        return static_cast<i32>(static_cast<int8_t>(row.lane[lane] >> (8 * (e % 4))));
      };
      a[at + (layout.first_k(l) + e) * s.m] = byte_of(i.operand[1], l);
      b[at + (layout.first_k(l) + e) * s.m] = byte_of(i.operand[2], from);
    }
  }
  Row* sum[32];
  start_sums(wave, i, registers, sum);
  for (int block = 0; block < s.blocks; ++block) {
    const i32* x = a + a_block(i.modifiers, block) * s.k * s.m;
    const i32* y = b + block * s.k * s.n;
    for (int row = 0; row < s.m; ++row) {
      const AccumulatorPlace place = accumulator_place(s, block, row, 0);
      u32* out = sum[place.element]->lane + place.lane;
      for (int k = 0; k < s.k; ++k) {
        for (int n = 0; n < s.n; ++n) {
          out[n] += static_cast<u32>(x[k * s.m + row] * y[k * s.n + n]);
        }
      }
    }
  }
}

// ---- Doubles: blgp negates A (bit 0), B and C.
void mfma_f64(Wave& wave, const Instruction& i) {
  const MatrixShape& s = kShapes[i.opcode->argument];
  const int elements = s.m * s.n * s.blocks / 64;
  if (!fits(wave, i, s, 2 * elements)) return;
  const MatrixLayout layout(s);
  const int negate = i.modifiers.neg_lo | i.modifiers.blgp;
  double a[64], b[64];
  const auto read = [&](const Operand& o, bool negative, double* out) {
    const Row& low = wave.claim_source(o, 0, wave.all_lanes());
    const Row& high = wave.claim_source(o, 1, wave.all_lanes());
    for (int l = 0; l < kMaxLanes; ++l) {
      const auto x = std::bit_cast<double>(low.lane[l] | u64{high.lane[l]} << 32);
      out[(layout.block(l) * s.k + layout.first_k(l)) * s.m + layout.row(l)] = negative ? -x : x;
    }
  };
  read(i.operand[1], negate & 1, a);
  read(i.operand[2], negate & 2, b);
  Row* sum[32];
  start_sums(wave, i, 2 * elements, sum);
  for (int block = 0; block < s.blocks; ++block) {
    for (int row = 0; row < s.m; ++row) {
      for (int n = 0; n < s.n; ++n) {
        const AccumulatorPlace place = accumulator_place(s, block, row, n);
        u32& low = sum[2 * place.element]->lane[place.lane];
        u32& high = sum[2 * place.element + 1]->lane[place.lane];
        auto x = std::bit_cast<double>(low | u64{high} << 32);
        if (negate & 4) x = -x;
        for (int k = 0; k < s.k; ++k) {
          const int at = block * s.k + k;
          x = std::fma(a[at * s.m + row], b[at * s.n + n], x);
        }
        low = static_cast<u32>(std::bit_cast<u64>(x));
        high = static_cast<u32>(std::bit_cast<u64>(x) >> 32);
      }
    }
  }
}

std::vector<Opcode> lines() {
  std::vector<Opcode> all;
  for (size_t index = 0; index < std::size(kShapes); ++index) {
    const MatrixShape& s = kShapes[index];
    const Execute execute = s.a == i8 ? mfma_i32 : s.a == f64 ? mfma_f64 : mfma_f32;
    const ConstantType constants = s.a == f64  ? ConstantType::f64
                                   : s.a == i8 ? ConstantType::b32
                                               : ConstantType::f32;
    all.push_back({s.mnemonic, execute, OpClass::matrix, constants, static_cast<int16_t>(index)});
  }
  return all;
}

}  // namespace

std::span<const Opcode> mfma_opcodes() {
  static const std::vector<Opcode> kLines = lines();
  return kLines;
}

uint32_t mfma_passes(int shape, uint32_t gfx) {
  const MatrixShape& s = kShapes[shape];
  const int rate = rate_index(gfx) < 0 ? 0 : s.flops_per_clock[rate_index(gfx)];
  // A compute unit has four matrix units, a pass four clocks.
  return rate == 0 ? 0 : static_cast<uint32_t>(2 * s.m * s.n * s.k * s.blocks / rate);
}

}  // namespace hstu::jit::sim
