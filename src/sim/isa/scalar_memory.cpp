// SPDX-License-Identifier: Apache-2.0
// Scalar loads. Source: AMD's ISA documents, "Scalar Memory Operations". Operands: destination,
// address (or buffer), offset.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "sim/isa/access.hpp"
#include "sim/isa/tables.hpp"
#include "sim/workgroup.hpp"

namespace hstu::jit::sim {
namespace {

// The sum of all operands and modifiers after the base.
uint64_t offset_of(Wave& w, const Instruction& i) {
  int64_t offset = i.modifiers.offset;
  for (int o = 2; o < i.operands; ++o) {
    const Operand& operand = i.operand[o];
    // Constants are signed since gfx9; registers are not.
    offset += operand.kind == OperandKind::constant ? int64_t{static_cast<int32_t>(operand.bits)}
                                                    : int64_t{w.read_scalar(operand)};
  }
  return static_cast<uint64_t>(offset);
}

// Loads `dwords` registers of which `valid` exist; `narrow`: 1 or 2 bytes instead, negative when
// sign-extended.
void put(Wave& w, const Instruction& i, uint64_t address, uint32_t dwords, uint32_t valid,
         int narrow) {
  Places places;  // for the message only
  places.source = &i.operand[1];
  uint32_t value[16] = {};
  if (valid > 0) {
    const uint32_t bytes = narrow == 0 ? valid * 4 : static_cast<uint32_t>(std::abs(narrow));
    if (!check_global(w, places, -1, address, bytes, false)) return;
    std::memcpy(value, reinterpret_cast<const void*>(address), bytes);
    w.group().tally().scalar_read_bytes += bytes;
    if (narrow == -1) value[0] = static_cast<uint32_t>(static_cast<int8_t>(value[0]));
    if (narrow == -2) value[0] = static_cast<uint32_t>(static_cast<int16_t>(value[0]));
  }
  const int first = i.operand[0].index;
  if (first == kNull) return;
  for (uint32_t d = 0; d < dwords; ++d) w.set_scalar_load(first + static_cast<int>(d), value[d]);
  w.issue(Queue::scalar, first, static_cast<int>(dwords), true);
}

// s_load: the low bits of the address do not count.
void s_load(Wave& w, const Instruction& i) {
  const auto dwords = static_cast<uint32_t>(i.opcode->argument);
  const uint64_t address = w.read_scalar64(i.operand[1]) + offset_of(w, i);
  put(w, i, address & ~uint64_t{3}, dwords, dwords, 0);
}

// The argument is the size in bytes, negative for what is sign-extended.
void s_load_narrow(Wave& w, const Instruction& i) {
  put(w, i, w.read_scalar64(i.operand[1]) + offset_of(w, i), 1, 1, i.opcode->argument);
}

// s_buffer_load: what lies past the buffer reads 0.
void s_buffer_load(Wave& w, const Instruction& i) {
  const auto dwords = static_cast<uint32_t>(i.opcode->argument);
  const Operand& buffer = i.operand[1];
  const uint64_t base = (w.read_scalar_part(buffer, 0) |
                         static_cast<uint64_t>(w.read_scalar_part(buffer, 1) & 0xffff) << 32);
  const uint32_t stride = w.read_scalar_part(buffer, 1) >> 16 & 0x3fff;
  const uint32_t records = w.scalar_at(buffer.index + 2);
  const uint64_t size = uint64_t{records} * (stride == 0 ? 1 : stride);
  const uint64_t offset = offset_of(w, i) & ~uint64_t{3};
  const uint64_t left = offset < size ? (size - offset + 3) / 4 : 0;
  put(w, i, base + offset, dwords, static_cast<uint32_t>(std::min<uint64_t>(left, dwords)), 0);
}

constexpr OpClass kScalar = OpClass::scalar_memory;

constexpr Opcode kOpcodes[] = {
    {"s_load_dword", s_load, kScalar, ConstantType::b32, 1},
    {"s_load_dwordx2", s_load, kScalar, ConstantType::b32, 2},
    {"s_load_dwordx4", s_load, kScalar, ConstantType::b32, 4},
    {"s_load_dwordx8", s_load, kScalar, ConstantType::b32, 8},
    {"s_load_dwordx16", s_load, kScalar, ConstantType::b32, 16},
    {"s_load_b32", s_load, kScalar, ConstantType::b32, 1},
    {"s_load_b64", s_load, kScalar, ConstantType::b32, 2},
    {"s_load_b96", s_load, kScalar, ConstantType::b32, 3},
    {"s_load_b128", s_load, kScalar, ConstantType::b32, 4},
    {"s_load_b256", s_load, kScalar, ConstantType::b32, 8},
    {"s_load_b512", s_load, kScalar, ConstantType::b32, 16},
    {"s_load_u8", s_load_narrow, kScalar, ConstantType::b32, 1},
    {"s_load_i8", s_load_narrow, kScalar, ConstantType::b32, -1},
    {"s_load_u16", s_load_narrow, kScalar, ConstantType::b32, 2},
    {"s_load_i16", s_load_narrow, kScalar, ConstantType::b32, -2},
    {"s_buffer_load_dword", s_buffer_load, kScalar, ConstantType::b32, 1},
    {"s_buffer_load_dwordx2", s_buffer_load, kScalar, ConstantType::b32, 2},
    {"s_buffer_load_dwordx4", s_buffer_load, kScalar, ConstantType::b32, 4},
    {"s_buffer_load_dwordx8", s_buffer_load, kScalar, ConstantType::b32, 8},
    {"s_buffer_load_dwordx16", s_buffer_load, kScalar, ConstantType::b32, 16},
    {"s_buffer_load_b32", s_buffer_load, kScalar, ConstantType::b32, 1},
    {"s_buffer_load_b64", s_buffer_load, kScalar, ConstantType::b32, 2},
    {"s_buffer_load_b96", s_buffer_load, kScalar, ConstantType::b32, 3},
    {"s_buffer_load_b128", s_buffer_load, kScalar, ConstantType::b32, 4},
    {"s_buffer_load_b256", s_buffer_load, kScalar, ConstantType::b32, 8},
    {"s_buffer_load_b512", s_buffer_load, kScalar, ConstantType::b32, 16},
};

}  // namespace

std::span<const Opcode> scalar_memory_opcodes() { return kOpcodes; }

}  // namespace hstu::jit::sim
