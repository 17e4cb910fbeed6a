// SPDX-License-Identifier: Apache-2.0
// The functions of the float units, one lane at a time and mostly without branches, so that loops
// over lanes vectorise. Hardware promises about one unit in the last place for the transcendental
// ones; here they are computed in double (error below 1e-11) and rounded once.
#pragma once

#include <cmath>
#include <limits>

#include "sim/isa/lanes_run.hpp"

namespace hstu::jit::sim {

inline u64 to_bits(double x) { return std::bit_cast<u64>(x); }
inline double to_double(u64 x) { return std::bit_cast<double>(x); }

template <typename T>
struct FloatLayout;
template <>
struct FloatLayout<float> {
  using Word = u32;
  static constexpr int kMantissa = 23, kMaxExponent = 255, kBias = 127;
};
template <>
struct FloatLayout<double> {
  using Word = u64;
  static constexpr int kMantissa = 52, kMaxExponent = 2047, kBias = 1023;
};
// The biased exponent field.
template <typename T>
int exponent_of(T x) {
  using L = FloatLayout<T>;
  return static_cast<int>(std::bit_cast<typename L::Word>(x) >> L::kMantissa) & L::kMaxExponent;
}

inline bool is_signaling(float x) { return x != x && !(to_bits(x) & 0x400000u); }
inline bool is_signaling(double x) { return x != x && !(to_bits(x) >> 51 & 1); }
template <typename T>
T quieted(T x) {
  return x + x;  // a NaN keeps its payload and becomes quiet
}

// ---- Minimum and maximum. v_min_f32 with IEEE set (compute kernels have it so): of a number and a
// quiet NaN the number; a signalling NaN wins, quieted; -0 is below +0.
template <typename T>
bool below(T a, T b) {
  return a < b || (a == b && std::signbit(a) && !std::signbit(b));
}
template <typename T>
T minimum_number(T a, T b) {
  T least = below(b, a) ? b : a;
  least = a != a ? b : least;
  least = b != b ? (a != a ? quieted(b) : a) : least;
  least = is_signaling(b) ? quieted(b) : least;
  return is_signaling(a) ? quieted(a) : least;
}
template <typename T>
T maximum_number(T a, T b) {
  T most = below(a, b) ? b : a;
  most = a != a ? b : most;
  most = b != b ? (a != a ? quieted(b) : a) : most;
  most = is_signaling(b) ? quieted(b) : most;
  return is_signaling(a) ? quieted(a) : most;
}
// v_minimum_f32 of gfx12: a NaN of either side wins.
template <typename T>
T minimum(T a, T b) {
  return a != a ? quieted(a) : b != b ? quieted(b) : below(b, a) ? b : a;
}
template <typename T>
T maximum(T a, T b) {
  return a != a ? quieted(a) : b != b ? quieted(b) : below(a, b) ? b : a;
}
// The middle one; of sources with a NaN, the minimum.
template <typename T>
T median(T a, T b, T c) {
  if (a != a || b != b || c != c) return minimum_number(minimum_number(a, b), c);
  const T most = maximum_number(maximum_number(a, b), c);
  if (most == a) return maximum_number(b, c);
  if (most == b) return maximum_number(a, c);
  return maximum_number(a, b);
}

// ---- Transcendental functions.
inline float exp2_f32(float x) {
  const double limited = x < -200.0f ? -200.0 : x > 200.0f ? 200.0 : static_cast<double>(x);
  constexpr double kMagic = 0x1.8p52;
  const double shifted = limited + kMagic, whole = shifted - kMagic;
  const double f = (limited - whole) * 0.693147180559945309417;  // |f| <= 0.347
  // Taylor's series; the first term left out is 6e-14.
  double p = 1.0 / 3628800;
  p = p * f + 1.0 / 362880;
  p = p * f + 1.0 / 40320;
  p = p * f + 1.0 / 5040;
  p = p * f + 1.0 / 720;
  p = p * f + 1.0 / 120;
  p = p * f + 1.0 / 24;
  p = p * f + 1.0 / 6;
  p = p * f + 0.5;
  p = p * f + 1.0;
  p = p * f + 1.0;
  const double scaled = to_double(to_bits(p) + (to_bits(shifted) << 52));
  return x != x ? quieted(x) : static_cast<float>(scaled);
}

inline float log2_f32(float x) {
  // x = m * 2^e with m in [sqrt(1/2), sqrt(2)); log(m) = 2 atanh((m - 1) / (m + 1)).
  const double wide = x;
  constexpr u64 kRootHalf = 0x3fe6a09e667f3bcdu;
  const u64 bits = to_bits(wide) - kRootHalf;
  const double e = static_cast<double>(static_cast<i32>(static_cast<i64>(bits) >> 52));
  const double m = to_double((bits & 0xfffffffffffffu) + kRootHalf);
  const double s = (m - 1) / (m + 1), z = s * s;  // |s| <= 0.1716
  double p = 1.0 / 15;
  p = p * z + 1.0 / 13;
  p = p * z + 1.0 / 11;
  p = p * z + 1.0 / 9;
  p = p * z + 1.0 / 7;
  p = p * z + 1.0 / 5;
  p = p * z + 1.0 / 3;
  p = p * z + 1.0;
  const auto log = static_cast<float>(e + p * s * (2 * 1.44269504088896340736));
  float result = x > 0    ? log
                 : x == 0 ? -std::numeric_limits<float>::infinity()
                          : std::numeric_limits<float>::quiet_NaN();
  result = x == std::numeric_limits<float>::infinity() ? x : result;
  return x != x ? quieted(x) : result;
}

inline float rcp_f32(float x) { return 1.0f / x; }
inline float rsq_f32(float x) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x)));
}

