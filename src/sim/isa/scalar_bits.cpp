// SPDX-License-Identifier: Apache-2.0
// Scalar logic, shifts, bit fields, bit counts and execution masks. Sources: AMD's ISA documents
// for MI300 (CDNA3) and RDNA3/RDNA4, chapters "Scalar ALU Operations" and "SOP1/SOP2 Instructions".
#include <bit>

#include "sim/isa/scalar.hpp"
#include "sim/isa/scalar_run.hpp"

namespace hstu::jit::sim {
namespace {

using namespace scalar;

template <typename T>
T not_(T a) {
  return ~a;
}
template <typename T>
T and_(T a, T b) {
  return a & b;
}
template <typename T>
T or_(T a, T b) {
  return a | b;
}
template <typename T>
T xor_(T a, T b) {
  return a ^ b;
}
template <typename T>
T andn2(T a, T b) {
  return a & ~b;
}
template <typename T>
T orn2(T a, T b) {
  return a | ~b;
}
template <typename T>
T nand(T a, T b) {
  return ~(a & b);
}
template <typename T>
T nor(T a, T b) {
  return ~(a | b);
}
template <typename T>
T xnor(T a, T b) {
  return ~(a ^ b);
}

U lshl32(U a, U b) { return a << (b & 31); }
U lshr32(U a, U b) { return a >> (b & 31); }
I ashr32(I a, I b) { return a >> (b & 31); }
U64 lshl64(U64 a, U b) { return a << (b & 63); }
U64 lshr64(U64 a, U b) { return a >> (b & 63); }
U64 ashr64(U64 a, U b) { return static_cast<U64>(static_cast<I64>(a) >> (b & 63)); }
U bfm32(U a, U b) { return ((U{1} << (a & 31)) - 1) << (b & 31); }
// Bit fields: the offset in bits 4:0 (5:0), the width in bits 22:16.
U bfe_u32(U a, U b) {
  const U offset = b & 31, width = b >> 16 & 0x7f;
  return width == 0 ? 0 : width >= 32 ? a >> offset : a >> offset & ((U{1} << width) - 1);
}
U bfe_i32(U a, U b) {
  const U width = b >> 16 & 0x7f;
  const U field = bfe_u32(a, b);
  if (width == 0 || width >= 32 - (b & 31))
    return width == 0 ? 0 : static_cast<U>(static_cast<I>(a) >> (b & 31));
  return static_cast<U>(static_cast<I>(field << (32 - width)) >> (32 - width));
}
U64 bfe_u64(U64 a, U b) {
  const U offset = b & 63, width = b >> 16 & 0x7f;
  return width == 0 ? 0 : width >= 64 ? a >> offset : a >> offset & ((U64{1} << width) - 1);
}
U64 bfe_i64(U64 a, U b) {
  const U offset = b & 63, width = b >> 16 & 0x7f;
  if (width == 0) return 0;
  if (width >= 64 - offset) return static_cast<U64>(static_cast<I64>(a) >> offset);
  const U shift = 64 - width;
  return static_cast<U64>(static_cast<I64>(bfe_u64(a, b) << shift) >> shift);
}

template <typename T>
T brev(T a) {
  T out = 0;
  for (size_t b = 0; b < sizeof(T) * 8; ++b) out |= (a >> b & 1) << (sizeof(T) * 8 - 1 - b);
  return out;
}
U bcnt1_32(U a) { return static_cast<U>(std::popcount(a)); }
U bcnt1_64(U64 a) { return static_cast<U>(std::popcount(a)); }
U bcnt0_32(U a) { return static_cast<U>(std::popcount(~a)); }
U bcnt0_64(U64 a) { return static_cast<U>(std::popcount(~a)); }
U ff1_32(U a) { return a == 0 ? ~U{0} : static_cast<U>(std::countr_zero(a)); }
U ff1_64(U64 a) { return a == 0 ? ~U{0} : static_cast<U>(std::countr_zero(a)); }
U ff0_32(U a) { return ff1_32(~a); }
U ff0_64(U64 a) { return ff1_64(~a); }
U flbit_32(U a) { return a == 0 ? ~U{0} : static_cast<U>(std::countl_zero(a)); }
U flbit_64(U64 a) { return a == 0 ? ~U{0} : static_cast<U>(std::countl_zero(a)); }
U flbit_i32(U a) {
  const U x = static_cast<I>(a) < 0 ? ~a : a;
  return x == 0 ? ~U{0} : static_cast<U>(std::countl_zero(x));
}
U flbit_i64(U64 a) {
  const U64 x = static_cast<I64>(a) < 0 ? ~a : a;
  return x == 0 ? ~U{0} : static_cast<U>(std::countl_zero(x));
}
U sext_i8(U a) { return static_cast<U>(static_cast<int8_t>(a)); }
U sext_i16(U a) { return static_cast<U>(static_cast<int16_t>(a)); }
// Quads with any bit set become all ones (whole quad mode), or one bit each.
template <typename T>
T wqm(T a) {
  T out = 0;
  for (size_t b = 0; b < sizeof(T) * 8; b += 4) {
    if ((a >> b & 0xf) != 0) out |= T{0xf} << b;
  }
  return out;
}
template <typename T>
T quadmask(T a) {
  T out = 0;
  for (size_t b = 0; b < sizeof(T) * 2; ++b) out |= static_cast<T>((a >> 4 * b & 0xf) != 0) << b;
  return out;
}
U64 replicate(U a) {
  U64 out = 0;
  for (int b = 0; b < 32; ++b) out |= static_cast<U64>(a >> b & 1) * 3 << 2 * b;
  return out;
}

template <typename T, bool value>
void s_bitset(Wave& w, const Instruction& i) {
  const T bit = T{1} << (w.read_scalar(i.operand[1]) & (sizeof(T) * 8 - 1));
  const T before = read<T>(w, i.operand[0]);
  write<T>(w, i.operand[0], value ? before | bit : before & ~bit);
}
void s_bfm_b64(Wave& w, const Instruction& i) {
  const U a = w.read_scalar(i.operand[1]) & 63, b = w.read_scalar(i.operand[2]) & 63;
  w.write_scalar64(i.operand[0], ((U64{1} << a) - 1) << b);
}
void s_bitreplicate(Wave& w, const Instruction& i) {
  w.write_scalar64(i.operand[0], replicate(w.read_scalar(i.operand[1])));
}
// ---- Execution mask: the destination takes EXEC, EXEC a combination of it and the source.

template <typename T, U64 (*F)(U64, U64)>
void saveexec(Wave& w, const Instruction& i) {
  const U64 source = read<T>(w, i.operand[1]), before = w.exec();
  write<T>(w, i.operand[0], static_cast<T>(before));
  w.set_exec(F(source, before));
  w.set_scc(w.exec() != 0);
}
// wrexec: the destination takes the new EXEC.
template <typename T, U64 (*F)(U64, U64)>
void wrexec(Wave& w, const Instruction& i) {
  w.set_exec(F(read<T>(w, i.operand[1]), w.exec()));
  write<T>(w, i.operand[0], static_cast<T>(w.exec()));
  w.set_scc(w.exec() != 0);
}
U64 andn1_64(U64 s, U64 e) { return ~s & e; }
U64 orn1_64(U64 s, U64 e) { return ~s | e; }

constexpr Opcode kOpcodes[] = {
    {"s_not_b32", unary<U, not_<U>, Scc::nonzero>, kSalu},
    {"s_not_b64", unary<U64, not_<U64>, Scc::nonzero>, kSalu, k64},
    {"s_and_b32", binary<U, and_<U>, Scc::nonzero>, kSalu},
    {"s_and_b64", binary<U64, and_<U64>, Scc::nonzero>, kSalu, k64},
    {"s_or_b32", binary<U, or_<U>, Scc::nonzero>, kSalu},
    {"s_or_b64", binary<U64, or_<U64>, Scc::nonzero>, kSalu, k64},
    {"s_xor_b32", binary<U, xor_<U>, Scc::nonzero>, kSalu},
    {"s_xor_b64", binary<U64, xor_<U64>, Scc::nonzero>, kSalu, k64},
    {"s_andn2_b32", binary<U, andn2<U>, Scc::nonzero>, kSalu},
    {"s_andn2_b64", binary<U64, andn2<U64>, Scc::nonzero>, kSalu, k64},
    {"s_and_not1_b32", binary<U, andn2<U>, Scc::nonzero>, kSalu},
    {"s_and_not1_b64", binary<U64, andn2<U64>, Scc::nonzero>, kSalu, k64},
    {"s_orn2_b32", binary<U, orn2<U>, Scc::nonzero>, kSalu},
    {"s_orn2_b64", binary<U64, orn2<U64>, Scc::nonzero>, kSalu, k64},
    {"s_or_not1_b32", binary<U, orn2<U>, Scc::nonzero>, kSalu},
    {"s_or_not1_b64", binary<U64, orn2<U64>, Scc::nonzero>, kSalu, k64},
    {"s_nand_b32", binary<U, nand<U>, Scc::nonzero>, kSalu},
    {"s_nand_b64", binary<U64, nand<U64>, Scc::nonzero>, kSalu, k64},
    {"s_nor_b32", binary<U, nor<U>, Scc::nonzero>, kSalu},
    {"s_nor_b64", binary<U64, nor<U64>, Scc::nonzero>, kSalu, k64},
    {"s_xnor_b32", binary<U, xnor<U>, Scc::nonzero>, kSalu},
    {"s_xnor_b64", binary<U64, xnor<U64>, Scc::nonzero>, kSalu, k64},

    {"s_lshl_b32", binary<U, lshl32, Scc::nonzero>, kSalu},
    {"s_lshl_b64", binary64_32<lshl64, Scc::nonzero>, kSalu, k64},
    {"s_lshr_b32", binary<U, lshr32, Scc::nonzero>, kSalu},
    {"s_lshr_b64", binary64_32<lshr64, Scc::nonzero>, kSalu, k64},
    {"s_ashr_i32", binary<I, ashr32, Scc::nonzero>, kSalu},
    {"s_ashr_i64", binary64_32<ashr64, Scc::nonzero>, kSalu, k64},
    {"s_bfm_b32", binary<U, bfm32>, kSalu},
    {"s_bfm_b64", s_bfm_b64, kSalu},
    {"s_bfe_u32", binary<U, bfe_u32, Scc::nonzero>, kSalu},
    {"s_bfe_i32", binary<U, bfe_i32, Scc::nonzero>, kSalu},
    {"s_bfe_u64", binary64_32<bfe_u64, Scc::nonzero>, kSalu, k64},
    {"s_bfe_i64", binary64_32<bfe_i64, Scc::nonzero>, kSalu, k64},
    {"s_brev_b32", unary<U, brev<U>>, kSalu},
    {"s_brev_b64", unary<U64, brev<U64>>, kSalu, k64},
    {"s_bcnt0_i32_b32", unary<U, bcnt0_32, Scc::nonzero>, kSalu},
    {"s_bcnt0_i32_b64", narrow<bcnt0_64, Scc::nonzero>, kSalu, k64},
    {"s_bcnt1_i32_b32", unary<U, bcnt1_32, Scc::nonzero>, kSalu},
    {"s_bcnt1_i32_b64", narrow<bcnt1_64, Scc::nonzero>, kSalu, k64},
    {"s_ff0_i32_b32", unary<U, ff0_32>, kSalu},
    {"s_ff0_i32_b64", narrow<ff0_64>, kSalu, k64},
    {"s_ff1_i32_b32", unary<U, ff1_32>, kSalu},
    {"s_ff1_i32_b64", narrow<ff1_64>, kSalu, k64},
    {"s_ctz_i32_b32", unary<U, ff1_32>, kSalu},
    {"s_ctz_i32_b64", narrow<ff1_64>, kSalu, k64},
    {"s_flbit_i32_b32", unary<U, flbit_32>, kSalu},
    {"s_flbit_i32_b64", narrow<flbit_64>, kSalu, k64},
    {"s_flbit_i32", unary<U, flbit_i32>, kSalu},
    {"s_flbit_i32_i64", narrow<flbit_i64>, kSalu, k64},
    {"s_clz_i32_u32", unary<U, flbit_32>, kSalu},
    {"s_clz_i32_u64", narrow<flbit_64>, kSalu, k64},
    {"s_cls_i32", unary<U, flbit_i32>, kSalu},
    {"s_cls_i32_i64", narrow<flbit_i64>, kSalu, k64},
    {"s_sext_i32_i8", unary<U, sext_i8>, kSalu},
    {"s_sext_i32_i16", unary<U, sext_i16>, kSalu},
    {"s_bitset0_b32", s_bitset<U, false>, kSalu},
    {"s_bitset0_b64", s_bitset<U64, false>, kSalu},
    {"s_bitset1_b32", s_bitset<U, true>, kSalu},
    {"s_bitset1_b64", s_bitset<U64, true>, kSalu},
    {"s_bitreplicate_b64_b32", s_bitreplicate, kSalu},
    {"s_wqm_b32", unary<U, wqm<U>, Scc::nonzero>, kSalu},
    {"s_wqm_b64", unary<U64, wqm<U64>, Scc::nonzero>, kSalu, k64},
    {"s_quadmask_b32", unary<U, quadmask<U>, Scc::nonzero>, kSalu},
    {"s_quadmask_b64", unary<U64, quadmask<U64>, Scc::nonzero>, kSalu, k64},

    {"s_and_saveexec_b32", saveexec<U, and_<U64>>, kSalu},
    {"s_and_saveexec_b64", saveexec<U64, and_<U64>>, kSalu, k64},
    {"s_or_saveexec_b32", saveexec<U, or_<U64>>, kSalu},
    {"s_or_saveexec_b64", saveexec<U64, or_<U64>>, kSalu, k64},
    {"s_xor_saveexec_b32", saveexec<U, xor_<U64>>, kSalu},
    {"s_xor_saveexec_b64", saveexec<U64, xor_<U64>>, kSalu, k64},
    {"s_andn2_saveexec_b32", saveexec<U, andn2<U64>>, kSalu},
    {"s_andn2_saveexec_b64", saveexec<U64, andn2<U64>>, kSalu, k64},
    {"s_and_not1_saveexec_b32", saveexec<U, andn2<U64>>, kSalu},
    {"s_and_not1_saveexec_b64", saveexec<U64, andn2<U64>>, kSalu, k64},
    {"s_orn2_saveexec_b32", saveexec<U, orn2<U64>>, kSalu},
    {"s_orn2_saveexec_b64", saveexec<U64, orn2<U64>>, kSalu, k64},
    {"s_or_not1_saveexec_b32", saveexec<U, orn2<U64>>, kSalu},
    {"s_or_not1_saveexec_b64", saveexec<U64, orn2<U64>>, kSalu, k64},
    {"s_nand_saveexec_b32", saveexec<U, nand<U64>>, kSalu},
    {"s_nand_saveexec_b64", saveexec<U64, nand<U64>>, kSalu, k64},
    {"s_nor_saveexec_b32", saveexec<U, nor<U64>>, kSalu},
    {"s_nor_saveexec_b64", saveexec<U64, nor<U64>>, kSalu, k64},
    {"s_xnor_saveexec_b32", saveexec<U, xnor<U64>>, kSalu},
    {"s_xnor_saveexec_b64", saveexec<U64, xnor<U64>>, kSalu, k64},
    {"s_andn1_saveexec_b32", saveexec<U, andn1_64>, kSalu},
    {"s_andn1_saveexec_b64", saveexec<U64, andn1_64>, kSalu, k64},
    {"s_and_not0_saveexec_b32", saveexec<U, andn1_64>, kSalu},
    {"s_and_not0_saveexec_b64", saveexec<U64, andn1_64>, kSalu, k64},
    {"s_orn1_saveexec_b32", saveexec<U, orn1_64>, kSalu},
    {"s_orn1_saveexec_b64", saveexec<U64, orn1_64>, kSalu, k64},
    {"s_or_not0_saveexec_b32", saveexec<U, orn1_64>, kSalu},
    {"s_or_not0_saveexec_b64", saveexec<U64, orn1_64>, kSalu, k64},
    {"s_andn1_wrexec_b32", wrexec<U, andn1_64>, kSalu},
    {"s_andn1_wrexec_b64", wrexec<U64, andn1_64>, kSalu, k64},
    {"s_and_not0_wrexec_b32", wrexec<U, andn1_64>, kSalu},
    {"s_and_not0_wrexec_b64", wrexec<U64, andn1_64>, kSalu, k64},
    {"s_andn2_wrexec_b32", wrexec<U, andn2<U64>>, kSalu},
    {"s_andn2_wrexec_b64", wrexec<U64, andn2<U64>>, kSalu, k64},
    {"s_and_not1_wrexec_b32", wrexec<U, andn2<U64>>, kSalu},
    {"s_and_not1_wrexec_b64", wrexec<U64, andn2<U64>>, kSalu, k64},
};

}  // namespace

std::span<const Opcode> scalar_bit_opcodes() { return kOpcodes; }

}  // namespace hstu::jit::sim
