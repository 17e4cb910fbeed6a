// SPDX-License-Identifier: Apache-2.0
// Vector integer and bit instructions.
#include <algorithm>

#include "catch.hpp"
#include "probe.hpp"
#include "values.hpp"

namespace hstu::test {
namespace {

using U = uint32_t;
using U1 = U (*)(U);
using U2 = U (*)(U, U);
using U3 = U (*)(U, U, U);

Probe u1(const std::string& code, U1 f) {
  return {code, {In::u32}, 1, each([f](const U* in) { return f(in[0]); })};
}
Probe u2(const std::string& code, U2 f, Same same = same_bits) {
  return {code, {In::u32, In::u32}, 1, each([f](const U* in) { return f(in[0], in[1]); }), same};
}
Probe u3(const std::string& code, U3 f, Same same = same_bits) {
  return {code,
          {In::u32, In::u32, In::u32},
          1,
          each([f](const U* in) { return f(in[0], in[1], in[2]); }),
          same};
}
bool low16(U got, U want) { return (got & 0xffff) == (want & 0xffff); }

int32_t s(U x) { return static_cast<int32_t>(x); }
int32_t s24(U x) { return static_cast<int32_t>(x << 8) >> 8; }
int64_t s64(U x) { return s(x); }
U leading(U x) { return x == 0 ? ~0u : static_cast<U>(__builtin_clz(x)); }

// Byte `select` of the eight in {a, b} (b lower), and its constant selections.
U perm_byte(U a, U b, U select) {
  const uint64_t both = uint64_t{a} << 32 | b;
  if (select >= 13) return 0xff;
  if (select == 12) return 0;
  if (select >= 8) return both >> (16 * (select - 8) + 15) & 1 ? 0xff : 0;  // 8: sign of bytes 1...
  return both >> (8 * select) & 0xff;
}

std::vector<Probe> probes_for(const std::string& target) {
  const bool rdna = is_wave32(target);
  const std::string nc = rdna ? "_nc" : "";
  std::vector<Probe> p = {
      u2("v_add" + nc + "_u32 v64, v8, v9", [](U a, U b) { return a + b; }),
      u2("v_sub" + nc + "_u32 v64, v8, v9", [](U a, U b) { return a - b; }),
      u2("v_subrev" + nc + "_u32 v64, v8, v9", [](U a, U b) { return b - a; }),
      u2("v_add" + nc + "_u32_e64 v64, v8, v9 clamp",
         [](U a, U b) { return a + b < a ? ~0u : a + b; }),
      u2("v_sub" + nc + "_u32_e64 v64, v8, v9 clamp", [](U a, U b) { return a < b ? 0 : a - b; }),
      u2("v_mul_lo_u32 v64, v8, v9", [](U a, U b) { return a * b; }),
      u2("v_mul_hi_u32 v64, v8, v9",
         [](U a, U b) { return static_cast<U>(uint64_t{a} * b >> 32); }),
      u2("v_mul_hi_i32 v64, v8, v9", [](U a, U b) { return static_cast<U>(s64(a) * s64(b) >> 32); }),
      u2("v_mul_u32_u24 v64, v8, v9",
         [](U a, U b) { return static_cast<U>(uint64_t{a & 0xffffff} * (b & 0xffffff)); }),
      u2("v_mul_hi_u32_u24 v64, v8, v9",
         [](U a, U b) { return static_cast<U>(uint64_t{a & 0xffffff} * (b & 0xffffff) >> 32); }),
      u2("v_mul_i32_i24 v64, v8, v9",
         [](U a, U b) { return static_cast<U>(int64_t{s24(a)} * s24(b)); }),
      u2("v_mul_hi_i32_i24 v64, v8, v9",
         [](U a, U b) { return static_cast<U>(int64_t{s24(a)} * s24(b) >> 32); }),
      u3("v_mad_u32_u24 v64, v8, v9, v10",
         [](U a, U b, U c) { return (a & 0xffffff) * (b & 0xffffff) + c; }),
      u3("v_mad_i32_i24 v64, v8, v9, v10",
         [](U a, U b, U c) { return static_cast<U>(int64_t{s24(a)} * s24(b)) + c; }),
      // Shift counts are taken modulo the width.
      u2("v_lshlrev_b32 v64, v8, v9", [](U n, U x) { return x << (n & 31); }),
      u2("v_lshrrev_b32 v64, v8, v9", [](U n, U x) { return x >> (n & 31); }),
      u2("v_ashrrev_i32 v64, v8, v9", [](U n, U x) { return static_cast<U>(s(x) >> (n & 31)); }),
      u2("v_lshlrev_b32 v64, 33, v9", [](U, U x) { return x << 1; }),
      u2("v_and_b32 v64, v8, v9", [](U a, U b) { return a & b; }),
      u2("v_or_b32 v64, v8, v9", [](U a, U b) { return a | b; }),
      u2("v_xor_b32 v64, v8, v9", [](U a, U b) { return a ^ b; }),
      u2("v_xnor_b32 v64, v8, v9", [](U a, U b) { return ~(a ^ b); }),
      u1("v_not_b32 v64, v8", [](U a) { return ~a; }),
      u1("v_and_b32 v64, 0x12345678, v8", [](U a) { return a & 0x12345678u; }),
      u1("v_and_b32 v64, -16, v8", [](U a) { return a & 0xfffffff0u; }),
      u1("v_and_b32 v64, 1.0, v8", [](U a) { return a & 0x3f800000u; }),
      u3("v_bfe_u32 v64, v8, v9, v10",
         [](U x, U at, U n) {
           at &= 31, n &= 31;
           return n == 0 ? 0u : static_cast<U>(uint64_t{x} >> at & ((uint64_t{1} << n) - 1));
         }),
      // The field's top bit, which may lie above bit 31, is its sign.
      u3("v_bfe_i32 v64, v8, v9, v10",
         [](U x, U at, U n) {
           at &= 31, n &= 31;
           if (n == 0) return 0u;
           if (at + n < 32) return static_cast<U>(s(x << (32 - at - n)) >> (32 - n));
           return static_cast<U>(s(x) >> at);
         }),
      u3("v_bfi_b32 v64, v8, v9, v10", [](U m, U a, U b) { return (m & a) | (~m & b); }),
      u2("v_bfm_b32 v64, v8, v9",
         [](U n, U at) { return ((1u << (n & 31)) - 1) << (at & 31); }),
      u3("v_alignbit_b32 v64, v8, v9, v10",
         [](U a, U b, U n) { return static_cast<U>((uint64_t{a} << 32 | b) >> (n & 31)); }),
      u3("v_alignbyte_b32 v64, v8, v9, v10",
         [](U a, U b, U n) { return static_cast<U>((uint64_t{a} << 32 | b) >> 8 * (n & 3)); }),
      u3("v_perm_b32 v64, v8, v9, v10",
         [](U a, U b, U select) {
           U r = 0;
           // Selections of 8 and more are tested by a table.
           select &= 0x07070707;
           for (int i = 0; i < 4; ++i) r |= perm_byte(a, b, select >> 8 * i & 0xff) << 8 * i;
           return r;
         }),
      u1("v_bfrev_b32 v64, v8",
         [](U x) {
           U r = 0;
           for (int i = 0; i < 32; ++i) r |= (x >> i & 1) << (31 - i);
           return r;
         }),
      u1((rdna ? "v_clz_i32_u32" : "v_ffbh_u32") + std::string(" v64, v8"), leading),
      u1((rdna ? "v_ctz_i32_b32" : "v_ffbl_b32") + std::string(" v64, v8"),
         [](U x) { return x == 0 ? ~0u : static_cast<U>(__builtin_ctz(x)); }),
      u1((rdna ? "v_cls_i32" : "v_ffbh_i32") + std::string(" v64, v8"),
         [](U x) { return leading(s(x) < 0 ? ~x : x); }),
      u2("v_bcnt_u32_b32 v64, v8, v9",
         [](U a, U b) { return static_cast<U>(__builtin_popcount(a)) + b; }),
      u2("v_min_i32 v64, v8, v9", [](U a, U b) { return s(a) < s(b) ? a : b; }),
      u2("v_max_i32 v64, v8, v9", [](U a, U b) { return s(a) > s(b) ? a : b; }),
      u2("v_min_u32 v64, v8, v9", [](U a, U b) { return std::min(a, b); }),
      u2("v_max_u32 v64, v8, v9", [](U a, U b) { return std::max(a, b); }),
      u3("v_min3_i32 v64, v8, v9, v10",
         [](U a, U b, U c) { return static_cast<U>(std::min({s(a), s(b), s(c)})); }),
      u3("v_max3_u32 v64, v8, v9, v10", [](U a, U b, U c) { return std::max({a, b, c}); }),
      u3("v_med3_i32 v64, v8, v9, v10",
         [](U a, U b, U c) {
           return static_cast<U>(
               std::max(std::min(s(a), s(b)), std::min(std::max(s(a), s(b)), s(c))));
         }),
      u3("v_med3_u32 v64, v8, v9, v10",
         [](U a, U b, U c) {
           return std::max(std::min(a, b), std::min(std::max(a, b), c));
         }),
      u3("v_add3_u32 v64, v8, v9, v10", [](U a, U b, U c) { return a + b + c; }),
      u3("v_lshl_add_u32 v64, v8, v9, v10", [](U a, U n, U c) { return (a << (n & 31)) + c; }),
      u3("v_add_lshl_u32 v64, v8, v9, v10", [](U a, U b, U n) { return (a + b) << (n & 31); }),
      u3("v_lshl_or_b32 v64, v8, v9, v10", [](U a, U n, U c) { return a << (n & 31) | c; }),
      u3("v_and_or_b32 v64, v8, v9, v10", [](U a, U b, U c) { return (a & b) | c; }),
      u3("v_or3_b32 v64, v8, v9, v10", [](U a, U b, U c) { return a | b | c; }),
      u3("v_xad_u32 v64, v8, v9, v10", [](U a, U b, U c) { return (a ^ b) + c; }),
      u3("v_sad_u32 v64, v8, v9, v10", [](U a, U b, U c) { return (a > b ? a - b : b - a) + c; }),
      u2((rdna ? "v_mul_lo_u16" : "v_mul_lo_u16") + std::string(" v64, v8, v9"),
         [](U a, U b) { return (a & 0xffff) * (b & 0xffff); }, low16),
      u2("v_add" + nc + "_u16 v64, v8, v9", [](U a, U b) { return a + b; }, low16),
      u2("v_sub" + nc + "_u16 v64, v8, v9", [](U a, U b) { return a - b; }, low16),
      u2("v_lshlrev_b16 v64, v8, v9", [](U n, U x) { return x << (n & 15); }, low16),
      u2("v_lshrrev_b16 v64, v8, v9", [](U n, U x) { return (x & 0xffff) >> (n & 15); }, low16),
      u2("v_ashrrev_i16 v64, v8, v9",
         [](U n, U x) { return static_cast<U>(static_cast<int16_t>(x) >> (n & 15)); }, low16),
      u2("v_max_u16 v64, v8, v9", [](U a, U b) { return std::max(a & 0xffff, b & 0xffff); }, low16),
      u2("v_min_i16 v64, v8, v9",
         [](U a, U b) {
           return static_cast<U>(std::min(static_cast<int16_t>(a), static_cast<int16_t>(b)));
         },
         low16),
      u3("v_mad_u16 v64, v8, v9, v10", [](U a, U b, U c) { return a * b + c; }, low16),
  };
  // v_perm above masks its selector on the host: do the same on the device.
  for (Probe& probe : p)
    if (probe.code.find("v_perm_b32") == 0)
      probe.code = "v_and_b32 v96, 0x7070707, v10; v_perm_b32 v64, v8, v9, v96";
  return p;
}

// Carries, 64-bit values, lane counts.
std::vector<Probe> wide_probes(const std::string& target) {
  const bool rdna = is_wave32(target);
  const std::string addc = rdna ? "v_add_co_ci_u32" : "v_addc_co_u32";
  const std::string subb = rdna ? "v_sub_co_ci_u32" : "v_subb_co_u32";
  const auto u64_2 = [](const std::string& code, uint64_t (*f)(uint64_t, uint64_t)) {
    return Probe{code, {In::u64, In::u64}, 2, lanewise([f](const U* in, U* out) {
                   put_u64(f(as_u64(in), as_u64(in + 2)), out);
                 })};
  };
  std::vector<Probe> p = {
      u64_2("v_add_co_u32 v64, $vcc, v8, v10; " + addc + " v65, $vcc, v9, v11, $vcc",
            [](uint64_t a, uint64_t b) { return a + b; }),
      u64_2("v_sub_co_u32 v64, $vcc, v8, v10; " + subb + " v65, $vcc, v9, v11, $vcc",
            [](uint64_t a, uint64_t b) { return a - b; }),
      u64_2("v_add_co_u32 v64, $m20, v8, v10; " + addc + " v65, $m22, v9, v11, $m20",
            [](uint64_t a, uint64_t b) { return a + b; }),
      {"v_add_co_u32 v64, $vcc, v8, v9; v_cndmask_b32 v65, 0, 1, $vcc",
       {In::u32, In::u32},
       2,
       lanewise([](const U* in, U* out) {
         out[0] = in[0] + in[1];
         out[1] = out[0] < in[0];
       })},
      {"v_sub_co_u32 v64, $m20, v8, v9; v_cndmask_b32 v65, 0, 1, $m20",
       {In::u32, In::u32},
       2,
       lanewise([](const U* in, U* out) {
         out[0] = in[0] - in[1];
         out[1] = in[0] < in[1];
       })},
      {"v_mad_u64_u32 v[64:65], $m20, v8, v9, v[10:11]; v_cndmask_b32 v66, 0, 1, $m20",
       {In::u32, In::u32, In::u64},
       3,
       lanewise([](const U* in, U* out) {
         const uint64_t product = uint64_t{in[0]} * in[1], sum = product + as_u64(in + 2);
         put_u64(sum, out);
         out[2] = sum < product;
       })},
      {"v_mad_i64_i32 v[64:65], $m20, v8, v9, v[10:11]",
       {In::u32, In::u32, In::u64},
       2,
       lanewise([](const U* in, U* out) {
         put_u64(static_cast<uint64_t>(s64(in[0]) * s64(in[1])) + as_u64(in + 2), out);
       })},
      {"v_lshlrev_b64 v[64:65], v8, v[10:11]",
       {In::u64, In::u64},
       2,
       lanewise([](const U* in, U* out) { put_u64(as_u64(in + 2) << (in[0] & 63), out); })},
      {"v_lshrrev_b64 v[64:65], v8, v[10:11]",
       {In::u64, In::u64},
       2,
       lanewise([](const U* in, U* out) { put_u64(as_u64(in + 2) >> (in[0] & 63), out); })},
      {"v_ashrrev_i64 v[64:65], v8, v[10:11]",
       {In::u64, In::u64},
       2,
       lanewise([](const U* in, U* out) {
         put_u64(static_cast<uint64_t>(static_cast<int64_t>(as_u64(in + 2)) >> (in[0] & 63)), out);
       })},
      {"v_mbcnt_lo_u32_b32 v64, -1, 0",
       {},
       1,
       [](Wave& w) {
         for (U lane = 0; lane < 64; ++lane) w.out[0][lane] = std::min(lane, 32u);
       }},
      {"s_mov_b32 s20, 0xf0f0a5a5; v_mbcnt_lo_u32_b32 v64, s20, 7",
       {},
       1,
       [](Wave& w) {
         for (U lane = 0; lane < 64; ++lane) {
           const U mask = lane >= 32 ? ~0u : (1u << lane) - 1;
           w.out[0][lane] = 7 + static_cast<U>(__builtin_popcount(0xf0f0a5a5u & mask));
         }
       }},
  };
  if (!rdna)
    p.push_back(
        {"v_mbcnt_lo_u32_b32 v64, -1, 0; v_mbcnt_hi_u32_b32 v64, -1, v64", {}, 1, [](Wave& w) {
           for (U lane = 0; lane < 64; ++lane) w.out[0][lane] = lane;
         }});
  if (target == "gfx942")
    p.push_back({"v_and_b32 v96, 3, v12; v_lshl_add_u64 v[64:65], v[8:9], v96, v[10:11]",
                 {In::u64, In::u64, In::u32},
                 2,
                 lanewise([](const U* in, U* out) {
                   put_u64((as_u64(in) << (in[4] & 3)) + as_u64(in + 2), out);
                 })});
  return p;
}

}  // namespace

TEST_CASE("simulator: vector integers against the host") {
  for (const char* target : kSimTargets) {
    if (!can_probe(target, "integers")) continue;
    run_probes(target, probes_for(target));
    run_probes(target, wide_probes(target));
  }
}

// Worked by hand from the ISA documents.
TEST_CASE("simulator: vector integers, a table") {
  const std::vector<Probe> probes = {
      table("v_bfe_u32 v64, v8, v9, v10",
            {
                {{0x89abcdef, 4, 8}, {0xde}},
                {{0x89abcdef, 28, 8}, {0x8}},  // bits above 31 are zero
                {{0x89abcdef, 0, 0}, {0}},
                {{0x89abcdef, 36, 40}, {0xde}},  // both counts modulo 32
                {{0xffffffff, 0, 31}, {0x7fffffff}},
            }),
      table("v_bfe_i32 v64, v8, v9, v10",
            {
                {{0x00000080, 0, 8}, {0xffffff80}},
                {{0x00000080, 0, 9}, {0x80}},
                {{0x80000000, 31, 1}, {0xffffffff}},
                {{0x12345678, 0, 0}, {0}},
            }),
      // Bytes of {v8, v9}: v9 holds 0 to 3. 12 is 0x00, 13 and more 0xff.
      table("v_perm_b32 v64, v8, v9, v10",
            {
                {{0x44332211, 0x88776655, 0x00010203}, {0x55667788}},
                {{0x44332211, 0x88776655, 0x07060504}, {0x44332211}},
                {{0x44332211, 0x88776655, 0x0c040c00}, {0x00110055}},
                {{0x44332211, 0x88776655, 0x0d0e0fff}, {0xffffffff}},
            }),
      table("v_alignbit_b32 v64, v8, v9, v10",
            {
                {{0x12345678, 0x9abcdef0, 0}, {0x9abcdef0}},
                {{0x12345678, 0x9abcdef0, 4}, {0x89abcdef}},
                {{0x12345678, 0x9abcdef0, 36}, {0x89abcdef}},
                {{0x12345678, 0x9abcdef0, 31}, {0x2468acf1}},
            }),
      table("v_alignbyte_b32 v64, v8, v9, v10",
            {
                {{0x12345678, 0x9abcdef0, 1}, {0x789abcde}},
                {{0x12345678, 0x9abcdef0, 3}, {0x3456789a}},
            }),
      table("v_mul_hi_i32 v64, v8, v9",
            {
                {{0xffffffff, 0xffffffff}, {0}},
                {{0x80000000, 0x80000000}, {0x40000000}},
                {{0x80000000, 2}, {0xffffffff}},
            }),
      table("v_lshlrev_b32 v64, v8, v9",
            {{{32, 5}, {5}}, {{33, 5}, {10}}, {{0xffffffff, 1}, {0x80000000}}}),
      table("v_bfi_b32 v64, v8, v9, v10", {{{0xffff0000, 0x12345678, 0x9abcdef0}, {0x1234def0}}}),
      table("v_bcnt_u32_b32 v64, v8, v9", {{{0xffffffff, 0xffffffff}, {31}}}),
      table("v_sad_u8 v64, v8, v9, v10", {{{0x01ff8000, 0x02008010, 5}, {5 + 1 + 255 + 0 + 16}}}),
  };
  for (const char* target : kSimTargets)
    if (can_probe(target, "integer table")) run_probes(target, probes);
}

}  // namespace hstu::test
