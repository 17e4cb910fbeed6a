// SPDX-License-Identifier: Apache-2.0
// Modifiers: what follows the operands.
#include <algorithm>
#include <cstdint>

#include "sim/isa/operand.hpp"

namespace hstu::jit::sim {
namespace {

struct Flag {
  std::string_view name;
  bool Modifiers::*field;  // null: has no effect here
};
constexpr Flag kFlags[] = {
    {"clamp", &Modifiers::clamp},
    {"offen", &Modifiers::offen},
    {"idxen", &Modifiers::idxen},
    {"glc", &Modifiers::glc},
    {"slc", &Modifiers::slc},
    {"lds", &Modifiers::lds},
    {"gds", &Modifiers::gds},
    {"tfe", &Modifiers::tfe},
    {"sc0", &Modifiers::sc0},
    {"sc1", &Modifiers::sc1},
    {"nt", &Modifiers::nt},
    {"dlc", nullptr},
    {"scc", nullptr},
    {"nv", nullptr},
    {"matrix_a_reuse", nullptr},
    {"matrix_b_reuse", nullptr},
    {"off", &Modifiers::off},
};

struct Lane {
  std::string_view name;
  DppControl control;
  bool plain = false;  // without a number
};
constexpr Lane kDpp[] = {
    {"quad_perm", DppControl::quad_perm},
    {"row_shl", DppControl::row_shl},
    {"row_shr", DppControl::row_shr},
    {"row_ror", DppControl::row_ror},
    {"wave_shl", DppControl::wave_shl},
    {"wave_rol", DppControl::wave_rol},
    {"wave_shr", DppControl::wave_shr},
    {"wave_ror", DppControl::wave_ror},
    {"row_mirror", DppControl::row_mirror, true},
    {"row_half_mirror", DppControl::row_half_mirror, true},
    {"row_newbcast", DppControl::row_newbcast},
    {"row_share", DppControl::row_newbcast},
    {"row_xmask", DppControl::row_xmask},
    {"dpp8", DppControl::dpp8},
};

constexpr std::string_view kSelects[] = {"DWORD",  "BYTE_0", "BYTE_1", "BYTE_2",
                                         "BYTE_3", "WORD_0", "WORD_1"};
constexpr std::string_view kUnused[] = {"UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"};

template <typename Enum, size_t N>
bool read_name(std::string_view text, const std::string_view (&names)[N], Enum& out) {
  const auto at = std::find(std::begin(names), std::end(names), text);
  if (at == std::end(names)) return false;
  out = static_cast<Enum>(at - std::begin(names));
  return true;
}

// "[1,0,3]" of `least` to `most` numbers with `bits` bits each, the first lowest.
std::optional<int64_t> read_list(std::string_view text, int bits, int least, int most) {
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return std::nullopt;
  uint32_t packed = 0;
  int at = 0;
  for (const std::string_view part : split_outside(text.substr(1, text.size() - 2), ',')) {
    const auto value = read_integer(part);
    if (!value || *value < 0 || *value >= 1 << bits || at >= most * bits) return std::nullopt;
    packed |= static_cast<uint32_t>(*value) << at;
    at += bits;
  }
  if (at < least * bits) return std::nullopt;
  return int64_t{packed};
}

// offset:swizzle(...), in the encoding of ds_swizzle_b32.
std::optional<int64_t> read_swizzle(std::string_view inside) {
  const auto parts = split_outside(inside, ',');
  int64_t number[5] = {};
  if (parts.size() > 5) return std::nullopt;
  for (size_t i = 1; i < parts.size() && parts[0] != "BITMASK_PERM"; ++i) {
    const auto value = read_integer(parts[i]);
    if (!value || *value < 0 || *value > 32) return std::nullopt;
    number[i] = *value;
  }
  const auto bit_mode = [](int64_t and_mask, int64_t or_mask, int64_t xor_mask) {
    return and_mask | or_mask << 5 | xor_mask << 10;
  };
  if (parts[0] == "QUAD_PERM") {
    return 0x8000 | number[1] | number[2] << 2 | number[3] << 4 | number[4] << 6;
  }
  if (parts[0] == "SWAP") return bit_mode(0x1f, 0, number[1]);
  if (parts[0] == "REVERSE") return bit_mode(0x1f, 0, number[1] - 1);
  if (parts[0] == "BROADCAST") return bit_mode(0x1f & -number[1], number[2], 0);
  if (parts[0] == "BITMASK_PERM" && parts.size() > 1) {
    int64_t and_mask = 0, or_mask = 0, xor_mask = 0;
    for (const char c : parts[1]) {
      if (c == '"') continue;
      and_mask = and_mask << 1 | (c == 'p' || c == 'i');
      or_mask = or_mask << 1 | (c == '1');
      xor_mask = xor_mask << 1 | (c == 'i');
    }
    return bit_mode(and_mask, or_mask, xor_mask);
  }
  return std::nullopt;
}

bool read_offset(std::string_view value, Modifiers& m) {
  constexpr std::string_view kSwizzle = "swizzle(";
  const auto offset = value.substr(0, kSwizzle.size()) == kSwizzle && value.back() == ')'
                          ? read_swizzle(value.substr(8, value.size() - 9))
                          : read_integer(value);
  if (!offset || *offset < INT32_MIN || *offset > INT32_MAX) return false;
  m.offset = static_cast<int32_t>(*offset);
  return true;
}

}  // namespace

bool read_modifier(std::string_view text, Modifiers& m) {
  for (const Flag& flag : kFlags) {
    if (text != flag.name) continue;
    if (flag.field != nullptr) m.*flag.field = true;
    return true;
  }
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const std::string_view value = colon == text.npos ? std::string_view() : text.substr(colon + 1);
  for (const Lane& lane : kDpp) {
    if (name != lane.name) continue;
    m.dpp = lane.control;
    const bool dpp8 = lane.control == DppControl::dpp8;
    if (dpp8 || lane.control == DppControl::quad_perm) {
      const std::optional<int64_t> list =
          read_list(value, dpp8 ? 3 : 2, dpp8 ? 8 : 4, dpp8 ? 8 : 4);
      if (list) m.dpp_argument = static_cast<uint32_t>(*list);
      return list.has_value();
    }
    if (colon == text.npos) return lane.plain;
    const auto number = read_integer(value);
    if (lane.plain || !number || *number < 0 || *number > 15) return false;
    m.dpp_argument = static_cast<uint32_t>(*number);
    return true;
  }
  if (value.empty()) return false;
  if (name == "offset") return read_offset(value, m);
  if (name == "dst_sel") return read_name(value, kSelects, m.dst_sel) && (m.sdwa = true);
  if (name == "src0_sel") return read_name(value, kSelects, m.src0_sel) && (m.sdwa = true);
  if (name == "src1_sel") return read_name(value, kSelects, m.src1_sel) && (m.sdwa = true);
  if (name == "dst_unused") return read_name(value, kUnused, m.dst_unused) && (m.sdwa = true);
  if (name == "th") {
    // Temporal hints matter to caches only, but for the one that asks an atomic for its old value.
    m.glc = m.glc || value.find("ATOMIC_RETURN") != value.npos ||
            value.find("ATOMIC_NT_RETURN") != value.npos;
    return true;
  }
  if (name == "scope") return true;
  if (value.front() == '[') {
    const auto list = read_list(value, 1, 1, 8);
    if (!list) return false;
    const auto bits = static_cast<uint8_t>(*list);
    if (name == "op_sel") {
      m.op_sel = bits;
      m.op_sel_given = true;
    } else if (name == "op_sel_hi") {
      m.op_sel_hi = bits;
      m.op_sel_hi_given = true;
    } else if (name == "neg_lo" || name == "neg") {
      m.neg_lo = bits;
    } else if (name == "neg_hi") {
      m.neg_hi = bits;
    } else {
      return false;
    }
    return true;
  }
  const auto number = read_integer(value);
  if (!number || *number < 0 || *number > 255) return false;
  const auto small = static_cast<uint8_t>(*number);
  if (name == "offset0") {
    m.offset0 = small;
  } else if (name == "offset1") {
    m.offset1 = small;
  } else if (name == "row_bcast") {
    m.dpp = *number == 15 ? DppControl::row_bcast15 : DppControl::row_bcast31;
    return *number == 15 || *number == 31;
  } else if (name == "row_mask") {
    m.row_mask = small;
    return small <= 15;
  } else if (name == "bank_mask") {
    m.bank_mask = small;
    return small <= 15;
  } else if (name == "bound_ctrl") {
    m.bound_ctrl = true;  // printed as 0 by LLVM 14 and as 1 since, meaning the same
  } else if (name == "fi") {
    m.fetch_inactive = *number != 0;
  } else if (name == "mul") {
    m.omod = *number == 2 ? 1 : 2;
    return *number == 2 || *number == 4;
  } else if (name == "div") {
    m.omod = -1;
    return *number == 2;
  } else if (name == "cbsz") {
    m.cbsz = small;
    return small <= 7;
  } else if (name == "abid") {
    m.abid = small;
    return small <= 15;
  } else if (name == "blgp") {
    m.blgp = small;
    return small <= 7;
  } else if (name == "bitop3") {
    m.bitop3 = small;
  } else if (name == "byte_sel" || name == "index_key") {
    m.byte_sel = small;
    return small <= 3;
  } else {
    return false;
  }
  return true;
}

}  // namespace hstu::jit::sim
