// SPDX-License-Identifier: Apache-2.0
// Moves: within a lane, between lanes, between the register files.
#include "sim/isa/lanes_run.hpp"
#include "sim/isa/tables.hpp"

namespace hstu::jit::sim {
namespace {

u32 one_lane(Wave& wave, const Operand& from, int lane) {
  if (from.kind != OperandKind::vector) return wave.read_scalar(from);
  return wave.claim_source(from, 0, u64{1} << lane).lane[lane];
}

// Reads ignore EXEC; with no lane active, lane 0 is the first.
void read_first_lane(Wave& wave, const Instruction& instruction) {
  const int lane = wave.exec() == 0 ? 0 : std::countr_zero(wave.exec());
  wave.write_scalar(instruction.operand[0], one_lane(wave, instruction.operand[1], lane));
}

int lane_number(Wave& wave, const Operand& o) {
  return static_cast<int>(wave.read_scalar(o) & static_cast<u32>(wave.width() - 1));
}

void read_lane(Wave& wave, const Instruction& instruction) {
  const int lane = lane_number(wave, instruction.operand[2]);
  wave.write_scalar(instruction.operand[0], one_lane(wave, instruction.operand[1], lane));
}

void write_lane(Wave& wave, const Instruction& instruction) {
  const u32 value = wave.read_scalar(instruction.operand[1]);
  const int lane = lane_number(wave, instruction.operand[2]);
  wave.claim_row(instruction.operand[0], 0, u64{1} << lane).lane[lane] = value;
}

// v_permlane16 and its kin on gfx10 and later: every row of 16 lanes permutes alike, by 16 numbers
// of 4 bits in two scalars; `x16` reads from the other row of the pair. op_sel[0] reads inactive
// lanes, op_sel[1] gives 0 instead of the old value for lanes that are not read.
template <bool across, bool variable>
void permute_row(Wave& wave, const Instruction& instruction) {
  const Modifiers& m = instruction.modifiers;
  const bool fetch_inactive = m.op_sel & 1, zero = m.op_sel & 2;
  Row scratch[2], out;
  const Row& from = wave.read_row(instruction.operand[1], 0, scratch[0]);
  u32 low = 0, high = 0;
  const Row* by_lane = nullptr;
  if constexpr (variable) {
    by_lane = &wave.read_row(instruction.operand[2], 0, scratch[1]);
  } else {
    low = wave.read_scalar(instruction.operand[2]);
    high = wave.read_scalar(instruction.operand[3]);
  }
  u64 written = 0;
  for (int l = 0; l < wave.width(); ++l) {
    const int in_row = l & 15;
    const u32 selects = in_row < 8 ? low : high;
    const u32 select = by_lane ? by_lane->lane[l] & 15 : selects >> (4 * (in_row & 7)) & 15;
    const int source = (across ? (l & ~15) ^ 16 : l & ~15) | static_cast<int>(select);
    const bool readable = fetch_inactive || (wave.exec() >> source & 1);
    out.lane[l] = readable ? from.lane[source] : 0;
    written |= u64{readable || zero} << l;
  }
  wave.write_row(instruction.operand[0], 0, out, wave.exec() & written);
}

void permute_halves(Wave& wave, const Instruction& instruction) {
  Row scratch, out{};
  const Row& from = wave.read_row(instruction.operand[1], 0, scratch);
  for (int l = 0; l < wave.width(); ++l) {
    out.lane[l] = from.lane[wave.width() == 64 ? l ^ 32 : l];
  }
  wave.write_row(instruction.operand[0], 0, out);
}

// gfx950: the upper half of each group of 2 * `rows` lanes of the first register changes places
// with the lower half of the second's.
template <int rows>
void swap_rows(Wave& wave, const Instruction& instruction) {
  Row scratch[2];
  Row first = wave.read_row(instruction.operand[0], 0, scratch[0]);
  Row second = wave.read_row(instruction.operand[1], 0, scratch[1]);
  for (int l = 0; l < kMaxLanes; ++l) {
    if (l & rows) std::swap(first.lane[l], second.lane[l - rows]);
  }
  wave.write_row(instruction.operand[0], 0, first);
  wave.write_row(instruction.operand[1], 0, second);
}

void swap(Wave& wave, const Instruction& instruction) {
  Row scratch[2];
  const Row first = wave.read_row(instruction.operand[0], 0, scratch[0]);
  const Row second = wave.read_row(instruction.operand[1], 0, scratch[1]);
  wave.write_row(instruction.operand[0], 0, second);
  wave.write_row(instruction.operand[1], 0, first);
}

void swap_halves(Wave& wave, const Instruction& instruction) {
  const Operand &a = instruction.operand[0], &b = instruction.operand[1];
  Row& first = wave.claim_row(a, 0, wave.exec());
  Row& second = wave.claim_row(b, 0, wave.exec());
  const u32 shift_a = a.high_half ? 16 : 0, shift_b = b.high_half ? 16 : 0;
  for (int l = 0; l < wave.width(); ++l) {
    if (!(wave.exec() >> l & 1)) continue;
    const u32 x = first.lane[l] >> shift_a & 0xffff, y = second.lane[l] >> shift_b & 0xffff;
    first.lane[l] = (first.lane[l] & ~(0xffffu << shift_a)) | y << shift_a;
    second.lane[l] = (second.lane[l] & ~(0xffffu << shift_b)) | x << shift_b;
  }
}

void nothing(Wave&, const Instruction&) {}

constexpr Opcode kTable[] = {
    valu<[](Bits a) { return a.value; }>("v_mov_b32"),
    valu<[](u64 a) { return a; }>("v_mov_b64"),
    valu<[](u16 a) { return a; }>("v_mov_b16"),
    valu<[](u32 a) { return a; }>("v_accvgpr_read_b32"),
    valu<[](u32 a) { return a; }>("v_accvgpr_write_b32"),
    valu<[](u32 a) { return a; }>("v_accvgpr_mov_b32"),
    {"v_swap_b32", swap, OpClass::valu},
    {"v_swap_b16", swap_halves, OpClass::valu},
    {"v_readfirstlane_b32", read_first_lane, OpClass::valu},
    {"v_readlane_b32", read_lane, OpClass::valu},
    {"v_writelane_b32", write_lane, OpClass::valu},
    {"v_permlane16_b32", permute_row<false, false>, OpClass::valu},
    {"v_permlanex16_b32", permute_row<true, false>, OpClass::valu},
    {"v_permlane16_var_b32", permute_row<false, true>, OpClass::valu},
    {"v_permlanex16_var_b32", permute_row<true, true>, OpClass::valu},
    {"v_permlane64_b32", permute_halves, OpClass::valu},
    {"v_permlane16_swap_b32", swap_rows<16>, OpClass::valu},
    {"v_permlane32_swap_b32", swap_rows<32>, OpClass::valu},
    {"v_nop", nothing, OpClass::other},
    {"v_clrexcp", nothing, OpClass::other},
    {"v_pipeflush", nothing, OpClass::other},
};

}  // namespace

std::span<const Opcode> cross_lane_opcodes() { return kTable; }

}  // namespace hstu::jit::sim