// The argument is in turns; beyond 256 of them the unit gives what it gives for 0.
inline double turns(float x) {
  if (!(std::fabs(x) <= 256.0f)) return std::isinf(x) ? NAN : x != x ? x : 0.0;
  const double wide = x;
  return (wide - std::nearbyint(wide)) * 6.283185307179586476925;
}
inline float sin_f32(float x) { return static_cast<float>(std::sin(turns(x))); }
inline float cos_f32(float x) { return static_cast<float>(std::cos(turns(x))); }

// ---- Conversions: to nearest where the name says so, else towards zero; NaN becomes 0, what is
// too large the nearest end.
template <typename T, typename F>
T to_integer(F x) {
  constexpr F kLow = static_cast<F>(std::numeric_limits<T>::min());
  // The first value past the end, a power of two in every format here.
  const F high = std::ldexp(static_cast<F>(1), std::numeric_limits<T>::digits);
  if (x != x) return 0;
  if (x >= high) return std::numeric_limits<T>::max();
  if (x <= kLow) return std::numeric_limits<T>::min();
  return static_cast<T>(x);
}

// The largest value below 1 keeps a fraction from being rounded up to 1.
template <typename T>
T fraction(T x, T below_one) {
  const T f = x - std::floor(x);
  return f < below_one ? f : x != x ? quieted(x) : std::isinf(x) ? f : below_one;
}

// ---- Division in three steps: v_div_scale keeps the quotient's estimate out of trouble,
// v_div_fmas takes the scaling back, v_div_fixup handles the special cases.
template <typename T>
struct Division;
template <>
struct Division<float> {
  static constexpr int kHuge = 96, kScale = 64, kTiny = 23, kUnderflow = -150;
};
template <>
struct Division<double> {
  static constexpr int kHuge = 768, kScale = 128, kTiny = 53, kUnderflow = -1075;
};
template <typename T>
bool is_denormal(T x) {
  return x != 0 && exponent_of(x) == 0;
}
// a is the denominator or the numerator, whichever is to be scaled; the mask tells v_div_fmas.
template <typename T>
WithMask<T> div_scale(T a, T denominator, T numerator) {
  using D = Division<T>;
  const bool of_denominator = std::bit_cast<typename FloatLayout<T>::Word>(a) ==
                              std::bit_cast<typename FloatLayout<T>::Word>(denominator);
  const auto scaled = [a](bool yes, int by) { return yes ? std::ldexp(a, by) : a; };
  if (denominator == 0 || numerator == 0) return {std::numeric_limits<T>::quiet_NaN(), false};
  const bool inverse_denormal = is_denormal(static_cast<T>(1) / denominator);
  const bool quotient_denormal = is_denormal(numerator / denominator);
  if (exponent_of(numerator) - exponent_of(denominator) >= D::kHuge) {
    return {scaled(of_denominator, D::kScale), true};
  }
  if (is_denormal(denominator)) return {scaled(true, D::kScale), false};
  if (inverse_denormal && quotient_denormal) return {scaled(of_denominator, -D::kScale), true};
  if (inverse_denormal) return {scaled(true, -D::kScale), false};
  if (quotient_denormal) return {scaled(!of_denominator, D::kScale), true};
  if (exponent_of(numerator) <= D::kTiny) return {scaled(true, D::kScale), false};
  return {a, false};
}
// a * b + c times 2^by, rounded once though it may end up denormal.
inline float scaled_fma(float a, float b, float c, int by) {
  return static_cast<float>(std::ldexp(round_to_odd_sum(static_cast<double>(a) * b, c), by));
}
inline double scaled_fma(double a, double b, double c, int by) {
  const double sum = std::fma(a, b, c), result = std::ldexp(sum, by);
  if (exponent_of(result) != 0) return result;
  // The second rounding errs only where the first has made a tie: what it cut off decides.
  const double cut = std::fma(a, b, c - sum), off = sum - std::ldexp(result, -by);
  if (cut == 0 || std::fabs(off) != std::ldexp(1.0, -1075 - by)) return result;
  const double other = std::nextafter(result, off > 0 ? INFINITY : -INFINITY);
  return cut > 0 ? std::fmax(result, other) : std::fmin(result, other);
}
template <typename T>
T div_fmas(T a, T b, T c, bool scaled) {
  if (!scaled) return std::fma(a, b, c);
  const int by = Division<T>::kScale;
  return scaled_fma(a, b, c, exponent_of(c) > FloatLayout<T>::kBias ? by : -by);
}
template <typename T>
T div_fixup(T quotient, T denominator, T numerator) {
  const T sign = std::signbit(denominator) != std::signbit(numerator) ? T(-1) : T(1);
  const T infinity = std::numeric_limits<T>::infinity();
  if (numerator != numerator) return quieted(numerator);
  if (denominator != denominator) return quieted(denominator);
  if (denominator == 0 && numerator == 0) return -std::numeric_limits<T>::quiet_NaN();
  if (std::isinf(denominator) && std::isinf(numerator)) return -std::numeric_limits<T>::quiet_NaN();
  if (denominator == 0 || std::isinf(numerator)) return sign * infinity;
  if (std::isinf(denominator) || numerator == 0) return sign * T(0);
  const int exponents = exponent_of(numerator) - exponent_of(denominator);
  if (exponents < Division<T>::kUnderflow) return sign * T(0);
  if (quotient != quotient) return sign * infinity;  // the steps before have overflowed
  return std::copysign(quotient, sign);
}

}  // namespace hstu::jit::sim
