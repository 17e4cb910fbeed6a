// SPDX-License-Identifier: Apache-2.0
#include "object/classify.hpp"

#include <span>

namespace hstu::jit::object {
namespace {

struct Rule {
  std::string_view prefix;
  const char* kind;
};

// The first prefix that fits wins, so a rule stands before the more general one it refines.
constexpr Rule kAmd[] = {
    {"v_mfma_", "matrix"},
    {"v_smfmac_", "matrix"},
    {"v_wmma_", "matrix"},
    {"v_swmmac_", "matrix"},
    {"v_accvgpr_", "agpr_move"},
    {"v_exp_", "transcendental"},
    {"v_log_", "transcendental"},
    {"v_rcp_", "transcendental"},
    {"v_rsq_", "transcendental"},
    {"v_sqrt_", "transcendental"},
    {"v_sin_", "transcendental"},
    {"v_cos_", "transcendental"},
    {"v_tanh_", "transcendental"},
    {"v_s_", "transcendental"},  // scalar results of the same unit, gfx12
    {"v_nop", "other"},
    {"v_", "valu"},
    {"ds_read", "lds_read"},
    {"ds_load", "lds_read"},
    {"ds_write", "lds_write"},
    {"ds_store", "lds_write"},
    {"ds_bpermute", "cross_lane"},
    {"ds_permute", "cross_lane"},
    {"ds_swizzle", "cross_lane"},
    {"ds_nop", "other"},
    {"ds_", "lds_atomic"},
    {"global_load", "global_read"},
    {"flat_load", "global_read"},
    {"buffer_load", "global_read"},
    {"tbuffer_load", "global_read"},
    {"image_load", "global_read"},
    {"global_store", "global_write"},
    {"flat_store", "global_write"},
    {"buffer_store", "global_write"},
    {"tbuffer_store", "global_write"},
    {"image_store", "global_write"},
    {"global_atomic", "global_atomic"},
    {"flat_atomic", "global_atomic"},
    {"buffer_atomic", "global_atomic"},
    {"scratch_", "scratch"},
    {"s_load", "scalar_memory"},
    {"s_buffer_load", "scalar_memory"},
    {"s_store", "scalar_memory"},
    {"s_buffer_store", "scalar_memory"},
    {"s_scratch", "scratch"},
    {"s_barrier", "barrier"},
    {"s_wait", "waitcnt"},
    {"s_branch", "branch"},
    {"s_cbranch", "branch"},
    {"s_setpc", "branch"},
    {"s_swappc", "branch"},
    {"s_call", "branch"},
    {"s_endpgm", "branch"},
    {"s_nop", "other"},
    {"s_sleep", "other"},
    {"s_set", "other"},  // s_setprio, s_setreg, s_set_inst_prefetch_distance
    {"s_getreg", "other"},
    {"s_delay_alu", "other"},
    {"s_clause", "other"},
    {"s_inst_prefetch", "other"},
    {"s_icache", "other"},
    {"s_dcache", "other"},
    {"s_gl1", "other"},
    {"s_sendmsg", "other"},
    {"s_trap", "other"},
    {"s_", "salu"},
};

constexpr Rule kNvidia[] = {
    {"HMMA", "matrix"},
    {"IMMA", "matrix"},
    {"DMMA", "matrix"},
    {"BMMA", "matrix"},
    {"QMMA", "matrix"},
    {"OMMA", "matrix"},
    {"HGMMA", "matrix"},
    {"IGMMA", "matrix"},
    {"QGMMA", "matrix"},
    {"BGMMA", "matrix"},
    {"UTCHMMA", "matrix"},
    {"UTCQMMA", "matrix"},
    {"UTCIMMA", "matrix"},
    {"UTCOMMA", "matrix"},
    {"MUFU", "transcendental"},
    {"LDGDEPBAR", "waitcnt"},
    {"DEPBAR", "waitcnt"},
    {"WARPGROUP", "waitcnt"},
    {"LDGSTS", "global_read"},  // global to shared
    {"LDG", "global_read"},
    {"LDSM", "lds_read"},
    {"LDS", "lds_read"},
    {"LDL", "scratch"},
    {"STL", "scratch"},
    {"LDC", "scalar_memory"},
    {"ULDC", "scalar_memory"},
    {"LD", "global_read"},
    {"UTMALDG", "global_read"},
    {"UBLKCP", "global_read"},
    {"UTMASTG", "global_write"},
    {"STS", "lds_write"},
    {"STG", "global_write"},
    {"ST", "global_write"},
    {"ATOMS", "lds_atomic"},
    {"ATOM", "global_atomic"},
    {"REDUX", "cross_lane"},
    {"RED", "global_atomic"},
    {"SHFL", "cross_lane"},
    {"MOVM", "cross_lane"},
    {"VOTE", "cross_lane"},
    {"BAR", "barrier"},
    {"SYNCS", "barrier"},
    {"MEMBAR", "barrier"},
    {"BRA", "branch"},
    {"BRX", "branch"},
    {"JMP", "branch"},
    {"CALL", "branch"},
    {"RET", "branch"},
    {"EXIT", "branch"},
    {"BSSY", "branch"},
    {"BSYNC", "branch"},
    {"BREAK", "branch"},
    {"WARPSYNC", "branch"},
    {"NOP", "other"},
    {"U", "salu"},  // the uniform data path
    {"", "valu"},
};

constexpr Rule kHost[] = {
    {"tdp", "matrix"},
    {"vdpbf16", "matrix"},
    {"vsqrt", "transcendental"},
    {"vdiv", "transcendental"},
    {"vrcp", "transcendental"},
    {"v", "valu"},
    {"j", "branch"},
    {"call", "branch"},
    {"ret", "branch"},
    {"nop", "other"},
    {"", "salu"},
};

const char* look_up(std::span<const Rule> rules, std::string_view mnemonic) {
  for (const Rule& rule : rules) {
    if (mnemonic.substr(0, rule.prefix.size()) == rule.prefix) return rule.kind;
  }
  return "other";
}

}  // namespace

const char* instruction_class(InstructionSet set, std::string_view mnemonic) {
  switch (set) {
    case InstructionSet::amd:
      return look_up(kAmd, mnemonic);
    case InstructionSet::nvidia:
      return look_up(kNvidia, mnemonic);
    case InstructionSet::host:
      return look_up(kHost, mnemonic);
  }
  return "other";
}

}  // namespace hstu::jit::object
