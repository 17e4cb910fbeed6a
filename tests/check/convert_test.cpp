// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "catch.hpp"
#include "check/check.hpp"

using namespace hstu::jit;
using hstu::Dtype;

TEST_CASE("every 16-bit value survives the round trip") {
  for (Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
    int64_t wrong = 0, nans = 0;
    for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
      const float value = to_float(static_cast<uint16_t>(bits), dtype);
      const uint16_t back = from_float(value, dtype);
      if (std::isnan(value)) {
        ++nans;
        wrong += !std::isnan(to_float(back, dtype)) || (back & 0x8000) != (bits & 0x8000);
      } else {
        wrong += back != bits;
      }
    }
    CHECK(wrong == 0);
    CHECK(nans == (dtype == Dtype::fp16 ? 2 * 1023 : 2 * 127));
  }
}

TEST_CASE("halfway cases go to the even neighbour, others to the nearest") {
  for (Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
    const uint32_t infinity = dtype == Dtype::fp16 ? 0x7c00 : 0x7f80;
    const double past_largest = dtype == Dtype::fp16 ? 0x1p16 : 0x1p128;
    int64_t wrong = 0;
    for (uint32_t low = 0; low < infinity; ++low) {
      const uint32_t high = low + 1;
      const double below = to_float(static_cast<uint16_t>(low), dtype);
      const double above =
          high == infinity ? past_largest : to_float(static_cast<uint16_t>(high), dtype);
      const auto middle = static_cast<float>((below + above) / 2);  // exact in fp32
      const uint32_t even = low % 2 == 0 ? low : high;
      const float inf = std::numeric_limits<float>::infinity();
      wrong += from_float(middle, dtype) != even;
      wrong += from_float(-middle, dtype) != (even | 0x8000);
      wrong += from_float(std::nextafter(middle, 0.0f), dtype) != low;
      wrong += from_float(std::nextafter(middle, inf), dtype) != high;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("infinity, overflow, underflow and signs") {
  const float inf = std::numeric_limits<float>::infinity();
  CHECK(from_float(inf, Dtype::fp16) == 0x7c00);
  CHECK(from_float(-inf, Dtype::bf16) == 0xff80);
  CHECK(from_float(65519.0f, Dtype::fp16) == 0x7bff);
  CHECK(from_float(65520.0f, Dtype::fp16) == 0x7c00);
  CHECK(from_float(1e30f, Dtype::fp16) == 0x7c00);
  CHECK(from_float(std::numeric_limits<float>::max(), Dtype::bf16) == 0x7f80);
  CHECK(from_float(-1e-30f, Dtype::fp16) == 0x8000);
  CHECK(from_float(-0.0f, Dtype::bf16) == 0x8000);
}
