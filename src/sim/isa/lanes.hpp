// SPDX-License-Identifier: Apache-2.0
// How a vector instruction sees its sources and writes its results: modifiers (DPP, SDWA, op_sel,
// neg, abs, sext) and the denormal modes are applied here, alike for every instruction.
#pragma once

#include <cstdint>

#include "sim/isa/convert.hpp"
#include "sim/isa/instruction.hpp"
#include "sim/wave.hpp"

namespace hstu::jit::sim {

using i16 = int16_t;
using u16 = uint16_t;
using i32 = int32_t;
using u32 = uint32_t;
using i64 = int64_t;
using u64 = uint64_t;

// How 32 bits of a source are meant.
enum class WordKind : uint8_t {
  bits,      // sign bit at 31: neg and abs apply; nothing is flushed
  integer,   // SDWA may sign-extend
  f32,       // flushed as MODE says
  flushed,   // a float the unit reads without denormals, whatever MODE says
  f64_low,   // half of a pair, no modifiers
  f64_high,  // the half with the sign
};
enum class HalfKind : uint8_t { integer, f16, bf16 };

class Lanes {
 public:
  // `destinations`: how many printed operands come before the sources. `sources`: how many follow,
  // which tells the op_sel bit of the destination.
  Lanes(Wave& wave, const Instruction& instruction, int destinations, int sources);

  // Register `part` of source `source` (0: the first printed) in every lane, in `scratch` or the
  // register itself.
  const u32* word(int source, int part, WordKind kind, Row& scratch);
  // A 16-bit source: the half that op_sel, SDWA or `.h` choose, in the low 16 bits of every lane.
  // What is above them is undefined.
  const u32* half(int source, HalfKind kind, Row& scratch);
  // A lane mask; vcc where the operand is implied.
  u64 mask(int source);
  // The destination's register `part`, as it is.
  const u32* old_word(int part, Row& scratch);

  // Results. Rows may be changed by the call.
  void write_word(int part, Row& value);
  // The low 16 bits of every lane, to the half that op_sel, SDWA or `.h` choose. The other half
  // survives on gfx10 and later and where `keep` says so; else it becomes zero.
  void write_half(Row& value, bool keep);
  // To the named half; the other one survives.
  void write_half_at(const Row& value, bool high);
  // The second destination: `mask`'s bits of the lanes executed, zeros for the others.
  void write_mask(u64 mask);

  // omod and clamp of a float result, after which its denormals are flushed if MODE wants so.
  void finish_f32(Row& row, bool always_flush) const;
  void finish_f16(Row& row) const;
  void finish_f64(Row& low, Row& high) const;

  const Operand& operand(int source) const { return instruction.operand[destinations + source]; }
  bool has(int source) const { return destinations + source < instruction.operands; }

  Wave& wave;
  const Instruction& instruction;
  const int destinations, sources;
  u64 active;  // the lanes that will be written

 private:
  const Row& raw(int source, int part, Row& scratch);
  void set_dpp();
  void require_nearest() const;

  bool dpp_ = false;
  u64 dpp_valid_ = 0;  // lanes whose DPP source exists; the others read 0
  uint8_t dpp_from_[kMaxLanes];
};

}  // namespace hstu::jit::sim
