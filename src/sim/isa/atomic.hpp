// SPDX-License-Identifier: Apache-2.0
// What atomics do to a value, in memory and in LDS alike. Source: AMD's ISA documents, "FLAT,
// Scratch and Global Instructions" and "LDS & GDS Instructions".
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "sim/isa/convert.hpp"

namespace hstu::jit::sim {

// The argument of an atomic opcode.
enum AtomicOp : int16_t {
  kSwap,
  kCompareSwap,
  kAdd,
  kSub,
  kReverseSub,
  kMinI,
  kMinU,
  kMaxI,
  kMaxU,
  kAnd,
  kOr,
  kXor,
  kIncrement,
  kDecrement,
  kSubClamp,
  kCondSub,
  kAddFloat,
  kMinFloat,
  kMaxFloat,
  kAddPackedF16,
  kAddPackedBf16,
  kMaskOr,
};

// The new value from the old one. `compare` is used by kCompareSwap (and the value by kMaskOr).
template <typename T>
T atomic_result(int16_t op, T old, T data, T compare) {
  using S = std::make_signed_t<T>;
  using F = std::conditional_t<sizeof(T) == 8, double, float>;
  const auto f = [](T bits) { return std::bit_cast<F>(bits); };
  const auto halves = [&](auto&& add) {
    const auto a = static_cast<uint32_t>(old), b = static_cast<uint32_t>(data);
    return static_cast<T>(add(a & 0xffff, b & 0xffff) | add(a >> 16, b >> 16) << 16);
  };
  switch (op) {
    case kSwap:
      return data;
    case kCompareSwap:
      return old == compare ? data : old;
    case kAdd:
      return old + data;
    case kSub:
      return old - data;
    case kReverseSub:
      return data - old;
    case kMinI:
      return static_cast<S>(data) < static_cast<S>(old) ? data : old;
    case kMinU:
      return data < old ? data : old;
    case kMaxI:
      return static_cast<S>(data) > static_cast<S>(old) ? data : old;
    case kMaxU:
      return data > old ? data : old;
    case kAnd:
      return old & data;
    case kOr:
      return old | data;
    case kXor:
      return old ^ data;
    case kIncrement:
      return old >= data ? 0 : old + 1;
    case kDecrement:
      return old == 0 || old > data ? data : old - 1;
    case kSubClamp:
      return old < data ? 0 : old - data;
    case kCondSub:
      return old >= data ? old - data : old;
    case kAddFloat:
      return std::bit_cast<T>(static_cast<F>(f(old) + f(data)));
    case kMinFloat:
      return std::bit_cast<T>(std::fmin(f(old), f(data)));
    case kMaxFloat:
      return std::bit_cast<T>(std::fmax(f(old), f(data)));
    case kAddPackedF16:
      return halves(
          [](uint32_t a, uint32_t b) { return f32_to_f16(f16_to_f32(a) + f16_to_f32(b)); });
    case kAddPackedBf16:
      return halves(
          [](uint32_t a, uint32_t b) { return f32_to_bf16(bf16_to_f32(a) + bf16_to_f32(b)); });
    case kMaskOr:
      return (old & ~data) | compare;
    default:
      return old;
  }
}

}  // namespace hstu::jit::sim
