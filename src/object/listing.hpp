// SPDX-License-Identifier: Apache-2.0
// The instructions of a code object, as a disassembler of this machine prints them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace hstu::jit {

struct ListedInstruction {
  uint64_t address = 0;  // virtual address in the object
  uint32_t bytes = 0;    // length of its encoding
  std::string mnemonic;  // "v_add_f32_e32"
  // "v1, v2, v3 row_shr:1 row_mask:0xf": as printed, trimmed. Of a branch: its signed distance in
  // words from the instruction after it, as a 16-bit number ("65530" is -6).
  std::string operands;
};

struct Listing {
  std::string disassembler;                     // "/usr/bin/llvm-objdump-19"
  std::vector<ListedInstruction> instructions;  // of all code sections, by address
};

// Disassembles an AMDGPU code object. HSTU_JIT_OBJDUMP names the program; else the newest
// llvm-objdump here that knows the object's target.
// Errors: kFailed for bytes that are no AMDGPU object; kUnsupported when no disassembler here knows
// the target, naming what to install; kTimeout when it hangs; kFailed also when no temporary file
// can be written.
Result<Listing> disassemble(std::string_view object);

// The disassembler that serves a target here: "/usr/bin/llvm-objdump-19 (LLVM 19.1.7)".
// Errors: kUnsupported, saying what to install; kTimeout for one that does not say its version.
Result<std::string> find_amd_disassembler(const std::string& target);

}  // namespace hstu::jit
