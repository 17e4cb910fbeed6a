// SPDX-License-Identifier: Apache-2.0
// One search for disassemblers and one way to run them, for every kind of code object.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "object/inspect.hpp"

namespace hstu::jit::object {

struct Disassembler {
  std::string program;  // full path
  std::vector<std::string> options;
};

// Disassemblers of this machine for objects of a format and target, best first; `why` gets one
// clause for each thing that will not do.
std::vector<Disassembler> find_disassemblers(const std::string& format, const std::string& target,
                                             std::string& why);

// Runs them over an object, best first, until `accept` returns true for a listing.
// Each gets HSTU_JIT_OBJDUMP_TIMEOUT seconds. Errors: kUnsupported with one clause for each program
// that failed or was missing, kTimeout when one of them hung; kFailed when the object cannot be
// written to a temporary file; kUsage for a nonsense time limit.
using AcceptListing = std::function<bool(const std::string& program, std::string_view listing)>;
Status run_disassemblers(const ObjectInfo& info, std::string_view bytes,
                         const AcceptListing& accept);

// "19.1.7": what an llvm-objdump says it is of; empty when it does not say. Errors: kTimeout.
Result<std::string> llvm_version(const std::string& program);

// A line of an llvm-objdump listing of AMD code, "<tab>v_mov_b32_e32 v0, 0 // 00001A00: 7E000280".
struct AmdLine {
  std::string_view mnemonic, operands;
  uint64_t address = 0;
  uint32_t bytes = 0;
  uint32_t word = 0;  // the first of its encoding
};
std::optional<AmdLine> read_amd_line(std::string_view line);

// Removes the first line of `text` and returns it, without the newline.
std::string_view take_line(std::string_view& text);
// Removes the first word, and blanks before it, and returns it.
std::string_view take_word(std::string_view& text);
std::string_view trimmed(std::string_view text);
std::optional<uint64_t> read_hex(std::string_view text);

}  // namespace hstu::jit::object
