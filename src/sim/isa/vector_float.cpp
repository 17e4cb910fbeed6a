// SPDX-License-Identifier: Apache-2.0
// Single precision arithmetic.
#include "sim/isa/lanes_math.hpp"
#include "sim/isa/tables.hpp"
#include "sim/isa/vector_tables.hpp"

namespace hstu::jit::sim {
namespace {

// "DX9": zero times anything, also infinity and NaN, is zero.
float times_dx9(float a, float b) { return a == 0 || b == 0 ? 0.0f : a * b; }
float fma_dx9(float a, float b, float c) { return a == 0 || b == 0 ? 0.0f + c : std::fma(a, b, c); }

int frexp_exponent(float x) {
  int exponent = 0;
  if (std::isfinite(x)) std::frexp(x, &exponent);
  return exponent;
}
float frexp_mantissa(float x) {
  int exponent = 0;
  return std::isfinite(x) ? std::frexp(x, &exponent) : quieted(x);
}

// gfx12 computes these of uniform values in scalar registers.
template <float (*F)(float), bool half>
void scalar_function(Wave& wave, const Instruction& instruction) {
  const Operand& o = instruction.operand[1];
  const u32 word = wave.read_scalar(o);
  float x = half ? f16_to_f32(instruction.modifiers.op_sel & 1 ? word >> 16 : word & 0xffff)
                 : to_float(word);
  if (!half && exponent_of(x) == 0) x = std::copysign(0.0f, x);
  if (o.absolute) x = std::fabs(x);
  if (o.negate) x = -x;
  float y = F(x);
  if (instruction.modifiers.omod != 0 || instruction.modifiers.clamp) {
    return wave.fail("omod and clamp of scalar functions are not simulated");
  }
  if (!half && exponent_of(y) == 0) y = std::copysign(0.0f, y);
  wave.write_scalar(instruction.operand[0], half ? f32_to_f16(y) : to_bits(y));
}
float sqrt_f32(float x) { return std::sqrt(x); }

// v_exp, v_log, v_rcp, v_rsq, v_sqrt, v_sin and v_cos read and write no denormals.
constexpr Opcode kTable[] = {
    valu<[](float a, float b) { return a + b; }>("v_add_f32"),
    valu<[](float a, float b) { return a - b; }>("v_sub_f32"),
    valu<[](float a, float b) { return b - a; }>("v_subrev_f32"),
    valu<[](float a, float b) { return a * b; }>("v_mul_f32"),
    valu<[](float a, float b) { return times_dx9(a, b); }>("v_mul_legacy_f32"),
    valu<[](float a, float b) { return times_dx9(a, b); }>("v_mul_dx9_zero_f32"),
    valu<[](float a, float b, float c) { return std::fma(a, b, c); }>("v_fma_f32"),
    valu<[](float a, float b, float c) { return std::fma(a, b, c); }>("v_fmamk_f32"),
    valu<[](float a, float b, float c) { return std::fma(a, b, c); }>("v_fmaak_f32"),
    valu<[](float a, float b, Old<float> c) { return std::fma(a, b, c.value); }>("v_fmac_f32"),
    valu<[](float a, float b, float c) { return fma_dx9(a, b, c); }>("v_fma_legacy_f32"),
    valu<[](float a, float b, float c) { return fma_dx9(a, b, c); }>("v_fma_dx9_zero_f32"),
    valu<[](float a, float b, Old<float> c) { return fma_dx9(a, b, c); }>("v_fmac_legacy_f32"),
    valu<[](float a, float b, Old<float> c) { return fma_dx9(a, b, c); }>("v_fmac_dx9_zero_f32"),
    // Two roundings, no denormals.
    valu<[](Flushed a, Flushed b, Flushed c) { return Flushed(a * b + c); }>("v_mad_f32"),
    valu<[](Flushed a, Flushed b, Flushed c) { return Flushed(a * b + c); }>("v_madmk_f32"),
    valu<[](Flushed a, Flushed b, Flushed c) { return Flushed(a * b + c); }>("v_madak_f32"),
    valu<[](Flushed a, Flushed b, Old<float> c) {
      return Flushed(a * b + (exponent_of<float>(c) ? c : 0.0f));
    }>("v_mac_f32"),

    valu<[](float a, float b) { return minimum_number(a, b); }>("v_min_f32"),
    valu<[](float a, float b) { return maximum_number(a, b); }>("v_max_f32"),
    valu<[](float a, float b) { return minimum_number(a, b); }>("v_min_num_f32"),
    valu<[](float a, float b) { return maximum_number(a, b); }>("v_max_num_f32"),
    valu<[](float a, float b) { return minimum(a, b); }>("v_minimum_f32"),
    valu<[](float a, float b) { return maximum(a, b); }>("v_maximum_f32"),
    valu<[](float a, float b, float c) { return minimum_number(minimum_number(a, b), c); }>(
        "v_min3_f32"),
    valu<[](float a, float b, float c) { return maximum_number(maximum_number(a, b), c); }>(
        "v_max3_f32"),
    valu<[](float a, float b, float c) { return minimum_number(minimum_number(a, b), c); }>(
        "v_min3_num_f32"),
    valu<[](float a, float b, float c) { return maximum_number(maximum_number(a, b), c); }>(
        "v_max3_num_f32"),
    valu<[](float a, float b, float c) { return minimum(minimum(a, b), c); }>("v_minimum3_f32"),
    valu<[](float a, float b, float c) { return maximum(maximum(a, b), c); }>("v_maximum3_f32"),
    valu<[](float a, float b, float c) { return median(a, b, c); }>("v_med3_f32"),
    valu<[](float a, float b, float c) { return median(a, b, c); }>("v_med3_num_f32"),
    valu<[](float a, float b, float c) { return minimum_number(maximum_number(a, b), c); }>(
        "v_maxmin_f32"),
    valu<[](float a, float b, float c) { return maximum_number(minimum_number(a, b), c); }>(
        "v_minmax_f32"),
    valu<[](float a, float b, float c) { return minimum_number(maximum_number(a, b), c); }>(
        "v_maxmin_num_f32"),
    valu<[](float a, float b, float c) { return maximum_number(minimum_number(a, b), c); }>(
        "v_minmax_num_f32"),
    valu<[](float a, float b, float c) { return minimum(maximum(a, b), c); }>(
        "v_maximumminimum_f32"),
    valu<[](float a, float b, float c) { return maximum(minimum(a, b), c); }>(
        "v_minimummaximum_f32"),

    valu<[](float a) { return std::trunc(a); }>("v_trunc_f32"),
    valu<[](float a) { return std::ceil(a); }>("v_ceil_f32"),
    valu<[](float a) { return std::nearbyint(a); }>("v_rndne_f32"),
    valu<[](float a) { return std::floor(a); }>("v_floor_f32"),
    valu<[](float a) { return fraction(a, 0x1.fffffep-1f); }>("v_fract_f32"),
    valu<[](float a, i32 b) { return std::ldexp(a, b); }>("v_ldexp_f32"),
    valu<[](float a) { return frexp_exponent(a); }>("v_frexp_exp_i32_f32"),
    valu<[](float a) { return frexp_mantissa(a); }>("v_frexp_mant_f32"),

    transcendental<[](Flushed a) { return Flushed(exp2_f32(a)); }>("v_exp_f32"),
    transcendental<[](Flushed a) { return Flushed(log2_f32(a)); }>("v_log_f32"),
    transcendental<[](Flushed a) { return Flushed(exp2_f32(a)); }>("v_exp_legacy_f32"),
    transcendental<[](Flushed a) { return Flushed(log2_f32(a)); }>("v_log_legacy_f32"),
    transcendental<[](Flushed a) { return Flushed(rcp_f32(a)); }>("v_rcp_f32"),
    transcendental<[](Flushed a) { return Flushed(rcp_f32(a)); }>("v_rcp_iflag_f32"),
    transcendental<[](Flushed a) { return Flushed(rsq_f32(a)); }>("v_rsq_f32"),
    transcendental<[](Flushed a) { return Flushed(std::sqrt(a.value)); }>("v_sqrt_f32"),
    transcendental<[](Flushed a) { return Flushed(sin_f32(a)); }>("v_sin_f32"),
    transcendental<[](Flushed a) { return Flushed(cos_f32(a)); }>("v_cos_f32"),
    {"v_s_exp_f32", scalar_function<exp2_f32, false>, OpClass::transcendental, ConstantType::f32},
    {"v_s_log_f32", scalar_function<log2_f32, false>, OpClass::transcendental, ConstantType::f32},
    {"v_s_rcp_f32", scalar_function<rcp_f32, false>, OpClass::transcendental, ConstantType::f32},
    {"v_s_rsq_f32", scalar_function<rsq_f32, false>, OpClass::transcendental, ConstantType::f32},
    {"v_s_sqrt_f32", scalar_function<sqrt_f32, false>, OpClass::transcendental, ConstantType::f32},
    {"v_s_exp_f16", scalar_function<exp2_f32, true>, OpClass::transcendental, ConstantType::f16},
    {"v_s_log_f16", scalar_function<log2_f32, true>, OpClass::transcendental, ConstantType::f16},
    {"v_s_rcp_f16", scalar_function<rcp_f32, true>, OpClass::transcendental, ConstantType::f16},
    {"v_s_rsq_f16", scalar_function<rsq_f32, true>, OpClass::transcendental, ConstantType::f16},
    {"v_s_sqrt_f16", scalar_function<sqrt_f32, true>, OpClass::transcendental, ConstantType::f16},

    valu<[](float a, float denominator, float numerator) {
      return div_scale(a, denominator, numerator);
    }>("v_div_scale_f32"),
    valu<[](float a, float denominator, float numerator) {
      return div_fixup(a, denominator, numerator);
    }>("v_div_fixup_f32"),
    // The mask of v_div_scale is read from vcc, which is not printed.
    valu<[](float a, float b, float c, Bit scaled) { return div_fmas(a, b, c, scaled); }>(
        "v_div_fmas_f32"),
};

}  // namespace

std::span<const Opcode> vector_float_opcodes() {
  static const std::vector<Opcode> kAll = joined(
      {kTable, float64_opcodes(), float16_opcodes(), convert_opcodes(), convert_small_opcodes()});
  return kAll;
}

}  // namespace hstu::jit::sim
