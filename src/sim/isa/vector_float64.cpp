// SPDX-License-Identifier: Apache-2.0
// Double precision. The estimates that hardware gives for v_rcp, v_rsq and v_sqrt have about half
// of the digits, which compilers refine; here they are exact.
#include "sim/isa/lanes_math.hpp"
#include "sim/isa/vector_tables.hpp"

namespace hstu::jit::sim {
namespace {

int frexp_exponent(double x) {
  int exponent = 0;
  if (std::isfinite(x)) std::frexp(x, &exponent);
  return exponent;
}
double frexp_mantissa(double x) {
  int exponent = 0;
  return std::isfinite(x) ? std::frexp(x, &exponent) : quieted(x);
}

constexpr Opcode kTable[] = {
    valu<[](double a, double b) { return a + b; }>("v_add_f64"),
    valu<[](double a, double b) { return a * b; }>("v_mul_f64"),
    valu<[](double a, double b, double c) { return std::fma(a, b, c); }>("v_fma_f64"),
    valu<[](double a, double b, Old<double> c) { return std::fma(a, b, c.value); }>("v_fmac_f64"),
    valu<[](double a, double b) { return minimum_number(a, b); }>("v_min_f64"),
    valu<[](double a, double b) { return maximum_number(a, b); }>("v_max_f64"),
    valu<[](double a, double b) { return minimum_number(a, b); }>("v_min_num_f64"),
    valu<[](double a, double b) { return maximum_number(a, b); }>("v_max_num_f64"),
    valu<[](double a, double b) { return minimum(a, b); }>("v_minimum_f64"),
    valu<[](double a, double b) { return maximum(a, b); }>("v_maximum_f64"),
    valu<[](double a) { return std::trunc(a); }>("v_trunc_f64"),
    valu<[](double a) { return std::ceil(a); }>("v_ceil_f64"),
    valu<[](double a) { return std::nearbyint(a); }>("v_rndne_f64"),
    valu<[](double a) { return std::floor(a); }>("v_floor_f64"),
    valu<[](double a) { return fraction(a, 0x1.fffffffffffffp-1); }>("v_fract_f64"),
    valu<[](double a, Beside64 b) { return std::ldexp(a, b); }>("v_ldexp_f64"),
    valu<[](double a) { return frexp_exponent(a); }>("v_frexp_exp_i32_f64"),
    valu<[](double a) { return frexp_mantissa(a); }>("v_frexp_mant_f64"),
    transcendental<[](double a) { return 1.0 / a; }>("v_rcp_f64"),
    transcendental<[](double a) { return 1.0 / std::sqrt(a); }>("v_rsq_f64"),
    transcendental<[](double a) { return std::sqrt(a); }>("v_sqrt_f64"),
    valu<[](double a, double denominator, double numerator) {
      return div_scale(a, denominator, numerator);
    }>("v_div_scale_f64"),
    valu<[](double a, double denominator, double numerator) {
      return div_fixup(a, denominator, numerator);
    }>("v_div_fixup_f64"),
    valu<[](double a, double b, double c, Bit scaled) { return div_fmas(a, b, c, scaled); }>(
        "v_div_fmas_f64"),
};

}  // namespace

std::span<const Opcode> float64_opcodes() { return kTable; }

}  // namespace hstu::jit::sim
