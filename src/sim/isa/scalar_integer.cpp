// SPDX-License-Identifier: Apache-2.0
// Scalar moves, arithmetic and comparison. Sources: AMD's ISA documents for MI300 (CDNA3) and
// RDNA3/RDNA4, chapters "Scalar ALU Operations" and "SOP1/SOP2/SOPK/SOPC Instructions".
#include <limits>
#include <type_traits>

#include "sim/isa/scalar.hpp"
#include "sim/isa/scalar_run.hpp"

namespace hstu::jit::sim {
namespace {

using namespace scalar;

template <typename T, bool (*F)(T, T)>
void compare(Wave& w, const Instruction& i) {
  w.set_scc(F(read<T>(w, i.operand[0]), read<T>(w, i.operand[1])));
}

// SOPK: the second source is the 16-bit constant, sign-extended for signed operations.
template <typename T, bool (*F)(T, T)>
void compare_k(Wave& w, const Instruction& i) {
  const auto k = static_cast<uint16_t>(i.operand[1].bits);
  const T b = std::is_signed_v<T> ? static_cast<T>(static_cast<int16_t>(k)) : static_cast<T>(k);
  w.set_scc(F(read<T>(w, i.operand[0]), b));
}
I short_constant(const Operand& o) { return static_cast<int16_t>(o.bits); }

// ---- The operations.

U mul32(U a, U b) { return a * b; }
U64 mul64(U64 a, U64 b) { return a * b; }
U64 add64(U64 a, U64 b) { return a + b; }
U64 sub64(U64 a, U64 b) { return a - b; }
U mul_hi_u32(U a, U b) { return static_cast<U>(U64{a} * b >> 32); }
I mul_hi_i32(I a, I b) { return static_cast<I>(I64{a} * b >> 32); }
U pack_ll(U a, U b) { return (a & 0xffff) | b << 16; }
U pack_lh(U a, U b) { return (a & 0xffff) | (b & 0xffff0000); }
U pack_hh(U a, U b) { return a >> 16 | (b & 0xffff0000); }
U pack_hl(U a, U b) { return a >> 16 | b << 16; }

U abs_i32(U a) { return static_cast<I>(a) < 0 ? 0 - a : a; }
U absdiff_i32(U a, U b) { return abs_i32(a - b); }
template <typename T>
bool eq(T a, T b) {
  return a == b;
}
template <typename T>
bool ne(T a, T b) {
  return a != b;
}
template <typename T>
bool gt(T a, T b) {
  return a > b;
}
template <typename T>
bool ge(T a, T b) {
  return a >= b;
}
template <typename T>
bool lt(T a, T b) {
  return a < b;
}
template <typename T>
bool le(T a, T b) {
  return a <= b;
}
bool bit0_32(U a, U b) { return (a >> (b & 31) & 1) == 0; }
bool bit1_32(U a, U b) { return (a >> (b & 31) & 1) != 0; }

// ---- Carries and overflows in SCC.

void s_add_u32(Wave& w, const Instruction& i) {
  const U64 sum = U64{w.read_scalar(i.operand[1])} + w.read_scalar(i.operand[2]);
  w.write_scalar(i.operand[0], static_cast<U>(sum));
  w.set_scc(sum >> 32 != 0);
}
void s_addc_u32(Wave& w, const Instruction& i) {
  const U64 sum = U64{w.read_scalar(i.operand[1])} + w.read_scalar(i.operand[2]) + w.scc();
  w.write_scalar(i.operand[0], static_cast<U>(sum));
  w.set_scc(sum >> 32 != 0);
}
void s_sub_u32(Wave& w, const Instruction& i) {
  const U a = w.read_scalar(i.operand[1]), b = w.read_scalar(i.operand[2]);
  w.write_scalar(i.operand[0], a - b);
  w.set_scc(b > a);
}
void s_subb_u32(Wave& w, const Instruction& i) {
  const U a = w.read_scalar(i.operand[1]), b = w.read_scalar(i.operand[2]);
  const U64 borrow = w.scc();
  w.write_scalar(i.operand[0], static_cast<U>(a - b - borrow));
  w.set_scc(U64{b} + borrow > a);
}
void set_signed(Wave& w, const Operand& o, I64 exact) {
  w.write_scalar(o, static_cast<U>(exact));
  w.set_scc(exact < std::numeric_limits<I>::min() || exact > std::numeric_limits<I>::max());
}
void s_add_i32(Wave& w, const Instruction& i) {
  set_signed(w, i.operand[0], I64{read<I>(w, i.operand[1])} + read<I>(w, i.operand[2]));
}
void s_sub_i32(Wave& w, const Instruction& i) {
  set_signed(w, i.operand[0], I64{read<I>(w, i.operand[1])} - read<I>(w, i.operand[2]));
}
void s_addk_i32(Wave& w, const Instruction& i) {
  set_signed(w, i.operand[0], I64{read<I>(w, i.operand[0])} + short_constant(i.operand[1]));
}
void s_mulk_i32(Wave& w, const Instruction& i) {
  const U a = w.read_scalar(i.operand[0]);
  w.write_scalar(i.operand[0], a * static_cast<U>(short_constant(i.operand[1])));
}
void s_movk_i32(Wave& w, const Instruction& i) {
  w.write_scalar(i.operand[0], static_cast<U>(short_constant(i.operand[1])));
}
void s_cmovk_i32(Wave& w, const Instruction& i) {
  if (w.scc()) s_movk_i32(w, i);
}
template <int shift>
void s_lshl_add_u32(Wave& w, const Instruction& i) {
  const U64 sum = (U64{w.read_scalar(i.operand[1])} << shift) + w.read_scalar(i.operand[2]);
  w.write_scalar(i.operand[0], static_cast<U>(sum));
  w.set_scc(sum >> 32 != 0);
}
// The smaller or larger; SCC says that it is the first.
template <typename T, bool (*first)(T, T)>
void select_by(Wave& w, const Instruction& i) {
  const T a = read<T>(w, i.operand[1]), b = read<T>(w, i.operand[2]);
  const bool take = first(a, b);
  write<T>(w, i.operand[0], take ? a : b);
  w.set_scc(take);
}

// ---- Moves.

template <typename T>
void s_mov(Wave& w, const Instruction& i) {
  write<T>(w, i.operand[0], read<T>(w, i.operand[1]));
}
template <typename T>
void s_cmov(Wave& w, const Instruction& i) {
  if (w.scc()) s_mov<T>(w, i);
}
template <typename T>
void s_cselect(Wave& w, const Instruction& i) {
  const T a = read<T>(w, i.operand[1]), b = read<T>(w, i.operand[2]);
  write<T>(w, i.operand[0], w.scc() ? a : b);
}
void s_bitcmp1_b64(Wave& w, const Instruction& i) {
  w.set_scc(w.read_scalar64(i.operand[0]) >> (w.read_scalar(i.operand[1]) & 63) & 1);
}
void s_bitcmp0_b64(Wave& w, const Instruction& i) {
  s_bitcmp1_b64(w, i);
  w.set_scc(!w.scc());
}
// Relative to M0.
template <typename T, bool source>
void s_movrel(Wave& w, const Instruction& i) {
  Operand from = i.operand[1], to = i.operand[0];
  const uint32_t index = (source ? from.index : to.index) + w.m0();
  if (index + sizeof(T) / 4 > kFlatScratch) return w.fail("M0 points past the scalar registers");
  (source ? from : to).index = static_cast<uint16_t>(index);
  write<T>(w, to, read<T>(w, from));
}

constexpr Opcode kOpcodes[] = {
    {"s_mov_b32", s_mov<U>, kSalu},
    {"s_mov_b64", s_mov<U64>, kSalu, k64},
    {"s_cmov_b32", s_cmov<U>, kSalu},
    {"s_cmov_b64", s_cmov<U64>, kSalu, k64},
    {"s_movk_i32", s_movk_i32, kSalu},
    {"s_cmovk_i32", s_cmovk_i32, kSalu},
    {"s_cselect_b32", s_cselect<U>, kSalu},
    {"s_cselect_b64", s_cselect<U64>, kSalu, k64},
    {"s_movrels_b32", s_movrel<U, true>, kSalu},
    {"s_movrels_b64", s_movrel<U64, true>, kSalu},
    {"s_movreld_b32", s_movrel<U, false>, kSalu},
    {"s_movreld_b64", s_movrel<U64, false>, kSalu},

    {"s_add_u32", s_add_u32, kSalu},
    {"s_add_i32", s_add_i32, kSalu},
    {"s_add_co_u32", s_add_u32, kSalu},
    {"s_add_co_i32", s_add_i32, kSalu},
    {"s_addc_u32", s_addc_u32, kSalu},
    {"s_add_co_ci_u32", s_addc_u32, kSalu},
    {"s_sub_u32", s_sub_u32, kSalu},
    {"s_sub_i32", s_sub_i32, kSalu},
    {"s_sub_co_u32", s_sub_u32, kSalu},
    {"s_sub_co_i32", s_sub_i32, kSalu},
    {"s_subb_u32", s_subb_u32, kSalu},
    {"s_sub_co_ci_u32", s_subb_u32, kSalu},
    {"s_add_u64", binary<U64, add64>, kSalu, k64},
    {"s_add_nc_u64", binary<U64, add64>, kSalu, k64},
    {"s_sub_u64", binary<U64, sub64>, kSalu, k64},
    {"s_sub_nc_u64", binary<U64, sub64>, kSalu, k64},
    {"s_mul_u64", binary<U64, mul64>, kSalu, k64},
    {"s_mul_i32", binary<U, mul32>, kSalu},
    {"s_mul_hi_u32", binary<U, mul_hi_u32>, kSalu},
    {"s_mul_hi_i32", binary<I, mul_hi_i32>, kSalu},
    {"s_addk_i32", s_addk_i32, kSalu},
    {"s_addk_co_i32", s_addk_i32, kSalu},
    {"s_mulk_i32", s_mulk_i32, kSalu},
    {"s_lshl1_add_u32", s_lshl_add_u32<1>, kSalu},
    {"s_lshl2_add_u32", s_lshl_add_u32<2>, kSalu},
    {"s_lshl3_add_u32", s_lshl_add_u32<3>, kSalu},
    {"s_lshl4_add_u32", s_lshl_add_u32<4>, kSalu},
    {"s_abs_i32", unary<U, abs_i32, Scc::nonzero>, kSalu},
    {"s_absdiff_i32", binary<U, absdiff_i32, Scc::nonzero>, kSalu},
    // SCC says that the first source was taken: strictly smaller or larger.
    {"s_min_i32", select_by<I, lt<I>>, kSalu},
    {"s_min_u32", select_by<U, lt<U>>, kSalu},
    {"s_max_i32", select_by<I, gt<I>>, kSalu},
    {"s_max_u32", select_by<U, gt<U>>, kSalu},
    {"s_pack_ll_b32_b16", binary<U, pack_ll>, kSalu},
    {"s_pack_lh_b32_b16", binary<U, pack_lh>, kSalu},
    {"s_pack_hh_b32_b16", binary<U, pack_hh>, kSalu},
    {"s_pack_hl_b32_b16", binary<U, pack_hl>, kSalu},

    {"s_cmp_eq_i32", compare<I, eq<I>>, kSalu},
    {"s_cmp_lg_i32", compare<I, ne<I>>, kSalu},
    {"s_cmp_gt_i32", compare<I, gt<I>>, kSalu},
    {"s_cmp_ge_i32", compare<I, ge<I>>, kSalu},
    {"s_cmp_lt_i32", compare<I, lt<I>>, kSalu},
    {"s_cmp_le_i32", compare<I, le<I>>, kSalu},
    {"s_cmp_eq_u32", compare<U, eq<U>>, kSalu},
    {"s_cmp_lg_u32", compare<U, ne<U>>, kSalu},
    {"s_cmp_gt_u32", compare<U, gt<U>>, kSalu},
    {"s_cmp_ge_u32", compare<U, ge<U>>, kSalu},
    {"s_cmp_lt_u32", compare<U, lt<U>>, kSalu},
    {"s_cmp_le_u32", compare<U, le<U>>, kSalu},
    {"s_cmp_eq_u64", compare<U64, eq<U64>>, kSalu, k64},
    {"s_cmp_lg_u64", compare<U64, ne<U64>>, kSalu, k64},
    {"s_bitcmp0_b32", compare<U, bit0_32>, kSalu},
    {"s_bitcmp1_b32", compare<U, bit1_32>, kSalu},
    {"s_bitcmp0_b64", s_bitcmp0_b64, kSalu},
    {"s_bitcmp1_b64", s_bitcmp1_b64, kSalu},
    {"s_cmpk_eq_i32", compare_k<I, eq<I>>, kSalu},
    {"s_cmpk_lg_i32", compare_k<I, ne<I>>, kSalu},
    {"s_cmpk_gt_i32", compare_k<I, gt<I>>, kSalu},
    {"s_cmpk_ge_i32", compare_k<I, ge<I>>, kSalu},
    {"s_cmpk_lt_i32", compare_k<I, lt<I>>, kSalu},
    {"s_cmpk_le_i32", compare_k<I, le<I>>, kSalu},
    {"s_cmpk_eq_u32", compare_k<U, eq<U>>, kSalu},
    {"s_cmpk_lg_u32", compare_k<U, ne<U>>, kSalu},
    {"s_cmpk_gt_u32", compare_k<U, gt<U>>, kSalu},
    {"s_cmpk_ge_u32", compare_k<U, ge<U>>, kSalu},
    {"s_cmpk_lt_u32", compare_k<U, lt<U>>, kSalu},
    {"s_cmpk_le_u32", compare_k<U, le<U>>, kSalu},

};

}  // namespace

std::span<const Opcode> scalar_integer_opcodes() { return kOpcodes; }

}  // namespace hstu::jit::sim
