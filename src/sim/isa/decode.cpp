// SPDX-License-Identifier: Apache-2.0
#include "sim/isa/decode.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "sim/isa/operand.hpp"
#include "sim/isa/tables.hpp"
#include "sim/wave.hpp"

namespace hstu::jit::sim {
namespace {

void execute_problem(Wave& wave, const Instruction& i) { wave.fail(i.problem); }

constexpr Opcode kUndecoded = {"", execute_problem, OpClass::other};

// Encodings of one and the same operation.
constexpr std::string_view kEncodings[] = {"_e64_dpp", "_e32_dpp", "_e64", "_e32",
                                           "_dpp8",    "_dpp",     "_sdwa"};

std::string_view without_encoding(std::string_view mnemonic) {
  for (const std::string_view suffix : kEncodings) {
    if (mnemonic.size() > suffix.size() &&
        mnemonic.substr(mnemonic.size() - suffix.size()) == suffix) {
      return mnemonic.substr(0, mnemonic.size() - suffix.size());
    }
  }
  return mnemonic;
}

// The counts of a bare number, which is the encoding; a count that says all its bits is none.
// gfx9: vmcnt in bits 15:14 and 3:0, lgkmcnt in 11:8. gfx11: vmcnt in 15:10, lgkmcnt in 9:4.
uint64_t encoded_wait_counts(uint32_t bits, const Machine& machine) {
  const bool gfx9 = machine.cdna();
  const uint32_t vm = gfx9 ? (bits & 0xf) | (bits >> 10 & 0x30) : bits >> 10 & 0x3f;
  const uint32_t lgkm = gfx9 ? bits >> 8 & 0xf : bits >> 4 & 0x3f, most_lgkm = gfx9 ? 15 : 63;
  return (vm == 63 ? kNoWait : vm) << kVmShift | (lgkm == most_lgkm ? kNoWait : lgkm) << kLgkmShift;
}

// "vmcnt(0) lgkmcnt(1)", counts joined by blanks or &, or a bare number.
bool read_wait_counts(std::string_view text, const Machine& machine, Operand& o) {
  o.kind = OperandKind::constant;
  o.bits = kNoWait << kVmShift | kNoWait << kLgkmShift;
  if (text.empty()) return false;
  if (const auto raw = read_integer(text)) {
    if (*raw < 0 || *raw > 0xffff) return false;
    o.bits = encoded_wait_counts(static_cast<uint32_t>(*raw), machine);
    return true;
  }
  for (std::string_view part : split_outside(text, ' ')) {
    if (part.empty() || part == "&") continue;
    const size_t open = part.find('(');
    if (open == part.npos || part.back() != ')') return false;
    const auto count = read_integer(part.substr(open + 1, part.size() - open - 2));
    if (!count || *count < 0 || *count > 63) return false;
    const std::string_view name = part.substr(0, open);
    const int shift = name.substr(0, 5) == "vmcnt"     ? kVmShift
                      : name.substr(0, 7) == "lgkmcnt" ? kLgkmShift
                                                       : -1;
    if (shift < 0) {
      if (name.substr(0, 6) != "expcnt") return false;
      continue;  // exports only
    }
    o.bits = (o.bits & ~(uint64_t{0xff} << shift)) | static_cast<uint64_t>(*count) << shift;
  }
  return true;
}

// Operands whose text means nothing to execution.
bool has_opaque_operands(std::string_view mnemonic) {
  return mnemonic == "s_delay_alu" || mnemonic == "s_sendmsg" || mnemonic == "s_sendmsghalt" ||
         mnemonic == "s_waitcnt_depctr" || mnemonic == "s_code_end" || mnemonic == "s_clause" ||
         mnemonic == "s_wait_alu";
}

// Fills operands and modifiers; a reason when it cannot.
std::string read_operands(Instruction& i, std::string_view text) {
  const auto parts = split_outside(text, ',');
  for (size_t p = 0; p < parts.size(); ++p) {
    // Modifiers follow the last operand, and a vanished one, after blanks.
    std::vector<std::string_view> words = split_outside(parts[p], ' ');
    for (size_t w = 0; w < words.size(); ++w) {
      const std::string_view word = words[w];
      if (word.empty()) continue;
      if (read_modifier(word, i.modifiers)) continue;
      if (w > 0) return fmt::format("modifier \"{}\" is not known", word);
      const auto operand = read_operand(word, i.opcode->constants);
      if (!operand) return fmt::format("operand \"{}\" is not known", word);
      if (i.operands == std::size(i.operand)) return "has too many operands";
      i.operand[i.operands++] = *operand;
    }
  }
  return "";
}

Instruction decode_one(std::string_view mnemonic, std::string_view operands,
                       const Machine& machine) {
  Instruction i;
  i.text = fmt::format("{}{}{}", mnemonic, operands.empty() ? "" : " ", operands);
  const std::string_view name = without_encoding(mnemonic);
  const auto problem = [&](std::string why) {
    i.opcode = &kUndecoded;
    i.execute = execute_problem;
    i.problem = "cannot be executed: " + std::move(why);
    return std::move(i);
  };
  i.opcode = find_opcode(name);
  if (i.opcode == nullptr || i.opcode->execute == nullptr) {
    return problem(fmt::format("no table has \"{}\"", name));
  }
  i.execute = i.opcode->execute;
  if (has_opaque_operands(name)) return i;
  if (name == "s_waitcnt") {
    i.operands = 1;
    if (!read_wait_counts(operands, machine, i.operand[0]))
      return problem("its counts are not known");
    return i;
  }
  if (std::string why = read_operands(i, operands); !why.empty()) return problem(std::move(why));
  const auto vector = [](const Operand& o) { return o.kind == OperandKind::vector; };
  if (name.substr(0, 2) == "s_" && std::any_of(i.operand, i.operand + i.operands, vector)) {
    return problem("scalar instructions take no vector registers");
  }
  if (i.modifiers.tfe || i.modifiers.gds) return problem("tfe and gds are not simulated");
  return i;
}

// ---- Dual issue.

bool same_register(const Operand& a, const Operand& b) {
  return a.kind == OperandKind::vector && b.kind == OperandKind::vector && a.index == b.index;
}

// The first half writes what the second reads as it was before.
void execute_overlapping_pair(Wave& wave, const Instruction& i) {
  const Operand& first = i.operand[0];
  Row& row = wave.claim_row(first, 0, 0);
  const Row before = row;
  i.opcode->execute(wave, i);
  const Row after = row;
  row = before;
  i.second->execute(wave, *i.second);
  row = after;
}

void execute_pair(Wave& wave, const Instruction& i) {
  i.opcode->execute(wave, i);
  i.second->execute(wave, *i.second);
}

std::string dual_half_name(std::string_view mnemonic) {
  constexpr std::string_view kDual = "v_dual_";
  return "v_" + std::string(mnemonic.substr(kDual.size()));
}

Instruction decode_dual(std::string_view mnemonic, std::string_view operands,
                        const Machine& machine) {
  const size_t middle = operands.find("::");
  std::string_view rest = middle == operands.npos ? "" : operands.substr(middle + 2);
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  const size_t blank = rest.find(' ');
  Instruction first = decode_one(dual_half_name(mnemonic),
                                 split_outside(operands.substr(0, middle), '\n')[0], machine);
  first.text = fmt::format("{} {}", mnemonic, operands);
  if (blank == rest.npos || rest.substr(0, 7) != "v_dual_") {
    first.opcode = &kUndecoded;
    first.execute = execute_problem;
    first.problem = "cannot be executed: the second half of the pair is not known";
    return first;
  }
  auto second = std::make_shared<Instruction>(
      decode_one(dual_half_name(rest.substr(0, blank)), rest.substr(blank + 1), machine));
  bool overlap = false;
  for (int o = 0; o < second->operands; ++o) {
    overlap = overlap || same_register(first.operand[0], second->operand[o]);
  }
  if (first.problem.empty()) first.execute = overlap ? execute_overlapping_pair : execute_pair;
  first.second = std::move(second);
  return first;
}

void resolve_branch(Instruction& i, const std::unordered_map<uint64_t, uint32_t>& index_of) {
  if (i.opcode->op_class != OpClass::branch || i.operands != 1 ||
      i.operand[0].kind != OperandKind::constant) {
    return;
  }
  const auto words = static_cast<int16_t>(i.operand[0].bits);
  const uint64_t target = i.address + i.bytes + static_cast<int64_t>(words) * 4;
  const auto at = index_of.find(target);
  if (at == index_of.end()) {
    i.execute = execute_problem;
    i.problem = fmt::format("branches to {:#x}, where no instruction begins", target);
    return;
  }
  i.target = at->second;
}

}  // namespace

Instruction decode_line(std::string_view mnemonic, std::string_view operands,
                        const Machine& machine) {
  return mnemonic.substr(0, 7) == "v_dual_" ? decode_dual(mnemonic, operands, machine)
                                            : decode_one(mnemonic, operands, machine);
}

std::vector<Instruction> decode(const Listing& listing, const Machine& machine) {
  std::vector<Instruction> code;
  code.reserve(listing.instructions.size());
  std::unordered_map<uint64_t, uint32_t> index_of;
  for (const ListedInstruction& line : listing.instructions) {
    Instruction i = decode_line(line.mnemonic, line.operands, machine);
    i.address = line.address;
    i.bytes = line.bytes;
    i.index = static_cast<uint32_t>(code.size());
    index_of[i.address] = i.index;
    code.push_back(std::move(i));
  }
  for (Instruction& i : code) resolve_branch(i, index_of);
  return code;
}

// ---- The tables as one.

const Opcode* find_opcode(std::string_view mnemonic) {
  static const std::unordered_map<std::string_view, const Opcode*> all = [] {
    std::unordered_map<std::string_view, const Opcode*> map;
    for (const auto table :
         {scalar_opcodes(), scalar_memory_opcodes(), vector_float_opcodes(),
          vector_integer_opcodes(), vector_compare_opcodes(), vector_packed_opcodes(),
          cross_lane_opcodes(), matrix_opcodes(), memory_opcodes(), lds_opcodes()}) {
      for (const Opcode& opcode : table) map.emplace(opcode.mnemonic, &opcode);
    }
    return map;
  }();
  const auto at = all.find(mnemonic);
  return at == all.end() ? nullptr : at->second;
}

}  // namespace hstu::jit::sim
