// SPDX-License-Identifier: Apache-2.0
#include "object/operands.hpp"

#include <charconv>

#include "object/classify.hpp"

namespace hstu::jit::object {
namespace {

bool starts(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}
bool has(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// Pieces between commas outside of brackets ("neg_lo:[0,1]" is one piece).
std::vector<std::string_view> pieces(std::string_view text) {
  std::vector<std::string_view> out;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '[') ++depth;
    if (i < text.size() && text[i] == ']') --depth;
    if (i < text.size() && (text[i] != ',' || depth > 0)) continue;
    const std::string_view piece = trim(text.substr(begin, i - begin));
    if (!piece.empty()) out.push_back(piece);
    begin = i + 1;
  }
  return out;
}

// The registers of the first word of a piece: "-v[4:5] op_sel:[0,1]", "|v3|", "vcc_lo", "s2".
void add_registers(std::string_view piece, std::vector<uint16_t>& out) {
  piece = piece.substr(0, piece.find(' '));
  for (const std::string_view wrapper : {"-", "neg(", "abs(", "sext(", "-", "|"}) {
    if (starts(piece, wrapper)) piece.remove_prefix(wrapper.size());
  }
  if (piece.empty()) return;
  if (starts(piece, "vcc")) return out.push_back(kVcc);
  if (starts(piece, "exec")) return out.push_back(kExec);
  if (piece == "m0") return out.push_back(kM0);
  const int base = piece[0] == 'v' ? 0 : piece[0] == 'a' ? kFirstAgpr : kFirstSgpr;
  const int limit = base == kFirstSgpr ? kVcc - kFirstSgpr : 256;
  if (!has("vas", piece.substr(0, 1)) || piece.size() < 2) return;
  const bool range = piece[1] == '[';
  const char* at = piece.data() + (range ? 2 : 1);
  const char* end = piece.data() + piece.size();
  int first = 0, last = 0;
  auto parsed = std::from_chars(at, end, first);
  if (parsed.ec != std::errc()) return;
  last = first;
  if (range) {
    if (parsed.ptr == end || *parsed.ptr != ':') return;
    parsed = std::from_chars(parsed.ptr + 1, end, last);
    if (parsed.ec != std::errc()) return;
  }
  if (first < 0 || last >= limit) return;
  for (int i = first; i <= last; ++i) out.push_back(static_cast<uint16_t>(base + i));
}

// Instructions whose first operand is no destination.
bool writes_nothing(std::string_view name, std::string_view operands) {
  for (const std::string_view prefix :
       {"ds_write",      "ds_store",      "global_store",    "flat_store",  "buffer_store",
        "tbuffer_store", "scratch_store", "global_load_lds", "buffer_wbl2", "buffer_inv",
        "s_cmp",         "s_bitcmp",      "s_cbranch",       "s_branch",    "s_wait",
        "s_nop",         "s_set",         "s_sleep",         "s_barrier",   "s_endpgm",
        "s_sendmsg",     "s_delay_alu",   "s_clause",        "s_icache",    "s_dcache",
        "s_trap",        "s_code_end",    "s_inst_prefetch", "s_store",     "s_buffer_store",
        "v_nop",         "ds_nop",        "ds_gws"}) {
    if (starts(name, prefix)) return true;
  }
  if (starts(name, "buffer_load") && has(operands, " lds")) return true;
  if (has(name, "_atomic")) {
    return !has(operands, " glc") && !has(operands, " sc0") && !has(operands, "_RETURN");
  }
  const bool lds_atomic = starts(name, "ds_") && instruction_class(InstructionSet::amd, name) ==
                                                     std::string_view("lds_atomic");
  return lds_atomic && !has(name, "_rtn") && !starts(name, "ds_append") &&
         !starts(name, "ds_consume");
}

bool is_salu(std::string_view name) {
  return instruction_class(InstructionSet::amd, name) == std::string_view("salu");
}

// Scalar instructions that leave SCC alone; all the others of the scalar ALU set it.
bool keeps_scc(std::string_view name) {
  for (const std::string_view prefix :
       {"s_mov",     "s_cmov",  "s_cselect", "s_pack",   "s_mul_i32", "s_mul_hi",
        "s_mul_u64", "s_getpc", "s_bfm",     "s_brev",   "s_ff",      "s_flbit",
        "s_clz",     "s_ctz",   "s_sext",    "s_bitset", "s_cvt",     "s_mul_f",
        "s_add_f",   "s_sub_f", "s_min_f",   "s_max_f",  "s_fma"}) {
    if (starts(name, prefix)) return true;
  }
  return false;
}

void add_implicit(std::string_view name, Operands& out) {
  if (is_salu(name)) {
    if (!keeps_scc(name)) out.writes.push_back(kScc);
    for (const std::string_view prefix :
         {"s_addc", "s_subb", "s_cselect", "s_cmov", "s_add_co_ci", "s_sub_co_ci"}) {
      if (starts(name, prefix)) out.reads.push_back(kScc);
    }
    if (has(name, "saveexec") || has(name, "wrexec")) {
      out.reads.push_back(kExec);
      out.writes.push_back(kExec);
    }
    return;
  }
  if (starts(name, "s_cbranch_scc")) out.reads.push_back(kScc);
  if (starts(name, "s_cbranch_vcc")) out.reads.push_back(kVcc);
  if (starts(name, "s_cbranch_exec")) out.reads.push_back(kExec);
  if (starts(name, "s_")) return;
  out.reads.push_back(kExec);  // every vector and memory instruction of a wave
  if (has(name, "_lds") || starts(name, "v_movrel")) out.reads.push_back(kM0);
}

void add_one(std::string_view name, std::string_view operands, Operands& out) {
  const std::vector<std::string_view> all = pieces(operands);
  size_t destinations = writes_nothing(name, operands) ? 0 : 1;
  // A second destination: the carry, or the quotient's scale flag.
  if (has(name, "_co_") || starts(name, "v_div_scale") || starts(name, "v_mad_u64_u32") ||
      starts(name, "v_mad_i64_i32") || starts(name, "v_swap") || has(name, "_swap_b32")) {
    destinations = is_salu(name) ? destinations : 2;
  }
  const bool compare_exec = starts(name, "v_cmpx");
  if (compare_exec) {
    // gfx10 and newer print no destination, older ones VCC or a pair of SGPRs.
    const bool printed =
        !all.empty() && (starts(all[0], "vcc") || starts(all[0], "s[") || starts(all[0], "exec"));
    destinations = printed && all.size() > 2 ? 1 : 0;
    out.writes.push_back(kExec);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    add_registers(all[i], i < destinations ? out.writes : out.reads);
  }
  // Results that are added to, or exchanged with, what the register held.
  const bool also_reads = has(name, "fmac") || starts(name, "v_mac_") || has(name, "v_dot2c") ||
                          starts(name, "v_smfmac") || starts(name, "v_swmmac") ||
                          has(name, "_swap_b32") || starts(name, "v_swap");
  if (also_reads) {
    for (size_t i = 0; i < destinations && i < all.size(); ++i) add_registers(all[i], out.reads);
  }
  // Older listings leave the mask of a select unsaid.
  if (starts(name, "v_cndmask") && all.size() == 3) out.reads.push_back(kVcc);
  if (starts(name, "v_cmp") && !compare_exec && all.size() == 2) out.writes.push_back(kVcc);
}

}  // namespace

