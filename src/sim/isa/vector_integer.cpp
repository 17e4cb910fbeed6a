// SPDX-License-Identifier: Apache-2.0
// Integer and bit arithmetic. Shift counts use only the bits that the width needs.
#include <algorithm>

#include "sim/isa/lanes_run.hpp"
#include "sim/isa/tables.hpp"

namespace hstu::jit::sim {
namespace {

i32 low24(i32 x) { return static_cast<i32>(static_cast<u32>(x) << 8) >> 8; }
u32 low24(u32 x) { return x & 0xffffffu; }
i64 wide(i32 x) { return x; }
u64 wide(u32 x) { return x; }
u32 byte(u32 x, int i) { return x >> (8 * i) & 0xffu; }
template <typename T>
T median(T a, T b, T c) {
  return std::max(std::min(a, b), std::min(std::max(a, b), c));
}

// Sums with carry: the value, the carry and, for clamp, the saturated value.
WithMask<u32> sum(u32 a, u32 b, u32 carry) {
  const u64 exact = u64{a} + b + carry;
  const bool over = exact >> 32 != 0;
  return {static_cast<u32>(exact), over, over ? ~0u : static_cast<u32>(exact)};
}
WithMask<u32> difference(u32 a, u32 b, u32 borrow) {
  const bool under = a < u64{b} + borrow;
  return {a - b - borrow, under, under ? 0 : a - b - borrow};
}

int leading_zeros(u32 x) { return x == 0 ? -1 : std::countl_zero(x); }
int trailing_zeros(u32 x) { return x == 0 ? -1 : std::countr_zero(x); }
// How many leading bits equal the sign; -1 when all do.
int sign_bits(u32 x) { return leading_zeros(static_cast<i32>(x) < 0 ? ~x : x); }
u32 reversed(u32 x) {
  x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
  x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
  x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
  return x << 24 | (x & 0xff00u) << 8 | (x >> 8 & 0xff00u) | x >> 24;
}
u32 ones(u32 x) {
  x = x - (x >> 1 & 0x55555555u);
  x = (x & 0x33333333u) + (x >> 2 & 0x33333333u);
  return ((x + (x >> 4)) & 0x0f0f0f0fu) * 0x01010101u >> 24;
}
u32 lanes_below(int lane) { return lane >= 32 ? ~0u : (1u << lane) - 1; }

u32 extract(u32 x, u32 offset, u32 width) {
  offset &= 31, width &= 31;
  return x >> offset & ((1u << width) - 1);
}
i32 extract_signed(i32 x, u32 offset, u32 width) {
  offset &= 31, width &= 31;
  if (width == 0) return 0;
  if (offset + width >= 32) return x >> offset;
  return static_cast<i32>(static_cast<u32>(x) << (32 - offset - width)) >> (32 - width);
}

// One byte of v_perm_b32: 0-3 bytes of the second source, 4-7 of the first, 8-11 the signs of the
// pair's words, 12 zeros, above ones.
u32 permuted_byte(u64 pair, u32 select) {
  if (select < 8) return pair >> (8 * select) & 0xff;
  if (select < 12) return pair >> (16 * (select - 8) + 15) & 1 ? 0xff : 0;
  return select == 12 ? 0 : 0xff;
}
u32 permuted(u32 high, u32 low, u32 select) {
  const u64 pair = low | u64{high} << 32;
  u32 result = 0;
  for (int i = 0; i < 4; ++i) result |= permuted_byte(pair, byte(select, i)) << (8 * i);
  return result;
}

u32 byte_differences(u32 a, u32 b, bool masked) {
  u32 sum = 0;
  for (int i = 0; i < 4; ++i) {
    const u32 x = byte(a, i), y = byte(b, i);
    if (masked && y == 0) continue;
    sum += x > y ? x - y : y - x;
  }
  return sum;
}
u32 word_differences(u32 a, u32 b) {
  const auto one = [](u32 x, u32 y) { return x > y ? x - y : y - x; };
  return one(a & 0xffff, b & 0xffff) + one(a >> 16, b >> 16);
}
u32 byte_means(u32 a, u32 b, u32 round_up) {
  u32 result = 0;
  for (int i = 0; i < 4; ++i) {
    result |= (byte(a, i) + byte(b, i) + (byte(round_up, i) & 1)) >> 1 << (8 * i);
  }
  return result;
}
u32 saturated(i64 x, i64 low, i64 high) { return static_cast<u32>(std::clamp(x, low, high)); }
u16 pair_of_bytes(u32 low, u32 high) { return static_cast<u16>((low & 0xff) | (high & 0xff) << 8); }

// Any function of three bits: bit 4a + 2b + c of the table.
void bit_table(Wave& wave, const Instruction& instruction) {
  Lanes lanes(wave, instruction, 1, 3);
  Row scratch[3], out;
  const u32* a = lanes.word(0, 0, WordKind::integer, scratch[0]);
  const u32* b = lanes.word(1, 0, WordKind::integer, scratch[1]);
  const u32* c = lanes.word(2, 0, WordKind::integer, scratch[2]);
  for (int l = 0; l < kMaxLanes; ++l) {
    u32 result = 0;
    for (int k = 0; k < 8; ++k) {
      if (!(instruction.modifiers.bitop3 >> k & 1)) continue;
      result |= (k & 4 ? a[l] : ~a[l]) & (k & 2 ? b[l] : ~b[l]) & (k & 1 ? c[l] : ~c[l]);
    }
    out.lane[l] = result;
  }
  if (instruction.opcode->argument == 16) {
    lanes.write_half(out, true);
  } else {
    lanes.write_word(0, out);
  }
}

// (g++ 12 takes a bare >> in such a function for the end of the template arguments.)
constexpr Opcode kTable[] = {
    // ---- 32 bits: sums.
    valu<[](u32 a, u32 b) { return Exact<u32>{i64{a} + b}; }>("v_add_u32"),
    valu<[](u32 a, u32 b) { return Exact<u32>{i64{a} + b}; }>("v_add_nc_u32"),
    valu<[](u32 a, u32 b) { return Exact<u32>{i64{a} - b}; }>("v_sub_u32"),
    valu<[](u32 a, u32 b) { return Exact<u32>{i64{a} - b}; }>("v_sub_nc_u32"),
    valu<[](u32 a, u32 b) { return Exact<u32>{i64{b} - a}; }>("v_subrev_u32"),
    valu<[](u32 a, u32 b) { return Exact<u32>{i64{b} - a}; }>("v_subrev_nc_u32"),
    valu<[](i32 a, i32 b) { return Exact<i32>{wide(a) + b}; }>("v_add_i32"),
    valu<[](i32 a, i32 b) { return Exact<i32>{wide(a) + b}; }>("v_add_nc_i32"),
    valu<[](i32 a, i32 b) { return Exact<i32>{wide(a) - b}; }>("v_sub_i32"),
    valu<[](i32 a, i32 b) { return Exact<i32>{wide(a) - b}; }>("v_sub_nc_i32"),
    valu<[](u32 a, u32 b) { return sum(a, b, 0); }>("v_add_co_u32"),
    valu<[](u32 a, u32 b) { return difference(a, b, 0); }>("v_sub_co_u32"),
    valu<[](u32 a, u32 b) { return difference(b, a, 0); }>("v_subrev_co_u32"),
    valu<[](u32 a, u32 b, Bit c) { return sum(a, b, c); }>("v_addc_co_u32"),
    valu<[](u32 a, u32 b, Bit c) { return difference(a, b, c); }>("v_subb_co_u32"),
    valu<[](u32 a, u32 b, Bit c) { return difference(b, a, c); }>("v_subbrev_co_u32"),
    valu<[](u32 a, u32 b, Bit c) { return sum(a, b, c); }>("v_add_co_ci_u32"),
    valu<[](u32 a, u32 b, Bit c) { return difference(a, b, c); }>("v_sub_co_ci_u32"),
    valu<[](u32 a, u32 b, Bit c) { return difference(b, a, c); }>("v_subrev_co_ci_u32"),
    valu<[](u32 a, u32 b, u32 c) { return a + b + c; }>("v_add3_u32"),
    valu<[](u32 a, u32 b, u32 c) { return (a << (b & 31)) + c; }>("v_lshl_add_u32"),
    valu<[](u32 a, u32 b, u32 c) { return (a + b) << (c & 31); }>("v_add_lshl_u32"),
    valu<[](u32 a, u32 b, u32 c) { return (a ^ b) + c; }>("v_xad_u32"),

    // ---- Products.
    valu<[](u32 a, u32 b) { return a * b; }>("v_mul_lo_u32"),
    valu<[](u32 a, u32 b) { return static_cast<u32>(u64{a} * b >> 32); }>("v_mul_hi_u32"),
    valu<[](i32 a, i32 b) { return static_cast<i32>(wide(a) * b >> 32); }>("v_mul_hi_i32"),
    valu<[](u32 a, u32 b) { return static_cast<u32>(wide(low24(a)) * low24(b)); }>("v_mul_u32_u24"),
    valu<[](i32 a, i32 b) { return static_cast<i32>(wide(low24(a)) * low24(b)); }>("v_mul_i32_i24"),
    valu<[](u32 a, u32 b) { return static_cast<u32>(wide(low24(a)) * low24(b) >> 32); }>(
        "v_mul_hi_u32_u24"),
    valu<[](i32 a, i32 b) { return static_cast<i32>(wide(low24(a)) * low24(b) >> 32); }>(
        "v_mul_hi_i32_i24"),
    valu<[](u32 a, u32 b, u32 c) {
      return Exact<u32>{static_cast<i64>(wide(low24(a)) * low24(b) + c)};
    }>("v_mad_u32_u24"),
    valu<[](i32 a, i32 b, i32 c) { return Exact<i32>{wide(low24(a)) * low24(b) + c}; }>(
        "v_mad_i32_i24"),
    valu<[](u16 a, u16 b, u32 c) { return Exact<u32>{i64{a} * b + c}; }>("v_mad_u32_u16"),
    valu<[](i16 a, i16 b, i32 c) { return Exact<i32>{i64{a} * b + c}; }>("v_mad_i32_i16"),
    valu<[](u32 a, u32 b, u64 c) {
      const u64 product = u64{a} * b, total = product + c;
      return WithMask<u64>{total, total < product, total < product ? ~u64{0} : total};
    }>("v_mad_u64_u32"),
    valu<[](u32 a, u32 b, u64 c) {
      const u64 product = u64{a} * b, total = product + c;
      return WithMask<u64>{total, total < product, total < product ? ~u64{0} : total};
    }>("v_mad_co_u64_u32"),
    valu<[](i32 a, i32 b, i64 c) {
      i64 total = 0;
      const bool over = __builtin_add_overflow(wide(a) * b, c, &total);
      return WithMask<i64>{total, over, over ? (c < 0 ? INT64_MIN : INT64_MAX) : total};
    }>("v_mad_i64_i32"),
    valu<[](i32 a, i32 b, i64 c) {
      i64 total = 0;
      const bool over = __builtin_add_overflow(wide(a) * b, c, &total);
      return WithMask<i64>{total, over, over ? (c < 0 ? INT64_MIN : INT64_MAX) : total};
    }>("v_mad_co_i64_i32"),

    // ---- Bits.
    valu<[](u32 a, u32 b) { return a & b; }>("v_and_b32"),
    valu<[](u32 a, u32 b) { return a | b; }>("v_or_b32"),
    valu<[](u32 a, u32 b) { return a ^ b; }>("v_xor_b32"),
    valu<[](u32 a, u32 b) { return ~(a ^ b); }>("v_xnor_b32"),
    valu<[](u32 a) { return ~a; }>("v_not_b32"),
    valu<[](u32 a, u32 b, u32 c) { return (a & b) | c; }>("v_and_or_b32"),
    valu<[](u32 a, u32 b, u32 c) { return a | b | c; }>("v_or3_b32"),
    valu<[](u32 a, u32 b, u32 c) { return a ^ b ^ c; }>("v_xor3_b32"),
    valu<[](u32 a, u32 b, u32 c) { return (a << (b & 31)) | c; }>("v_lshl_or_b32"),
    {"v_bitop3_b32", bit_table, OpClass::valu, ConstantType::b32, 32},
    valu<[](u32 a, u32 b) { return b << (a & 31); }>("v_lshlrev_b32"),
    valu<[](u32 a, u32 b) { return (b >> (a & 31)); }>("v_lshrrev_b32"),
    valu<[](u32 a, i32 b) { return (b >> (a & 31)); }>("v_ashrrev_i32"),
    valu<[](u32 a, u32 offset, u32 width) { return extract(a, offset, width); }>("v_bfe_u32"),
    valu<[](i32 a, u32 offset, u32 width) { return extract_signed(a, offset, width); }>(
        "v_bfe_i32"),
    valu<[](u32 mask, u32 b, u32 c) { return (mask & b) | (~mask & c); }>("v_bfi_b32"),
    valu<[](u32 width, u32 offset) { return ((1u << (width & 31)) - 1) << (offset & 31); }>(
        "v_bfm_b32"),
    valu<[](u32 a) { return reversed(a); }>("v_bfrev_b32"),
    valu<[](u32 a, u32 b) { return ones(a) + b; }>("v_bcnt_u32_b32"),
    valu<[](u32 a, u32 b, LaneIndex lane) { return ones(a & lanes_below(lane)) + b; }>(
        "v_mbcnt_lo_u32_b32"),
    valu<[](u32 a, u32 b, LaneIndex lane) {
      return ones(lane < 32 ? 0 : a & lanes_below(lane - 32)) + b;
    }>("v_mbcnt_hi_u32_b32"),
    valu<[](u32 a) { return leading_zeros(a); }>("v_ffbh_u32"),
    valu<[](u32 a) { return leading_zeros(a); }>("v_clz_i32_u32"),
    valu<[](u32 a) { return trailing_zeros(a); }>("v_ffbl_b32"),
    valu<[](u32 a) { return trailing_zeros(a); }>("v_ctz_i32_b32"),
    valu<[](u32 a) { return sign_bits(a); }>("v_ffbh_i32"),
    valu<[](u32 a) { return sign_bits(a); }>("v_cls_i32"),
    valu<[](u32 a, u32 b, u32 c) { return static_cast<u32>((b | u64{a} << 32) >> (c & 31)); }>(
        "v_alignbit_b32"),
    valu<[](u32 a, u32 b, u32 c) { return static_cast<u32>((b | u64{a} << 32) >> (8 * (c & 3))); }>(
        "v_alignbyte_b32"),
    valu<[](u32 a, u32 b, u32 c) { return permuted(a, b, c); }>("v_perm_b32"),
    valu<[](u32 a) { return a << 1 ^ (a >> 31 ? 197u : 0u); }>("v_prng_b32"),

    // ---- Order.
    valu<[](u32 a, u32 b) { return std::min(a, b); }>("v_min_u32"),
    valu<[](u32 a, u32 b) { return std::max(a, b); }>("v_max_u32"),
    valu<[](i32 a, i32 b) { return std::min(a, b); }>("v_min_i32"),
    valu<[](i32 a, i32 b) { return std::max(a, b); }>("v_max_i32"),
    valu<[](u32 a, u32 b, u32 c) { return std::min(std::min(a, b), c); }>("v_min3_u32"),
    valu<[](u32 a, u32 b, u32 c) { return std::max(std::max(a, b), c); }>("v_max3_u32"),
    valu<[](i32 a, i32 b, i32 c) { return std::min(std::min(a, b), c); }>("v_min3_i32"),
    valu<[](i32 a, i32 b, i32 c) { return std::max(std::max(a, b), c); }>("v_max3_i32"),
    valu<[](u32 a, u32 b, u32 c) { return median(a, b, c); }>("v_med3_u32"),
    valu<[](i32 a, i32 b, i32 c) { return median(a, b, c); }>("v_med3_i32"),
    valu<[](u32 a, u32 b, u32 c) { return std::min(std::max(a, b), c); }>("v_maxmin_u32"),
    valu<[](u32 a, u32 b, u32 c) { return std::max(std::min(a, b), c); }>("v_minmax_u32"),
    valu<[](i32 a, i32 b, i32 c) { return std::min(std::max(a, b), c); }>("v_maxmin_i32"),
    valu<[](i32 a, i32 b, i32 c) { return std::max(std::min(a, b), c); }>("v_minmax_i32"),

    // ---- 64 bits.
    valu<[](u32 a, u64 b) { return b << (a & 63); }>("v_lshlrev_b64"),
    valu<[](u32 a, u64 b) { return (b >> (a & 63)); }>("v_lshrrev_b64"),
    valu<[](u32 a, i64 b) { return (b >> (a & 63)); }>("v_ashrrev_i64"),
    valu<[](u64 a, u32 b, u64 c) { return (a << (b & 7)) + c; }>("v_lshl_add_u64"),

    // ---- 16 bits.
    valu<[](u16 a, u16 b) { return Exact<u16>{i64{a} + b}; }>("v_add_u16"),
    valu<[](u16 a, u16 b) { return Exact<u16>{i64{a} + b}; }>("v_add_nc_u16"),
    valu<[](u16 a, u16 b) { return Exact<u16>{i64{a} - b}; }>("v_sub_u16"),
    valu<[](u16 a, u16 b) { return Exact<u16>{i64{a} - b}; }>("v_sub_nc_u16"),
    valu<[](u16 a, u16 b) { return Exact<u16>{i64{b} - a}; }>("v_subrev_u16"),
    valu<[](i16 a, i16 b) { return Exact<i16>{i64{a} + b}; }>("v_add_i16"),
    valu<[](i16 a, i16 b) { return Exact<i16>{i64{a} + b}; }>("v_add_nc_i16"),
    valu<[](i16 a, i16 b) { return Exact<i16>{i64{a} - b}; }>("v_sub_i16"),
    valu<[](i16 a, i16 b) { return Exact<i16>{i64{a} - b}; }>("v_sub_nc_i16"),
    valu<[](u16 a, u16 b) { return static_cast<u16>(u32{a} * b); }>("v_mul_lo_u16"),
    valu<[](u16 a, u16 b, u16 c) { return Exact<u16>{i64{a} * b + c}; }>("v_mad_u16"),
    valu<[](i16 a, i16 b, i16 c) { return Exact<i16>{i64{a} * b + c}; }>("v_mad_i16"),
    valu<[](u16 a, u16 b) { return static_cast<u16>(b << (a & 15)); }>("v_lshlrev_b16"),
    valu<[](u16 a, u16 b) { return static_cast<u16>(b >> (a & 15)); }>("v_lshrrev_b16"),
    valu<[](u16 a, i16 b) { return static_cast<i16>(b >> (a & 15)); }>("v_ashrrev_i16"),
    valu<[](u16 a, u16 b) { return static_cast<u16>(a & b); }>("v_and_b16"),
    valu<[](u16 a, u16 b) { return static_cast<u16>(a | b); }>("v_or_b16"),
    valu<[](u16 a, u16 b) { return static_cast<u16>(a ^ b); }>("v_xor_b16"),
    valu<[](u16 a) { return static_cast<u16>(~a); }>("v_not_b16"),
    {"v_bitop3_b16", bit_table, OpClass::valu, ConstantType::b32, 16},
    valu<[](u16 a, u16 b) { return std::min(a, b); }>("v_min_u16"),
    valu<[](u16 a, u16 b) { return std::max(a, b); }>("v_max_u16"),
    valu<[](i16 a, i16 b) { return std::min(a, b); }>("v_min_i16"),
    valu<[](i16 a, i16 b) { return std::max(a, b); }>("v_max_i16"),
    valu<[](u16 a, u16 b, u16 c) { return Kept<u16>{std::min(std::min(a, b), c)}; }>("v_min3_u16"),
    valu<[](u16 a, u16 b, u16 c) { return Kept<u16>{std::max(std::max(a, b), c)}; }>("v_max3_u16"),
    valu<[](i16 a, i16 b, i16 c) { return Kept<i16>{std::min(std::min(a, b), c)}; }>("v_min3_i16"),
    valu<[](i16 a, i16 b, i16 c) { return Kept<i16>{std::max(std::max(a, b), c)}; }>("v_max3_i16"),
    valu<[](u16 a, u16 b, u16 c) { return Kept<u16>{median(a, b, c)}; }>("v_med3_u16"),
    valu<[](i16 a, i16 b, i16 c) { return Kept<i16>{median(a, b, c)}; }>("v_med3_i16"),

    // ---- Bytes, packing and choosing.
    valu<[](u32 a, u32 b, u32 c) { return byte_differences(a, b, false) + c; }>("v_sad_u8"),
    valu<[](u32 a, u32 b, u32 c) { return (byte_differences(a, b, false) << 16) + c; }>(
        "v_sad_hi_u8"),
    valu<[](u32 a, u32 b, u32 c) { return byte_differences(a, b, true) + c; }>("v_msad_u8"),
    valu<[](u32 a, u32 b, u32 c) { return word_differences(a, b) + c; }>("v_sad_u16"),
    valu<[](u32 a, u32 b, u32 c) { return (a > b ? a - b : b - a) + c; }>("v_sad_u32"),
    valu<[](u32 a, u32 b, u32 c) { return byte_means(a, b, c); }>("v_lerp_u8"),
    valu<[](u32 a, u32 b) { return std::min(a, 0xffffu) | std::min(b, 0xffffu) << 16; }>(
        "v_cvt_pk_u16_u32"),
    valu<[](i32 a, i32 b) {
      return (saturated(a, INT16_MIN, INT16_MAX) & 0xffff) | saturated(b, INT16_MIN, INT16_MAX)
                                                                 << 16;
    }>("v_cvt_pk_i16_i32"),
    valu<[](u32 a) {
      const auto one = [](u32 x) { return saturated(static_cast<i16>(x), 0, 255); };
      return pair_of_bytes(one(a), one(a >> 16));
    }>("v_sat_pk_u8_i16"),
    valu<[](i32 a, i32 b, u32 c) {
      const auto one = [c](i32 x) { return saturated(x >> (c & 31), -128, 127); };
      return Kept<u16>{pair_of_bytes(one(a), one(b))};
    }>("v_ashr_pk_i8_i32"),
    valu<[](i32 a, i32 b, u32 c) {
      const auto one = [c](i32 x) { return saturated(x >> (c & 31), 0, 255); };
      return Kept<u16>{pair_of_bytes(one(a), one(b))};
    }>("v_ashr_pk_u8_i32"),
    valu<[](u16 a, u16 b) { return a | static_cast<u32>(b) << 16; }>("v_pack_b32_f16"),
    valu<[](Bits a, Bits b, Bit second) { return second ? b.value : a.value; }>("v_cndmask_b32"),
    valu<[](u16 a, u16 b, Bit second) { return second ? b : a; }>("v_cndmask_b16"),
};

}  // namespace

std::span<const Opcode> vector_integer_opcodes() { return kTable; }

}  // namespace hstu::jit::sim
