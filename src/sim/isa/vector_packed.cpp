// SPDX-License-Identifier: Apache-2.0
// Packed arithmetic: two results of 16 bits in a register, or of 32 bits in a pair. op_sel chooses
// the source half of the low result, op_sel_hi that of the high one.
#include <algorithm>

#include "sim/isa/lanes_math.hpp"
#include "sim/isa/tables.hpp"
#include "sim/isa/vector_tables.hpp"

namespace hstu::jit::sim {
namespace {

// ---- 16 bits.
template <typename T>
T half_of(u32 word, u32 shift, u32 flip) {
  const u32 bits = (word >> shift ^ flip) & 0xffffu;
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(bits);
  } else {
    return T::of(bits);
  }
}

struct HalfSource {
  const u32* lane;
  u32 shift[2], flip[2];  // of the low and of the high result
};

template <auto F, typename T, size_t... I>
HSTU_SIM_CLONES void packed_lanes(Row& out, const HalfSource* source, std::index_sequence<I...>) {
  for (int l = 0; l < kMaxLanes; ++l) {
    u32 word = 0;
    for (int h = 0; h < 2; ++h) {
      const auto x = F(half_of<T>(source[I].lane[l], source[I].shift[h], source[I].flip[h])...);
      word |= u32{std::bit_cast<u16>(x)} << (16 * h);
    }
    out.lane[l] = word;
  }
}

template <auto F, auto Clamped, typename R, typename T, typename... More>
void run_packed(Wave& wave, const Instruction& instruction, R (*)(T, More...)) {
  constexpr int kSources = 1 + sizeof...(More);
  const Modifiers& m = instruction.modifiers;
  Lanes lanes(wave, instruction, 1, kSources);
  Row scratch[kSources], out;
  HalfSource source[kSources];
  for (int i = 0; i < kSources; ++i) {
    const auto on = [i](uint8_t bits) { return (bits >> i & 1) != 0; };
    source[i] = {lanes.word(i, 0, WordKind::integer, scratch[i]),
                 {on(m.op_sel) ? 16u : 0u, on(m.op_sel_hi) ? 16u : 0u},
                 {on(m.neg_lo) ? 0x8000u : 0u, on(m.neg_hi) ? 0x8000u : 0u}};
  }
  if (m.clamp) {
    packed_lanes<Clamped, T>(out, source, std::make_index_sequence<kSources>());
  } else {
    packed_lanes<F, T>(out, source, std::make_index_sequence<kSources>());
  }
  if (std::is_same_v<T, F16> && (wave.mode() & 0xcf) != 0xc0) {
    wave.fail("packed halves are simulated with denormals and rounding to nearest only");
  }
  lanes.write_word(0, out);
}

// F and what it gives with clamp.
template <auto F, auto Clamped = F>
void packed16(Wave& wave, const Instruction& instruction) {
  run_packed<F, Clamped>(wave, instruction, +F);
}
template <auto F>
constexpr Opcode packed_f16(const char* mnemonic) {
  constexpr auto kClamped = [](auto... x) {
    const float y = F(x...);
    return F16(y > 0 ? (y < 1 ? y : 1.0f) : 0.0f);
  };
  return {mnemonic, packed16<F, kClamped>, OpClass::valu, ConstantType::packed16_f};
}
template <auto F>
constexpr Opcode packed_integer(const char* mnemonic) {
  return {mnemonic, packed16<F>, OpClass::valu, ConstantType::packed16_i};
}
// F gives the exact result, which clamp saturates.
template <typename T, auto F>
struct Sum {
  static constexpr auto kCut = [](T a, auto... x) { return static_cast<T>(F(a, x...)); };
  static constexpr auto kSaturated = [](T a, auto... x) {
    constexpr i64 kLow = std::numeric_limits<T>::min(), kHigh = std::numeric_limits<T>::max();
    return static_cast<T>(std::clamp<i64>(F(a, x...), kLow, kHigh));
  };
  static void run(Wave& wave, const Instruction& instruction) {
    run_packed<kCut, kSaturated>(wave, instruction, +F);
  }
};
template <typename T, auto F>
constexpr Opcode packed_sum(const char* mnemonic) {
  return {mnemonic, Sum<T, F>::run, OpClass::valu, ConstantType::packed16_i};
}

// Fused in one rounding, or v_pk_fmac, which adds to the destination.
F16 fused(float a, float b, float c) { return F16::of(fma_f16(a, b, c)); }
void packed_fmac(Wave& wave, const Instruction& instruction) {
  Lanes lanes(wave, instruction, 1, 2);
  Row scratch[3], out;
  const u32* a = lanes.word(0, 0, WordKind::integer, scratch[0]);
  const u32* b = lanes.word(1, 0, WordKind::integer, scratch[1]);
  const u32* c = lanes.old_word(0, scratch[2]);
  for (int l = 0; l < kMaxLanes; ++l) {
    const auto half = [&](int shift) {
      const auto at = [&](const u32* row) { return f16_to_f32(row[l] >> shift & 0xffff); };
      return fma_f16(at(a), at(b), at(c));
    };
    out.lane[l] = half(0) | half(16) << 16;
  }
  lanes.write_word(0, out);
}

// ---- 32 bits.
template <auto F, size_t... I>
HSTU_SIM_CLONES void packed_float_lanes(Row& out, const u32* const* source,
                                        std::index_sequence<I...>) {
  for (int l = 0; l < kMaxLanes; ++l) out.lane[l] = to_bits(F(to_float(source[I][l])...));
}

template <auto F, int sources>
void packed32(Wave& wave, const Instruction& instruction) {
  const Modifiers& m = instruction.modifiers;
  Lanes lanes(wave, instruction, 1, sources);
  Row out[2];
  for (int h = 0; h < 2; ++h) {
    Row scratch[sources];
    const u32* source[sources];
    for (int i = 0; i < sources; ++i) {
      const bool high = ((h ? m.op_sel_hi : m.op_sel) >> i & 1) != 0;
      const bool negate = ((h ? m.neg_hi : m.neg_lo) >> i & 1) != 0;
      source[i] = lanes.word(i, high, WordKind::f32, scratch[i]);
      if (!negate) continue;
      for (int l = 0; l < kMaxLanes; ++l) scratch[i].lane[l] = source[i][l] ^ 0x80000000u;
      source[i] = scratch[i].lane;
    }
    packed_float_lanes<F>(out[h], source, std::make_index_sequence<sources>());
    lanes.finish_f32(out[h], false);
  }
  lanes.write_word(0, out[0]);
  lanes.write_word(1, out[1]);
}
template <auto F, int sources>
constexpr Opcode packed_f32(const char* mnemonic) {
  return {mnemonic, packed32<F, sources>, OpClass::valu, ConstantType::f32};
}

// The low result is a half of the first pair, the high one a half of the second.
void packed_move(Wave& wave, const Instruction& instruction) {
  const Modifiers& m = instruction.modifiers;
  Lanes lanes(wave, instruction, 1, 2);
  Row scratch[2], out[2];
  for (int h = 0; h < 2; ++h) {
    const u32* from = lanes.word(h, m.op_sel >> h & 1, WordKind::integer, scratch[h]);
    std::copy(from, from + kMaxLanes, out[h].lane);
  }
  lanes.write_word(0, out[0]);
  lanes.write_word(1, out[1]);
}

constexpr Opcode kTable[] = {
    packed_f16<[](F16 a, F16 b) { return F16(a + b); }>("v_pk_add_f16"),
    packed_f16<[](F16 a, F16 b) { return F16(a * b); }>("v_pk_mul_f16"),
    packed_f16<[](F16 a, F16 b, F16 c) { return fused(a, b, c); }>("v_pk_fma_f16"),
    packed_f16<[](F16 a, F16 b) { return F16(minimum_number<float>(a, b)); }>("v_pk_min_f16"),
    packed_f16<[](F16 a, F16 b) { return F16(maximum_number<float>(a, b)); }>("v_pk_max_f16"),
    packed_f16<[](F16 a, F16 b) { return F16(minimum_number<float>(a, b)); }>("v_pk_min_num_f16"),
    packed_f16<[](F16 a, F16 b) { return F16(maximum_number<float>(a, b)); }>("v_pk_max_num_f16"),
    packed_f16<[](F16 a, F16 b) { return F16(minimum<float>(a, b)); }>("v_pk_minimum_f16"),
    packed_f16<[](F16 a, F16 b) { return F16(maximum<float>(a, b)); }>("v_pk_maximum_f16"),
    packed_f16<[](F16 a, F16 b, F16 c) { return F16(minimum(minimum<float>(a, b), +c)); }>(
        "v_pk_minimum3_f16"),
    packed_f16<[](F16 a, F16 b, F16 c) { return F16(maximum(maximum<float>(a, b), +c)); }>(
        "v_pk_maximum3_f16"),
    {"v_pk_fmac_f16", packed_fmac, OpClass::valu, ConstantType::packed16_f},

    packed_sum<u16, [](u16 a, u16 b) { return i64{a} + b; }>("v_pk_add_u16"),
    packed_sum<u16, [](u16 a, u16 b) { return i64{a} - b; }>("v_pk_sub_u16"),
    packed_sum<u16, [](u16 a, u16 b, u16 c) { return i64{a} * b + c; }>("v_pk_mad_u16"),
    packed_sum<i16, [](i16 a, i16 b) { return i64{a} + b; }>("v_pk_add_i16"),
    packed_sum<i16, [](i16 a, i16 b) { return i64{a} - b; }>("v_pk_sub_i16"),
    packed_sum<i16, [](i16 a, i16 b, i16 c) { return i64{a} * b + c; }>("v_pk_mad_i16"),
    packed_integer<[](u16 a, u16 b) { return static_cast<u16>(u32{a} * b); }>("v_pk_mul_lo_u16"),
    packed_integer<[](u16 a, u16 b) { return static_cast<u16>(b << (a & 15)); }>(
        "v_pk_lshlrev_b16"),
    packed_integer<[](u16 a, u16 b) { return static_cast<u16>(b >> (a & 15)); }>(
        "v_pk_lshrrev_b16"),
    packed_integer<[](i16 a, i16 b) { return static_cast<i16>(b >> (a & 15)); }>(
        "v_pk_ashrrev_i16"),
    packed_integer<[](u16 a, u16 b) { return std::min(a, b); }>("v_pk_min_u16"),
    packed_integer<[](u16 a, u16 b) { return std::max(a, b); }>("v_pk_max_u16"),
    packed_integer<[](i16 a, i16 b) { return std::min(a, b); }>("v_pk_min_i16"),
    packed_integer<[](i16 a, i16 b) { return std::max(a, b); }>("v_pk_max_i16"),

    packed_f32<[](float a, float b) { return a + b; }, 2>("v_pk_add_f32"),
    packed_f32<[](float a, float b) { return a * b; }, 2>("v_pk_mul_f32"),
    packed_f32<[](float a, float b, float c) { return std::fma(a, b, c); }, 3>("v_pk_fma_f32"),
    {"v_pk_mov_b32", packed_move, OpClass::valu, ConstantType::b32},
};

}  // namespace

std::span<const Opcode> vector_packed_opcodes() {
  static const std::vector<Opcode> kAll = joined({kTable, dot_opcodes(), mix_opcodes()});
  return kAll;
}

}  // namespace hstu::jit::sim
