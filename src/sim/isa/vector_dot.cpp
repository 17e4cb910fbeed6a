// SPDX-License-Identifier: Apache-2.0
// Dot products inside a lane, and the fused operations that mix halves with floats.
#include <algorithm>

#include "sim/isa/lanes_math.hpp"
#include "sim/isa/vector_tables.hpp"

namespace hstu::jit::sim {
namespace {

// ---- Dot products of halves. Each term is fused to the sum in single precision, low half first.
using ToFloat = float (*)(u32);

// The halves that op_sel and op_sel_hi choose, with their signs, as one word.
void pair_up(Lanes& lanes, int source, Row& scratch, Row& out) {
  const Modifiers& m = lanes.instruction.modifiers;
  const u32* from = lanes.word(source, 0, WordKind::integer, scratch);
  const auto on = [source](uint8_t bits) { return (bits >> source & 1) != 0; };
  const u32 low = on(m.op_sel) ? 16 : 0, high = on(m.op_sel_hi) ? 16 : 0;
  const u32 flip = (on(m.neg_lo) ? 0x8000u : 0) | (on(m.neg_hi) ? 0x80000000u : 0);
  for (int l = 0; l < kMaxLanes; ++l) {
    out.lane[l] = ((from[l] >> low & 0xffff) | (from[l] >> high << 16)) ^ flip;
  }
}

template <ToFloat widen>
float dot2(u32 a, u32 b, float c) {
  const float low = std::fma(widen(a & 0xffff), widen(b & 0xffff), c);
  return std::fma(widen(a >> 16), widen(b >> 16), low);
}

template <ToFloat widen, bool accumulates>
void dot2_f32(Wave& wave, const Instruction& instruction) {
  Lanes lanes(wave, instruction, 1, accumulates ? 2 : 3);
  Row scratch, a, b, out;
  pair_up(lanes, 0, scratch, a);
  pair_up(lanes, 1, scratch, b);
  const bool negate = !accumulates && (instruction.modifiers.neg_lo >> 2 & 1);
  const u32* c =
      accumulates ? lanes.old_word(0, scratch) : lanes.word(2, 0, WordKind::f32, scratch);
  for (int l = 0; l < kMaxLanes; ++l) {
    const float addend = to_float(c[l] ^ (negate ? 0x80000000u : 0));
    out.lane[l] = to_bits(dot2<widen>(a.lane[l], b.lane[l], addend));
  }
  lanes.finish_f32(out, false);
  lanes.write_word(0, out);
}

// The 16-bit forms of gfx11: op_sel bit 2 chooses the addend's half, bit 3 the result's.
template <ToFloat widen, u32 (*narrow)(float)>
void dot2_half(Wave& wave, const Instruction& instruction) {
  Lanes lanes(wave, instruction, 1, 3);
  Row scratch[3], out;
  const u32* a = lanes.word(0, 0, WordKind::integer, scratch[0]);
  const u32* b = lanes.word(1, 0, WordKind::integer, scratch[1]);
  const u32* c = lanes.half(2, HalfKind::integer, scratch[2]);
  for (int l = 0; l < kMaxLanes; ++l) {
    out.lane[l] = narrow(dot2<widen>(a[l], b[l], widen(c[l] & 0xffff)));
  }
  lanes.write_half(out, true);
}

// ---- Dot products of integers. neg_lo says that a source is signed where the name does not.
enum class Sign : int { none, both, chosen };

i64 element(u32 word, int at, int bits, bool is_signed) {
  const u32 cut = word << (32 - bits - at);
  // Widened apart: together, the signed one would become unsigned first.
  if (is_signed) return static_cast<i32>(cut) >> (32 - bits);
  return cut >> (32 - bits);
}

template <int bits, Sign sign, bool accumulates>
void dot_integer(Wave& wave, const Instruction& instruction) {
  const Modifiers& m = instruction.modifiers;
  Lanes lanes(wave, instruction, 1, accumulates ? 2 : 3);
  Row scratch[3], out;
  const u32* a = lanes.word(0, 0, WordKind::integer, scratch[0]);
  const u32* b = lanes.word(1, 0, WordKind::integer, scratch[1]);
  const u32* c =
      accumulates ? lanes.old_word(0, scratch[2]) : lanes.word(2, 0, WordKind::integer, scratch[2]);
  const bool signed_a = sign == Sign::both || (sign == Sign::chosen && (m.neg_lo & 1));
  const bool signed_b = sign == Sign::both || (sign == Sign::chosen && (m.neg_lo & 2));
  const bool signed_sum = sign != Sign::none;
  for (int l = 0; l < kMaxLanes; ++l) {
    i64 sum = signed_sum ? static_cast<i64>(static_cast<i32>(c[l])) : static_cast<i64>(c[l]);
    for (int at = 0; at < 32; at += bits) {
      sum += element(a[l], at, bits, signed_a) * element(b[l], at, bits, signed_b);
    }
    if (m.clamp) {
      sum =
          signed_sum ? std::clamp<i64>(sum, INT32_MIN, INT32_MAX) : std::min<i64>(sum, UINT32_MAX);
    }
    out.lane[l] = static_cast<u32>(sum);
  }
  lanes.write_word(0, out);
}

constexpr Opcode kDots[] = {
    {"v_dot2_f32_f16", dot2_f32<f16_to_f32, false>, OpClass::valu, ConstantType::packed16_f},
    {"v_dot2_f32_bf16", dot2_f32<bf16_to_f32, false>, OpClass::valu, ConstantType::bf16},
    {"v_dot2c_f32_f16", dot2_f32<f16_to_f32, true>, OpClass::valu, ConstantType::packed16_f},
    {"v_dot2acc_f32_f16", dot2_f32<f16_to_f32, true>, OpClass::valu, ConstantType::packed16_f},
    {"v_dot2c_f32_bf16", dot2_f32<bf16_to_f32, true>, OpClass::valu, ConstantType::bf16},
    {"v_dot2acc_f32_bf16", dot2_f32<bf16_to_f32, true>, OpClass::valu, ConstantType::bf16},
    {"v_dot2_f16_f16", dot2_half<f16_to_f32, f32_to_f16>, OpClass::valu, ConstantType::packed16_f},
    {"v_dot2_bf16_bf16", dot2_half<bf16_to_f32, f32_to_bf16>, OpClass::valu, ConstantType::bf16},
    {"v_dot2_i32_i16", dot_integer<16, Sign::both, false>, OpClass::valu, ConstantType::b32},
    {"v_dot2_u32_u16", dot_integer<16, Sign::none, false>, OpClass::valu, ConstantType::b32},
    {"v_dot4_i32_i8", dot_integer<8, Sign::both, false>, OpClass::valu, ConstantType::b32},
    {"v_dot4_u32_u8", dot_integer<8, Sign::none, false>, OpClass::valu, ConstantType::b32},
    {"v_dot4_i32_iu8", dot_integer<8, Sign::chosen, false>, OpClass::valu, ConstantType::b32},
    {"v_dot8_i32_i4", dot_integer<4, Sign::both, false>, OpClass::valu, ConstantType::b32},
    {"v_dot8_u32_u4", dot_integer<4, Sign::none, false>, OpClass::valu, ConstantType::b32},
    {"v_dot8_i32_iu4", dot_integer<4, Sign::chosen, false>, OpClass::valu, ConstantType::b32},
    {"v_dot2c_i32_i16", dot_integer<16, Sign::both, true>, OpClass::valu, ConstantType::b32},
    {"v_dot4c_i32_i8", dot_integer<8, Sign::both, true>, OpClass::valu, ConstantType::b32},
    {"v_dot8c_i32_i4", dot_integer<4, Sign::both, true>, OpClass::valu, ConstantType::b32},
};

// ---- Mixed precision: op_sel_hi says which sources are halves, op_sel which half. The sum is
// rounded to single precision, then to the result.
const u32* mixed_source(Lanes& lanes, int source, Row& scratch) {
  const Modifiers& m = lanes.instruction.modifiers;
  const u32 halves = m.op_sel_hi_given ? m.op_sel_hi : 0;
  if (!(halves >> source & 1)) return lanes.word(source, 0, WordKind::f32, scratch);
  const Operand& o = lanes.operand(source);
  const bool is_constant = o.kind == OperandKind::constant;
  const u32 shift = (m.op_sel >> source & 1) ? 16 : 0;
  Row plain;
  // Signs apply to the float that the half becomes.
  const u32* from = lanes.word(source, 0, WordKind::integer, plain);
  for (int l = 0; l < kMaxLanes; ++l) {
    // The decoder has encoded constants for the float form of the source.
    const bool is_float = is_constant && from[l] > 0xffff;
    u32 x = is_float ? from[l] : to_bits(f16_to_f32(from[l] >> shift & 0xffff));
    if (o.absolute) x &= 0x7fffffffu;
    if (o.negate) x ^= 0x80000000u;
    scratch.lane[l] = x;
  }
  return scratch.lane;
}

enum class Result { f32, low_half, high_half };

template <bool fused>
HSTU_SIM_CLONES void mix_lanes(Row& out, const u32* a, const u32* b, const u32* c) {
  for (int l = 0; l < kMaxLanes; ++l) {
    const float x = to_float(a[l]), y = to_float(b[l]), z = to_float(c[l]);
    out.lane[l] = to_bits(fused ? std::fma(x, y, z) : x * y + z);
  }
}
HSTU_SIM_CLONES void narrow_lanes(Row& row) {
  for (int l = 0; l < kMaxLanes; ++l) row.lane[l] = f32_to_f16(to_float(row.lane[l]));
}

template <bool fused, Result result>
void mix(Wave& wave, const Instruction& instruction) {
  Lanes lanes(wave, instruction, 1, 3);
  Row scratch[3], out;
  mix_lanes<fused>(out, mixed_source(lanes, 0, scratch[0]), mixed_source(lanes, 1, scratch[1]),
                   mixed_source(lanes, 2, scratch[2]));
  lanes.finish_f32(out, !fused);
  if (result == Result::f32) return lanes.write_word(0, out);
  narrow_lanes(out);
  lanes.write_half_at(out, result == Result::high_half);
}

constexpr Opcode kMixes[] = {
    {"v_fma_mix_f32", mix<true, Result::f32>, OpClass::valu, ConstantType::f32},
    {"v_fma_mixlo_f16", mix<true, Result::low_half>, OpClass::valu, ConstantType::f32},
    {"v_fma_mixhi_f16", mix<true, Result::high_half>, OpClass::valu, ConstantType::f32},
    {"v_mad_mix_f32", mix<false, Result::f32>, OpClass::valu, ConstantType::f32},
    {"v_mad_mixlo_f16", mix<false, Result::low_half>, OpClass::valu, ConstantType::f32},
    {"v_mad_mixhi_f16", mix<false, Result::high_half>, OpClass::valu, ConstantType::f32},
};

}  // namespace

std::span<const Opcode> dot_opcodes() { return kDots; }
std::span<const Opcode> mix_opcodes() { return kMixes; }

}  // namespace hstu::jit::sim
