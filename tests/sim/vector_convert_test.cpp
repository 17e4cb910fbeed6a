// SPDX-License-Identifier: Apache-2.0
// The number formats and functions below the vector instructions, against definitions written with
// exact arithmetic: every code of the small formats, every half, many floats.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "catch.hpp"
#include "sim/isa/convert.hpp"
#include "sim/isa/lanes_math.hpp"

namespace hstu::jit::sim {
namespace {

// The value of a code of `exponent` and `mantissa` bits, special codes aside.
double value_of(uint32_t code, int exponent, int mantissa, int bias) {
  const uint32_t power = code >> mantissa & ((1u << exponent) - 1);
  const double fraction = std::ldexp(code & ((1u << mantissa) - 1), -mantissa);
  const double magnitude = power == 0 ? std::ldexp(fraction, 1 - bias)
                                      : std::ldexp(1 + fraction, static_cast<int>(power) - bias);
  return code >> (exponent + mantissa) & 1 ? -magnitude : magnitude;
}

float random_float(std::mt19937& random) { return to_float(static_cast<uint32_t>(random())); }

// Of the finite codes 0 .. last the one nearest to `magnitude`, ties to the even code.
uint32_t nearest_code(double magnitude, uint32_t last, int exponent, int mantissa, int bias) {
  uint32_t low = 0, high = last;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    (value_of(middle, exponent, mantissa, bias) <= magnitude ? low : high) = middle;
  }
  const double below = magnitude - value_of(low, exponent, mantissa, bias);
  const double above = value_of(high, exponent, mantissa, bias) - magnitude;
  if (below != above) return below < above ? low : high;
  return low % 2 == 0 ? low : high;
}

TEST_CASE("simulator: every half is the float it stands for") {
  int wrong = 0;
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const float x = f16_to_f32(code);
    if ((code & 0x7c00) == 0x7c00) {
      const bool infinite = (code & 0x3ff) == 0;
      wrong += infinite ? !(std::isinf(x) && std::signbit(x) == (code > 0x8000)) : !std::isnan(x);
      continue;
    }
    wrong += to_bits(x) != to_bits(static_cast<float>(value_of(code, 5, 10, 15)));
    wrong += f32_to_f16(x) != code;
    wrong += f32_to_f16_rtz(x) != code;
  }
  CHECK(wrong == 0);
}

TEST_CASE("simulator: floats are rounded to halves") {
  std::mt19937 random(1);
  int wrong = 0;
  for (int i = 0; i < 200000; ++i) {
    // Around the range of halves, and near ties: a half plus half a unit, give or take.
    float x = std::ldexp(1.0f + static_cast<float>(random() % 0x800000) * 0x1p-23f,
                         static_cast<int>(random() % 48) - 30);
    if (i % 2) x = to_float((to_bits(x) & ~0x1fffu) | (0xfffu + random() % 3));
    // 65520 and more round to infinity, whose code is one above the largest finite one.
    const uint32_t nearest =
        x >= 65520 ? 0x7c00 : nearest_code(std::min(x, 65504.0f), 0x7bff, 5, 10, 15);
    uint32_t cut = 0x7bff;
    while (cut > 0 && x < 65504 && value_of(cut, 5, 10, 15) > x) {
      cut = std::min(cut - 1, nearest);
    }
    wrong += f32_to_f16(x) != nearest;
    wrong += f32_to_f16(-x) != (nearest | 0x8000);
    wrong += f32_to_f16_rtz(x) != cut;
    wrong += f32_to_f16_rtz(-x) != (cut | 0x8000);
  }
  CHECK(wrong == 0);
  CHECK(f32_to_f16(INFINITY) == 0x7c00);
  CHECK(f32_to_f16(-INFINITY) == 0xfc00);
  CHECK((f32_to_f16(NAN) & 0x7e00) == 0x7e00);
  CHECK(f32_to_f16_rtz(1e30f) == 0x7bff);
  CHECK(f32_to_f16_rtz(INFINITY) == 0x7c00);
}

TEST_CASE("simulator: floats are rounded to bf16") {
  std::mt19937 random(2);
  int wrong = 0;
  for (int i = 0; i < 200000; ++i) {
    float x = random_float(random);
    if (i % 2) x = to_float((to_bits(x) & ~0xffffu) | (0x7fffu + random() % 3));
    if (std::isnan(x)) {
      wrong += (f32_to_bf16(x) & 0x7fc0) != 0x7fc0;
      continue;
    }
    const uint32_t low = to_bits(x) >> 16, rest = to_bits(x) & 0xffff;
    const bool up = rest > 0x8000 || (rest == 0x8000 && low % 2 == 1);
    wrong += f32_to_bf16(x) != low + up;
  }
  CHECK(wrong == 0);
}

