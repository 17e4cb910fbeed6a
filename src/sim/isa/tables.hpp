// SPDX-License-Identifier: Apache-2.0
// The instruction tables, one per family; a line can be checked against the ISA document.
#pragma once

#include <span>
#include <string_view>

#include "sim/isa/instruction.hpp"

namespace hstu::jit::sim {

std::span<const Opcode> scalar_opcodes();         // SALU, branches, waits, barriers
std::span<const Opcode> scalar_memory_opcodes();  // s_load, s_buffer_load
std::span<const Opcode> vector_float_opcodes();   // f16, f32, f64, bf16, conversions
std::span<const Opcode> vector_integer_opcodes();
std::span<const Opcode> vector_compare_opcodes();
std::span<const Opcode> vector_packed_opcodes();  // v_pk_*, dot products, mixed precision
std::span<const Opcode> cross_lane_opcodes();     // readlane, permlane, moves between files
std::span<const Opcode> matrix_opcodes();         // MFMA, WMMA
std::span<const Opcode> memory_opcodes();         // flat, global, scratch, buffer
std::span<const Opcode> lds_opcodes();            // DS

// The line of a printed mnemonic, its encoding suffix removed; null when no table has it.
const Opcode* find_opcode(std::string_view mnemonic);

}  // namespace hstu::jit::sim
