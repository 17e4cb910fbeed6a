// SPDX-License-Identifier: Apache-2.0
// Conversions with formats of 8 and 4 bits. FP8 and BF8 are FNUZ on gfx942, OCP elsewhere; with
// MODE.FP16_OVFL results saturate. "scalef32": by a power of two, the exponent of a float.
#include "sim/isa/lanes_math.hpp"
#include "sim/isa/vector_tables.hpp"

namespace hstu::jit::sim {
namespace {

enum Format : int16_t { fp8, bf8, fp4 };
enum class Wide { f32, f16, bf16 };

const SmallFormat& small_format(const Wave& wave, int format) {
  const bool fnuz = wave.gfx() == 0x942;
  if (format == fp4) return kFp4;
  if (format == fp8) return fnuz ? kFp8Fnuz : kFp8;
  return fnuz ? kBf8Fnuz : kBf8;
}
bool saturates(const Wave& wave) { return wave.mode() >> 23 & 1; }

// The power of two in a scale's exponent field.
float scale_of(u32 word) {
  const int exponent = static_cast<int>(word >> 23 & 0xff);
  return exponent == 0xff ? std::numeric_limits<float>::quiet_NaN()
                          : std::ldexp(1.0f, exponent - 127);
}

template <Wide wide>
u32 narrowed(float x) {
  return wide == Wide::f16 ? f32_to_f16(x) : f32_to_bf16(x);
}
template <Wide wide>
float widened(u32 x) {
  return wide == Wide::f16 ? f16_to_f32(x & 0xffff) : bf16_to_f32(x & 0xffff);
}

// ---- To wide formats. The byte: SDWA's or `byte_sel`'s, or op_sel's with a scale; of pairs of
// bytes the half-word.
template <bool scaled>
u32 byte_shift(const Modifiers& m) {
  if (!scaled) return 8 * m.byte_sel;
  return 8 * ((m.op_sel & 1) << 1 | (m.op_sel >> 1 & 1));
}

template <Wide wide, bool scaled>
void widen_one(Wave& wave, const Instruction& instruction) {
  const SmallFormat& format = small_format(wave, instruction.opcode->argument);
  Lanes lanes(wave, instruction, 1, scaled ? 2 : 1);
  Row scratch[2], out;
  const u32* from = lanes.word(0, 0, WordKind::integer, scratch[0]);
  const u32* scale = scaled ? lanes.word(1, 0, WordKind::bits, scratch[1]) : nullptr;
  const u32 shift = byte_shift<scaled>(instruction.modifiers);
  for (int l = 0; l < kMaxLanes; ++l) {
    const float x =
        small_to_f32(format, from[l] >> shift & 0xff) * (scaled ? scale_of(scale[l]) : 1.0f);
    out.lane[l] = wide == Wide::f32 ? to_bits(x) : narrowed<wide>(x);
  }
  if (wide != Wide::f32) return lanes.write_half_at(out, instruction.modifiers.op_sel >> 3 & 1);
  lanes.write_word(0, out);
}

template <Wide wide, bool scaled>
void widen_two(Wave& wave, const Instruction& instruction) {
  const Modifiers& m = instruction.modifiers;
  const int code = instruction.opcode->argument;
  const SmallFormat& format = small_format(wave, code);
  Lanes lanes(wave, instruction, 1, scaled ? 2 : 1);
  Row scratch[2], out[2];
  const u32* from = lanes.word(0, 0, WordKind::integer, scratch[0]);
  const u32* scale = scaled ? lanes.word(1, 0, WordKind::bits, scratch[1]) : nullptr;
  const bool high = (m.op_sel & 1) || lanes.operand(0).high_half;
  const u32 shift = code == fp4 ? byte_shift<true>(m) : high ? 16 : 0, bits = code == fp4 ? 4 : 8;
  for (int l = 0; l < kMaxLanes; ++l) {
    const float by = scaled ? scale_of(scale[l]) : 1.0f;
    const u32 pair = from[l] >> shift, mask = (1u << bits) - 1;
    const float x = small_to_f32(format, pair & mask) * by;
    const float y = small_to_f32(format, pair >> bits & mask) * by;
    out[0].lane[l] = wide == Wide::f32 ? to_bits(x) : narrowed<wide>(x) | narrowed<wide>(y) << 16;
    out[1].lane[l] = to_bits(y);
  }
  lanes.write_word(0, out[0]);
  if (wide == Wide::f32) lanes.write_word(1, out[1]);
}

// ---- From wide formats, two at a time, into a half-word (or a byte for fp4) that op_sel chooses.
template <Wide wide, bool scaled>
void narrow_two(Wave& wave, const Instruction& instruction) {
  const Modifiers& m = instruction.modifiers;
  const int code = instruction.opcode->argument;
  const SmallFormat& format = small_format(wave, code);
  constexpr int kValues = wide == Wide::f32 ? 2 : 1, kSources = kValues + scaled;
  Lanes lanes(wave, instruction, 1, kSources);
  Row scratch[3];
  const WordKind kind = wide == Wide::f32 ? WordKind::bits : WordKind::integer;
  const u32* first = lanes.word(0, 0, kind, scratch[0]);
  const u32* second = kValues == 2 ? lanes.word(1, 0, kind, scratch[1]) : first;
  const u32* scale = scaled ? lanes.word(kValues, 0, WordKind::bits, scratch[2]) : nullptr;
  const bool saturate = saturates(wave);
  const u32 bits = code == fp4 ? 4 : 8, all = (1u << 2 * bits) - 1;
  const u32 shift = code == fp4 ? 8 * (m.op_sel >> 2 & 3) : (m.op_sel >> kSources & 1) ? 16 : 0;
  Row& row = wave.claim_row(instruction.operand[0], 0, lanes.active);
  for (int l = 0; l < kMaxLanes; ++l) {
    if (!(lanes.active >> l & 1)) continue;
    const float by = scaled ? scale_of(scale[l]) : 1.0f;
    const float x = wide == Wide::f32 ? to_float(first[l]) : widened<wide>(first[l]);
    const float y = wide == Wide::f32 ? to_float(second[l]) : widened<wide>(first[l] >> 16);
    const u32 pair = f32_to_small(format, x / by, saturate) | f32_to_small(format, y / by, saturate)
                                                                  << bits;
    row.lane[l] = (row.lane[l] & ~(all << shift)) | pair << shift;
  }
}

constexpr Opcode line(const char* mnemonic, Execute execute, Format format,
                      ConstantType constants = ConstantType::b32) {
  return {mnemonic, execute, OpClass::valu, constants, format};
}

constexpr Opcode kTable[] = {
    line("v_cvt_f32_fp8", widen_one<Wide::f32, false>, fp8),
    line("v_cvt_f32_bf8", widen_one<Wide::f32, false>, bf8),
    line("v_cvt_pk_f32_fp8", widen_two<Wide::f32, false>, fp8),
    line("v_cvt_pk_f32_bf8", widen_two<Wide::f32, false>, bf8),
    line("v_cvt_pk_fp8_f32", narrow_two<Wide::f32, false>, fp8, ConstantType::f32),
    line("v_cvt_pk_bf8_f32", narrow_two<Wide::f32, false>, bf8, ConstantType::f32),

    line("v_cvt_scalef32_f32_fp8", widen_one<Wide::f32, true>, fp8),
    line("v_cvt_scalef32_f32_bf8", widen_one<Wide::f32, true>, bf8),
    line("v_cvt_scalef32_f16_fp8", widen_one<Wide::f16, true>, fp8),
    line("v_cvt_scalef32_f16_bf8", widen_one<Wide::f16, true>, bf8),
    line("v_cvt_scalef32_pk_f32_fp8", widen_two<Wide::f32, true>, fp8),
    line("v_cvt_scalef32_pk_f32_bf8", widen_two<Wide::f32, true>, bf8),
    line("v_cvt_scalef32_pk_f32_fp4", widen_two<Wide::f32, true>, fp4),
    line("v_cvt_scalef32_pk_f16_fp8", widen_two<Wide::f16, true>, fp8),
    line("v_cvt_scalef32_pk_f16_bf8", widen_two<Wide::f16, true>, bf8),
    line("v_cvt_scalef32_pk_f16_fp4", widen_two<Wide::f16, true>, fp4),
    line("v_cvt_scalef32_pk_bf16_fp8", widen_two<Wide::bf16, true>, fp8),
    line("v_cvt_scalef32_pk_bf16_bf8", widen_two<Wide::bf16, true>, bf8),
    line("v_cvt_scalef32_pk_bf16_fp4", widen_two<Wide::bf16, true>, fp4),
    line("v_cvt_scalef32_pk_fp8_f32", narrow_two<Wide::f32, true>, fp8, ConstantType::f32),
    line("v_cvt_scalef32_pk_bf8_f32", narrow_two<Wide::f32, true>, bf8, ConstantType::f32),
    line("v_cvt_scalef32_pk_fp4_f32", narrow_two<Wide::f32, true>, fp4, ConstantType::f32),
    line("v_cvt_scalef32_pk_fp8_f16", narrow_two<Wide::f16, true>, fp8),
    line("v_cvt_scalef32_pk_bf8_f16", narrow_two<Wide::f16, true>, bf8),
    line("v_cvt_scalef32_pk_fp4_f16", narrow_two<Wide::f16, true>, fp4),
    line("v_cvt_scalef32_pk_fp8_bf16", narrow_two<Wide::bf16, true>, fp8),
    line("v_cvt_scalef32_pk_bf8_bf16", narrow_two<Wide::bf16, true>, bf8),
    line("v_cvt_scalef32_pk_fp4_bf16", narrow_two<Wide::bf16, true>, fp4),
};

}  // namespace

std::span<const Opcode> convert_small_opcodes() { return kTable; }

}  // namespace hstu::jit::sim
