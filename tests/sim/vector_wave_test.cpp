// SPDX-License-Identifier: Apache-2.0
// Single instructions on a wave made by hand: what probes through assembled kernels do not reach,
// such as modes that compilers do not set, and what must be refused.
#include <cmath>
#include <string>

#include "catch.hpp"
#include "sim/isa/convert.hpp"
#include "sim/isa/decode.hpp"
#include "sim/workgroup.hpp"

namespace hstu::jit::sim {
namespace {

constexpr uint32_t kKeepDenormals = 0xf0, kFlushF32 = 0xc0;

// A wave of `target` with all registers zero.
struct Bench {
  Dispatch dispatch;
  KernelEntry kernel;
  std::unique_ptr<Tally> tally;
  std::unique_ptr<Workgroup> group;
  std::unique_ptr<Wave> wave;
  Instruction last;

  explicit Bench(const char* target, uint32_t mode = kKeepDenormals,
                 const RegisterCounts& registers = {256, 256, 106}) {
    const Machine& machine = *machine_of(target);
    dispatch.code = Code::empty(machine);
    kernel.wave_width = machine.cdna() ? 64 : 32;
    dispatch.kernel = &kernel;
    dispatch.grid = {1, 1, 1};
    dispatch.block = {static_cast<uint32_t>(kernel.wave_width), 1, 1};
    tally = std::make_unique<Tally>(0);
    group = std::make_unique<Workgroup>(dispatch, *tally);
    wave = std::make_unique<Wave>(*group, 0, kernel.wave_width);
    wave->reset(~uint64_t{0}, mode, registers);
    for (int r = 0; r < kVectorRegisters; ++r) set(r, 0);
  }
  void set(int r, uint32_t value) {
    for (uint32_t& x : wave->preset_vector(r).lane) x = value;
  }
  uint32_t get(int r, int lane = 0) { return wave->preset_vector(r).lane[lane]; }
  // The fault, or nothing.
  std::string run(const std::string& mnemonic, const std::string& operands) {
    last = decode_line(mnemonic, operands, wave->machine());
    wave->set_current(last);
    last.execute(*wave, last);
    return wave->fault();
  }
};

TEST_CASE("simulator: MODE says whether denormals of f32 are kept") {
  for (const uint32_t mode : {kKeepDenormals, kFlushF32}) {
    Bench b("gfx90a", mode);
    const bool keeps = mode == kKeepDenormals;
    b.set(1, to_bits(0x1p-130f));
    b.set(2, to_bits(0x1p-100f));
    b.set(3, to_bits(1.0f));
    CHECK(b.run("v_mul_f32_e32", "v4, v1, v3") == "");
    CHECK(b.get(4) == to_bits(keeps ? 0x1p-130f : 0.0f));
    b.run("v_mul_f32_e64", "v4, -v2, v2");  // a denormal result would be below the least one
    CHECK(b.get(4) == 0x80000000u);
    b.set(2, to_bits(0x1p-70f));
    b.run("v_mul_f32_e64", "v4, -v2, v2");
    CHECK(b.get(4) == (keeps ? to_bits(-0x1p-140f) : 0x80000000u));
    // Never flushed: moves and selects; always: transcendental functions.
    b.run("v_mov_b32_e32", "v4, v1");
    CHECK(b.get(4) == to_bits(0x1p-130f));
    b.set(2, to_bits(-130.0f));
    b.run("v_exp_f32_e32", "v4, v2");
    CHECK(b.get(4) == 0);
    b.run("v_rcp_f32_e32", "v4, v1");
    CHECK(b.get(4) == to_bits(INFINITY));
  }
}

TEST_CASE("simulator: rounding modes that are not simulated are refused") {
  Bench b("gfx942", kKeepDenormals | 3);  // f32 towards zero
  CHECK(b.run("v_and_b32_e32", "v4, v1, v2") == "");
  CHECK_THAT(b.run("v_add_f32_e32", "v4, v1, v2"), ContainsSubstring("rounding mode"));
}

TEST_CASE("simulator: multiply-add without fusion rounds twice") {
  Bench b("gfx908");
  const float x = 1.0f + 0x1p-12f;
  b.set(1, to_bits(x));
  b.set(2, to_bits(-(1.0f + 0x1p-11f)));
  b.run("v_mad_f32", "v3, v1, v1, v2");
  CHECK(b.get(3) == 0);  // the product, rounded, is 1 + 2^-11
  b.run("v_fma_f32", "v3, v1, v1, v2");
  CHECK(b.get(3) == to_bits(0x1p-24f));
}

TEST_CASE("simulator: 16-bit results and the other half of the register") {
  const uint32_t old = 0xabcd1234u;
  for (const char* target : {"gfx90a", "gfx1100"}) {
    Bench b(target);
    const bool zeroes = b.wave->machine().cdna();
    b.set(1, 0x3c00);  // 1.0
    b.set(2, old);
    b.run("v_add_f16_e64", "v2, v1, v1");
    CHECK(b.get(2) == (zeroes ? 0x4000u : 0xabcd4000u));
    b.set(2, old);
    b.run("v_fma_f16", "v2, v1, v1, v1");
    CHECK(b.get(2) == 0xabcd4000u);
    b.set(2, old);
    b.run("v_fma_f16", "v2, v1, v1, v1 op_sel:[0,0,0,1]");
    CHECK(b.get(2) == 0x40001234u);
    b.set(2, old);
    b.run("v_fma_mixhi_f16", "v2, v1, v1, v1 op_sel_hi:[1,1,1]");
    CHECK(b.get(2) == 0x40001234u);
  }
  Bench b("gfx1100");
  b.set(1, 0x3c004400);  // 1.0, 4.0
  b.set(2, old);
  CHECK(b.run("v_add_f16_e32", "v2.h, v1.l, v1.h") == "");
  CHECK(b.get(2) == 0x45001234u);
}

TEST_CASE("simulator: halves of dual-issued pairs read before either writes") {
  Bench b("gfx1100");
  b.set(1, 11);
  b.set(2, 22);
  CHECK(b.run("v_dual_mov_b32", "v1, v2 :: v_dual_mov_b32 v2, v1") == "");
  CHECK(b.get(1) == 22);
  CHECK(b.get(2) == 11);
}

TEST_CASE("simulator: matrix instructions with 16-bit sources lose denormals on gfx90a") {
  const uint32_t denormal = 0x0001, one = 0x3c00;
  for (const char* target : {"gfx908", "gfx90a"}) {
    Bench b(target);
    b.set(0, denormal | denormal << 16);
    b.set(1, denormal | denormal << 16);
    b.set(2, one | one << 16);
    b.set(3, one | one << 16);
    CHECK(b.run("v_mfma_f32_32x32x8f16", "v[8:23], v[0:1], v[2:3], 0") == "");
    CHECK(b.get(8) == to_bits(b.wave->gfx() == 0x90a ? 0.0f : 8 * 0x1p-24f));
  }
}

TEST_CASE("simulator: matrix instructions ignore EXEC and refuse what is wrong") {
  Bench b("gfx942");
  const uint32_t one = 0x3c003c00;
  for (const int r : {0, 1, 2, 3}) b.set(r, one);
  b.wave->set_exec(1);
  CHECK(b.run("v_mfma_f32_32x32x8_f16", "v[8:23], v[0:1], v[2:3], 1.0") == "");
  for (const int lane : {0, 31, 32, 63}) CHECK(b.get(8, lane) == to_bits(9.0f));
  CHECK_THAT(b.run("v_mfma_f32_32x32x16_f16", "v[8:23], v[0:3], v[0:3], 0"),
             ContainsSubstring("no such matrix instruction"));
  Bench narrow("gfx942");
  CHECK_THAT(narrow.run("v_mfma_f32_32x32x8_f16", "v[8:23], v[0:3], v[2:3], 0"),
             ContainsSubstring("should be 2 vector registers"));
  Bench shared("gfx942");  // one block has none to share with
  CHECK_THAT(shared.run("v_mfma_f32_32x32x8_f16", "v[8:23], v[0:1], v[2:3], 0 cbsz:1 abid:1"),
             ContainsSubstring("cbsz"));
}

TEST_CASE("simulator: registers past those of the kernel are faults") {
  const auto fault = [](const char* target, const char* mnemonic, const char* operands) {
    Bench b(target, kKeepDenormals, {24, 8, 32});
    b.wave->preset_scalar(kM0, 40);
    return b.run(mnemonic, operands);
  };
  // The last of each file, and the named scalar ones.
  CHECK(fault("gfx90a", "v_add_f32_e32", "v23, v22, v23") == "");
  CHECK(fault("gfx90a", "v_accvgpr_mov_b32", "a7, a6") == "");
  CHECK(fault("gfx90a", "s_mov_b64", "s[30:31], vcc") == "");
  CHECK(fault("gfx90a", "s_mov_b64", "flat_scratch, exec") == "");
  CHECK(fault("gfx1100", "s_mov_b64", "s[104:105], vcc") == "");
  struct Row {
    const char *mnemonic, *operands, *want;
  };
  const Row rows[] = {
      {"v_mov_b32_e32", "v24, v0", "v24 is overwritten, but the kernel has 24 vector registers"},
      {"v_mov_b32_e32", "v0, v24", "v24 is read, but the kernel has 24 vector registers"},
      {"v_add_f64", "v[0:1], v[22:23], v[24:25]", "v24 is read"},
      {"v_accvgpr_write_b32", "a8, v0", "a8 is overwritten, but the kernel has 8 accumulation"},
      {"v_accvgpr_read_b32", "v0, a255", "a255 is read"},
      {"v_mfma_f32_32x32x8f16", "v[8:23], v[24:25], v[2:3], 0", "v24 is read"},
      {"v_mfma_f32_32x32x8f16", "a[0:15], v[0:1], v[2:3], 0", "a8 is overwritten"},
      {"v_readlane_b32", "s0, v255, 3", "v255 is read"},
      {"v_readfirstlane_b32", "s32, v0", "s32 is overwritten, but the kernel has 32 scalar"},
      {"v_writelane_b32", "v100, s0, 3", "v100 is overwritten"},
      {"v_swap_b32", "v0, v30", "v30 is read"},
      {"v_cmp_eq_u32_e64", "s[32:33], v0, v1", "s32 is overwritten"},
      {"s_mov_b32", "s0, s32", "s32 is read"},
      {"s_mov_b64", "s[30:31], s[32:33]", "s32 is read"},
      {"s_add_u32", "s101, s0, s1", "s101 is overwritten"},
      {"s_movrels_b32", "s0, s2", "s42 is read"},
      {"s_memtime", "s[32:33]", "s32 is overwritten"},
  };
  for (const Row& row : rows) {
    INFO(row.mnemonic << " " << row.operands);
    CHECK_THAT(fault("gfx90a", row.mnemonic, row.operands), ContainsSubstring(row.want));
  }
  // Operands that run past the file: no disassembler prints them, nothing else may be touched.
  for (const char* operands : {"v[8:23], a[254:255], v[2:3], 0", "a[250:255], v[0:1], v[2:3], 0"}) {
    CHECK(fault("gfx90a", "v_mfma_f32_32x32x8f16", operands) != "");
  }
}

TEST_CASE("simulator: barriers of gfx12 other than the workgroup's are refused") {
  for (const char* mnemonic : {"s_barrier_signal", "s_barrier_wait"}) {
    for (const char* number : {"1", "0", "-2", "-3", "0xfffe", "m0"}) {
      Bench b("gfx1201");
      INFO(mnemonic << " " << number);
      CHECK_THAT(b.run(mnemonic, number), ContainsSubstring("named barriers"));
    }
  }
  Bench b("gfx1201");
  CHECK(b.run("s_barrier_signal", "-1") == "");
  CHECK(b.run("s_barrier_wait", "0xffff") == "");
  CHECK(b.wave->at_barrier);
}

TEST_CASE("simulator: hardware registers whose value is not known are refused") {
  const auto fault = [](const char* target, const char* mnemonic, const char* operands) {
    Bench b(target);
    return b.run(mnemonic, operands);
  };
  CHECK(fault("gfx90a", "s_getreg_b32", "s0, hwreg(HW_REG_MODE)") == "");
  CHECK(fault("gfx90a", "s_getreg_b32", "s0, hwreg(HW_REG_HW_ID, 0, 4)") == "");
  CHECK(fault("gfx942", "s_getreg_b32", "s0, hwreg(HW_REG_XCC_ID)") == "");
  CHECK(fault("gfx1100", "s_getreg_b32", "s0, hwreg(HW_REG_HW_ID1)") == "");
  CHECK(fault("gfx1201", "s_getreg_b32", "s0, hwreg(HW_REG_SHADER_CYCLES_HI)") == "");
  CHECK(fault("gfx1201", "s_setreg_imm32_b32", "hwreg(HW_REG_WAVE_SCHED_MODE, 0, 2), 2") == "");
  for (const char* operands : {"s0, hwreg(HW_REG_STATUS)", "s0, hwreg(HW_REG_TRAPSTS, 0, 8)",
                               "s0, hwreg(HW_REG_LDS_ALLOC)", "s0, hwreg(63)", "s0, hwreg(0)"}) {
    INFO(operands);
    CHECK_THAT(fault("gfx90a", "s_getreg_b32", operands), ContainsSubstring("not simulated"));
  }
  // Numbers that mean another register elsewhere.
  CHECK_THAT(fault("gfx90a", "s_getreg_b32", "s0, hwreg(20)"), ContainsSubstring("register 20"));
  CHECK_THAT(fault("gfx1100", "s_getreg_b32", "s0, hwreg(4)"), ContainsSubstring("register 4"));
  CHECK_THAT(fault("gfx1100", "s_getreg_b32", "s0, hwreg(20)"), ContainsSubstring("register 20"));
  CHECK_THAT(fault("gfx90a", "s_setreg_b32", "hwreg(HW_REG_STATUS), s0"),
             ContainsSubstring("writes hardware register 2"));
  Bench b("gfx90a");
  CHECK(b.run("s_setreg_imm32_b32", "hwreg(HW_REG_MODE, 4, 2), 1") == "");
  CHECK(b.wave->mode() == ((kKeepDenormals & ~0x30u) | 0x10));
}

// As the assembler of LLVM encodes them: "vmcnt(3) lgkmcnt(2)" and the like.
TEST_CASE("simulator: a wait whose counts are printed as a number has the target's layout") {
  struct Row {
    const char *target, *number;
    uint32_t vm, lgkm;
  };
  const Row rows[] = {
      {"gfx90a", "0xc273", 51, 2},      {"gfx90a", "0xcf7f", kNoWait, kNoWait},
      {"gfx942", "0x0", 0, 0},          {"gfx942", "0x70", 0, 0},
      {"gfx942", "0xc07f", kNoWait, 0}, {"gfx908", "0xf73", 3, kNoWait},
      {"gfx1100", "0xc27", 3, 2},       {"gfx1100", "0xfff7", kNoWait, kNoWait},
      {"gfx1100", "0x3f7", 0, kNoWait}, {"gfx1100", "0xfc07", kNoWait, 0},
      {"gfx1100", "64519", kNoWait, 0}, {"gfx1100", "0x7", 0, 0},
  };
  for (const Row& row : rows) {
    INFO(row.target << " " << row.number);
    const Instruction i = decode_line("s_waitcnt", row.number, *machine_of(row.target));
    CHECK(i.problem == "");
    CHECK((i.operand[0].bits >> kVmShift & 0xff) == row.vm);
    CHECK((i.operand[0].bits >> kLgkmShift & 0xff) == row.lgkm);
  }
  for (const char* odd : {"0x10000", "-1", "vmcnt", "vmcnt(64)", "vmcnt(0", "some(1)", ""}) {
    INFO(odd);
    CHECK(decode_line("s_waitcnt", odd, *machine_of("gfx90a")).problem != "");
  }
}

// No disassembler prints these; a damaged listing must end in a fault, not elsewhere in memory.
TEST_CASE("simulator: operands and modifiers out of range are refused") {
  struct Row {
    const char *mnemonic, *operands;
  };
  const Row rows[] = {
      {"v_mov_b32_dpp", "v1, v2 row_shl:16"},
      {"v_mov_b32_dpp", "v1, v2 row_shr:-1"},
      {"v_mov_b32_dpp", "v1, v2 row_mirror:1"},
      {"v_mov_b32_dpp", "v1, v2 quad_perm:3"},
      {"v_mov_b32_dpp", "v1, v2 quad_perm:[0,1,2]"},
      {"v_mov_b32_dpp", "v1, v2 quad_perm:[0,1,2,3,0]"},
      {"v_mov_b32_dpp", "v1, v2 dpp8:[0,1,2,3,4,5,6]"},
      {"v_mov_b32_dpp", "v1, v2 row_shl:1 row_mask:0x10"},
      {"v_mfma_f32_32x32x8f16", "v[8:23], v[0:1], v[2:3], 0 cbsz:256"},
      {"v_mfma_f32_32x32x8f16", "v[8:23], v[0:1], v[2:3], 0 blgp:8"},
      {"ds_swizzle_b32", "v1, v2 offset:swizzle(SWAP,9223372036854775807)"},
      {"ds_swizzle_b32", "v1, v2 offset:swizzle(QUAD_PERM,1,2,3,4,5)"},
      {"ds_read_b32", "v1, v2 offset:4294967296"},
      {"ds_read2_b32", "v[2:3], v1 offset0:256"},
      {"v_cmp_eq_u32", "v1"},
      {"v_cmp_eq_u32", ""},
      {"v_cmp_class_f32", "v1"},
      {"s_mov_b32", "v255, s0"},
      {"s_mov_b64", "s[0:1], a[254:255]"},
      {"s_buffer_load_dword", "s0, a[252:255], 0x0"},
      {"v_readlane_b32", "a255, v0, 0"},
  };
  for (const Row& row : rows) {
    Bench b("gfx90a");
    INFO(row.mnemonic << " " << row.operands);
    CHECK(b.run(row.mnemonic, row.operands) != "");
  }
}

// Sums of products of either sign, small and past 32 bits.
TEST_CASE("simulator: integer dot products clamp exact sums") {
  Bench b("gfx90a");
  b.set(1, 0x80808080u);  // four times -128
  b.set(2, 0x7f7f7f7fu);
  b.set(3, 0x80000000u);
  b.set(4, 0x7fffffffu);
  const auto result = [&](const char* mnemonic, const char* operands) {
    CHECK(b.run(mnemonic, operands) == "");
    return b.get(5);
  };
  CHECK(result("v_dot4_i32_i8", "v5, v1, v2, 0") == static_cast<uint32_t>(-4 * 128 * 127));
  CHECK(result("v_dot4_i32_i8", "v5, v1, v2, 0 clamp") == static_cast<uint32_t>(-4 * 128 * 127));
  CHECK(result("v_dot4_i32_i8", "v5, v1, v1, 0 clamp") == 4 * 128 * 128);
  CHECK(result("v_dot4_i32_i8", "v5, v1, v2, v3 clamp") == 0x80000000u);
  CHECK(result("v_dot4_i32_i8", "v5, v1, v1, v4 clamp") == 0x7fffffffu);
  CHECK(result("v_dot4_u32_u8", "v5, v1, v1, 0 clamp") == 4 * 128 * 128);
  CHECK(result("v_dot4_u32_u8", "v5, v1, v1, -1 clamp") == 0xffffffffu);
  b.set(1, 0x80008000u);
  CHECK(result("v_dot2_i32_i16", "v5, v1, v1, 0 clamp") == 0x7fffffffu);
  b.set(2, 0x7fff7fffu);
  CHECK(result("v_dot2_i32_i16", "v5, v1, v2, 0 clamp") == static_cast<uint32_t>(-2147418112));
}

TEST_CASE("simulator: extra results and global data share are refused, not ignored") {
  Bench b("gfx90a");
  CHECK_THAT(b.run("buffer_load_dword", "v1, off, s[4:7], 0 tfe"), ContainsSubstring("tfe"));
  Bench other("gfx90a");
  CHECK_THAT(other.run("ds_write_b32", "v1, v2 gds"), ContainsSubstring("gds"));
}

TEST_CASE("simulator: WMMA of gfx11 wants its operands in both halves of the wave") {
  const char* operands = "v[16:23], v[0:7], v[8:15], 0";
  Bench good("gfx1100");
  for (int r = 0; r < 16; ++r) good.set(r, 0x3c003c00);
  CHECK(good.run("v_wmma_f32_16x16x16_f16", operands) == "");
  CHECK(good.get(16, 5) == to_bits(16.0f));
  Bench bad("gfx1100");
  for (int r = 0; r < 16; ++r) bad.set(r, 0x3c003c00);
  bad.wave->preset_vector(9).lane[20] = 0x3c004000;
  CHECK_THAT(bad.run("v_wmma_f32_16x16x16_f16", operands), ContainsSubstring("both halves"));
}

TEST_CASE("simulator: lanes that are off keep their values and their carries are zero") {
  Bench b("gfx90a");
  b.wave->set_exec(0x5);
  b.wave->write_vcc(~uint64_t{0});
  b.set(1, 0xffffffffu);
  b.set(2, 1);
  b.set(3, 77);
  CHECK(b.run("v_add_co_u32_e32", "v3, vcc, v1, v2") == "");
  CHECK(b.get(3, 0) == 0);
  CHECK(b.get(3, 1) == 77);
  CHECK(b.wave->vcc() == 0x5);
  b.run("v_cmp_eq_u32_e32", "vcc, v1, v1");
  CHECK(b.wave->vcc() == 0x5);
}

}  // namespace
}  // namespace hstu::jit::sim
