// SPDX-License-Identifier: Apache-2.0
// 16-bit numbers for emulated machines, in software and rounding to nearest even, so that they owe
// nothing to the host's own conversions.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace emulator {

inline float bf16_value(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float x;
  std::memcpy(&x, &wide, 4);
  return x;
}

inline uint16_t bf16_bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if (std::isnan(x)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline float fp16_value(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double magnitude = exponent == 31 ? (mantissa ? NAN : INFINITY)
                           : exponent     ? std::ldexp(1024 + mantissa, exponent - 25)
                                          : std::ldexp(mantissa, -24);
  return static_cast<float>(bits & 0x8000 ? -magnitude : magnitude);
}

inline uint16_t fp16_bits(float x) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  if (std::isnan(x)) return 0x7e00;
  const double magnitude = std::fabs(static_cast<double>(x));
  if (magnitude >= 65520.0) return sign | 0x7c00;
  if (magnitude == 0.0) return sign;
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  const int scale = exponent - 11 < -24 ? -24 : exponent - 11;  // weight of the last bit
  const auto steps = static_cast<int>(std::nearbyint(std::ldexp(magnitude, -scale)));
  return static_cast<uint16_t>(
      sign + (steps < 1024 && scale == -24 ? steps : ((scale + 24) << 10) + steps));
}

inline float value(bool bf16, uint16_t bits) { return bf16 ? bf16_value(bits) : fp16_value(bits); }
inline uint16_t bits(bool bf16, float x) { return bf16 ? bf16_bits(x) : fp16_bits(x); }

}  // namespace emulator
