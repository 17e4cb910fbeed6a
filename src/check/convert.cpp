// SPDX-License-Identifier: Apache-2.0
// fp32 -> fp16 and bf16 by integer arithmetic.
#include <bit>

#include "check/check.hpp"

namespace hstu::jit {
namespace {

// Drops the low `shift` bits, rounding to nearest even; a carry into the exponent is the right
// answer, up to infinity.
uint32_t round_bits(uint32_t bits, int shift) {
  const uint32_t half = uint32_t{1} << (shift - 1);
  const uint32_t rest = bits & (2 * half - 1);
  const uint32_t kept = bits >> shift;
  return kept + (rest > half || (rest == half && (kept & 1)) ? 1 : 0);
}

uint16_t to_bf16(uint32_t bits) {
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>(round_bits(bits, 16));
}

uint16_t to_fp16(uint32_t bits) {
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  uint32_t result = 0;
  if (magnitude > 0x7f800000) {  // NaN: keep what fits of the payload
    result = 0x7e00 | (magnitude >> 13 & 0x3ff);
  } else if (magnitude >= 0x47800000) {  // 2^16 and above
    result = 0x7c00;
  } else if (magnitude >= 0x38800000) {  // 2^-14 and above: a normal number; rebias the exponent
    result = round_bits(magnitude - 0x38000000, 13);
  } else if (magnitude >= 0x33000000) {  // 2^-25 and above: in steps of 2^-24
    const int exponent = static_cast<int>(magnitude >> 23);
    result = round_bits((magnitude & 0x7fffff) | 0x800000, 126 - exponent);
  }
  return static_cast<uint16_t>(sign | result);
}

}  // namespace

uint16_t from_float(float value, Dtype dtype) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return dtype == Dtype::bf16 ? to_bf16(bits) : to_fp16(bits);
}

float to_float(uint16_t bits, Dtype dtype) { return static_cast<float>(to_double(bits, dtype)); }

}  // namespace hstu::jit
