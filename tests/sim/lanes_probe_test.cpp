// SPDX-License-Identifier: Apache-2.0
// Instructions that move data between lanes and register files: DPP, SDWA, LDS crossbar, readlane,
// accumulation registers.
#include <fmt/format.h>

#include "catch.hpp"
#include "probe.hpp"
#include "values.hpp"

namespace hstu::test {
namespace {

using U = uint32_t;
constexpr int kInvalid = -1;

struct Pattern {
  std::string text;
  int (*source)(int lane, int width);  // kInvalid: no such lane
};

int row(int lane) { return lane & ~15; }

std::vector<Pattern> patterns(const std::string& target) {
  std::vector<Pattern> p = {
      {"quad_perm:[1,0,3,2]", [](int i, int) { return i ^ 1; }},
      {"quad_perm:[3,3,0,1]", [](int i, int) { return (i & ~3) + (0x1033 >> 4 * (i & 3) & 3); }},
      {"row_shl:1", [](int i, int) { return (i & 15) < 15 ? i + 1 : kInvalid; }},
      {"row_shl:7", [](int i, int) { return (i & 15) < 9 ? i + 7 : kInvalid; }},
      {"row_shr:1", [](int i, int) { return (i & 15) >= 1 ? i - 1 : kInvalid; }},
      {"row_shr:8", [](int i, int) { return (i & 15) >= 8 ? i - 8 : kInvalid; }},
      {"row_ror:3", [](int i, int) { return row(i) + ((i - 3) & 15); }},
      {"row_mirror", [](int i, int) { return row(i) + 15 - (i & 15); }},
      {"row_half_mirror", [](int i, int) { return (i & ~7) + 7 - (i & 7); }},
  };
  if (is_wave32(target)) {
    p.push_back({"row_share:5", [](int i, int) { return row(i) + 5; }});
    p.push_back({"row_xmask:6", [](int i, int) { return i ^ 6; }});
  } else {
    p.push_back({"wave_shl:1", [](int i, int w) { return i + 1 < w ? i + 1 : kInvalid; }});
    p.push_back({"wave_shr:1", [](int i, int) { return i - 1; }});
    p.push_back({"wave_rol:1", [](int i, int w) { return (i + 1) % w; }});
    p.push_back({"wave_ror:1", [](int i, int w) { return (i + w - 1) % w; }});
    if (target != "gfx908") p.push_back({"row_newbcast:5", [](int i, int) { return row(i) + 5; }});
  }
  // gfx90a takes the whole-wave shifts away.
  if (target == "gfx90a" || target == "gfx942")
    std::erase_if(p, [&](const Pattern& x) {
      return !assembler_complaint(target,
                                  "v_mov_b32_dpp v1, v2 " + x.text + " row_mask:0xf bank_mask:0xf")
                  .empty();
    });
  return p;
}

std::vector<Probe> dpp_probes(const std::string& target) {
  std::vector<Probe> p;
  for (const Pattern& pattern : patterns(target)) {
    const auto source = pattern.source;
    for (const bool zero : {false, true}) {
      // Lanes without a source keep what they hold, or see 0.
      p.push_back({"v_mov_b32_dpp v64, v8 " + pattern.text + " row_mask:0xf bank_mask:0xf" +
                       (zero ? " bound_ctrl:1" : ""),
                   {In::u32},
                   1,
                   [=](Wave& w) {
                     for (int i = 0; i < w.width; ++i) {
                       const int from = source(i, w.width);
                       const auto l = static_cast<size_t>(i);
                       if (from != kInvalid)
                         w.out[0][l] = w.in[0][static_cast<size_t>(from)];
                       else if (zero)
                         w.out[0][l] = 0;
                     }
                   }});
    }
    // Only the first source moves.
    p.push_back(
        {"v_add_f32_dpp v64, v8, v9 " + pattern.text + " row_mask:0xf bank_mask:0xf bound_ctrl:1",
         {In::f32_n, In::f32_n},
         1,
         [=](Wave& w) {
           for (int i = 0; i < w.width; ++i) {
             const int from = source(i, w.width);
             const auto l = static_cast<size_t>(i);
             const float a = from == kInvalid ? 0.0f : as_f32(w.in[0][static_cast<size_t>(from)]);
             w.out[0][l] = from_f32(a + as_f32(w.in[1][l]));
           }
         },
         same_f32});
  }
  // Rows and banks (four lanes of each row) that do not write.
  p.push_back({"v_mov_b32_dpp v64, v8 quad_perm:[1,0,3,2] row_mask:0x2 bank_mask:0x5",
               {In::u32},
               1,
               [](Wave& w) {
                 for (int i = 0; i < w.width; ++i)
                   if (i / 16 == 1 && (i / 4 % 4 == 0 || i / 4 % 4 == 2))
                     w.out[0][static_cast<size_t>(i)] = w.in[0][static_cast<size_t>(i ^ 1)];
               }});
  if (is_wave32(target)) {
    p.push_back({"v_mov_b32_dpp v64, v8 dpp8:[7,0,5,2,1,6,3,4]", {In::u32}, 1, [](Wave& w) {
                   const int select[] = {7, 0, 5, 2, 1, 6, 3, 4};
                   for (int i = 0; i < w.width; ++i)
                     w.out[0][static_cast<size_t>(i)] =
                         w.in[0][static_cast<size_t>((i & ~7) + select[i & 7])];
                 }});
  } else {
    // As wave reductions use them: the last lane of a row to the next, of the first half to the
    // second.
    p.push_back({"v_mov_b32_dpp v64, v8 row_bcast:15 row_mask:0xa bank_mask:0xf",
                 {In::u32},
                 1,
                 [](Wave& w) {
                   for (size_t i = 0; i < 64; ++i)
                     if (i / 16 % 2 == 1) w.out[0][i] = w.in[0][i / 16 * 16 - 1];
                 }});
    p.push_back({"v_mov_b32_dpp v64, v8 row_bcast:31 row_mask:0xc bank_mask:0xf",
                 {In::u32},
                 1,
                 [](Wave& w) {
                   for (size_t i = 32; i < 64; ++i) w.out[0][i] = w.in[0][31];
                 }});
  }
  return p;
}

std::vector<Probe> sdwa_probes() {
  const auto two = [](const std::string& code, U (*f)(U, U), Same same = same_bits) {
    return Probe{
        code, {In::u32, In::u32}, 1, each([f](const U* in) { return f(in[0], in[1]); }), same};
  };
  return {
      two("v_add_u32_sdwa v64, v8, v9 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 "
          "src1_sel:BYTE_3",
          [](U a, U b) { return (a >> 16) + (b >> 24); }),
      two("v_add_u32_sdwa v64, sext(v8), v9 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1 "
          "src1_sel:DWORD",
          [](U a, U b) { return static_cast<U>(int{static_cast<int8_t>(a >> 8)}) + b; }),
      two("v_sub_u32_sdwa v64, sext(v8), sext(v9) dst_sel:DWORD dst_unused:UNUSED_PAD "
          "src0_sel:WORD_0 src1_sel:WORD_1",
          [](U a, U b) {
            return static_cast<U>(int{static_cast<int16_t>(a)} - static_cast<int16_t>(b >> 16));
          }),
      two("v_or_b32_sdwa v64, v8, v9 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:WORD_0 "
          "src1_sel:BYTE_0",
          [](U a, U b) { return (((a & 0xffff) | (b & 0xff)) << 16) | (kUntouched & 0xffff); }),
      two("v_or_b32_sdwa v64, v8, v9 dst_sel:BYTE_2 dst_unused:UNUSED_PAD src0_sel:DWORD "
          "src1_sel:DWORD",
          [](U a, U b) { return ((a | b) & 0xff) << 16; }),
      two("v_or_b32_sdwa v64, v8, v9 dst_sel:BYTE_1 dst_unused:UNUSED_SEXT src0_sel:DWORD "
          "src1_sel:DWORD",
          [](U a, U b) {
            const U byte = (a | b) & 0xff;
            return byte << 8 | (byte & 0x80 ? 0xffff0000 : 0);
          }),
      two("v_mov_b32_sdwa v64, v8 dst_sel:BYTE_3 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_1",
          [](U a, U) { return (a >> 8 & 0xff) << 24 | (kUntouched & 0xffffff); }),
      two("v_cvt_f32_u32_sdwa v64, v8 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1",
          [](U a, U) { return from_f32(static_cast<float>(a >> 16)); }),
      two("v_cmp_lt_u32_sdwa s[20:21], v8, v9 src0_sel:WORD_1 src1_sel:WORD_0; "
          "v_cndmask_b32 v64, 0, 1, s[20:21]",
          [](U a, U b) { return U{(a >> 16) < (b & 0xffff)}; }),
      {"v_cvt_f32_f16_sdwa v64, v8 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1",
       {In::f16},
       1,
       each([](const U* in) { return from_f32(static_cast<float>(as_f16(in[0] >> 16))); }),
       same_f32},
      {"v_add_f16_sdwa v64, -v8, |v9| dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:WORD_1 "
       "src1_sel:WORD_0",
       {In::f16, In::f16},
       1,
       each([](const U* in) {
         return from_f16(-as_f16(in[0] >> 16) + std::abs(as_f16(in[1]))) << 16;
       }),
       same_f16x2},
      {"v_cvt_f16_f32_sdwa v64, v8 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:DWORD",
       {In::f32},
       1,
       each([](const U* in) { return from_f16(as_f32(in[0])) << 16 | (kUntouched & 0xffff); }),
       same_f16x2},
  };
}

std::vector<Probe> crossbar_probes(const std::string& target) {
  const bool wave32 = is_wave32(target);
  const std::string restore = wave32 ? "s_mov_b32 exec_lo, -1" : "s_mov_b64 exec, -1";
  const auto shuffle = [](const std::string& code, int (*source)(int lane, int width)) {
    return Probe{code, {In::u32}, 1, [source](Wave& w) {
                   for (int i = 0; i < w.width; ++i)
                     w.out[0][static_cast<size_t>(i)] =
                         w.in[0][static_cast<size_t>(source(i, w.width))];
                 }};
  };
  std::vector<Probe> p = {
      shuffle("v_xor_b32 v96, 20, v1; ds_bpermute_b32 v64, v96, v8; $wait",
              [](int i, int) { return i ^ 5; }),
      // Addresses wrap at the wave; their low two bits do not count.
      shuffle(
          "s_movk_i32 s20, 0x100; v_add3_u32 v96, v1, 7, s20; ds_bpermute_b32 v64, v96, v8; $wait",
          [](int i, int w) { return (i + 1) % w; }),
      shuffle("ds_bpermute_b32 v64, v1, v8 offset:12; $wait",
              [](int i, int w) { return (i + 3) % w; }),
      shuffle("v_mul_u32_u24 v96, 5, v1; ds_permute_b32 v64, v96, v8; $wait",
              [](int i, int w) { return i * (w == 64 ? 13 : 13) % w; }),  // 5 * 13 = 1 mod 64
      shuffle("ds_swizzle_b32 v64, v8 offset:0x041f; $wait", [](int i, int) { return i ^ 1; }),
      shuffle("ds_swizzle_b32 v64, v8 offset:0x401f; $wait", [](int i, int) { return i ^ 16; }),
      shuffle("ds_swizzle_b32 v64, v8 offset:0x0072; $wait",
              [](int i, int) { return (i & ~31) + ((i & 18) | 3); }),
      shuffle("ds_swizzle_b32 v64, v8 offset:0x80b1; $wait",  // quads 1, 0, 3, 2
              [](int i, int) { return i ^ 1; }),
      // A lane that is off gives 0.
      {"v_xor_b32 v96, 4, v1; s_mov_b32 exec_lo, 0xffff000f; ds_bpermute_b32 v64, v96, v8; $wait; "
       "s_mov_b32 exec_lo, -1",
       {In::u32},
       1,
       [](Wave& w) {
         const auto on = [](size_t l) { return l >= 32 || (0xffff000fu >> l & 1); };
         for (size_t l = 0; l < static_cast<size_t>(w.width); ++l)
           if (on(l)) w.out[0][l] = on(l ^ 1) ? w.in[0][l ^ 1] : 0;
       }},
      {"v_readlane_b32 s24, v8, 5; v_mov_b32 v64, s24; s_mov_b32 s25, 31; "
       "v_readlane_b32 s24, v8, s25; v_mov_b32 v65, s24; s_mov_b32 m0, 7; "
       "v_readlane_b32 s24, v8, m0; v_mov_b32 v66, s24",
       {In::u32},
       3,
       [](Wave& w) {
         w.out[0].fill(w.in[0][5]), w.out[1].fill(w.in[0][31]), w.out[2].fill(w.in[0][7]);
       }},
      {"s_mov_b32 s24, 0x1234; v_mov_b32 v64, v8; v_writelane_b32 v64, s24, 3; "
       "s_mov_b32 m0, 29; v_writelane_b32 v64, 17, m0",
       {In::u32},
       1,
       [](Wave& w) {
         w.out[0] = w.in[0];
         w.out[0][3] = 0x1234, w.out[0][29] = 17;
       }},
      // Lanes are read and written whether they are on or not.
      {std::string(wave32 ? "s_mov_b32 exec_lo, 4" : "s_mov_b64 exec, 4") +
           "; v_readlane_b32 s24, v8, 9; v_writelane_b32 v64, s24, 11; "
           "v_readfirstlane_b32 s26, v8; " +
           restore + "; v_mov_b32 v65, s26",
       {In::u32},
       2,
       [](Wave& w) {
         w.out[0][11] = w.in[0][9];
         w.out[1].fill(w.in[0][2]);
       }},
      {"v_mov_b32 v64, v8; v_mov_b32 v65, v9; v_swap_b32 v64, v65",
       {In::u32, In::u32},
       2,
       [](Wave& w) { w.out[0] = w.in[1], w.out[1] = w.in[0]; }},
  };
  if (wave32) {
    const std::string selects = "s_mov_b32 s20, 0x76543210; s_mov_b32 s21, 0x01234567; ";
    p.push_back({selects + "v_permlane16_b32 v64, v8, s20, s21", {In::u32}, 1, [](Wave& w) {
                   for (size_t l = 0; l < 32; ++l) {
                     const size_t in_row = l % 16, pick = in_row < 8 ? in_row : 15 - in_row;
                     w.out[0][l] = w.in[0][l / 16 * 16 + pick];
                   }
                 }});
    p.push_back({selects + "v_permlanex16_b32 v64, v8, s20, s21", {In::u32}, 1, [](Wave& w) {
                   for (size_t l = 0; l < 32; ++l) {
                     const size_t in_row = l % 16, pick = in_row < 8 ? in_row : 15 - in_row;
                     w.out[0][l] = w.in[0][(1 - l / 16) * 16 + pick];
                   }
                 }});
  } else {
    p.push_back(shuffle("ds_bpermute_b32 v64, v96, v8; $wait", [](int i, int) { return 63 - i; }));
    p.back().code = "v_sub_u32 v96, 0xfc, v1; " + p.back().code;
    p.push_back(
        {"v_accvgpr_write_b32 a3, v8; v_accvgpr_write_b32 a4, 2.0; s_nop 4; "
         "v_accvgpr_read_b32 v64, a3; v_accvgpr_read_b32 v65, a4",
         {In::u32},
         2,
         [](Wave& w) {
           w.out[0] = w.in[0];
           w.out[1].fill(0x40000000);
         }});
    if (target != "gfx908")
      p.push_back(
          {"v_accvgpr_write_b32 a3, v8; s_nop 4; v_accvgpr_mov_b32 a5, a3; s_nop 4; "
           "v_accvgpr_read_b32 v64, a5; v_lshlrev_b32 v96, 4, v0; "
           "global_store_dword v96, a3, s[10:11]; $wait; "
           "global_load_dword a6, v96, s[10:11]; $wait; v_accvgpr_read_b32 v65, a6; "
           "ds_write_b32 v1, a3; $wait; ds_read_b32 a7, v1; $wait; "
           "v_accvgpr_read_b32 v66, a7",
           {In::u32},
           3,
           [](Wave& w) { w.out[0] = w.out[1] = w.out[2] = w.in[0]; }});
  }
  return p;
}

}  // namespace

TEST_CASE("simulator: data-parallel primitives") {
  for (const char* target : kSimTargets)
    if (can_probe(target, "DPP")) run_probes(target, dpp_probes(target));
}

TEST_CASE("simulator: sub-dword addressing") {
  for (const char* target : {"gfx908", "gfx90a", "gfx942"})
    if (can_probe(target, "SDWA")) run_probes(target, sdwa_probes());
}

TEST_CASE("simulator: lanes, crossbar and accumulation registers") {
  for (const char* target : kSimTargets)
    if (can_probe(target, "crossbar")) run_probes(target, crossbar_probes(target));
}

}  // namespace hstu::test
