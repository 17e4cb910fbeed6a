// SPDX-License-Identifier: Apache-2.0
// Scalar arithmetic with its condition code, branches, calls and scalar loads.
#include <fmt/format.h>

#include <algorithm>

#include "catch.hpp"
#include "probe.hpp"
#include "values.hpp"

namespace hstu::test {
namespace {

using U = uint32_t;
int32_t s(U x) { return static_cast<int32_t>(x); }
int64_t s64(U x) { return s(x); }

struct Out {
  uint64_t value = 0;
  bool scc = false;
};
// Two operands of 32 or 64 bits, SCC before.
using Scalar = Out (*)(uint64_t a, uint64_t b, bool scc);

// Runs the instruction on the operands of eight lanes: s[20:21] and s[22:23] in, s[24:25] out, SCC
// from the odd bit of a third.
Probe scalar(const std::string& instruction, Scalar f, int in_words = 1, int out_words = 1) {
  std::string code;
  for (int lane = 0; lane < 8; ++lane) {
    code += fmt::format(
        "v_readlane_b32 s20, v8, {0}; v_readlane_b32 s21, v9, {0}; "
        "v_readlane_b32 s22, v10, {0}; v_readlane_b32 s23, v11, {0}; "
        "v_readlane_b32 s26, v12, {0}; s_mov_b32 s24, 0; s_mov_b32 s25, 0; "
        "s_bitcmp1_b32 s26, 0; {1}; s_cselect_b32 s30, 1, 0; "
        "v_mov_b32 v{2}, s24; v_mov_b32 v{3}, s25; v_mov_b32 v{4}, s30; ",
        lane, instruction, 64 + 3 * lane, 65 + 3 * lane, 66 + 3 * lane);
  }
  Probe probe;
  probe.name = instruction;
  probe.code = code + "s_nop 0";
  probe.in = {In::u64, In::u64, In::u32};
  probe.out = 24;
  probe.expect = [=](Wave& w) {
    for (size_t lane = 0; lane < 8; ++lane) {
      const U ins[] = {w.in[0][lane], w.in[1][lane], w.in[2][lane], w.in[3][lane]};
      const uint64_t a = in_words == 2 ? as_u64(ins) : ins[0];
      const uint64_t b = in_words == 2 ? as_u64(ins + 2) : ins[2];
      const Out out = f(a, b, w.in[4][lane] & 1);
      w.out[3 * lane].fill(static_cast<U>(out.value));
      w.out[3 * lane + 1].fill(out_words == 2 ? static_cast<U>(out.value >> 32) : 0);
      w.out[3 * lane + 2].fill(out.scc);
    }
  };
  return probe;
}

Out nonzero(uint64_t x) { return {x, x != 0}; }
Out nonzero32(uint64_t x) { return {x & ~0u, static_cast<U>(x) != 0}; }
U leading(U x) { return x == 0 ? ~0u : static_cast<U>(__builtin_clz(x)); }

std::vector<Probe> arithmetic() {
  using L = uint64_t;
  std::vector<Probe> p = {
      scalar("s_add_u32 s24, s20, s22",
             [](L a, L b, bool) {
               return Out{a + b, a + b > ~0u};
             }),
      scalar("s_sub_u32 s24, s20, s22",
             [](L a, L b, bool) {
               return Out{a - b, a < b};
             }),
      scalar("s_addc_u32 s24, s20, s22",
             [](L a, L b, bool c) {
               return Out{a + b + c, a + b + c > ~0u};
             }),
      scalar("s_subb_u32 s24, s20, s22",
             [](L a, L b, bool c) {
               return Out{a - b - c, a < b + c};
             }),
      scalar("s_add_i32 s24, s20, s22",
             [](L a, L b, bool) {
               const int64_t r = s64(U(a)) + s64(U(b));
               return Out{L(r), r != s(U(r))};
             }),
      scalar("s_sub_i32 s24, s20, s22",
             [](L a, L b, bool) {
               const int64_t r = s64(U(a)) - s64(U(b));
               return Out{L(r), r != s(U(r))};
             }),
      scalar("s_min_i32 s24, s20, s22",
             [](L a, L b, bool) {
               return s(U(a)) < s(U(b)) ? Out{a, true} : Out{b, false};
             }),
      scalar("s_min_u32 s24, s20, s22",
             [](L a, L b, bool) {
               return a < b ? Out{a, true} : Out{b, false};
             }),
      scalar("s_max_i32 s24, s20, s22",
             [](L a, L b, bool) {
               return s(U(a)) > s(U(b)) ? Out{a, true} : Out{b, false};
             }),
      scalar("s_max_u32 s24, s20, s22",
             [](L a, L b, bool) {
               return a > b ? Out{a, true} : Out{b, false};
             }),
      scalar("s_cselect_b32 s24, s20, s22",
             [](L a, L b, bool c) {
               return Out{c ? a : b, c};
             }),
      scalar(
          "s_cselect_b64 s[24:25], s[20:21], s[22:23]",
          [](L a, L b, bool c) {
            return Out{c ? a : b, c};
          },
          2, 2),
      scalar("s_cmov_b32 s24, s20",
             [](L a, L, bool c) {
               return Out{c ? a : 0, c};
             }),
      scalar("s_and_b32 s24, s20, s22", [](L a, L b, bool) { return nonzero(a & b); }),
      scalar("s_or_b32 s24, s20, s22", [](L a, L b, bool) { return nonzero(a | b); }),
      scalar("s_xor_b32 s24, s20, s22", [](L a, L b, bool) { return nonzero(a ^ b); }),
      scalar("s_andn2_b32 s24, s20, s22", [](L a, L b, bool) { return nonzero(a & ~b); }),
      scalar("s_orn2_b32 s24, s20, s22", [](L a, L b, bool) { return nonzero32(a | ~b); }),
      scalar("s_nand_b32 s24, s20, s22", [](L a, L b, bool) { return nonzero32(~(a & b)); }),
      scalar("s_nor_b32 s24, s20, s22", [](L a, L b, bool) { return nonzero32(~(a | b)); }),
      scalar("s_xnor_b32 s24, s20, s22", [](L a, L b, bool) { return nonzero32(~(a ^ b)); }),
      scalar("s_not_b32 s24, s20", [](L a, L, bool) { return nonzero32(~a); }),
      scalar(
          "s_and_b64 s[24:25], s[20:21], s[22:23]", [](L a, L b, bool) { return nonzero(a & b); },
          2, 2),
      scalar(
          "s_andn2_b64 s[24:25], s[20:21], s[22:23]",
          [](L a, L b, bool) { return nonzero(a & ~b); }, 2, 2),
      scalar(
          "s_or_b64 s[24:25], s[20:21], s[22:23]", [](L a, L b, bool) { return nonzero(a | b); }, 2,
          2),
      scalar(
          "s_xor_b64 s[24:25], s[20:21], s[22:23]", [](L a, L b, bool) { return nonzero(a ^ b); },
          2, 2),
      scalar(
          "s_not_b64 s[24:25], s[20:21]", [](L a, L, bool) { return nonzero(~a); }, 2, 2),
      scalar("s_lshl_b32 s24, s20, s22", [](L a, L n, bool) { return nonzero32(a << (n & 31)); }),
      scalar("s_lshr_b32 s24, s20, s22", [](L a, L n, bool) { return nonzero(a >> (n & 31)); }),
      scalar("s_ashr_i32 s24, s20, s22",
             [](L a, L n, bool) { return nonzero32(static_cast<U>(s(U(a)) >> (n & 31))); }),
      scalar(
          "s_lshl_b64 s[24:25], s[20:21], s22",
          [](L a, L n, bool) { return nonzero(a << (n & 63)); }, 2, 2),
      scalar(
          "s_lshr_b64 s[24:25], s[20:21], s22",
          [](L a, L n, bool) { return nonzero(a >> (n & 63)); }, 2, 2),
      scalar(
          "s_ashr_i64 s[24:25], s[20:21], s22",
          [](L a, L n, bool) { return nonzero(L(static_cast<int64_t>(a) >> (n & 63))); }, 2, 2),
      scalar("s_bfm_b32 s24, s20, s22",
             [](L n, L at, bool c) {
               return Out{((L{1} << (n & 31)) - 1) << (at & 31), c};
             }),
      // Offset in bits 4:0, width in 22:16.
      scalar("s_bfe_u32 s24, s20, s22",
             [](L a, L b, bool) {
               const L width = b >> 16 & 127;
               return nonzero(a >> (b & 31) & (width >= 32 ? ~0u : (L{1} << width) - 1));
             }),
      scalar("s_mul_i32 s24, s20, s22",
             [](L a, L b, bool c) {
               return Out{a * b, c};
             }),
      scalar("s_mul_hi_u32 s24, s20, s22",
             [](L a, L b, bool c) {
               return Out{a * b >> 32, c};
             }),
      scalar("s_mul_hi_i32 s24, s20, s22",
             [](L a, L b, bool c) {
               return Out{L(s64(U(a)) * s64(U(b)) >> 32), c};
             }),
      scalar("s_lshl1_add_u32 s24, s20, s22",
             [](L a, L b, bool) {
               return Out{2 * a + b, 2 * a + b > ~0u};
             }),
      scalar("s_lshl4_add_u32 s24, s20, s22",
             [](L a, L b, bool) {
               return Out{16 * a + b, 16 * a + b > ~0u};
             }),
      scalar("s_absdiff_i32 s24, s20, s22",
             [](L a, L b, bool) {
               const U d = U(a) - U(b);
               return nonzero(s(d) < 0 ? U(0) - d : d);
             }),
      scalar("s_abs_i32 s24, s20",
             [](L a, L, bool) { return nonzero(s(U(a)) < 0 ? U(0) - U(a) : U(a)); }),
      scalar("s_pack_ll_b32_b16 s24, s20, s22",
             [](L a, L b, bool c) {
               return Out{(a & 0xffff) | b << 16, c};
             }),
      scalar("s_pack_lh_b32_b16 s24, s20, s22",
             [](L a, L b, bool c) {
               return Out{(a & 0xffff) | (b & 0xffff0000), c};
             }),
      scalar("s_pack_hh_b32_b16 s24, s20, s22",
             [](L a, L b, bool c) {
               return Out{a >> 16 | (b & 0xffff0000), c};
             }),
      scalar("s_brev_b32 s24, s20",
             [](L a, L, bool c) {
               L r = 0;
               for (int i = 0; i < 32; ++i) r |= (a >> i & 1) << (31 - i);
               return Out{r, c};
             }),
      scalar("s_bcnt1_i32_b32 s24, s20",
             [](L a, L, bool) { return nonzero(L(__builtin_popcountll(a))); }),
      scalar("s_bcnt0_i32_b32 s24, s20",
             [](L a, L, bool) { return nonzero(L(32 - __builtin_popcountll(a))); }),
      scalar(
          "s_bcnt1_i32_b64 s24, s[20:21]",
          [](L a, L, bool) { return nonzero(L(__builtin_popcountll(a))); }, 2),
      scalar("s_ff1_i32_b32 s24, s20",
             [](L a, L, bool c) {
               return Out{a ? L(__builtin_ctzll(a)) : ~0u, c};
             }),
      scalar(
          "s_ff1_i32_b64 s24, s[20:21]",
          [](L a, L, bool c) { return Out{a ? L(__builtin_ctzll(a)) : ~0u, c}; }, 2),
      scalar("s_flbit_i32_b32 s24, s20",
             [](L a, L, bool c) {
               return Out{leading(U(a)), c};
             }),
      scalar(
          "s_flbit_i32_b64 s24, s[20:21]",
          [](L a, L, bool c) { return Out{a ? L(__builtin_clzll(a)) : ~0u, c}; }, 2),
      scalar("s_flbit_i32 s24, s20",
             [](L a, L, bool c) {
               return Out{leading(s(U(a)) < 0 ? ~U(a) : U(a)), c};
             }),
      scalar("s_sext_i32_i8 s24, s20",
             [](L a, L, bool c) {
               return Out{U(int{static_cast<int8_t>(a)}), c};
             }),
      scalar("s_sext_i32_i16 s24, s20",
             [](L a, L, bool c) {
               return Out{U(int{static_cast<int16_t>(a)}), c};
             }),
      scalar("s_mov_b32 s24, s20; s_bitset1_b32 s24, s22",
             [](L a, L b, bool c) {
               return Out{a | L{1} << (b & 31), c};
             }),
      scalar("s_mov_b32 s24, s20; s_bitset0_b32 s24, s22",
             [](L a, L b, bool c) {
               return Out{a & ~(L{1} << (b & 31)), c};
             }),
      scalar("s_movk_i32 s24, 0x8001",
             [](L, L, bool c) {
               return Out{0xffff8001, c};
             }),
      scalar("s_mov_b32 s24, s20; s_addk_i32 s24, -3",
             [](L a, L, bool) {
               const int64_t r = s64(U(a)) - 3;
               return Out{L(r), r != s(U(r))};
             }),
      scalar("s_mov_b32 s24, s20; s_mulk_i32 s24, -3",
             [](L a, L, bool c) {
               return Out{a * L(-3), c};
             }),
      scalar(
          "s_mov_b64 s[24:25], s[20:21]", [](L a, L, bool c) { return Out{a, c}; }, 2, 2),
      scalar(
          "s_mov_b64 s[24:25], -5", [](L, L, bool c) { return Out{L(-5), c}; }, 2, 2),
      scalar(
          "s_mov_b64 s[24:25], 0x12345678", [](L, L, bool c) { return Out{0x12345678, c}; }, 2, 2),
      scalar(
          "s_cmp_eq_u64 s[20:21], s[22:23]", [](L a, L b, bool) { return Out{0, a == b}; }, 2),
      scalar(
          "s_cmp_lg_u64 s[20:21], s[22:23]", [](L a, L b, bool) { return Out{0, a != b}; }, 2),
      scalar("s_bitcmp0_b32 s20, s22",
             [](L a, L b, bool) {
               return Out{0, (a >> (b & 31) & 1) == 0};
             }),
      scalar(
          "s_bitcmp1_b64 s[20:21], s22",
          [](L a, L b, bool) { return Out{0, (a >> (b & 63) & 1) == 1}; }, 2),
  };
  // Comparisons, signed and unsigned.
#define COMPARE(name, operation)                                         \
  p.push_back(scalar("s_cmp_" name "_i32 s20, s22", [](L a, L b, bool) { \
    return Out{0, s(U(a)) operation s(U(b))};                            \
  }));                                                                   \
  p.push_back(scalar("s_cmp_" name "_u32 s20, s22", [](L a, L b, bool) { \
    return Out{0, U(a) operation U(b)};                                  \
  }));
  COMPARE("eq", ==)
  COMPARE("lg", !=)
  COMPARE("lt", <)
  COMPARE("le", <=)
  COMPARE("gt", >)
  COMPARE("ge", >=)
#undef COMPARE
  return p;
}

// Uniform results in v64 and on, from code that needs no operands.
Probe uniform(const std::string& code, std::vector<U> out) {
  Probe probe;
  probe.code = code;
  probe.out = static_cast<int>(out.size());
  probe.expect = [out = std::move(out)](Wave& w) {
    for (size_t k = 0; k < out.size(); ++k) w.out[k].fill(out[k]);
  };
  return probe;
}

std::vector<Probe> control(const std::string& target) {
  const bool wave32 = is_wave32(target);
  const std::string b = wave32 ? "b32" : "b64";
  std::vector<Probe> p = {
      // Counts to ten.
      uniform("s_mov_b32 s20, 0; s_mov_b32 s21, 0; .Lcount:; s_add_u32 s21, s21, s20; "
              "s_add_u32 s20, s20, 1; s_cmp_lt_u32 s20, 11; s_cbranch_scc1 .Lcount; "
              "v_mov_b32 v64, s21",
              {55}),
      // Lanes leave one after another: lane l adds l + 1 times.
      {"v_mov_b32 v64, 0; s_mov_" + b +
           " $m20, $exec; .Lmore:; v_add_u32_e32 v64, 1, v64; "
           "v_cmp_le_u32 $vcc, v64, v0; s_and_" +
           b +
           " $exec, $exec, $vcc; "
           "s_cbranch_execnz .Lmore; s_mov_" +
           b + " $exec, $m20",
       {},
       1,
       [](Wave& w) {
         for (U l = 0; l < 64; ++l) w.out[0][l] = l + 1;
       }},
      uniform("s_mov_b32 s20, 5; s_cmp_eq_u32 s20, 5; s_cbranch_scc0 .Lwrong; s_mov_b32 s21, 1; "
              "s_branch .Ldone; .Lwrong:; s_mov_b32 s21, 2; .Ldone:; v_mov_b32 v64, s21",
              {1}),
      uniform("v_cmp_gt_u32 $vcc, 0, v0; s_mov_b32 s21, 1; s_cbranch_vccz .Lzero; "
              "s_mov_b32 s21, 2; .Lzero:; v_cmp_le_u32 $vcc, 0, v0; s_cbranch_vccnz .Lall; "
              "s_mov_b32 s21, 3; .Lall:; v_mov_b32 v64, s21",
              {1}),
      // A call and its return, by position-independent address.
      uniform("s_mov_b32 s24, 20; s_getpc_b64 s[20:21]; .Lhere:; "
              "s_add_u32 s20, s20, .Lfunction-.Lhere; s_addc_u32 s21, s21, 0; "
              "s_swappc_b64 s[22:23], s[20:21]; v_mov_b32 v64, s24; s_branch .Lover; "
              ".Lfunction:; s_add_u32 s24, s24, 22; s_setpc_b64 s[22:23]; .Lover:",
              {42}),
      // Saving forms of the execution mask.
      {"v_cmp_gt_u32 $vcc, 12, v0; s_and_saveexec_" + b + " $m20, $vcc; v_mov_b32 v64, 1; s_xor_" +
           b + " $exec, $exec, $m20; v_mov_b32 v64, 2; s_or_" + b + " $exec, $exec, $m20",
       {},
       1,
       [](Wave& w) {
         for (size_t l = 0; l < 64; ++l) w.out[0][l] = l < 12 ? 1 : 2;
       }},
      {"v_cmp_gt_u32 $vcc, 12, v0; s_mov_" + b + " $exec, 0; s_or_saveexec_" + b +
           " $m20, $vcc; v_mov_b32 v64, 3; v_mov_b32 v65, s20",
       {},
       2,
       [](Wave& w) {
         for (size_t l = 0; l < 12; ++l) w.out[0][l] = 3, w.out[1][l] = 0;
       }},
      // Memory through the scalar side: 64 dwords of the lane's number times 3.
      {"v_mul_u32_u24 v96, 3, v0; global_store_dword v1, v96, s[10:11]; $wait; "
       "s_load_dword s20, s[10:11], 0x10; s_load_dwordx2 s[22:23], s[10:11], 0x18; "
       "s_load_dwordx4 s[24:27], s[10:11], 0x20; s_load_dwordx8 s[28:35], s[10:11], 0x20; "
       "s_load_dwordx16 s[40:55], s[10:11], 0x0; s_movk_i32 s60, 0x44; "
       "s_load_dword s61, s[10:11], s60; $wait; v_mov_b32 v64, s20; v_mov_b32 v65, s23; "
       "v_mov_b32 v66, s27; v_mov_b32 v67, s35; v_mov_b32 v68, s40; v_mov_b32 v69, s55; "
       "v_mov_b32 v70, s61",
       {},
       7,
       [](Wave& w) {
         const U out[] = {12, 21, 33, 45, 0, 45, 51};
         for (size_t k = 0; k < 7; ++k) w.out[k].fill(out[k]);
       }},
      // Through a descriptor of 32 bytes: what lies past it is 0.
      {"v_mul_u32_u24 v96, 3, v0; v_add_u32_e32 v96, 1, v96; "
       "global_store_dword v1, v96, s[10:11]; $wait; s_mov_b32 s20, s10; "
       "s_and_b32 s21, s11, 0xffff; s_mov_b32 s22, 32; s_mov_b32 s23, 0x27000; "
       "s_buffer_load_dword s24, s[20:23], 0x1c; s_buffer_load_dword s25, s[20:23], 0x20; $wait; "
       "v_mov_b32 v64, s24; v_mov_b32 v65, s25",
       {},
       2,
       [](Wave& w) { w.out[0].fill(22), w.out[1].fill(0); }},
  };
  for (Probe& probe : p) {
    // Without a carry the newer targets call it v_add_nc_u32.
    if (!wave32) continue;
    for (size_t at = probe.code.find("v_add_u32_e32"); at != std::string::npos;
         at = probe.code.find("v_add_u32_e32"))
      probe.code.replace(at, 13, "v_add_nc_u32_e32");
  }
  if (is_gfx12(target)) {
    // Floats of the scalar unit.
    p.push_back(
        uniform("s_mov_b32 s20, 0x40400000; s_mov_b32 s21, 0x40a00000; "
                "s_mul_f32 s22, s20, s21; s_add_f32 s23, s20, s21; "
                "s_sub_f32 s24, s20, s21; s_cvt_i32_f32 s25, s22; "
                "s_cvt_f32_i32 s26, 7; s_cmp_lt_f32 s20, s21; s_cselect_b32 s27, 1, 0; "
                "v_mov_b32 v64, s22; v_mov_b32 v65, s23; v_mov_b32 v66, s24; "
                "v_mov_b32 v67, s25; v_mov_b32 v68, s26; v_mov_b32 v69, s27",
                {0x41700000, 0x41000000, 0xc0000000, 15, 0x40e00000, 1}));
  }
  return p;
}

}  // namespace

TEST_CASE("simulator: scalar arithmetic") {
  for (const char* target : kSimTargets)
    if (can_probe(target, "scalar arithmetic")) run_probes(target, arithmetic());
}

TEST_CASE("simulator: branches, calls, execution masks, scalar loads") {
  for (const char* target : kSimTargets)
    if (can_probe(target, "control flow")) run_probes(target, control(target));
}

}  // namespace hstu::test
