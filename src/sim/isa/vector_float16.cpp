// SPDX-License-Identifier: Apache-2.0
// Half precision: sums, products and roots of halves are exact enough in single precision to be
// rounded once more without harm; fused operations are not and go through double.
#include "sim/isa/lanes_math.hpp"
#include "sim/isa/vector_tables.hpp"

namespace hstu::jit::sim {
namespace {

F16 fused(float a, float b, float c) { return F16::of(fma_f16(a, b, c)); }
F16 unfused(float a, float b, float c) { return F16(F16(a * b) + c); }

i16 frexp_exponent(float x) {
  int exponent = 0;
  if (std::isfinite(x)) std::frexp(x, &exponent);
  return static_cast<i16>(exponent);
}
float frexp_mantissa(float x) {
  int exponent = 0;
  return std::isfinite(x) ? std::frexp(x, &exponent) : quieted(x);
}
// As v_div_fixup_f32, without the underflow that 32 bits have.
float div_fixup_f16(float quotient, float denominator, float numerator) {
  return div_fixup(quotient, denominator, numerator);
}

constexpr Opcode kTable[] = {
    valu<[](F16 a, F16 b) { return F16(a + b); }>("v_add_f16"),
    valu<[](F16 a, F16 b) { return F16(a - b); }>("v_sub_f16"),
    valu<[](F16 a, F16 b) { return F16(b - a); }>("v_subrev_f16"),
    valu<[](F16 a, F16 b) { return F16(a * b); }>("v_mul_f16"),
    valu<[](F16 a, F16 b, F16 c) { return Kept<F16>{fused(a, b, c)}; }>("v_fma_f16"),
    valu<[](F16 a, F16 b, F16 c) { return fused(a, b, c); }>("v_fmamk_f16"),
    valu<[](F16 a, F16 b, F16 c) { return fused(a, b, c); }>("v_fmaak_f16"),
    valu<[](F16 a, F16 b, Old<F16> c) { return fused(a, b, c.value); }>("v_fmac_f16"),
    valu<[](F16 a, F16 b, F16 c) { return Kept<F16>{unfused(a, b, c)}; }>("v_mad_f16"),
    valu<[](F16 a, F16 b, F16 c) { return unfused(a, b, c); }>("v_madmk_f16"),
    valu<[](F16 a, F16 b, F16 c) { return unfused(a, b, c); }>("v_madak_f16"),
    valu<[](F16 a, F16 b, Old<F16> c) { return unfused(a, b, c.value); }>("v_mac_f16"),

    valu<[](F16 a, F16 b) { return F16(minimum_number<float>(a, b)); }>("v_min_f16"),
    valu<[](F16 a, F16 b) { return F16(maximum_number<float>(a, b)); }>("v_max_f16"),
    valu<[](F16 a, F16 b) { return F16(minimum_number<float>(a, b)); }>("v_min_num_f16"),
    valu<[](F16 a, F16 b) { return F16(maximum_number<float>(a, b)); }>("v_max_num_f16"),
    valu<[](F16 a, F16 b) { return F16(minimum<float>(a, b)); }>("v_minimum_f16"),
    valu<[](F16 a, F16 b) { return F16(maximum<float>(a, b)); }>("v_maximum_f16"),
    valu<[](F16 a, F16 b, F16 c) {
      return Kept<F16>{F16(minimum_number<float>(minimum_number<float>(a, b), c))};
    }>("v_min3_f16"),
    valu<[](F16 a, F16 b, F16 c) {
      return Kept<F16>{F16(maximum_number<float>(maximum_number<float>(a, b), c))};
    }>("v_max3_f16"),
    valu<[](F16 a, F16 b, F16 c) {
      return Kept<F16>{F16(minimum_number<float>(minimum_number<float>(a, b), c))};
    }>("v_min3_num_f16"),
    valu<[](F16 a, F16 b, F16 c) {
      return Kept<F16>{F16(maximum_number<float>(maximum_number<float>(a, b), c))};
    }>("v_max3_num_f16"),
    valu<[](F16 a, F16 b, F16 c) { return Kept<F16>{F16(median<float>(a, b, c))}; }>("v_med3_f16"),
    valu<[](F16 a, F16 b, F16 c) { return Kept<F16>{F16(median<float>(a, b, c))}; }>(
        "v_med3_num_f16"),
    valu<[](F16 a, F16 b, F16 c) {
      return Kept<F16>{F16(minimum_number<float>(maximum_number<float>(a, b), c))};
    }>("v_maxmin_f16"),
    valu<[](F16 a, F16 b, F16 c) {
      return Kept<F16>{F16(maximum_number<float>(minimum_number<float>(a, b), c))};
    }>("v_minmax_f16"),
    valu<[](F16 a, F16 b, F16 c) {
      return Kept<F16>{F16(minimum_number<float>(maximum_number<float>(a, b), c))};
    }>("v_maxmin_num_f16"),
    valu<[](F16 a, F16 b, F16 c) {
      return Kept<F16>{F16(maximum_number<float>(minimum_number<float>(a, b), c))};
    }>("v_minmax_num_f16"),

    valu<[](F16 a) { return F16(std::trunc(a)); }>("v_trunc_f16"),
    valu<[](F16 a) { return F16(std::ceil(a)); }>("v_ceil_f16"),
    valu<[](F16 a) { return F16(std::nearbyint(a)); }>("v_rndne_f16"),
    valu<[](F16 a) { return F16(std::floor(a)); }>("v_floor_f16"),
    valu<[](F16 a) { return F16(fraction<float>(a, 0x1.ffcp-1f)); }>("v_fract_f16"),
    valu<[](F16 a, i16 b) { return F16(std::ldexp(static_cast<float>(a), b)); }>("v_ldexp_f16"),
    valu<[](F16 a) { return frexp_exponent(a); }>("v_frexp_exp_i16_f16"),
    valu<[](F16 a) { return F16(frexp_mantissa(a)); }>("v_frexp_mant_f16"),
    valu<[](F16 a, F16 b, F16 c) { return Kept<F16>{F16(div_fixup_f16(a, b, c))}; }>(
        "v_div_fixup_f16"),

    transcendental<[](F16 a) { return F16(exp2_f32(a)); }>("v_exp_f16"),
    transcendental<[](F16 a) { return F16(log2_f32(a)); }>("v_log_f16"),
    transcendental<[](F16 a) { return F16(rcp_f32(a)); }>("v_rcp_f16"),
    transcendental<[](F16 a) { return F16(rsq_f32(a)); }>("v_rsq_f16"),
    transcendental<[](F16 a) { return F16(std::sqrt(static_cast<float>(a))); }>("v_sqrt_f16"),
    transcendental<[](F16 a) { return F16(sin_f32(a)); }>("v_sin_f16"),
    transcendental<[](F16 a) { return F16(cos_f32(a)); }>("v_cos_f16"),
};

}  // namespace

std::span<const Opcode> float16_opcodes() { return kTable; }

}  // namespace hstu::jit::sim
