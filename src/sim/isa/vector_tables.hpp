// SPDX-License-Identifier: Apache-2.0
// Parts of the vector tables, kept in files of their own.
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "sim/isa/instruction.hpp"

namespace hstu::jit::sim {

std::span<const Opcode> float64_opcodes();
std::span<const Opcode> float16_opcodes();
std::span<const Opcode> convert_opcodes();        // between number formats of 16 bits and more
std::span<const Opcode> convert_small_opcodes();  // with formats of 8, 6 and 4 bits
std::span<const Opcode> dot_opcodes();
std::span<const Opcode> mix_opcodes();  // v_fma_mix, v_mad_mix
std::span<const Opcode> mfma_opcodes();
std::span<const Opcode> wmma_opcodes();

inline std::vector<Opcode> joined(std::initializer_list<std::span<const Opcode>> parts) {
  std::vector<Opcode> all;
  for (const auto part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace hstu::jit::sim
