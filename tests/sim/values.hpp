// SPDX-License-Identifier: Apache-2.0
// Number formats of the hardware on the host, in wider arithmetic than the hardware's: exact, then
// rounded once.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace hstu::test {

inline float as_f32(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
inline uint32_t from_f32(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}
inline double as_f64(uint32_t low, uint32_t high) {
  const uint64_t bits = uint64_t{high} << 32 | low;
  double value;
  std::memcpy(&value, &bits, 8);
  return value;
}
inline void put_f64(double value, uint32_t* out) {
  uint64_t bits;
  std::memcpy(&bits, &value, 8);
  out[0] = static_cast<uint32_t>(bits), out[1] = static_cast<uint32_t>(bits >> 32);
}
inline uint64_t as_u64(const uint32_t* in) { return uint64_t{in[1]} << 32 | in[0]; }
inline void put_u64(uint64_t value, uint32_t* out) {
  out[0] = static_cast<uint32_t>(value), out[1] = static_cast<uint32_t>(value >> 32);
}

// A format of 16 bits or less: 1 sign, `exponent` and `fraction` bits, IEEE specials.
inline double decode_small(uint32_t bits, int exponent, int fraction) {
  const int e = static_cast<int>(bits >> fraction & ((1u << exponent) - 1));
  const uint32_t m = bits & ((1u << fraction) - 1);
  const int bias = (1 << (exponent - 1)) - 1;
  const double sign = bits >> (exponent + fraction) & 1 ? -1.0 : 1.0;
  if (e == (1 << exponent) - 1)
    return m ? std::numeric_limits<double>::quiet_NaN()
             : sign * std::numeric_limits<double>::infinity();
  if (e == 0) return sign * std::ldexp(static_cast<double>(m), 1 - bias - fraction);
  return sign * std::ldexp(static_cast<double>(m | 1u << fraction), e - bias - fraction);
}

enum class Rounding { nearest, zero };

inline uint32_t encode_small(long double value, int exponent, int fraction, Rounding rounding) {
  const uint32_t sign = (std::signbit(value) ? 1u : 0u) << (exponent + fraction);
  const int bias = (1 << (exponent - 1)) - 1;
  const uint32_t infinity = ((1u << exponent) - 1) << fraction;
  if (std::isnan(value)) return sign | infinity | 1u << (fraction - 1);
  const long double magnitude = std::fabs(value);
  if (std::isinf(value)) return sign | infinity;
  if (magnitude == 0) return sign;
  int e = 0;
  std::frexp(magnitude, &e);                              // magnitude in [2^(e-1), 2^e)
  const int unit = std::max(e - 1, 1 - bias) - fraction;  // exponent of the last place
  const long double scaled = std::ldexp(magnitude, -unit);
  const long double whole =
      rounding == Rounding::nearest ? std::nearbyint(scaled) : std::trunc(scaled);
  const long double rounded = std::ldexp(whole, unit);
  const long double largest = std::ldexp(2.0L - std::ldexp(1.0L, -fraction), bias);
  if (rounded > largest) return sign | (rounding == Rounding::nearest ? infinity : infinity - 1);
  if (rounded == 0) return sign;
  int r = 0;
  std::frexp(rounded, &r);
  if (r - 1 < 1 - bias) return sign | static_cast<uint32_t>(whole);
  const auto m = static_cast<uint32_t>(std::ldexp(rounded, fraction - (r - 1)));
  return sign | static_cast<uint32_t>(r - 1 + bias) << fraction | (m & ((1u << fraction) - 1));
}

inline double as_f16(uint32_t bits) { return decode_small(bits & 0xffff, 5, 10); }
inline uint32_t from_f16(long double value, Rounding rounding = Rounding::nearest) {
  return encode_small(value, 5, 10, rounding);
}
inline float as_bf16(uint32_t bits) { return as_f32(bits << 16); }
inline uint32_t from_bf16(long double value) {
  return encode_small(value, 8, 7, Rounding::nearest);
}

inline bool same_low16(uint32_t got, uint32_t want) {
  const auto nan = [](uint32_t h) { return (h & 0x7fff) > 0x7c00; };
  got &= 0xffff, want &= 0xffff;
  return got == want || (nan(got) && nan(want));
}
// 1 unit in the last place of an f16 in the low half.
inline bool near_low16(uint32_t got, uint32_t want) {
  if (same_low16(got, want)) return true;
  got &= 0xffff, want &= 0xffff;
  return (got ^ want) < 0x8000 && std::abs(static_cast<int>(got) - static_cast<int>(want)) <= 1;
}
// Zeros of either sign are one value.
inline bool same_f32_value(uint32_t got, uint32_t want) {
  return got == want || as_f32(got) == as_f32(want) ||
         (std::isnan(as_f32(got)) && std::isnan(as_f32(want)));
}
inline bool same_any(uint32_t, uint32_t) { return true; }

inline constexpr const char* kSimTargets[] = {"gfx908", "gfx90a", "gfx942", "gfx1100", "gfx1201"};

}  // namespace hstu::test
