// SPDX-License-Identifier: Apache-2.0
// Conversions between formats of 16 bits and more. To integers: towards zero, NaN to 0, what is
// too large to the nearest end. To floats: to nearest even, but for "rtz".
#include "sim/isa/lanes_math.hpp"
#include "sim/isa/vector_tables.hpp"

namespace hstu::jit::sim {
namespace {

u32 pair_of(u32 low, u32 high) { return (low & 0xffff) | high << 16; }
u32 rtz_pair(float a, float b) { return pair_of(f32_to_f16_rtz(a), f32_to_f16_rtz(b)); }

// Fractions in [-1, 1] or [0, 1] as integers that span the format, rounded to nearest.
u32 normalized_i16(float x) {
  const float limited = x != x ? 0.0f : x < -1 ? -1.0f : x > 1 ? 1.0f : x;
  return static_cast<u16>(static_cast<i16>(std::nearbyint(limited * 32767.0f)));
}
u32 normalized_u16(float x) {
  const float limited = x != x ? 0.0f : x < 0 ? 0.0f : x > 1 ? 1.0f : x;
  return static_cast<u16>(std::nearbyint(limited * 65535.0f));
}

constexpr Opcode kTable[] = {
    // ---- Integers and f32.
    valu<[](i32 a) { return static_cast<float>(a); }>("v_cvt_f32_i32"),
    valu<[](u32 a) { return static_cast<float>(a); }>("v_cvt_f32_u32"),
    valu<[](float a) { return to_integer<i32>(a); }>("v_cvt_i32_f32"),
    valu<[](float a) { return to_integer<u32>(a); }>("v_cvt_u32_f32"),
    valu<[](float a) { return to_integer<i32>(std::floor(a + 0.5)); }>("v_cvt_rpi_i32_f32"),
    valu<[](float a) { return to_integer<i32>(std::floor(a + 0.5)); }>("v_cvt_nearest_i32_f32"),
    valu<[](float a) { return to_integer<i32>(std::floor(a)); }>("v_cvt_flr_i32_f32"),
    valu<[](float a) { return to_integer<i32>(std::floor(a)); }>("v_cvt_floor_i32_f32"),
    valu<[](u32 a) { return static_cast<float>(a & 0xff); }>("v_cvt_f32_ubyte0"),
    valu<[](u32 a) { return static_cast<float>(a >> 8 & 0xff); }>("v_cvt_f32_ubyte1"),
    valu<[](u32 a) { return static_cast<float>(a >> 16 & 0xff); }>("v_cvt_f32_ubyte2"),
    valu<[](u32 a) { return static_cast<float>(a >> 24); }>("v_cvt_f32_ubyte3"),
    // Sixteenths from -8 to 7.
    valu<[](u32 a) { return static_cast<float>(static_cast<i32>(a << 28) >> 28) / 16; }>(
        "v_cvt_off_f32_i4"),

    // ---- f64.
    valu<[](float a) { return static_cast<double>(a); }>("v_cvt_f64_f32"),
    valu<[](double a) { return static_cast<float>(a); }>("v_cvt_f32_f64"),
    valu<[](i32 a) { return static_cast<double>(a); }>("v_cvt_f64_i32"),
    valu<[](u32 a) { return static_cast<double>(a); }>("v_cvt_f64_u32"),
    valu<[](double a) { return to_integer<i32>(a); }>("v_cvt_i32_f64"),
    valu<[](double a) { return to_integer<u32>(a); }>("v_cvt_u32_f64"),

    // ---- f16 and 16-bit integers.
    valu<[](float a) { return F16(a); }>("v_cvt_f16_f32"),
    valu<[](F16 a) { return static_cast<float>(a); }>("v_cvt_f32_f16"),
    valu<[](u16 a) { return F16(static_cast<float>(a)); }>("v_cvt_f16_u16"),
    valu<[](i16 a) { return F16(static_cast<float>(a)); }>("v_cvt_f16_i16"),
    valu<[](F16 a) { return to_integer<u16>(static_cast<float>(a)); }>("v_cvt_u16_f16"),
    valu<[](F16 a) { return to_integer<i16>(static_cast<float>(a)); }>("v_cvt_i16_f16"),
    valu<[](i16 a) { return static_cast<i32>(a); }>("v_cvt_i32_i16"),
    valu<[](u16 a) { return static_cast<u32>(a); }>("v_cvt_u32_u16"),
    valu<[](F16 a) { return static_cast<i16>(normalized_i16(a)); }>("v_cvt_norm_i16_f16"),
    valu<[](F16 a) { return static_cast<u16>(normalized_u16(a)); }>("v_cvt_norm_u16_f16"),

    // ---- Pairs.
    valu<[](float a, float b) { return rtz_pair(a, b); }>("v_cvt_pkrtz_f16_f32"),
    valu<[](float a, float b) { return rtz_pair(a, b); }>("v_cvt_pk_rtz_f16_f32"),
    valu<[](float a, float b) { return pair_of(f32_to_f16(a), f32_to_f16(b)); }>(
        "v_cvt_pk_f16_f32"),
    valu<[](float a, float b) { return pair_of(f32_to_bf16(a), f32_to_bf16(b)); }>(
        "v_cvt_pk_bf16_f32"),
    valu<[](float a, float b) { return pair_of(normalized_i16(a), normalized_i16(b)); }>(
        "v_cvt_pknorm_i16_f32"),
    valu<[](float a, float b) { return pair_of(normalized_u16(a), normalized_u16(b)); }>(
        "v_cvt_pknorm_u16_f32"),
    valu<[](float a, float b) { return pair_of(normalized_i16(a), normalized_i16(b)); }>(
        "v_cvt_pk_norm_i16_f32"),
    valu<[](float a, float b) { return pair_of(normalized_u16(a), normalized_u16(b)); }>(
        "v_cvt_pk_norm_u16_f32"),
    valu<[](F16 a, F16 b) { return pair_of(normalized_i16(a), normalized_i16(b)); }>(
        "v_cvt_pknorm_i16_f16"),
    valu<[](F16 a, F16 b) { return pair_of(normalized_u16(a), normalized_u16(b)); }>(
        "v_cvt_pknorm_u16_f16"),
    valu<[](F16 a, F16 b) { return pair_of(normalized_i16(a), normalized_i16(b)); }>(
        "v_cvt_pk_norm_i16_f16"),
    valu<[](F16 a, F16 b) { return pair_of(normalized_u16(a), normalized_u16(b)); }>(
        "v_cvt_pk_norm_u16_f16"),
    valu<[](BF16 a) { return static_cast<float>(a); }>("v_cvt_f32_bf16"),
};

}  // namespace

std::span<const Opcode> convert_opcodes() { return kTable; }

}  // namespace hstu::jit::sim
