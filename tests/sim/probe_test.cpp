// SPDX-License-Identifier: Apache-2.0
// The probes themselves: wrong expectations, wrong registers and faults are noticed, each blamed on
// its own probe.
#include "probe.hpp"

#include "catch.hpp"
#include "values.hpp"

namespace hstu::test {

TEST_CASE("probes: what is wrong is noticed and named") {
  for (const char* target : {"gfx90a", "gfx1100"}) {
    if (!can_probe(target, "probes")) continue;
    const auto copy = [](const std::string& code, uint32_t change) {
      return Probe{code, {In::u32}, 1, each([change](const uint32_t* in) {
                     return in[0] ^ (in[0] == 0x12345678 ? change : 0);
                   })};
    };
    const Probe right = copy("v_mov_b32 v64, v8", 0);
    CHECK(wrong_probes(target, {right, right}).empty());
    // One bit of one value in some lanes.
    const auto one = wrong_probes(target, {right, copy("v_or_b32 v64, v8, v8", 1), right});
    REQUIRE(one.size() == 1);
    CHECK(one[0].find("v_or_b32") != std::string::npos);
    CHECK(one[0].find("12345678") != std::string::npos);
    CHECK(one[0].find("12345679") != std::string::npos);
    // A result that is not written, and one that should not have been.
    CHECK(wrong_probes(target, {copy("s_nop 0", 0)}).size() == 1);
    Probe untouched = right;
    untouched.expect = [](Wave&) {};
    CHECK(wrong_probes(target, {untouched}).size() == 1);
    // A fault among probes that are right.
    const Probe fault = copy("global_load_dword v64, v1, s[10:11]; v_mov_b32 v64, v64", 0);
    const auto faults = wrong_probes(target, {right, right, fault, right});
    REQUIRE(faults.size() == 1);
    CHECK(faults[0].find("global_load_dword") != std::string::npos);
    // The last row of a table.
    CHECK(wrong_probes(target, {table("v_not_b32 v64, v8", {{{0}, {~0u}}, {{5}, {~5u}}})}).empty());
    CHECK(wrong_probes(target, {table("v_not_b32 v64, v8", {{{0}, {~0u}}, {{5}, {5}}})}).size() ==
          1);
  }
}

TEST_CASE("probes: comparisons of results") {
  CHECK(same_f32(0x7fc00000, 0xffc12345));
  CHECK_FALSE(same_f32(0, 0x80000000));
  CHECK_FALSE(same_f32(0x7fc00000, 0x7f800000));
  CHECK(same_f16x2(0x7e003c00, 0xfe013c00));
  CHECK_FALSE(same_f16x2(0x7e003c00, 0x7e003c01));
  CHECK(near_f32(0x3f800000, 0x3f800002));
  CHECK_FALSE(near_f32(0x3f800000, 0x3f800003));
  CHECK_FALSE(near_f32(0x3f800000, 0xbf800000));
  CHECK_FALSE(rough_f32(0x3f800000, 0x3f808000));
}

// The host's side of the comparisons, against patterns worked by hand.
TEST_CASE("probes: number formats of the host") {
  CHECK(as_f16(0x3c00) == 1.0);
  CHECK(as_f16(0x0001) == 0x1p-24);
  CHECK(as_f16(0xfbff) == -65504.0);
  CHECK(from_f16(65519.9L) == 0x7bff);
  CHECK(from_f16(65520.0L) == 0x7c00);
  CHECK(from_f16(1e9L, Rounding::zero) == 0x7bff);
  CHECK(from_f16(0x1p-25L) == 0);
  CHECK(from_f16(-0x1.8p-24L) == 0x8002);
  CHECK(from_f16(1.0L + 0x1p-11L) == 0x3c00);
  CHECK(from_bf16(1.0L + 0x1p-8L) == 0x3f80);
  CHECK(from_bf16(1.0L + 0x1.8p-7L) == 0x3f82);
  bool same = true;
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) same = same && from_f16(as_f16(bits)) == bits;
  CHECK(same);
}

}  // namespace hstu::test
