// SPDX-License-Identifier: Apache-2.0
// Scalar arithmetic on f32 of gfx11.5 and gfx12. Source: AMD's RDNA4 ISA document, SOP1, SOP2 and
// SOPC Instructions. Rounding is to nearest even, which the host does.
#include <bit>
#include <cmath>

#include "sim/isa/scalar.hpp"
#include "sim/wave.hpp"

namespace hstu::jit::sim {
namespace {

float read(Wave& w, const Operand& o) {
  float value = std::bit_cast<float>(w.read_scalar(o));
  if (o.absolute) value = std::fabs(value);
  return o.negate ? -value : value;
}
void write(Wave& w, const Instruction& i, float value) {
  w.write_scalar(i.operand[0], std::bit_cast<uint32_t>(value));
}

template <float (*F)(float)>
void unary(Wave& w, const Instruction& i) {
  write(w, i, F(read(w, i.operand[1])));
}
template <float (*F)(float, float)>
void binary(Wave& w, const Instruction& i) {
  write(w, i, F(read(w, i.operand[1]), read(w, i.operand[2])));
}
template <bool (*F)(float, float)>
void compare(Wave& w, const Instruction& i) {
  w.set_scc(F(read(w, i.operand[0]), read(w, i.operand[1])));
}

float add(float a, float b) { return a + b; }
float sub(float a, float b) { return a - b; }
float mul(float a, float b) { return a * b; }
float min_num(float a, float b) { return std::fmin(a, b); }
float max_num(float a, float b) { return std::fmax(a, b); }
float floor_(float a) { return std::floor(a); }
float ceil_(float a) { return std::ceil(a); }
float trunc_(float a) { return std::trunc(a); }
float rndne(float a) { return std::nearbyint(a); }

bool lt(float a, float b) { return a < b; }
bool eq(float a, float b) { return a == b; }
bool le(float a, float b) { return a <= b; }
bool gt(float a, float b) { return a > b; }
bool lg(float a, float b) { return a < b || a > b; }
bool ge(float a, float b) { return a >= b; }
bool ordered(float a, float b) { return !std::isunordered(a, b); }
bool unordered(float a, float b) { return std::isunordered(a, b); }
bool nge(float a, float b) { return !(a >= b); }
bool nlg(float a, float b) { return !lg(a, b); }
bool ngt(float a, float b) { return !(a > b); }
bool nle(float a, float b) { return !(a <= b); }
bool neq(float a, float b) { return a != b; }
bool nlt(float a, float b) { return !(a < b); }

void s_fmac_f32(Wave& w, const Instruction& i) {
  write(w, i, std::fma(read(w, i.operand[1]), read(w, i.operand[2]), read(w, i.operand[0])));
}
// D = S0 * K + S1 and D = S0 * S1 + K, in the order printed.
void s_fmamk_f32(Wave& w, const Instruction& i) {
  write(w, i, std::fma(read(w, i.operand[1]), read(w, i.operand[2]), read(w, i.operand[3])));
}
void cvt_f32_i32(Wave& w, const Instruction& i) {
  write(w, i, static_cast<float>(static_cast<int32_t>(w.read_scalar(i.operand[1]))));
}
void cvt_f32_u32(Wave& w, const Instruction& i) {
  write(w, i, static_cast<float>(w.read_scalar(i.operand[1])));
}
// Toward zero, clamped to the range, a NaN gives 0.
template <typename T>
void cvt_from_f32(Wave& w, const Instruction& i) {
  const double value = std::trunc(static_cast<double>(read(w, i.operand[1])));
  constexpr double kLeast = std::is_signed_v<T> ? -2147483648.0 : 0.0;
  constexpr double kMost = std::is_signed_v<T> ? 2147483647.0 : 4294967295.0;
  const double clamped = std::isnan(value) ? 0 : std::fmin(std::fmax(value, kLeast), kMost);
  w.write_scalar(i.operand[0], static_cast<uint32_t>(static_cast<int64_t>(clamped)));
}

constexpr OpClass kSalu = OpClass::salu;
constexpr ConstantType kF = ConstantType::f32;

constexpr Opcode kOpcodes[] = {
    {"s_add_f32", binary<add>, kSalu, kF},
    {"s_sub_f32", binary<sub>, kSalu, kF},
    {"s_mul_f32", binary<mul>, kSalu, kF},
    {"s_min_f32", binary<min_num>, kSalu, kF},
    {"s_max_f32", binary<max_num>, kSalu, kF},
    {"s_min_num_f32", binary<min_num>, kSalu, kF},
    {"s_max_num_f32", binary<max_num>, kSalu, kF},
    {"s_fmac_f32", s_fmac_f32, kSalu, kF},
    {"s_fmamk_f32", s_fmamk_f32, kSalu, kF},
    {"s_fmaak_f32", s_fmamk_f32, kSalu, kF},
    {"s_floor_f32", unary<floor_>, kSalu, kF},
    {"s_ceil_f32", unary<ceil_>, kSalu, kF},
    {"s_trunc_f32", unary<trunc_>, kSalu, kF},
    {"s_rndne_f32", unary<rndne>, kSalu, kF},
    {"s_cvt_f32_i32", cvt_f32_i32, kSalu},
    {"s_cvt_f32_u32", cvt_f32_u32, kSalu},
    {"s_cvt_i32_f32", cvt_from_f32<int32_t>, kSalu, kF},
    {"s_cvt_u32_f32", cvt_from_f32<uint32_t>, kSalu, kF},
    {"s_cmp_lt_f32", compare<lt>, kSalu, kF},
    {"s_cmp_eq_f32", compare<eq>, kSalu, kF},
    {"s_cmp_le_f32", compare<le>, kSalu, kF},
    {"s_cmp_gt_f32", compare<gt>, kSalu, kF},
    {"s_cmp_lg_f32", compare<lg>, kSalu, kF},
    {"s_cmp_ge_f32", compare<ge>, kSalu, kF},
    {"s_cmp_o_f32", compare<ordered>, kSalu, kF},
    {"s_cmp_u_f32", compare<unordered>, kSalu, kF},
    {"s_cmp_nge_f32", compare<nge>, kSalu, kF},
    {"s_cmp_nlg_f32", compare<nlg>, kSalu, kF},
    {"s_cmp_ngt_f32", compare<ngt>, kSalu, kF},
    {"s_cmp_nle_f32", compare<nle>, kSalu, kF},
    {"s_cmp_neq_f32", compare<neq>, kSalu, kF},
    {"s_cmp_nlt_f32", compare<nlt>, kSalu, kF},
};

}  // namespace

std::span<const Opcode> scalar_float_opcodes() { return kOpcodes; }

}  // namespace hstu::jit::sim
