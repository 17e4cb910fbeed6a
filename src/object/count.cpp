// SPDX-License-Identifier: Apache-2.0
// Counts instructions by reading what a disassembler prints.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <unordered_map>

#include "object/classify.hpp"
#include "object/disassemble.hpp"
#include "object/elf.hpp"
#include "object/listing.hpp"

namespace hstu::jit {
namespace {

using object::InstructionSet;
using object::take_word;
using object::trimmed;

struct Instruction {
  std::string_view mnemonic, operands;
};

// "        /*0030*/              @!P0 LDC.64 R2, c[0x0][0x210] ;  /* 0x... */"
std::optional<Instruction> nvidia_instruction(std::string_view line) {
  line = trimmed(line);
  if (line.substr(0, 2) != "/*") return std::nullopt;
  const size_t end = line.find("*/");
  if (end == line.npos || line.substr(2, 2) == " 0") return std::nullopt;  // encoding words only
  std::string_view rest = line.substr(end + 2);
  rest = rest.substr(0, rest.find(';'));
  Instruction found;
  found.mnemonic = take_word(rest);
  if (found.mnemonic.substr(0, 1) == "@") found.mnemonic = take_word(rest);
  return found.mnemonic.empty() ? std::nullopt : std::optional(found);
}

// "    1139:<tab>push   %rbp"
std::optional<Instruction> host_instruction(std::string_view line) {
  const size_t colon = line.find(":\t");
  if (colon == line.npos || !object::read_hex(trimmed(line.substr(0, colon)))) return std::nullopt;
  std::string_view rest = line.substr(colon + 2);
  Instruction found;
  do {
    found.mnemonic = take_word(rest);
  } while (found.mnemonic == "lock" || found.mnemonic == "rep" || found.mnemonic == "repz" ||
           found.mnemonic == "bnd" || found.mnemonic == "notrack");
  return found.mnemonic.empty() ? std::nullopt : std::optional(found);
}

// The function a line opens: "0000000000001000 <name>:", "Function : name", ".text.name:".
std::string_view opened_function(std::string_view line) {
  const size_t function = line.find("Function : ");
  if (function != line.npos) return trimmed(line.substr(function + 11));
  line = trimmed(line);
  if (line.empty() || line.back() != ':') return {};
  if (line.substr(0, 6) == ".text.") return line.substr(6, line.size() - 7);
  const size_t open = line.find('<');
  if (open == line.npos || line.size() < open + 3 || line[line.size() - 2] != '>') return {};
  return line.substr(open + 1, line.size() - open - 3);
}

// Before gfx940 scratch is reached by buffer instructions through a descriptor that the kernel gets
// in s[0:3] and usually first copies elsewhere.
class ScratchDescriptor {
 public:
  // To be told of each instruction in order; true when it reads or writes scratch.
  bool used_by(const ListedInstruction& found) {
    constexpr std::string_view kSource = ", s[0:1]";
    const std::string_view operands = found.operands;
    if (!moved_ && found.mnemonic == "s_mov_b64" && operands.size() > kSource.size() &&
        operands.substr(operands.size() - kSource.size()) == kSource) {
      int first = 0;
      std::from_chars(operands.data() + 2, operands.data() + operands.size(), first);
      registers_ = fmt::format("s[{}:{}]", first, first + 3);
      moved_ = true;
    }
    return found.mnemonic.substr(0, 7) == "buffer_" && operands.find(registers_) != operands.npos;
  }

 private:
  std::string registers_ = "s[0:3]";
  bool moved_ = false;
};

void begin_count(ObjectInfo& info) {
  for (KernelInfo& kernel : info.kernels) kernel.instructions.clear();
}

// False when no instruction of any kernel was counted.
bool end_count(ObjectInfo& info) {
  bool any = false;
  for (KernelInfo& kernel : info.kernels) {
    if (kernel.instructions.empty()) continue;
    any = true;
    const auto matrix = kernel.instructions.find("matrix");
    kernel.matrix_instructions = matrix == kernel.instructions.end() ? 0 : matrix->second;
  }
  return any;
}

void count_one(KernelInfo& kernel, const char* kind) {
  ++kernel.instructions[kind];
  ++kernel.instructions["total"];
}

// By the addresses of the symbols, so that padding and other functions are not counted.
bool count_amd(ObjectInfo& info, std::string_view bytes, const Listing& listing) {
  const auto ranges = object::function_ranges(bytes);
  begin_count(info);
  for (KernelInfo& kernel : info.kernels) {
    const auto range = ranges.find(kernel.name);
    if (range == ranges.end()) continue;
    ScratchDescriptor descriptor;
    auto next = std::lower_bound(
        listing.instructions.begin(), listing.instructions.end(), range->second.begin,
        [](const ListedInstruction& found, uint64_t address) { return found.address < address; });
    for (; next != listing.instructions.end() && next->address < range->second.end; ++next) {
      const ListedInstruction& found = *next;
      const char* kind = object::instruction_class(InstructionSet::amd, found.mnemonic);
      if (kernel.scratch_bytes.value_or(0) > 0 && descriptor.used_by(found)) kind = "scratch";
      count_one(kernel, kind);
    }
  }
  return end_count(info);
}

// By the names of functions that the listing itself prints.
bool count_text(ObjectInfo& info, std::string_view listing) {
  const bool nvidia = info.format == "cubin";
  std::unordered_map<std::string, KernelInfo*> kernels;
  for (KernelInfo& kernel : info.kernels) kernels[kernel.name] = &kernel;
  begin_count(info);
  KernelInfo* current = nullptr;
  while (!listing.empty()) {
    const std::string_view line = object::take_line(listing);
    const std::string_view function = opened_function(line);
    if (!function.empty()) {
      const auto kernel = kernels.find(std::string(function));
      if (kernel != kernels.end()) {
        current = kernel->second;
      } else if (function.substr(0, 2) != ".L") {
        current = nullptr;
      }
      continue;
    }
    if (current == nullptr) continue;
    const auto found = nvidia ? nvidia_instruction(line) : host_instruction(line);
    if (!found) continue;
    count_one(*current,
              object::instruction_class(nvidia ? InstructionSet::nvidia : InstructionSet::host,
                                        found->mnemonic));
  }
  return end_count(info);
}

}  // namespace

void count_instructions(ObjectInfo& info, std::string_view bytes) {
  if (info.kernels.empty()) {
    info.note = "instructions were not counted: there is no kernel";
    return;
  }
  Status counted;
  if (info.format == "amdgpu") {
    const Result<Listing> listing = disassemble(bytes);
    if (!listing) {
      counted = listing.error();
    } else if (!count_amd(info, bytes, *listing)) {
      counted = Error{ErrorKind::kFailed,
                      listing->disassembler + ": shows no instruction of a kernel", "", ""};
    }
  } else {
    counted = object::run_disassemblers(
        info, bytes,
        [&](const std::string&, std::string_view listing) { return count_text(info, listing); });
  }
  info.note = counted ? "" : "instructions were not counted: " + counted.error().message;
}

}  // namespace hstu::jit
