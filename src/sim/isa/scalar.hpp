// SPDX-License-Identifier: Apache-2.0
// The parts of the scalar table.
#pragma once

#include <span>

#include "sim/isa/instruction.hpp"

namespace hstu::jit::sim {

std::span<const Opcode> scalar_integer_opcodes();  // moves, arithmetic, comparison
std::span<const Opcode> scalar_bit_opcodes();      // logic, shifts, bit fields, execution masks
std::span<const Opcode> scalar_float_opcodes();    // of gfx11.5 and gfx12
std::span<const Opcode> scalar_program_opcodes();  // branches, waits, barriers, hardware registers

}  // namespace hstu::jit::sim
