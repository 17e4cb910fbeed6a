// SPDX-License-Identifier: Apache-2.0
#include "sim/isa/operand.hpp"

#include <bit>
#include <charconv>
#include <cstdlib>
#include <string>

namespace hstu::jit::sim {
namespace {

struct NamedRegister {
  std::string_view name;
  uint16_t index;
  uint8_t registers;
};
constexpr NamedRegister kNamed[] = {
    {"vcc", kVcc, 2},
    {"vcc_lo", kVcc, 1},
    {"vcc_hi", kVcc + 1, 1},
    {"exec", kExec, 2},
    {"exec_lo", kExec, 1},
    {"exec_hi", kExec + 1, 1},
    {"m0", kM0, 1},
    {"null", kNull, 1},
    {"scc", kScc, 1},
    {"src_scc", kScc, 1},
    {"vccz", kVccz, 1},
    {"src_vccz", kVccz, 1},
    {"execz", kExecz, 1},
    {"src_execz", kExecz, 1},
    {"flat_scratch", kFlatScratch, 2},
    {"flat_scratch_lo", kFlatScratch, 1},
    {"flat_scratch_hi", kFlatScratch + 1, 1},
    {"xnack_mask", kXnackMask, 2},
    {"xnack_mask_lo", kXnackMask, 1},
    {"xnack_mask_hi", kXnackMask + 1, 1},
};

struct NamedValue {
  std::string_view name;
  uint64_t value;
};
constexpr NamedValue kApertures[] = {
    {"src_shared_base", kSharedBase},
    {"src_shared_limit", kSharedBase | 0xffffffffu},
    {"src_private_base", kPrivateBase},
    {"src_private_limit", kPrivateBase | 0xffffffffu},
};
constexpr NamedValue kHardwareRegisters[] = {
    {"HW_REG_MODE", 1},
    {"HW_REG_STATUS", 2},
    {"HW_REG_TRAPSTS", 3},
    {"HW_REG_HW_ID", 4},
    {"HW_REG_GPR_ALLOC", 5},
    {"HW_REG_LDS_ALLOC", 6},
    {"HW_REG_IB_STS", 7},
    {"HW_REG_SH_MEM_BASES", 15},
    {"HW_REG_XCC_ID", 20},
    {"HW_REG_HW_ID1", 23},
    {"HW_REG_HW_ID2", 24},
    {"HW_REG_IB_STS2", 28},
    {"HW_REG_SHADER_CYCLES", 29},
    {"HW_REG_WAVE_MODE", 1},
    {"HW_REG_WAVE_STATUS", 2},
    {"HW_REG_WAVE_HW_ID1", 23},
    {"HW_REG_WAVE_SCHED_MODE", 26},
    {"HW_REG_SCHED_MODE", 26},
    {"HW_REG_SHADER_CYCLES_LO", 29},
    {"HW_REG_SHADER_CYCLES_HI", 30},
};

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (text.substr(0, prefix.size()) != prefix) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// "name(inside)": gives the inside.
bool take_call(std::string_view& text, std::string_view name) {
  if (text.size() < name.size() + 2 || text.substr(0, name.size()) != name ||
      text[name.size()] != '(' || text.back() != ')') {
    return false;
  }
  text = text.substr(name.size() + 1, text.size() - name.size() - 2);
  return true;
}

// v1, v[0:3], v[7], s.., a.., ttmp..
std::optional<Operand> read_register(std::string_view text) {
  Operand o;
  uint16_t base = 0;
  int most = 0;
  if (take_prefix(text, "ttmp")) {
    o.kind = OperandKind::scalar;
    base = kTtmp;
    most = 16;
  } else if (take_prefix(text, "v")) {
    o.kind = OperandKind::vector;
    most = 256;
  } else if (take_prefix(text, "a")) {
    o.kind = OperandKind::vector;
    base = kFirstAgpr;
    most = 256;
  } else if (take_prefix(text, "s")) {
    o.kind = OperandKind::scalar;
    most = 106;
  } else {
    return std::nullopt;
  }
  if (o.kind == OperandKind::vector && text.size() > 2 && text[text.size() - 2] == '.') {
    if (text.back() != 'l' && text.back() != 'h') return std::nullopt;
    o.high_half = text.back() == 'h';
    text.remove_suffix(2);
  }
  std::string_view last = text;
  if (text.size() > 2 && text.front() == '[' && text.back() == ']') {
    text = text.substr(1, text.size() - 2);
    const size_t colon = text.find(':');
    last = colon == text.npos ? text : text.substr(colon + 1);
    text = text.substr(0, colon);
  }
  int first_index = 0, last_index = 0;
  for (auto [part, value] : {std::pair(text, &first_index), std::pair(last, &last_index)}) {
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), *value);
    if (error != std::errc() || end != part.data() + part.size()) return std::nullopt;
  }
  if (first_index < 0 || last_index < first_index || last_index >= most ||
      last_index - first_index >= 64) {
    return std::nullopt;
  }
  o.index = static_cast<uint16_t>(base + first_index);
  o.registers = static_cast<uint8_t>(last_index - first_index + 1);
  return o;
}