struct Format {
  const char* name;
  SmallFormat format;
  uint32_t last;  // largest finite code
  double largest, least;
  std::vector<uint32_t> nan, infinite;
};

TEST_CASE("simulator: formats of 8, 6 and 4 bits") {
  // Largest and least magnitudes and special codes as the OCP documents and AMD's list them.
  const Format formats[] = {
      {"fp8 OCP", kFp8, 0x7e, 448, 0x1p-9, {0x7f, 0xff}, {}},
      {"bf8 OCP", kBf8, 0x7b, 57344, 0x1p-16, {0x7d, 0x7e, 0x7f, 0xff}, {0x7c, 0xfc}},
      {"fp8 FNUZ", kFp8Fnuz, 0x7f, 240, 0x1p-10, {0x80}, {}},
      {"bf8 FNUZ", kBf8Fnuz, 0x7f, 57344, 0x1p-17, {0x80}, {}},
      {"fp6", kFp6, 0x1f, 7.5, 0.125, {}, {}},
      {"bf6", kBf6, 0x1f, 28, 0.0625, {}, {}},
      {"fp4", kFp4, 0x7, 6, 0.5, {}, {}},
  };
  for (const Format& f : formats) {
    INFO(f.name);
    const SmallFormat& s = f.format;
    const int bits = 1 + s.exponent_bits + s.mantissa_bits;
    const uint32_t sign = 1u << (bits - 1);
    CHECK(small_to_f32(s, f.last) == static_cast<float>(f.largest));
    CHECK(small_to_f32(s, 1) == static_cast<float>(f.least));
    for (const uint32_t code : f.nan) CHECK(std::isnan(small_to_f32(s, code)));
    for (const uint32_t code : f.infinite) CHECK(std::isinf(small_to_f32(s, code)));
    for (uint32_t code = 0; code <= f.last; ++code) {
      const auto x = static_cast<float>(value_of(code, s.exponent_bits, s.mantissa_bits, s.bias));
      CHECK(small_to_f32(s, code) == x);
      CHECK(f32_to_small(s, x, false) == code);
      const bool one_zero = code == 0 && s.special == Special::zero_nan;
      CHECK(f32_to_small(s, -x, false) == (one_zero ? 0 : code | sign));
    }
    // Between two neighbours: to the nearer, ties to even.
    for (uint32_t code = 0; code < f.last; ++code) {
      const float a = small_to_f32(s, code), b = small_to_f32(s, code + 1), middle = (a + b) / 2;
      CHECK(f32_to_small(s, middle, false) == (code % 2 ? code + 1 : code));
      CHECK(f32_to_small(s, std::nextafter(middle, a), false) == code);
      CHECK(f32_to_small(s, std::nextafter(middle, b), false) == code + 1);
    }
    CHECK(f32_to_small(s, 1e9f, true) == f.last);
    const float over = small_to_f32(s, f32_to_small(s, 1e9f, false));
    CHECK((f.infinite.empty()
               ? f.nan.empty() ? over == static_cast<float>(f.largest) : std::isnan(over)
               : std::isinf(over)));
  }
}

TEST_CASE("simulator: a fused half operation rounds once") {
  // In double the first sum is a tie of halves that single rounding breaks: 1 + 2^-11 + tiny.
  CHECK(fma_f16(0x1p-12f, 0x1p-12f, 1.0f + 0x1p-11f) == f32_to_f16(1.0f + 0x1p-10f));
  CHECK(fma_f16(-0x1p-12f, 0x1p-12f, 1.0f + 0x1p-11f) == f32_to_f16(1.0f));
  // Against exact arithmetic in long double (64 bits of mantissa hold these sums).
  std::mt19937 random(3);
  int wrong = 0;
  for (int i = 0; i < 100000; ++i) {
    const auto half = [&] { return f16_to_f32(0x2c00 + random() % 0x2000 + (random() & 0x8000)); };
    const float a = half(), b = half(), c = half();
    const long double exact = static_cast<long double>(a) * b + c;
    const auto magnitude = std::fabs(exact);
    if (magnitude >= 65504) continue;
    uint32_t low = 0, high = 0x7bff;
    while (high - low > 1) {
      const uint32_t middle = (low + high) / 2;
      (value_of(middle, 5, 10, 15) <= magnitude ? low : high) = middle;
    }
    const long double below = magnitude - value_of(low, 5, 10, 15);
    const long double above = value_of(high, 5, 10, 15) - magnitude;
    const uint32_t code = below != above ? (below < above ? low : high) : low % 2 ? high : low;
    const uint32_t got = fma_f16(a, b, c);
    wrong += (got & 0x7fff) != code || (code != 0 && (got >> 15 != 0) != (exact < 0));
  }
  CHECK(wrong == 0);
}

