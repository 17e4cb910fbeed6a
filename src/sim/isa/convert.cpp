// SPDX-License-Identifier: Apache-2.0
#include "sim/isa/convert.hpp"

#include <algorithm>
#include <limits>

namespace hstu::jit::sim {
namespace {

uint32_t sign_bit(const SmallFormat& f) { return 1u << (f.exponent_bits + f.mantissa_bits); }

// The code of the largest finite magnitude.
uint32_t largest(const SmallFormat& f) {
  const uint32_t all = sign_bit(f) - 1;
  switch (f.special) {
    case Special::ieee:
      return all - (1u << f.mantissa_bits);
    case Special::one_nan:
      return all - 1;
    case Special::zero_nan:
    case Special::none:
      break;
  }
  return all;
}

}  // namespace

float small_to_f32(const SmallFormat& f, uint32_t code) {
  const uint32_t magnitude = code & (sign_bit(f) - 1);
  const bool negative = code & sign_bit(f);
  if (f.special == Special::zero_nan && negative && magnitude == 0) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  if (magnitude > largest(f)) {
    const bool infinite = f.special == Special::ieee && magnitude == largest(f) + 1;
    const float x = infinite ? INFINITY : std::numeric_limits<float>::quiet_NaN();
    return negative ? -x : x;
  }
  const int exponent = static_cast<int>(magnitude >> f.mantissa_bits);
  const int mantissa = static_cast<int>(magnitude & ((1u << f.mantissa_bits) - 1));
  const int hidden = exponent ? 1 << f.mantissa_bits : 0;
  const float x = std::ldexp(static_cast<float>(hidden + mantissa),
                             std::max(exponent, 1) - f.bias - f.mantissa_bits);
  return negative ? -x : x;
}

uint32_t f32_to_small(const SmallFormat& f, float value, bool saturate) {
  const uint32_t sign = std::signbit(value) ? sign_bit(f) : 0;
  const uint32_t nan = f.special == Special::zero_nan ? sign_bit(f) : sign | (sign_bit(f) - 1);
  if (std::isnan(value)) return f.special == Special::none ? sign | largest(f) : nan;
  const float magnitude = std::fabs(value);
  uint32_t code = 0;
  if (std::isinf(value)) {
    code = largest(f) + 1;
  } else if (magnitude > 0) {
    // In units of the last place of the exponent that the value falls in.
    const int exponent = std::max(std::ilogb(magnitude), 1 - f.bias);
    const float units = std::nearbyint(std::ldexp(magnitude, f.mantissa_bits - exponent));
    const int64_t biased = exponent + f.bias - 1;  // a hidden one in `units` adds the missing one
    const int64_t wide = (biased << f.mantissa_bits) + static_cast<int64_t>(units);
    code = static_cast<uint32_t>(std::min<int64_t>(wide, largest(f) + 1));
  }
  if (code > largest(f)) {
    if (saturate || f.special == Special::none) return sign | largest(f);
    return f.special == Special::ieee ? sign | (largest(f) + 1) : nan;
  }
  if (code == 0 && f.special == Special::zero_nan) return 0;
  return sign | code;
}

}  // namespace hstu::jit::sim
