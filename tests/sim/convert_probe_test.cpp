// SPDX-License-Identifier: Apache-2.0
// Conversions between number formats: rounding, saturation, NaN.
#include <algorithm>

#include "catch.hpp"
#include "probe.hpp"
#include "values.hpp"

namespace hstu::test {
namespace {

template <typename To>
To saturated(double x) {
  if (std::isnan(x)) return 0;
  x = std::trunc(x);
  if (x <= static_cast<double>(std::numeric_limits<To>::min()))
    return std::numeric_limits<To>::min();
  if (x >= static_cast<double>(std::numeric_limits<To>::max()))
    return std::numeric_limits<To>::max();
  return static_cast<To>(x);
}

uint32_t i32(double x) { return static_cast<uint32_t>(saturated<int32_t>(x)); }
uint32_t u32(double x) { return saturated<uint32_t>(x); }

// NaN results are one NaN: a conversion may keep or drop the payload.
bool same_f32_nan(uint32_t got, uint32_t want) { return same_f32(got, want); }

std::vector<Probe> probes_for(const std::string& target) {
  const auto from32 = [](uint32_t (*f)(float)) {
    return each([f](const uint32_t* in) { return f(as_f32(in[0])); });
  };
  const auto from_int = [](float (*f)(uint32_t)) {
    return each([f](const uint32_t* in) { return from_f32(f(in[0])); });
  };
  const auto from16 = [](uint32_t (*f)(double)) {
    return each([f](const uint32_t* in) { return f(as_f16(in[0])); });
  };
  const auto from64 = [](uint32_t (*f)(double)) {
    return each([f](const uint32_t* in) { return f(as_f64(in[0], in[1])); });
  };
  const auto to64 = [](double (*f)(uint32_t)) {
    return lanewise([f](const uint32_t* in, uint32_t* out) { put_f64(f(in[0]), out); });
  };
  const bool rdna = is_wave32(target);
  const std::string nearest = rdna ? "v_cvt_nearest_i32_f32" : "v_cvt_rpi_i32_f32";
  const std::string floor = rdna ? "v_cvt_floor_i32_f32" : "v_cvt_flr_i32_f32";
  const std::string rtz = rdna ? "v_cvt_pk_rtz_f16_f32" : "v_cvt_pkrtz_f16_f32";
  std::vector<Probe> p = {
      {"v_cvt_f32_f16 v64, v8",
       {In::f16},
       1,
       from16([](double x) { return from_f32(static_cast<float>(x)); }),
       same_f32_nan},
      {"v_cvt_f32_f16 v64, -|v8|",
       {In::f16},
       1,
       from16([](double x) { return from_f32(static_cast<float>(-std::abs(x))); }),
       same_f32_nan},
      {"v_cvt_f16_f32 v64, v8",
       {In::f32},
       1,
       from32([](float x) { return from_f16(x); }),
       same_low16},
      {rtz + " v64, v8, v9",
       {In::f32, In::f32},
       1,
       each([](const uint32_t* in) {
         return from_f16(as_f32(in[0]), Rounding::zero) | from_f16(as_f32(in[1]), Rounding::zero)
                                                              << 16;
       }),
       same_f16x2},
      {"v_cvt_i32_f32 v64, v8", {In::f32}, 1, from32([](float x) { return i32(x); })},
      {"v_cvt_u32_f32 v64, v8", {In::f32}, 1, from32([](float x) { return u32(x); })},
      {"v_cvt_i32_f32 v64, -v8", {In::f32}, 1, from32([](float x) { return i32(-x); })},
      {floor + " v64, v8", {In::f32_n}, 1, from32([](float x) { return i32(std::floor(x)); })},
      // Halves go up. (The sum is not rounded to f32 first on any target we know of; operands
      // where that would show are left out by the unit range.)
      {nearest + " v64, v9", {In::f32, In::unit}, 1, each([](const uint32_t* in) {
         return i32(std::floor(double{as_f32(in[1])} + 0.5));
       })},
      {"v_cvt_f32_i32 v64, v8", {In::u32}, 1, from_int([](uint32_t x) {
         return static_cast<float>(static_cast<int32_t>(x));
       })},
      {"v_cvt_f32_u32 v64, v8", {In::u32}, 1, from_int([](uint32_t x) {
         return static_cast<float>(x);
       })},
      {"v_cvt_f32_ubyte0 v64, v8", {In::u32}, 1, from_int([](uint32_t x) {
         return static_cast<float>(x & 255);
       })},
      {"v_cvt_f32_ubyte1 v64, v8", {In::u32}, 1, from_int([](uint32_t x) {
         return static_cast<float>(x >> 8 & 255);
       })},
      {"v_cvt_f32_ubyte2 v64, v8", {In::u32}, 1, from_int([](uint32_t x) {
         return static_cast<float>(x >> 16 & 255);
       })},
      {"v_cvt_f32_ubyte3 v64, v8", {In::u32}, 1, from_int([](uint32_t x) {
         return static_cast<float>(x >> 24);
       })},
      {"v_cvt_f64_f32 v[64:65], v8", {In::f32_n}, 2, to64([](uint32_t x) {
         return double{as_f32(x)};
       })},
      {"v_cvt_f64_i32 v[64:65], v8", {In::u32}, 2, to64([](uint32_t x) {
         return static_cast<double>(static_cast<int32_t>(x));
       })},
      {"v_cvt_f64_u32 v[64:65], v8", {In::u32}, 2, to64([](uint32_t x) {
         return static_cast<double>(x);
       })},
      {"v_cvt_f32_f64 v64, v[8:9]",
       {In::f64},
       1,
       from64([](double x) { return from_f32(static_cast<float>(x)); }),
       same_f32_nan},
      {"v_cvt_i32_f64 v64, v[8:9]", {In::f64}, 1, from64([](double x) { return i32(x); })},
      {"v_cvt_u32_f64 v64, v[8:9]", {In::f64}, 1, from64([](double x) { return u32(x); })},
      {"v_cvt_f16_u16 v64, v8",
       {In::u32},
       1,
       each([](const uint32_t* in) { return from_f16(in[0] & 0xffff); }),
       same_low16},
      {"v_cvt_f16_i16 v64, v8",
       {In::u32},
       1,
       each([](const uint32_t* in) { return from_f16(static_cast<int16_t>(in[0])); }),
       same_low16},
      {"v_cvt_u16_f16 v64, v8",
       {In::f16},
       1,
       from16([](double x) { return uint32_t{saturated<uint16_t>(x)}; }),
       same_low16},
      {"v_cvt_i16_f16 v64, v8; v_and_b32 v64, 0xffff, v64", {In::f16}, 1, from16([](double x) {
         return static_cast<uint32_t>(saturated<int16_t>(x)) & 0xffff;
       })},
  };
  p.push_back({"v_cvt_pk_u16_u32 v64, v8, v9", {In::u32, In::u32}, 1, each([](const uint32_t* in) {
                 return std::min(in[0], 0xffffu) | std::min(in[1], 0xffffu) << 16;
               })});
  p.push_back({"v_cvt_pk_i16_i32 v64, v8, v9", {In::u32, In::u32}, 1, each([](const uint32_t* in) {
                 const auto narrow = [](uint32_t x) {
                   return static_cast<uint32_t>(
                              std::clamp(static_cast<int32_t>(x), -32768, 32767)) &
                          0xffff;
                 };
                 return narrow(in[0]) | narrow(in[1]) << 16;
               })});
  return p;
}

}  // namespace

TEST_CASE("simulator: conversions against the host") {
  for (const char* target : kSimTargets)
    if (can_probe(target, "conversions")) run_probes(target, probes_for(target));
}

// Worked by hand from the formats.
TEST_CASE("simulator: conversions, a table") {
  for (const char* target : kSimTargets) {
    if (!can_probe(target, "conversion table")) continue;
    const std::string rtz = is_wave32(target) ? "v_cvt_pk_rtz_f16_f32" : "v_cvt_pkrtz_f16_f32";
    std::vector<Probe> probes = {
        table("v_cvt_f16_f32 v64, v8; v_and_b32 v64, 0xffff, v64",
              {
                  {{0x477fe000}, {0x7bff}},  // 65504, the largest
                  {{0x477fefff}, {0x7bff}},  // below 65520: rounds down
                  {{0x477ff000}, {0x7c00}},  // 65520 is a tie and goes to infinity
                  {{0xc77ff000}, {0xfc00}},
                  {{0x33800000}, {0x0001}},  // 2^-24, the smallest denormal
                  {{0x33000000}, {0x0000}},  // 2^-25: a tie, to even
                  {{0x33000001}, {0x0001}},
                  {{0xb3000000}, {0x8000}},
                  {{0x387fc000}, {0x03ff}},  // largest denormal
                  {{0x387fe000}, {0x0400}},  // rounds up into the normals (tie to even)
                  {{0x3f801000}, {0x3c00}},  // 1 + 2^-11: tie to even
                  {{0x3f803000}, {0x3c02}},  // 1 + 3 * 2^-11: tie to even, up
                  {{0x00000001}, {0x0000}},
                  {{0x80000000}, {0x8000}},
                  {{0x7f800000}, {0x7c00}},
              }),
        table(rtz + " v64, v8, v9",
              {
                  {{0x477fefff, 0x477ff000}, {0x7bff7bff}},
                  {{0x7f7fffff, 0xff7fffff}, {0xfbff7bff}},  // never infinite from a number
                  {{0x7f800000, 0xff800000}, {0xfc007c00}},
                  {{0x33ffffff, 0xb3ffffff}, {0x80010001}},
                  {{0x337fffff, 0x00000000}, {0x00000000}},
                  {{0x3f801fff, 0xbf801fff}, {0xbc003c00}},
              }),
        table("v_cvt_i32_f32 v64, v8",
              {
                  {{0x4effffff}, {0x7fffff80}},
                  {{0x4f000000}, {0x7fffffff}},
                  {{0xcf000000}, {0x80000000}},
                  {{0xcf000001}, {0x80000000}},
                  {{0x7fc00000}, {0}},
                  {{0x7f800000}, {0x7fffffff}},
                  {{0xff800000}, {0x80000000}},
                  {{0xbf7fffff}, {0}},
                  {{0x3fffffff}, {1}},
              }),
        table("v_cvt_u32_f32 v64, v8",
              {
                  {{0x4f7fffff}, {0xffffff00}},
                  {{0x4f800000}, {0xffffffff}},
                  {{0xbf800000}, {0}},
                  {{0xff800000}, {0}},
                  {{0x7f800000}, {0xffffffff}},
                  {{0xffc00000}, {0}},
              }),
        table("v_cvt_f32_u32 v64, v8",
              {
                  {{0x01000001}, {0x4b800000}},  // 2^24 + 1: tie to even
                  {{0x01000003}, {0x4b800002}},
                  {{0xffffffff}, {0x4f800000}},
                  {{0xffffff7f}, {0x4f7fffff}},
              }),
        table("v_cvt_f32_f64 v64, v[8:9]",
              {
                  {{0x10000000, 0x3ff00000}, {0x3f800000}},  // 1 + 2^-24: tie to even
                  {{0x10000001, 0x3ff00000}, {0x3f800001}},
                  {{0x30000000, 0x3ff00000}, {0x3f800002}},
                  {{0xf0000000, 0x47efffff}, {0x7f800000}},  // half above the largest
                  {{0x00000000, 0x36a00000}, {0x00000001}},
                  {{0x00000000, 0x36900000}, {0x00000000}},
                  {{0x00000001, 0x36900000}, {0x00000001}},
              }),
    };
    run_probes(target, probes);
  }
}

}  // namespace hstu::test
