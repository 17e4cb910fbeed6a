// SPDX-License-Identifier: Apache-2.0
#include "sim/isa/lanes.hpp"

#include <fmt/format.h>

#include "sim/clones.hpp"

namespace hstu::jit::sim {
namespace {

constexpr u32 kSign = 0x80000000u;

struct FloatMode {
  bool flush_f32_in, flush_f32_out, flush_f16_in, flush_f16_out;
};
FloatMode float_mode(const Wave& wave) {
  const u32 keep = wave.mode() >> 4;
  return {!(keep & 1), !(keep & 2), !(keep & 4), !(keep & 8)};
}

struct Selected {
  u32 shift, mask;
};
Selected selected(SdwaSelect select) {
  switch (select) {
    case SdwaSelect::dword:
      return {0, 0xffffffffu};
    case SdwaSelect::byte0:
    case SdwaSelect::byte1:
    case SdwaSelect::byte2:
    case SdwaSelect::byte3:
      return {8 * (static_cast<u32>(select) - static_cast<u32>(SdwaSelect::byte0)), 0xffu};
    case SdwaSelect::word0:
      return {0, 0xffffu};
    case SdwaSelect::word1:
      return {16, 0xffffu};
  }
  return {0, 0xffffffffu};
}

// 32 bits of which a byte or word was selected, sign-extended from its top.
u32 extended(u32 value, u32 mask) {
  const u32 top = mask ^ (mask >> 1);
  return (value ^ top) - top;
}

HSTU_SIM_CLONES void select_row(Row& to, const Row& from, u32 shift, u32 mask) {
  for (int l = 0; l < kMaxLanes; ++l) to.lane[l] = (from.lane[l] >> shift) & mask;
}

HSTU_SIM_CLONES void sign_row(Row& to, const u32* from, u32 clear, u32 flip) {
  for (int l = 0; l < kMaxLanes; ++l) to.lane[l] = (from[l] & ~clear) ^ flip;
}

HSTU_SIM_CLONES void flush_row(Row& to, const u32* from, u32 exponent, u32 sign) {
  for (int l = 0; l < kMaxLanes; ++l) {
    to.lane[l] = (from[l] & exponent) == 0 ? from[l] & sign : from[l];
  }
}

HSTU_SIM_CLONES void scale_and_clamp(Row& row, float scale, bool clamp) {
  for (int l = 0; l < kMaxLanes; ++l) {
    float x = to_float(row.lane[l]) * scale;
    if (clamp) {
      x = x > 0.0f ? x : 0.0f;  // NaN becomes 0
      x = x < 1.0f ? x : 1.0f;
    }
    row.lane[l] = to_bits(x);
  }
}

float output_scale(int omod) {
  return omod == 1 ? 2.0f : omod == 2 ? 4.0f : omod < 0 ? 0.5f : 1.0f;
}

}  // namespace

Lanes::Lanes(Wave& wave_, const Instruction& instruction_, int destinations_, int sources_)
    : wave(wave_),
      instruction(instruction_),
      destinations(destinations_),
      sources(sources_),
      active(wave_.exec()) {
  if (instruction.modifiers.dpp != DppControl::none) set_dpp();
}

void Lanes::set_dpp() {
  const Modifiers& m = instruction.modifiers;
  const int width = wave.width(), n = static_cast<int>(m.dpp_argument);
  dpp_ = true;
  u64 written = 0;
  for (int l = 0; l < width; ++l) {
    const int row = l & ~15, in_row = l & 15;
    int from = l;
    bool exists = true;
    switch (m.dpp) {
      case DppControl::none:
        break;
      case DppControl::quad_perm:
        from = (l & ~3) | (n >> (2 * (l & 3)) & 3);
        break;
      case DppControl::row_shl:
        from = l + n;
        exists = in_row + n < 16;
        break;
      case DppControl::row_shr:
        from = l - n;
        exists = in_row >= n;
        break;
      case DppControl::row_ror:
        from = row | ((in_row - n) & 15);
        break;
      case DppControl::wave_shl:
        from = l + 1;
        exists = from < width;
        break;
      case DppControl::wave_rol:
        from = (l + 1) % width;
        break;
      case DppControl::wave_shr:
        from = l - 1;
        exists = from >= 0;
        break;
      case DppControl::wave_ror:
        from = (l + width - 1) % width;
        break;
      case DppControl::row_mirror:
        from = row | (15 - in_row);
        break;
      case DppControl::row_half_mirror:
        from = (l & ~7) | (7 - (l & 7));
        break;
      case DppControl::row_bcast15:  // the last lane of each row, to the next row
        from = row - 1;
        exists = row > 0;
        break;
      case DppControl::row_bcast31:  // lane 31, to the rows after it
        from = 31;
        exists = l >= 32;
        break;
      case DppControl::row_newbcast:
        from = row | (n & 15);
        break;
      case DppControl::row_xmask:
        from = l ^ (n & 15);
        break;
      case DppControl::dpp8:
        from = (l & ~7) | (n >> (3 * (l & 7)) & 7);
        break;
    }
    const bool readable = exists && (m.fetch_inactive || (wave.exec() >> from & 1));
    const bool chosen = m.dpp == DppControl::dpp8 ||
                        ((m.row_mask >> (l / 16) & 1) && (m.bank_mask >> (in_row / 4) & 1));
    // Without bound_ctrl, a lane that has no source keeps its old value. dpp8 reads zeros.
    const bool writes = chosen && (readable || m.bound_ctrl || m.dpp == DppControl::dpp8);
    dpp_from_[l] = static_cast<uint8_t>(readable ? from : l);
    dpp_valid_ |= u64{readable} << l;
    written |= u64{writes} << l;
  }
  active &= written;
}

const Row& Lanes::raw(int source, int part, Row& scratch) {
  if (!has(source)) {
    wave.fail(fmt::format("operand {} is missing", destinations + source + 1));
    scratch = {};
    return scratch;
  }
  const Operand& o = operand(source);
  if (source != 0 || !dpp_) return wave.read_row(o, part, scratch);
  Row plain;
  const Row& row = wave.read_row(o, part, plain);
  for (int l = 0; l < kMaxLanes; ++l) {
    const bool exists = l < wave.width() && (dpp_valid_ >> l & 1);
    scratch.lane[l] = exists ? row.lane[dpp_from_[l]] : 0;
  }
  return scratch;
}

const u32* Lanes::word(int source, int part, WordKind kind, Row& scratch) {
  const Row* row = &raw(source, part, scratch);
  const Modifiers& m = instruction.modifiers;
  if (!has(source)) return row->lane;
  const Operand& o = operand(source);
  if (m.sdwa && source < 2) {
    const auto [shift, mask] = selected(source == 0 ? m.src0_sel : m.src1_sel);
    if (mask != 0xffffffffu) {
      select_row(scratch, *row, shift, mask);
      if (o.sign_extend) {
        for (u32& x : scratch.lane) x = extended(x, mask);
      }
      row = &scratch;
    }
  }
  if ((o.negate || o.absolute) && kind != WordKind::integer && kind != WordKind::f64_low) {
    sign_row(scratch, row->lane, o.absolute ? kSign : 0, o.negate ? kSign : 0);
    row = &scratch;
  }
  if (kind == WordKind::flushed || (kind == WordKind::f32 && float_mode(wave).flush_f32_in)) {
    flush_row(scratch, row->lane, 0x7f800000u, kSign);
    row = &scratch;
  }
  return row->lane;
}

const u32* Lanes::half(int source, HalfKind kind, Row& scratch) {
  const Row* row = &raw(source, 0, scratch);
  const Modifiers& m = instruction.modifiers;
  if (!has(source)) return row->lane;
  const Operand& o = operand(source);
  u32 shift = 0;
  if (m.sdwa && source < 2) {
    const Selected choice = selected(source == 0 ? m.src0_sel : m.src1_sel);
    shift = choice.shift;
    if (choice.mask == 0xffu) {
      select_row(scratch, *row, shift, choice.mask);
      if (o.sign_extend) {
        for (u32& x : scratch.lane) x = extended(x, choice.mask);
      }
      row = &scratch;
      shift = 0;
    }
  } else if (o.high_half || (m.op_sel >> source & 1)) {
    shift = 16;
  }
  if (shift != 0) {
    select_row(scratch, *row, shift, 0xffffu);
    row = &scratch;
  }
  if (o.negate || o.absolute) {
    sign_row(scratch, row->lane, o.absolute ? 0x8000u : 0, o.negate ? 0x8000u : 0);
    row = &scratch;
  }
  if (kind == HalfKind::f16 && float_mode(wave).flush_f16_in) {
    flush_row(scratch, row->lane, 0x7c00u, 0x8000u);
    row = &scratch;
  }
  return row->lane;
}

void Lanes::require_nearest() const {
  if ((wave.mode() & 0xf) == 0) return;
  wave.fail("a rounding mode other than to nearest even is not simulated for vector arithmetic");
}

u64 Lanes::mask(int source) { return has(source) ? wave.read_mask(operand(source)) : wave.vcc(); }

const u32* Lanes::old_word(int part, Row& scratch) {
  return wave.read_row(instruction.operand[0], part, scratch).lane;
}

void Lanes::write_word(int part, Row& value) {
  const Operand& to = instruction.operand[0];
  const Modifiers& m = instruction.modifiers;
  if (!m.sdwa || m.dst_sel == SdwaSelect::dword) {
    wave.write_row(to, part, value, active);
    return;
  }
  const auto [shift, mask] = selected(m.dst_sel);
  Row& row = wave.claim_row(to, part, active);
  for (int l = 0; l < kMaxLanes; ++l) {
    if (!(active >> l & 1)) continue;
    const u32 chosen = value.lane[l] & mask;
    switch (m.dst_unused) {
      case SdwaUnused::pad:
        row.lane[l] = chosen << shift;
        break;
      case SdwaUnused::sext:
        row.lane[l] = extended(chosen, mask) << shift;
        break;
      case SdwaUnused::preserve:
        row.lane[l] = (row.lane[l] & ~(mask << shift)) | chosen << shift;
        break;
    }
  }
}

void Lanes::write_half(Row& value, bool keep) {
  const Operand& to = instruction.operand[0];
  const Modifiers& m = instruction.modifiers;
  if (m.sdwa) {
    for (u32& x : value.lane) x &= 0xffffu;
    return write_word(0, value);
  }
  const bool high = to.high_half || (m.op_sel >> sources & 1);
  if (!high && !keep && wave.machine().cdna()) {
    for (u32& x : value.lane) x &= 0xffffu;
    return wave.write_row(to, 0, value, active);
  }
  write_half_at(value, high);
}

void Lanes::write_half_at(const Row& value, bool high) {
  Row& row = wave.claim_row(instruction.operand[0], 0, active);
  const u32 shift = high ? 16 : 0, mask = 0xffffu << shift;
  for (int l = 0; l < kMaxLanes; ++l) {
    const u32 blended = (row.lane[l] & ~mask) | (value.lane[l] << shift & mask);
    row.lane[l] = active >> l & 1 ? blended : row.lane[l];
  }
}

void Lanes::write_mask(u64 mask) { wave.write_mask(instruction.operand[1], mask & active); }

void Lanes::finish_f32(Row& row, bool always_flush) const {
  require_nearest();
  const Modifiers& m = instruction.modifiers;
  if (m.omod != 0 || m.clamp) scale_and_clamp(row, output_scale(m.omod), m.clamp);
  if (always_flush || float_mode(wave).flush_f32_out) {
    flush_row(row, row.lane, 0x7f800000u, kSign);
  }
}

void Lanes::finish_f16(Row& row) const {
  require_nearest();
  const Modifiers& m = instruction.modifiers;
  if (m.omod != 0 || m.clamp) {
    for (u32& x : row.lane) {
      float y = f16_to_f32(x) * output_scale(m.omod);
      if (m.clamp) y = y > 0.0f ? (y < 1.0f ? y : 1.0f) : 0.0f;
      x = f32_to_f16(y);
    }
  }
  if (float_mode(wave).flush_f16_out) flush_row(row, row.lane, 0x7c00u, 0x8000u);
}

void Lanes::finish_f64(Row& low, Row& high) const {
  require_nearest();
  const Modifiers& m = instruction.modifiers;
  if (m.omod == 0 && !m.clamp) return;
  for (int l = 0; l < kMaxLanes; ++l) {
    const u64 bits = low.lane[l] | u64{high.lane[l]} << 32;
    double x = std::bit_cast<double>(bits) * output_scale(m.omod);
    if (m.clamp) x = x > 0.0 ? (x < 1.0 ? x : 1.0) : 0.0;
    low.lane[l] = static_cast<u32>(std::bit_cast<u64>(x));
    high.lane[l] = static_cast<u32>(std::bit_cast<u64>(x) >> 32);
  }
}

}  // namespace hstu::jit::sim