// The inline constants: halves, one, two, four and 1/(2 pi), as f32.
uint64_t encode_float(double value, ConstantType type) {
  const auto single = static_cast<float>(value);
  const auto bits = std::bit_cast<uint32_t>(single);
  switch (type) {
    case ConstantType::f64:
    case ConstantType::b64:
      return std::bit_cast<uint64_t>(value);
    case ConstantType::bf16:
      return bits >> 16;
    case ConstantType::f16:
    case ConstantType::packed16_f: {
      if (bits << 1 == 0) return bits >> 16;
      // Sign, exponent rebiased, ten bits of mantissa rounded to nearest: exact but for 1/(2 pi).
      const uint32_t exponent = (bits >> 23 & 0xff) - 127 + 15;
      return (bits >> 16 & 0x8000) | ((exponent << 10 | (bits >> 13 & 0x3ff)) + (bits >> 12 & 1));
    }
    default:
      return bits;
  }
}

uint64_t encode_integer(int64_t value, bool literal, ConstantType type) {
  switch (type) {
    case ConstantType::f64:
      // A literal of 32 bits is the high half of a double.
      return literal && static_cast<uint64_t>(value) <= 0xffffffffu
                 ? static_cast<uint64_t>(value) << 32
                 : static_cast<uint64_t>(value);
    case ConstantType::b64:
      return static_cast<uint64_t>(value);
    default:
      return static_cast<uint32_t>(value);
  }
}

std::optional<Operand> read_constant(std::string_view text, ConstantType type) {
  Operand o;
  o.kind = OperandKind::constant;
  if (take_call(text, "lit64") || take_call(text, "lit")) {
    const auto value = read_integer(text);
    if (!value) return std::nullopt;
    o.bits = encode_integer(*value, false, type);
    return o;
  }
  if (const auto value = read_integer(text)) {
    o.bits = encode_integer(*value, text.find("0x") != text.npos, type);
    return o;
  }
  const std::string copy(text);
  char* end = nullptr;
  const double value = std::strtod(copy.c_str(), &end);
  if (copy.empty() || end != copy.c_str() + copy.size()) return std::nullopt;
  o.bits = encode_float(value, type);
  return o;
}

// hwreg(HW_REG_MODE), hwreg(HW_REG_MODE, 4, 2), hwreg(7, 0, 32)
std::optional<Operand> read_hwreg(std::string_view inside) {
  const auto parts = split_outside(inside, ',');
  Operand o;
  o.kind = OperandKind::named;
  std::optional<int64_t> id = read_integer(parts[0]);
  for (const NamedValue& named : kHardwareRegisters) {
    if (named.name == parts[0]) id = static_cast<int64_t>(named.value);
  }
  const auto offset = parts.size() > 1 ? read_integer(parts[1]) : 0;
  const auto size = parts.size() > 2 ? read_integer(parts[2]) : 32;
  if (!id || !offset || !size || *id < 0 || *id > 63 || *offset < 0 || *offset > 31 || *size < 1 ||
      *size > 32) {
    return std::nullopt;
  }
  o.bits = static_cast<uint64_t>(*id | *offset << 6 | (*size - 1) << 11);
  return o;
}

}  // namespace

std::vector<std::string_view> split_outside(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : separator;
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == ']' || c == '}') --depth;
    if (i < text.size() && (c != separator || depth > 0)) continue;
    parts.push_back(trim(text.substr(begin, i - begin)));
    begin = i + 1;
  }
  return parts;
}

std::optional<int64_t> read_integer(std::string_view text) {
  const bool negative = take_prefix(text, "-");
  const int base = take_prefix(text, "0x") ? 16 : 10;
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return static_cast<int64_t>(negative ? 0 - value : value);
}

std::optional<Operand> read_operand(std::string_view text, ConstantType type) {
  text = trim(text);
  if (const auto constant = read_constant(text, type)) return constant;
  bool negate = false, absolute = false, extend = false;
  // The modifiers nest in one order: negation, magnitude, extension.
  if (take_call(text, "neg") || take_prefix(text, "-")) negate = true;
  if (take_call(text, "abs")) absolute = true;
  if (text.size() > 2 && text.front() == '|' && text.back() == '|') {
    text = text.substr(1, text.size() - 2);
    absolute = true;
  }
  if (take_call(text, "sext")) extend = true;
  text = trim(text);
  std::optional<Operand> o;
  for (const NamedRegister& named : kNamed) {
    if (text != named.name) continue;
    o.emplace();
    o->kind = OperandKind::scalar;
    o->index = named.index;
    o->registers = named.registers;
  }
  for (const NamedValue& aperture : kApertures) {
    if (text != aperture.name) continue;
    o.emplace();
    o->kind = OperandKind::aperture;
    o->registers = 2;
    o->bits = aperture.value;
  }
  if (std::string_view inside = text; !o && take_call(inside, "hwreg")) return read_hwreg(inside);
  if (std::string_view inside = text; !o && take_call(inside, "sendmsg")) {
    o.emplace();
    o->kind = OperandKind::named;
  }
  if (!o) o = read_register(text);
  if (!o) o = read_constant(text, type);
  if (!o) return std::nullopt;
  o->negate = negate;
  o->absolute = absolute;
  o->sign_extend = extend;
  return o;
}

}  // namespace hstu::jit::sim
