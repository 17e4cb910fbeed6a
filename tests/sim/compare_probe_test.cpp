// SPDX-License-Identifier: Apache-2.0
// Comparisons, classes, selects, and what a cleared execution mask leaves alone.
#include <fmt/format.h>

#include "catch.hpp"
#include "probe.hpp"
#include "values.hpp"

namespace hstu::test {
namespace {

using U = uint32_t;

// The six orders and what they are of "less", "equal", "greater" and "unordered".
struct Comparison {
  const char* name;
  bool less, equal, greater, unordered;
};
constexpr Comparison kFloat[] = {
    {"lt", true, false, false, false}, {"eq", false, true, false, false},
    {"le", true, true, false, false},  {"gt", false, false, true, false},
    {"lg", true, false, true, false},  {"ge", false, true, true, false},
    {"o", true, true, true, false},    {"u", false, false, false, true},
    {"nge", true, false, false, true}, {"nlg", false, true, false, true},
    {"ngt", true, true, false, true},  {"nle", false, false, true, true},
    {"neq", true, false, true, true},  {"nlt", false, true, true, true},
};
constexpr Comparison kInteger[] = {
    {"lt", true, false, false, false}, {"eq", false, true, false, false},
    {"le", true, true, false, false},  {"gt", false, false, true, false},
    {"ne", true, false, true, false},  {"ge", false, true, true, false},
};

template <typename T>
bool holds(const Comparison& c, T a, T b) {
  if (a < b) return c.less;
  if (a > b) return c.greater;
  if (a == b) return c.equal;
  return c.unordered;
}

template <typename T>
T read(const U* in, const char* type) {
  (void)type;
  if constexpr (sizeof(T) == 8) {
    const uint64_t bits = as_u64(in);
    T value;
    std::memcpy(&value, &bits, 8);
    return value;
  } else {
    T value;
    std::memcpy(&value, in, sizeof value);
    return value;
  }
}

template <typename T>
Probe compare(const Comparison& c, const char* type, In kind) {
  const bool wide = sizeof(T) == 8;
  const std::string operands = wide ? "v[8:9], v[10:11]" : "v8, v9";
  return {
      fmt::format("v_cmp_{}_{} $m20, {}; v_cndmask_b32 v64, 0, 1, $m20", c.name, type, operands),
      {kind, kind},
      1,
      each([c, type](const U* in) {
        return U{holds(c, read<T>(in, type), read<T>(in + (sizeof(T) + 3) / 4, type))};
      })};
}

Probe compare_f16(const Comparison& c) {
  return {fmt::format("v_cmp_{}_f16 $m20, v8, v9; v_cndmask_b32 v64, 0, 1, $m20", c.name),
          {In::f16, In::f16},
          1,
          each([c](const U* in) { return U{holds(c, as_f16(in[0]), as_f16(in[1]))}; })};
}

std::vector<Probe> compares() {
  std::vector<Probe> p;
  for (const Comparison& c : kFloat) {
    p.push_back(compare<float>(c, "f32", In::f32));
    p.push_back(compare<double>(c, "f64", In::f64));
    p.push_back(compare_f16(c));
  }
  for (const Comparison& c : kInteger) {
    p.push_back(compare<int32_t>(c, "i32", In::u32));
    p.push_back(compare<uint32_t>(c, "u32", In::u32));
    p.push_back(compare<int64_t>(c, "i64", In::u64));
    p.push_back(compare<uint64_t>(c, "u64", In::u64));
    p.push_back(compare<int16_t>(c, "i16", In::u32));
    p.push_back(compare<uint16_t>(c, "u16", In::u32));
  }
  return p;
}

// Bit i of the mask asks for class i: signalling NaN, quiet NaN, -infinity, -normal, -denormal,
// -0, +0, +denormal, +normal, +infinity.
int class_of(double x, bool signalling, double smallest_normal) {
  if (std::isnan(x)) return signalling ? 0 : 1;
  if (std::isinf(x)) return x < 0 ? 2 : 9;
  if (x == 0) return std::signbit(x) ? 5 : 6;
  if (std::abs(x) < smallest_normal) return x < 0 ? 4 : 7;
  return x < 0 ? 3 : 8;
}

std::vector<Probe> other_probes(const std::string& target) {
  const bool wave64 = !is_wave32(target);
  const std::string restore = wave64 ? "s_mov_b64 exec, -1" : "s_mov_b32 exec_lo, -1";
  std::vector<Probe> p = {
      {"v_cmp_class_f32 $m20, v8, v9; v_cndmask_b32 v64, 0, 1, $m20",
       {In::f32, In::u32},
       1,
       each([](const U* in) {
         const bool signalling = (in[0] & 0x7fc00000) == 0x7f800000;
         return in[1] >> class_of(as_f32(in[0]), signalling, 0x1p-126) & 1;
       })},
      {"v_cmp_class_f16 $m20, v8, v9; v_cndmask_b32 v64, 0, 1, $m20",
       {In::f16, In::u32},
       1,
       each([](const U* in) {
         const bool signalling = (in[0] & 0x7e00) == 0x7c00;
         return in[1] >> class_of(as_f16(in[0]), signalling, 0x1p-14) & 1;
       })},
      {"v_cmp_class_f64 $m20, v[8:9], v10; v_cndmask_b32 v64, 0, 1, $m20",
       {In::f64, In::u32},
       1,
       each([](const U* in) {
         const bool signalling = (in[1] & 0x7ff80000) == 0x7ff00000;
         return in[2] >> class_of(as_f64(in[0], in[1]), signalling, 0x1p-1022) & 1;
       })},
      {"v_cmp_lt_f32 $m20, -|v8|, v9; v_cndmask_b32 v64, 0, 1, $m20",
       {In::f32, In::f32},
       1,
       each([](const U* in) { return U{-std::abs(as_f32(in[0])) < as_f32(in[1])}; })},
      // Through VCC, from a constant, and back as bits.
      {"v_cmp_gt_u32 $vcc, 17, v0; v_cndmask_b32 v64, v8, v9, $vcc; v_mov_b32 v65, vcc_lo",
       {In::u32, In::u32},
       2,
       [](Wave& w) {
         for (size_t l = 0; l < 64; ++l) {
           w.out[0][l] = l < 17 ? w.in[1][l] : w.in[0][l];
           w.out[1][l] = 0x1ffff;
         }
       }},
      // Inactive lanes give 0 in a mask and keep their vector registers.
      {"s_mov_b32 exec_lo, 0xff00ff00; v_cmp_le_u32 $m20, 0, v0; v_mov_b32 v64, v8; " + restore +
           "; v_mov_b32 v65, s20",
       {In::u32},
       2,
       [](Wave& w) {
         for (size_t l = 0; l < 64; ++l) {
           if (l >= 32 || (0xff00ff00u >> l & 1)) w.out[0][l] = w.in[0][l];
           w.out[1][l] = 0xff00ff00;
         }
       }},
      {"v_cmpx_gt_u32" + std::string(wave64 ? " vcc, 9, v0" : " 9, v0") + "; v_mov_b32 v64, v8; " +
           restore,
       {In::u32},
       1,
       [](Wave& w) {
         for (size_t l = 0; l < 9; ++l) w.out[0][l] = w.in[0][l];
       }},
      // Nothing active: nothing changes, readfirstlane still gives lane 0.
      {(wave64 ? "s_mov_b64 exec, 0" : "s_mov_b32 exec_lo, 0") +
           std::string("; v_mov_b32 v64, v8; v_readfirstlane_b32 s24, v8; ") + restore +
           "; v_mov_b32 v65, s24",
       {In::u32},
       2,
       [](Wave& w) { w.out[1].fill(w.in[0][0]); }},
  };
  if (wave64) {
    p.push_back(
        {"s_mov_b32 exec_lo, 0; s_mov_b32 exec_hi, 0x80000001; v_mov_b32 v64, v8; "
         "v_readfirstlane_b32 s24, v8; v_cmp_eq_u32 s[20:21], v8, v8; " +
             restore + "; v_mov_b32 v65, s24; v_mov_b32 v66, s20; v_mov_b32 v67, s21",
         {In::u32},
         4,
         [](Wave& w) {
           w.out[0][32] = w.in[0][32], w.out[0][63] = w.in[0][63];
           w.out[1].fill(w.in[0][32]);
           w.out[2].fill(0);
           w.out[3].fill(0x80000001);
         }});
    p.push_back(
        {"v_cmp_gt_u32 vcc, 40, v0; v_mov_b32 v64, vcc_lo; v_mov_b32 v65, vcc_hi; "
         "s_and_saveexec_b64 s[20:21], vcc; v_mov_b32 v66, v8; s_mov_b64 exec, s[20:21]",
         {In::u32},
         3,
         [](Wave& w) {
           w.out[0].fill(~0u), w.out[1].fill(0xff);
           for (size_t l = 0; l < 40; ++l) w.out[2][l] = w.in[0][l];
         }});
  }
  return p;
}

}  // namespace

TEST_CASE("simulator: comparisons") {
  for (const char* target : kSimTargets)
    if (can_probe(target, "comparisons")) run_probes(target, compares());
}

TEST_CASE("simulator: classes, selects and execution masks") {
  for (const char* target : kSimTargets)
    if (can_probe(target, "classes")) run_probes(target, other_probes(target));
}

}  // namespace hstu::test
