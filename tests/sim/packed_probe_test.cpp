// SPDX-License-Identifier: Apache-2.0
// Packed 16- and 32-bit arithmetic, half selection, mixed precision, dot products.
#include <fmt/format.h>

#include <algorithm>

#include "catch.hpp"
#include "probe.hpp"
#include "values.hpp"

namespace hstu::test {
namespace {

using U = uint32_t;

// Halves and signs that a packed instruction takes; bit i is source i.
struct Select {
  U low = 0, high = 7, neg_low = 0, neg_high = 0;
};

std::string text(const Select& s, int sources) {
  const auto list = [&](const char* name, U bits, U usual) {
    if (bits == usual) return std::string();
    std::string t = fmt::format(" {}:[", name);
    for (int i = 0; i < sources; ++i) t += fmt::format("{}{}", i ? "," : "", bits >> i & 1);
    return t + "]";
  };
  const U all = (1u << sources) - 1;
  return list("op_sel", s.low & all, 0) + list("op_sel_hi", s.high & all, all) +
         list("neg_lo", s.neg_low & all, 0) + list("neg_hi", s.neg_high & all, 0);
}

U half(U x, U upper) { return x >> 16 * upper & 0xffff; }

using Half3 = U (*)(U a, U b, U c);  // on 16-bit patterns

Probe packed(const std::string& op, int sources, const Select& s, Half3 f, In kind, Same same) {
  const char* registers[] = {"v8", "v8, v9", "v8, v9, v10"};
  return {op + " v64, " + registers[sources - 1] + text(s, sources), std::vector<In>(3, kind), 1,
          each([=](const U* in) {
            U r = 0;
            for (int high = 0; high < 2; ++high) {
              const U select = high ? s.high : s.low, negate = high ? s.neg_high : s.neg_low;
              U v[3];
              for (int i = 0; i < 3; ++i)
                v[i] = half(in[i], select >> i & 1) ^ (negate >> i & 1) << 15;
              r |= (f(v[0], v[1], v[2]) & 0xffff) << 16 * high;
            }
            return r;
          }),
          same};
}

const Select kSelects[] = {{},           {1, 7, 0, 0}, {0, 5, 0, 0}, {2, 4, 0, 0},
                           {7, 0, 0, 0}, {0, 7, 1, 2}, {3, 6, 6, 5}};

std::vector<Probe> packed16(const std::string& target) {
  const std::string num = is_gfx12(target) ? "_num" : "";
  std::vector<Probe> p;
  const auto number = [](long double x) { return from_f16(x); };
  (void)number;
  for (const Select& s : kSelects) {
    p.push_back(packed(
        "v_pk_add_f16", 2, s, [](U a, U b, U) { return from_f16(as_f16(a) + as_f16(b)); }, In::f16,
        same_f16x2));
    p.push_back(packed(
        "v_pk_mul_f16", 2, s, [](U a, U b, U) { return from_f16(as_f16(a) * as_f16(b)); }, In::f16,
        same_f16x2));
    p.push_back(packed(
        "v_pk_fma_f16", 3, s,
        [](U a, U b, U c) {
          return from_f16(static_cast<long double>(as_f16(a)) * as_f16(b) + as_f16(c));
        },
        In::f16, same_f16x2));
    p.push_back(packed(
        "v_pk_max" + num + "_f16", 2, s,
        [](U a, U b, U) {
          const double x = as_f16(a), y = as_f16(b);
          if (x == 0 && y == 0) return a & b;
          return x > y ? a : b;
        },
        In::f16_n, same_f16x2));
    Select plain = s;
    plain.neg_low = plain.neg_high = 0;  // of numbers only
    p.push_back(packed(
        "v_pk_add_u16", 2, plain, [](U a, U b, U) { return a + b; }, In::u32, same_bits));
    p.push_back(packed(
        "v_pk_sub_i16", 2, plain, [](U a, U b, U) { return a - b; }, In::u32, same_bits));
    p.push_back(packed(
        "v_pk_mul_lo_u16", 2, plain, [](U a, U b, U) { return a * b; }, In::u32, same_bits));
    p.push_back(packed(
        "v_pk_mad_u16", 3, plain, [](U a, U b, U c) { return a * b + c; }, In::u32, same_bits));
    p.push_back(packed(
        "v_pk_lshlrev_b16", 2, plain, [](U n, U x, U) { return x << (n & 15); }, In::u32,
        same_bits));
    p.push_back(packed(
        "v_pk_lshrrev_b16", 2, plain, [](U n, U x, U) { return x >> (n & 15); }, In::u32,
        same_bits));
    p.push_back(packed(
        "v_pk_ashrrev_i16", 2, plain,
        [](U n, U x, U) { return static_cast<U>(static_cast<int16_t>(x) >> (n & 15)); }, In::u32,
        same_bits));
    p.push_back(packed(
        "v_pk_max_i16", 2, plain,
        [](U a, U b, U) { return static_cast<int16_t>(a) > static_cast<int16_t>(b) ? a : b; },
        In::u32, same_bits));
    p.push_back(packed(
        "v_pk_min_u16", 2, plain, [](U a, U b, U) { return std::min(a, b); }, In::u32, same_bits));
  }
  return p;
}

// One source of v_fma_mix: an f32, or a half of it.
float mixed(U x, const char* pick) {
  if (pick[0] == 'f') return as_f32(x);
  return static_cast<float>(as_f16(half(x, pick[0] == 'h')));
}

std::vector<Probe> mixed_probes(const std::string& target) {
  std::vector<Probe> p;
  // op_sel_hi says which sources are halves, op_sel which half.
  struct Mix {
    const char* modifiers;
    const char* picks;
  };
  const Mix mixes[] = {{"", "fff"},
                       {" op_sel_hi:[1,0,0]", "lff"},
                       {" op_sel:[1,0,0] op_sel_hi:[1,1,0]", "hlf"},
                       {" op_sel:[0,1,1] op_sel_hi:[1,1,1]", "lhh"}};
  for (const Mix& m : mixes) {
    const auto value = [m](const U* in) {
      return std::fma(double{mixed(in[0], m.picks)}, double{mixed(in[1], m.picks + 1)},
                      double{mixed(in[2], m.picks + 2)});
    };
    // Halves of ordinary floats are ordinary enough: f32 sources from [-1, 1).
    const std::vector<In> kinds = {m.picks[0] == 'f' ? In::unit : In::f16,
                                   m.picks[1] == 'f' ? In::unit : In::f16,
                                   m.picks[2] == 'f' ? In::unit : In::f16};
    p.push_back({std::string("v_fma_mix_f32 v64, v8, v9, v10") + m.modifiers, kinds, 1,
                 each([=](const U* in) { return from_f32(static_cast<float>(value(in))); }),
                 same_f32});
    const bool all_half = m.picks[0] != 'f' && m.picks[1] != 'f' && m.picks[2] != 'f';
    if (!all_half) continue;  // a double holds the exact sum of three halves only
    p.push_back({std::string("v_fma_mixlo_f16 v64, v8, v9, v10") + m.modifiers, kinds, 1,
                 each([=](const U* in) { return from_f16(value(in)) | (kUntouched & 0xffff0000); }),
                 same_f16x2});
    p.push_back(
        {std::string("v_fma_mixhi_f16 v64, v8, v9, v10") + m.modifiers, kinds, 1,
         each([=](const U* in) { return from_f16(value(in)) << 16 | (kUntouched & 0xffff); }),
         same_f16x2});
  }
  // Dot products: integers exactly, halves whose products and sums are exact.
  const auto dot8 = [](const U* in) {
    U sum = in[2];
    for (int i = 0; i < 4; ++i)
      sum += static_cast<U>(int{static_cast<int8_t>(in[0] >> 8 * i)} *
                            static_cast<int8_t>(in[1] >> 8 * i));
    return sum;
  };
  p.push_back({is_wave32(target) ? "v_dot4_i32_iu8 v64, v8, v9, v10 neg_lo:[1,1,0]"
                                 : "v_dot4_i32_i8 v64, v8, v9, v10",
               {In::u32, In::u32, In::u32},
               1,
               each(dot8)});
  p.push_back(
      {"v_dot4_u32_u8 v64, v8, v9, v10", {In::u32, In::u32, In::u32}, 1, each([](const U* in) {
         U sum = in[2];
         for (int i = 0; i < 4; ++i) sum += (in[0] >> 8 * i & 255) * (in[1] >> 8 * i & 255);
         return sum;
       })});
  Probe dot = table("v_dot2_f32_f16 v64, v8, v9, v10",
                    {{{0x40003c00, 0x42004400, 0x3f800000}, {0x41300000}},  // 1*4 + 2*3 + 1
                     {{0xbc003800, 0x3c003c00, 0x00000000}, {0xbf000000}},  // 0.5 - 1
                     {{0x7c000000, 0x3c000000, 0x3f800000}, {0x7f800000}}},
                    same_f32);
  p.push_back(dot);
  return p;
}

std::vector<Probe> packed32() {
  std::vector<Probe> p;
  for (const Select& s : kSelects) {
    const auto make = [&](const std::string& op, int sources, float (*f)(float, float, float)) {
      const char* registers[] = {"", "v[8:9], v[10:11]", "v[8:9], v[10:11], v[12:13]"};
      p.push_back({op + " v[64:65], " + registers[sources - 1] + text(s, sources),
                   std::vector<In>(6, In::f32), 2, lanewise([=](const U* in, U* out) {
                     for (U high = 0; high < 2; ++high) {
                       const U select = high ? s.high : s.low;
                       const U negate = high ? s.neg_high : s.neg_low;
                       float v[3];
                       for (U i = 0; i < 3; ++i)
                         v[i] = as_f32(in[2 * i + (select >> i & 1)] ^ (negate >> i & 1) << 31);
                       out[high] = from_f32(f(v[0], v[1], v[2]));
                     }
                   }),
                   same_f32});
    };
    make("v_pk_fma_f32", 3, [](float a, float b, float c) { return std::fmaf(a, b, c); });
    make("v_pk_mul_f32", 2, [](float a, float b, float) { return a * b; });
    make("v_pk_add_f32", 2, [](float a, float b, float) { return a + b; });
  }
  // Each half of the result is a register of its own source: op_sel picks it from source 0 and 1.
  p.push_back({"v_pk_mov_b32 v[64:65], v[8:9], v[10:11] op_sel:[1,0]",
               {In::u64, In::u64},
               2,
               lanewise([](const U* in, U* out) { out[0] = in[1], out[1] = in[2]; })});
  p.push_back({"v_pk_mov_b32 v[64:65], v[8:9], v[10:11] op_sel:[0,1]",
               {In::u64, In::u64},
               2,
               lanewise([](const U* in, U* out) { out[0] = in[0], out[1] = in[3]; })});
  // A scalar pair and an inline constant.
  p.push_back(
      {"s_mov_b32 s20, 0x40000000; s_mov_b32 s21, 0x40400000; "
       "v_pk_mul_f32 v[64:65], s[20:21], v[8:9]",
       {In::f32, In::f32},
       2,
       lanewise([](const U* in, U* out) {
         out[0] = from_f32(2 * as_f32(in[0])), out[1] = from_f32(3 * as_f32(in[1]));
       }),
       same_f32});
  return p;
}

}  // namespace

TEST_CASE("simulator: packed 16-bit arithmetic") {
  for (const char* target : kSimTargets)
    if (can_probe(target, "packed 16-bit")) run_probes(target, packed16(target));
}

TEST_CASE("simulator: mixed precision and dot products") {
  for (const char* target : kSimTargets)
    if (can_probe(target, "mixed precision")) run_probes(target, mixed_probes(target));
}

TEST_CASE("simulator: packed 32-bit arithmetic") {
  for (const char* target : {"gfx90a", "gfx942"})
    if (can_probe(target, "packed 32-bit")) run_probes(target, packed32());
}

}  // namespace hstu::test
