// SPDX-License-Identifier: Apache-2.0
// A decoded AMD instruction: what a disassembler printed, with every name resolved.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace hstu::jit::sim {

class Wave;
struct Instruction;

// Scalar registers in one file: s0-s105, then the named ones.
enum ScalarRegister : uint16_t {
  kFlatScratch = 102,  // and 103, before gfx10
  kXnackMask = 104,    // and 105, before gfx10
  kVcc = 106,          // and 107
  kTtmp = 108,         // ttmp0-ttmp15
  kM0 = 124,
  kNull = 125,  // reads 0, writes are dropped
  kExec = 126,  // and 127
  kScc = 128,
  kVccz = 129,             // 1 when VCC is 0; computed when read
  kExecz = 130,            // 1 when EXEC is 0; computed when read
  kScalarRegisters = 132,  // one more: pairs may begin at the last
};
constexpr uint16_t kFirstAgpr = 256;  // vector registers: v0-v255, then a0-a255
constexpr uint16_t kVectorRegisters = 512;

enum class OperandKind : uint8_t { none, vector, scalar, constant, aperture, label, named };

struct Operand {
  OperandKind kind = OperandKind::none;
  uint8_t registers = 1;  // v[4:7] has 4
  uint16_t index = 0;     // of the first register, in the files above
  bool negate = false, absolute = false, sign_extend = false;
  // `v1.h` of gfx11 and later: the upper half of a register.
  bool high_half = false;
  // Constants, in the encoding of the opcode's operand type; 64-bit types fill it all.
  // Apertures: the value. hwreg(id, offset, size): id | offset << 6 | (size - 1) << 11.
  uint64_t bits = 0;
};

// Data-parallel primitives: where lane i takes its first source from.
enum class DppControl : uint8_t {
  none,
  quad_perm,  // lane selects in `dpp_argument`, 2 bits each
  row_shl,    // by dpp_argument lanes
  row_shr,
  row_ror,
  wave_shl,
  wave_rol,
  wave_shr,
  wave_ror,
  row_mirror,
  row_half_mirror,
  row_bcast15,
  row_bcast31,
  row_newbcast,  // gfx90a, and row_share of gfx10 and later
  row_xmask,
  dpp8,  // lane selects in `dpp_argument`, 3 bits each
};

enum class SdwaSelect : uint8_t { dword, byte0, byte1, byte2, byte3, word0, word1 };
enum class SdwaUnused : uint8_t { pad, sext, preserve };

// What follows the operands. Fields an opcode has no use for stay at their defaults.
struct Modifiers {
  // Packed and half-register forms; bit i belongs to source i, bit 3 of op_sel to the destination.
  uint8_t op_sel = 0, op_sel_hi = 0xff, neg_lo = 0, neg_hi = 0;
  bool op_sel_given = false, op_sel_hi_given = false;
  bool clamp = false;
  int8_t omod = 0;  // 1: times 2, 2: times 4, -1: times 1/2
  DppControl dpp = DppControl::none;
  uint32_t dpp_argument = 0;
  uint8_t row_mask = 0xf, bank_mask = 0xf;
  bool bound_ctrl = false, fetch_inactive = false;
  bool sdwa = false;
  SdwaSelect dst_sel = SdwaSelect::dword, src0_sel = SdwaSelect::dword,
             src1_sel = SdwaSelect::dword;
  SdwaUnused dst_unused = SdwaUnused::pad;
  uint8_t cbsz = 0, abid = 0, blgp = 0;  // MFMA
  uint8_t bitop3 = 0, byte_sel = 0;
  // Memory.
  int32_t offset = 0;
  uint8_t offset0 = 0, offset1 = 0;
  bool off = false;  // `off` stood for an address operand, which is left out
  bool offen = false, idxen = false, glc = false, slc = false, lds = false, gds = false,
       tfe = false, sc0 = false, sc1 = false, nt = false;
};

// How inline and literal constants of an opcode are encoded.
enum class ConstantType : uint8_t { b32, f32, f16, bf16, packed16_f, packed16_i, f64, b64 };

// Classes that counters and the timing model speak of.
enum class OpClass : uint8_t {
  valu,
  transcendental,
  matrix,
  salu,
  scalar_memory,
  lds_read,
  lds_write,
  lds_atomic,
  cross_lane,  // through the LDS crossbar: ds_bpermute, ds_swizzle
  global_read,
  global_write,
  global_atomic,
  scratch,
  barrier,
  wait,
  branch,
  other,
};
const char* op_class_name(OpClass c);

using Execute = void (*)(Wave&, const Instruction&);

// One line of an instruction table. Mnemonics are those of the newest spelling that LLVM prints,
// without _e32, _e64, _dpp, _sdwa; the aliases of older targets are lines of their own.
struct Opcode {
  const char* mnemonic;
  Execute execute;
  OpClass op_class;
  ConstantType constants = ConstantType::b32;
  int16_t argument = 0;  // for `execute`: a shape, a size, a comparison
};

struct Instruction {
  uint64_t address = 0;
  uint32_t bytes = 0;
  const Opcode* opcode = nullptr;
  Execute execute = nullptr;  // opcode->execute, or a fast form of it for plain operands
  uint8_t operands = 0;
  Operand operand[8];   // as printed: destinations first
  uint32_t target = 0;  // of branches: index of the instruction
  uint32_t index = 0;   // of this one, in its listing
  // The second half of a dual-issue pair of gfx11 and later: both read before either writes.
  std::shared_ptr<const Instruction> second;
  Modifiers modifiers;
  std::string text;     // as printed, for messages
  std::string problem;  // why it cannot be executed; empty for what can
};

}  // namespace hstu::jit::sim