TEST_CASE("simulator: exponentials and logarithms are within half a unit, nearly") {
  std::mt19937 random(4);
  double worst_exp = 0, worst_log = 0;
  const auto units = [](float got, long double want) {
    const int exponent = std::max(std::ilogb(static_cast<double>(want)), -126);
    return static_cast<double>(std::fabs(got - want) / std::ldexp(1.0L, exponent - 23));
  };
  for (int i = 0; i < 200000; ++i) {
    const float x = static_cast<float>(static_cast<int>(random()) * 0x1p-31 * 126);
    worst_exp = std::max(worst_exp, units(exp2_f32(x), std::exp2(static_cast<long double>(x))));
    const float y = i % 2 ? to_float(random() % 0x7f000000 + 0x00800000)
                          : 1.0f + static_cast<float>(static_cast<int>(random()) * 0x1p-40);
    const long double log = std::log2(static_cast<long double>(y));
    if (log != 0) worst_log = std::max(worst_log, units(log2_f32(y), log));
  }
  CHECK(worst_exp < 0.5001);
  CHECK(worst_log < 0.5001);
  CHECK(exp2_f32(0) == 1);
  CHECK(exp2_f32(-INFINITY) == 0);
  CHECK(exp2_f32(INFINITY) == INFINITY);
  CHECK(exp2_f32(128) == INFINITY);
  CHECK(std::isnan(exp2_f32(NAN)));
  CHECK(log2_f32(1) == 0);
  CHECK(log2_f32(0x1p-140f) == -140);
  CHECK(log2_f32(0) == -INFINITY);
  CHECK(log2_f32(INFINITY) == INFINITY);
  CHECK(std::isnan(log2_f32(-1)));
  CHECK(sin_f32(0.25f) == 1);
  CHECK(cos_f32(-0.5f) == -1);
  CHECK(sin_f32(1000) == 0);
  CHECK(cos_f32(1000) == 1);
}

// The division that compilers make of v_div_scale, v_rcp, v_fma, v_div_fmas and v_div_fixup.
template <typename T>
T divide(T n, T d, T reciprocal_error) {
  const WithMask<T> scaled_d = div_scale(d, d, n), scaled_n = div_scale(n, d, n);
  const T x = scaled_d.value, y = scaled_n.value;
  T r = 1 / x;
  // As v_rcp_f32 does.
  if (exponent_of(r) == 0) r = 0;
  r += r * reciprocal_error;
  for (int step = 0; step < 3; ++step) r = std::fma(std::fma(-x, r, T(1)), r, r);
  T q = y * r;
  q = std::fma(std::fma(-x, q, y), r, q);
  const T rest = std::fma(-x, q, y);
  return div_fixup(div_fmas(rest, r, q, scaled_n.mask), d, n);
}

TEST_CASE("simulator: the steps of a division give the quotient rounded once") {
  std::mt19937_64 random(5);
  int wrong = 0, denormal = 0;
  for (int i = 0; i < 200000; ++i) {
    const float n = to_float(static_cast<uint32_t>(random())),
                d = to_float(static_cast<uint32_t>(random()));
    const float want = n / d, got = divide(n, d, 0x1p-23f);
    denormal += want != 0 && exponent_of(want) == 0;
    wrong += std::isnan(want) ? !std::isnan(got) : to_bits(got) != to_bits(want);
    const double wide_n = to_double(random()), wide_d = to_double(random());
    const double wide_want = wide_n / wide_d, wide_got = divide(wide_n, wide_d, 0x1p-26);
    wrong +=
        std::isnan(wide_want) ? !std::isnan(wide_got) : to_bits(wide_got) != to_bits(wide_want);
  }
  CHECK(denormal > 1000);
  CHECK(wrong == 0);
  for (const float n : {0.0f, -0.0f, 1.0f, 0x1p-149f, 0x1.fffffep127f, INFINITY, -INFINITY}) {
    for (const float d : {0.0f, -0.0f, 3.0f, 0x1p-149f, 0x1.fffffep127f, INFINITY}) {
      CAPTURE(n, d);
      const float want = n / d, got = divide(n, d, 0.0f);
      CHECK((std::isnan(want) ? std::isnan(got) : to_bits(got) == to_bits(want)));
    }
  }
}

}  // namespace
}  // namespace hstu::jit::sim
