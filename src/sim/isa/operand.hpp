// SPDX-License-Identifier: Apache-2.0
// Reads the operands that LLVM's disassemblers print, LLVM 14 to 21.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "sim/isa/instruction.hpp"

namespace hstu::jit::sim {

// Where the flat apertures of LDS and of scratch are; no host address of x86-64 or ARM64 user space
// is as high. An LDS address is kSharedBase + the byte.
constexpr uint64_t kSharedBase = uint64_t{1} << 56;
constexpr uint64_t kPrivateBase = uint64_t{2} << 56;

// Splits at `separator` outside brackets, braces and parentheses; trims blanks.
std::vector<std::string_view> split_outside(std::string_view text, char separator);

// Whole numbers as printed: decimal or 0x, negative too.
std::optional<int64_t> read_integer(std::string_view text);

// One operand. `type` says how constants are encoded. Nothing when it is not of a known form.
std::optional<Operand> read_operand(std::string_view text, ConstantType type);

// One modifier, "offset:16" or "glc"; false when it is not known.
bool read_modifier(std::string_view text, Modifiers& m);

}  // namespace hstu::jit::sim
