// SPDX-License-Identifier: Apache-2.0
// Number formats narrower than 32 bits, rounded to nearest even. The 16-bit conversions have no
// branches, so that loops over lanes vectorise.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace hstu::jit::sim {

inline uint32_t to_bits(float x) { return std::bit_cast<uint32_t>(x); }
inline float to_float(uint32_t x) { return std::bit_cast<float>(x); }

inline float f16_to_f32(uint32_t half) {
  const uint32_t sign = (half & 0x8000u) << 16, magnitude = (half & 0x7fffu) << 13;
  // 2^112 moves the exponent bias; halves that are denormal come out normal.
  const uint32_t scaled = to_bits(to_float(magnitude) * 0x1p112f);
  const uint32_t special = magnitude >= 0x0f800000u ? 0x7f800000u : 0u;
  return to_float(scaled | special | sign);
}

inline uint32_t f32_to_f16(float value) {
  const uint32_t bits = to_bits(value), magnitude = bits & 0x7fffffffu;
  const uint32_t odd = (magnitude >> 13) & 1u;
  const uint32_t normal = (magnitude - 0x38000000u + 0xfffu + odd) >> 13;
  // Adding one half leaves the denormal's bits, rounded, at the end of the mantissa.
  const uint32_t tiny = to_bits(to_float(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  uint32_t half = magnitude < 0x38800000u ? tiny : normal;
  half = magnitude >= 0x477ff000u ? 0x7c00u : half;
  half = magnitude > 0x7f800000u ? nan : half;
  return half | ((bits >> 16) & 0x8000u);
}

// Rounded towards zero; what is too large becomes the largest half.
inline uint32_t f32_to_f16_rtz(float value) {
  const uint32_t bits = to_bits(value), magnitude = bits & 0x7fffffffu,
                 sign = (bits >> 16) & 0x8000u;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  if (magnitude == 0x7f800000u) return sign | 0x7c00u;
  if (magnitude >= 0x47800000u) return sign | 0x7bffu;
  if (magnitude >= 0x38800000u) return sign | ((magnitude - 0x38000000u) >> 13);
  return sign | static_cast<uint32_t>(to_float(magnitude) * 0x1p24f);
}

inline float bf16_to_f32(uint32_t half) { return to_float(half << 16); }

inline uint32_t f32_to_bf16(float value) {
  const uint32_t bits = to_bits(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40u;
  return (bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded;
}

// ---- Rounding twice without harm (build with -ffp-contract=off): a result "rounded to odd" in a
// wider format keeps what the second rounding needs to know, its last bit being set whenever
// something was cut off.
inline double round_to_odd_sum(double a, double b) {
  const double sum = a + b, part = sum - a;
  const double error = (a - (sum - part)) + (b - part);  // exact (Knuth); NaN for infinities
  const uint64_t bits = std::bit_cast<uint64_t>(sum);
  // Move by one unit towards the exact sum, unless the last bit is set already.
  const bool inexact = (error > 0) | (error < 0);
  const uint64_t outward = (error > 0) == (sum > 0) ? uint64_t{1} : ~uint64_t{0};
  const uint64_t odd = bits + ((inexact & !(bits & 1)) ? outward : 0);
  return std::bit_cast<double>(odd);
}

inline float round_to_odd(double value) {
  const float near = static_cast<float>(value);
  const double back = near;
  const uint32_t bits = to_bits(near);
  const bool exact = back == value || value != value, outside = std::fabs(back) > std::fabs(value);
  return exact ? near : to_float((outside ? bits - 1 : bits) | 1u);
}

inline uint32_t fma_f16(float a, float b, float c) {
  return f32_to_f16(round_to_odd(round_to_odd_sum(static_cast<double>(a) * b, c)));
}

// ---- 8, 6 and 4 bits.
enum class Special : uint8_t {
  ieee,      // the largest exponent holds infinity and NaN
  one_nan,   // all ones is NaN (OCP e4m3)
  zero_nan,  // "minus zero" is NaN, the only special value (FNUZ)
  none,      // finite only (OCP 6 and 4 bits)
};
struct SmallFormat {
  int exponent_bits, mantissa_bits, bias;
  Special special;
};
constexpr SmallFormat kFp8Fnuz{4, 3, 8, Special::zero_nan}, kBf8Fnuz{5, 2, 16, Special::zero_nan};
constexpr SmallFormat kFp8{4, 3, 7, Special::one_nan}, kBf8{5, 2, 15, Special::ieee};
constexpr SmallFormat kFp6{2, 3, 1, Special::none}, kBf6{3, 2, 3, Special::none};
constexpr SmallFormat kFp4{2, 1, 1, Special::none};

float small_to_f32(const SmallFormat& format, uint32_t code);
// `saturate`: too large values become the largest finite one; else infinity or NaN, as the format
// has them. Formats without special values always saturate.
uint32_t f32_to_small(const SmallFormat& format, float value, bool saturate);

}  // namespace hstu::jit::sim