Operands operands_of(const ListedInstruction& instruction) {
  Operands out;
  std::string_view name = instruction.mnemonic, text = instruction.operands;
  // Two halves of a dual instruction: "v0, v1, v2 :: v_dual_mul_f32 v3, v4, v5".
  const size_t pair = text.find(" :: ");
  add_one(name, text.substr(0, pair), out);
  if (pair != text.npos) {
    const std::string_view second = trim(text.substr(pair + 4));
    const size_t space = second.find(' ');
    if (space != second.npos) {
      add_one(second.substr(0, space), trim(second.substr(space)), out);
    }
  }
  add_implicit(name, out);
  return out;
}

int bytes_per_lane(std::string_view name) {
  struct Row {
    std::string_view part;
    int bytes;
  };
  // The first part found wins, so longer ones stand first.
  constexpr Row kRows[] = {
      {"dwordx4", 16}, {"dwordx3", 12}, {"dwordx2", 8}, {"dword", 4}, {"b128", 16},  {"b96", 12},
      {"b64", 8},      {"u64", 8},      {"i64", 8},     {"f64", 8},   {"b32", 4},    {"u32", 4},
      {"i32", 4},      {"f32", 4},      {"pk_", 4},     {"short", 2}, {"ushort", 2}, {"sshort", 2},
      {"byte", 1},     {"d16_u8", 1},   {"d16_i8", 1},  {"u16", 2},   {"i16", 2},    {"b16", 2},
      {"f16", 2},      {"b8", 1},       {"u8", 1},      {"i8", 1},
  };
  // The transposing reads name their element first ("ds_read_b64_tr_b16"): the first width counts.
  size_t best = name.npos;
  int bytes = 0;
  for (const Row& row : kRows) {
    const size_t at = name.find(row.part);
    if (at < best) {
      best = at;
      bytes = row.bytes;
    }
  }
  const bool two = has(name, "read2") || has(name, "write2") || has(name, "_2addr");
  return two ? 2 * bytes : bytes;
}

}  // namespace hstu::jit::object
