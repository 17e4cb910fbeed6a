// SPDX-License-Identifier: Apache-2.0
// The vector and matrix tables as tables: what kernels use is there, nothing is there twice.
#include <map>
#include <string>

#include "catch.hpp"
#include "sim/isa/matrix.hpp"
#include "sim/isa/tables.hpp"

namespace hstu::jit::sim {
namespace {

// Vector instructions of the attention kernels for gfx908, gfx90a, gfx942, gfx950, gfx1100 and
// gfx1201, by three compilers, and common ones of other HIP code; encoding suffixes removed.
constexpr const char* kUsed[] = {
    "v_accvgpr_read_b32",
    "v_accvgpr_write_b32",
    "v_add3_u32",
    "v_add_co_ci_u32",
    "v_add_co_u32",
    "v_add_f32",
    "v_add_f64",
    "v_add_lshl_u32",
    "v_add_nc_u32",
    "v_add_u16",
    "v_add_u32",
    "v_addc_co_u32",
    "v_alignbit_b32",
    "v_and_b32",
    "v_and_or_b32",
    "v_ashrrev_i16",
    "v_ashrrev_i32",
    "v_bfe_i32",
    "v_bfe_u32",
    "v_bfi_b32",
    "v_bfrev_b32",
    "v_bitop3_b32",
    "v_cmp_class_f32",
    "v_cmp_eq_u32",
    "v_cmp_ge_i32",
    "v_cmp_gt_f32",
    "v_cmp_gt_i32",
    "v_cmp_gt_u32",
    "v_cmp_le_i32",
    "v_cmp_le_u32",
    "v_cmp_lt_f32",
    "v_cmp_lt_i32",
    "v_cmp_lt_u32",
    "v_cmp_ne_u16",
    "v_cmp_ne_u32",
    "v_cmp_neq_f32",
    "v_cmpx_gt_i32",
    "v_cmpx_gt_u32",
    "v_cndmask_b32",
    "v_cvt_f16_f32",
    "v_cvt_f32_f64",
    "v_cvt_f32_u32",
    "v_cvt_f64_f32",
    "v_cvt_pk_bf16_f32",
    "v_cvt_pk_f16_f32",
    "v_cvt_pk_rtz_f16_f32",
    "v_cvt_pkrtz_f16_f32",
    "v_cvt_u32_f32",
    "v_div_fixup_f32",
    "v_div_fixup_f64",
    "v_div_fmas_f32",
    "v_div_fmas_f64",
    "v_div_scale_f32",
    "v_div_scale_f64",
    "v_dot2_f32_bf16",
    "v_dot2_f32_f16",
    "v_exp_f32",
    "v_floor_f32",
    "v_fma_f32",
    "v_fma_f64",
    "v_fma_mix_f32",
    "v_fma_mixhi_f16",
    "v_fma_mixlo_f16",
    "v_fmac_f32",
    "v_fract_f32",
    "v_frexp_exp_i32_f32",
    "v_frexp_mant_f32",
    "v_ldexp_f32",
    "v_log_f32",
    "v_lshl_add_u32",
    "v_lshl_add_u64",
    "v_lshl_or_b32",
    "v_lshlrev_b32",
    "v_lshlrev_b64",
    "v_lshrrev_b32",
    "v_mad_co_u64_u32",
    "v_mad_u32_u24",
    "v_mad_u64_u32",
    "v_max3_i32",
    "v_max_i32",
    "v_max_num_f32",
    "v_mbcnt_hi_u32_b32",
    "v_mbcnt_lo_u32_b32",
    "v_med3_f32",
    "v_med3_i32",
    "v_mfma_f32_16x16x32_bf16",
    "v_mfma_f32_16x16x32_f16",
    "v_mfma_f32_32x32x16_bf16",
    "v_mfma_f32_32x32x16_f16",
    "v_mfma_f32_32x32x4bf16",
    "v_mfma_f32_32x32x8_bf16",
    "v_mfma_f32_32x32x8_f16",
    "v_mfma_f32_32x32x8bf16_1k",
    "v_mfma_f32_32x32x8f16",
    "v_min3_i32",
    "v_min_i32",
    "v_min_num_f32",
    "v_minmax_i32",
    "v_mov_b16",
    "v_mov_b32",
    "v_mov_b64",
    "v_mul_f32",
    "v_mul_hi_u32",
    "v_mul_lo_u32",
    "v_mul_u32_u24",
    "v_not_b32",
    "v_or3_b32",
    "v_or_b32",
    "v_pack_b32_f16",
    "v_perm_b32",
    "v_permlane16_swap_b32",
    "v_permlane32_swap_b32",
    "v_permlanex16_b32",
    "v_pk_add_f16",
    "v_pk_add_f32",
    "v_pk_fma_f32",
    "v_pk_mov_b32",
    "v_pk_mul_f16",
    "v_pk_mul_f32",
    "v_pk_mul_lo_u16",
    "v_rcp_f32",
    "v_rcp_f64",
    "v_rcp_iflag_f32",
    "v_readfirstlane_b32",
    "v_readlane_b32",
    "v_rndne_f32",
    "v_rsq_f32",
    "v_s_exp_f32",
    "v_sqrt_f32",
    "v_sub_f32",
    "v_sub_nc_u32",
    "v_sub_u32",
    "v_subrev_nc_u32",
    "v_subrev_u32",
    "v_swap_b32",
    "v_trunc_f32",
    "v_wmma_f32_16x16x16_bf16",
    "v_wmma_f32_16x16x16_f16",
    "v_writelane_b32",
    "v_xad_u32",
    "v_xor_b32",
};

std::map<std::string, int> lines_of_vector_tables() {
  std::map<std::string, int> lines;
  for (const auto table :
       {vector_float_opcodes(), vector_integer_opcodes(), vector_compare_opcodes(),
        vector_packed_opcodes(), cross_lane_opcodes(), matrix_opcodes()}) {
    for (const Opcode& opcode : table) ++lines[opcode.mnemonic];
  }
  return lines;
}

TEST_CASE("simulator: the vector tables have what kernels use, once each") {
  const auto lines = lines_of_vector_tables();
  for (const char* name : kUsed) {
    INFO(name);
    CHECK(lines.count(name) == 1);
  }
  for (const auto& [name, count] : lines) {
    INFO(name);
    CHECK(count == 1);
    CHECK(name.substr(0, 2) == "v_");
    CHECK(find_opcode(name) != nullptr);
  }
  CHECK(lines.size() > 650);
  CHECK(find_opcode("v_no_such_f32") == nullptr);
}

TEST_CASE("simulator: constants are encoded for the widest source") {
  const auto constants = [](const char* name) { return find_opcode(name)->constants; };
  CHECK(constants("v_add_f32") == ConstantType::f32);
  CHECK(constants("v_exp_f32") == ConstantType::f32);
  CHECK(constants("v_add_f16") == ConstantType::f16);
  CHECK(constants("v_fma_f64") == ConstantType::f64);
  CHECK(constants("v_lshlrev_b64") == ConstantType::b64);
  CHECK(constants("v_mad_u64_u32") == ConstantType::b64);
  CHECK(constants("v_and_b32") == ConstantType::b32);
  CHECK(constants("v_cndmask_b32") == ConstantType::b32);
  CHECK(constants("v_pk_add_f16") == ConstantType::packed16_f);
  CHECK(constants("v_pk_add_u16") == ConstantType::packed16_i);
  CHECK(constants("v_cmp_lt_f64") == ConstantType::f64);
  CHECK(constants("v_cmp_lt_u64") == ConstantType::b64);
}

}  // namespace
}  // namespace hstu::jit::sim
