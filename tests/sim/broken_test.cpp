// SPDX-License-Identifier: Apache-2.0
// Kernels broken on purpose are caught with a message that says where; their correct twins run.
#include <fmt/format.h>

#include <algorithm>

#include "catch.hpp"
#include "gpu.hpp"
#include "probe.hpp"
#include "values.hpp"

namespace hstu::test {
namespace {

constexpr const char* kTargets[] = {"gfx90a", "gfx942", "gfx1100", "gfx1201"};

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
  return text;
}

// "$wait" and friends for bodies that are not probes; "$barrier" waits for all waves.
std::string body(const std::string& target, std::string code) {
  const bool gfx12 = is_gfx12(target), wave32 = is_wave32(target);
  code = replaced(code, "$barrier", gfx12 ? "s_barrier_signal -1; s_barrier_wait -1" : "s_barrier");
  code = replaced(code, "$load_wait", gfx12 ? "s_wait_loadcnt 0x0" : "s_waitcnt vmcnt(0)");
  code = replaced(code, "$one_load_wait", gfx12 ? "s_wait_loadcnt 0x1" : "s_waitcnt vmcnt(1)");
  code = replaced(code, "$lds_wait", gfx12 ? "s_wait_dscnt 0x0" : "s_waitcnt lgkmcnt(0)");
  code = replaced(code, "$scalar_wait", gfx12 ? "s_wait_kmcnt 0x0" : "s_waitcnt lgkmcnt(0)");
  code = replaced(code, "$wave_bytes", wave32 ? "0x80" : "0x100");
  code = replaced(code, "$group", gfx12 ? "ttmp9" : "s2");
  return "  " + replaced(code, "; ", "\n  ");
}

// s[4:5] and s[6:7]: the two buffers; v0: the work-item; v1: 4 * v0.
const std::string kBegin =
    "s_load_dwordx4 s[4:7], s[0:1], 0x0; v_and_b32 v0, 0x3ff, v0; v_lshlrev_b32 v1, 2, v0; "
    "$scalar_wait; ";

class Broken {
 public:
  explicit Broken(const std::string& target) : machine(target) {
    in = machine.upload(std::vector<uint32_t>(512, 3));
    out = machine.upload(std::vector<uint32_t>(512, 0));
    form.lds = 2048;
    form.arguments = 16;
  }
  std::string run(const std::string& code, unsigned threads = 64, unsigned groups = 2) {
    const auto object = assemble(machine.target(), body(machine.target(), kBegin + code), form);
    REQUIRE(object.has_value());
    Shape shape;
    shape.grid[0] = groups, shape.block[0] = threads;
    return machine.launch(*object, "probe", shape, Arguments().add(in).add(out));
  }
  Machine machine;
  KernelForm form;
  uint64_t in = 0, out = 0;
};

void check_caught(const std::string& fault, const std::vector<std::string>& words) {
  INFO(fault);
  CHECK(fault != "");
  CHECK(fault.find('\n') == std::string::npos);
  CHECK(fault.find("probe") != std::string::npos);
  CHECK(fault.find("workgroup") != std::string::npos);
  for (const std::string& word : words) {
    INFO("missing: " << word);
    CHECK(fault.find(word) != std::string::npos);
  }
}

unsigned two_waves(const std::string& target) { return is_wave32(target) ? 64 : 128; }

}  // namespace

TEST_CASE("simulator: a missing barrier is caught") {
  for (const char* target : kTargets) {
    if (!can_probe(target, "missing barrier")) continue;
    Broken b(target);
    const std::string write = "ds_write_b32 v1, v0; $lds_wait; ",
                      read = "v_xor_b32 v2, $wave_bytes, v1; ds_read_b32 v3, v2; $lds_wait; ",
                      store = "global_store_dword v1, v3, s[6:7]";
    CHECK(b.run(write + "$barrier; " + read + store, two_waves(target)) == "");
    check_caught(b.run(write + read + store, two_waves(target)), {"ds_"});
    // Overwriting what the other wave still reads.
    const std::string own = "ds_read_b32 v3, v1; $lds_wait; ",
                      other = "ds_write_b32 v2, v0; $lds_wait; ";
    CHECK(b.run(write + "$barrier; " + read + "$barrier; " + other + store, two_waves(target)) ==
          "");
    check_caught(b.run(write + "$barrier; " + own + read + other + store, two_waves(target)),
                 {"ds_"});
    // Within one wave no barrier is needed.
    CHECK(b.run(write + "v_xor_b32 v2, 8, v1; ds_read_b32 v3, v2; $lds_wait; " + store,
                two_waves(target)) == "");
  }
}

TEST_CASE("simulator: a missing wait is caught") {
  for (const char* target : kTargets) {
    if (!can_probe(target, "missing wait")) continue;
    Broken b(target);
    const std::string load = "global_load_dword v2, v1, s[4:5]; ",
                      use = "v_mov_b32 v3, v2; global_store_dword v1, v3, s[6:7]";
    CHECK(b.run(load + "$load_wait; " + use) == "");
    check_caught(b.run(load + use), {"v_mov_b32", "v2"});
    check_caught(b.run(load + "$lds_wait; " + use), {"v_mov_b32"});
    // Two loads in flight, one of them waited for.
    const std::string two = load + "global_load_dword v4, v1, s[4:5] offset:4; $one_load_wait; ";
    CHECK(b.run(two + use) == "");
    check_caught(b.run(two + "v_mov_b32 v3, v4; global_store_dword v1, v3, s[6:7]"),
                 {"v_mov_b32", "v4"});
    // Stored straight from the register that a load is on its way to.
    check_caught(b.run(load + "global_store_dword v1, v2, s[6:7]"), {"global_store_"});
    const std::string lds = "ds_write_b32 v1, v0; $lds_wait; ds_read_b32 v2, v1; ";
    CHECK(b.run(lds + "$lds_wait; " + use) == "");
    check_caught(b.run(lds + use), {"v_mov_b32", "v2"});
    check_caught(b.run(lds + "$load_wait; " + use), {"v_mov_b32"});
    const std::string scalar = "s_load_dword s20, s[4:5], 0x0; ",
                      use_scalar = "v_mov_b32 v3, s20; global_store_dword v1, v3, s[6:7]";
    CHECK(b.run(scalar + "$scalar_wait; " + use_scalar) == "");
    check_caught(b.run(scalar + use_scalar), {"v_mov_b32", "s20"});
  }
}

TEST_CASE("simulator: loads to LDS that are not waited for are caught") {
  if (!can_probe("gfx942", "loads to LDS")) return;
  Broken b("gfx942");
  const std::string load = "s_mov_b32 m0, 0; global_load_lds_dword v1, s[4:5]; ",
                    read = "ds_read_b32 v3, v1; $lds_wait; global_store_dword v1, v3, s[6:7]";
  CHECK(b.run(load + "$load_wait; " + read) == "");
  check_caught(b.run(load + read), {"ds_read_b32", "wait"});
  check_caught(b.run(load + "$lds_wait; " + read), {"ds_read_b32", "wait"});
  // A barrier is no wait.
  check_caught(b.run(load + "$barrier; " + read), {"ds_read_b32", "wait"});
  CHECK(b.run(load + "$barrier; $load_wait; " + read) == "");
  // Written over before it arrives.
  check_caught(b.run(load + "ds_write_b32 v1, v0; " + read), {"ds_write_b32", "wait"});
}

TEST_CASE("simulator: global accesses outside buffers are caught") {
  for (const char* target : kTargets) {
    if (!can_probe(target, "global bounds")) continue;
    Broken b(target);
    const auto load_from = [&](const std::string& offset) {
      return "v_mov_b32 v2, 0; v_cmp_eq_u32_e32 vcc" + std::string(is_wave32(target) ? "_lo" : "") +
             ", 5, v0; v_mov_b32 v4, " + offset + "; v_cndmask_b32 v2, v2, v4, vcc" +
             (is_wave32(target) ? "_lo" : "") +
             "; global_load_dword v3, v2, s[4:5]; $load_wait; global_store_dword v1, v3, s[6:7]";
    };
    // The last dword, and past it by a byte and by all; lane 5 alone is wrong. (Offsets below the
    // base go through the immediate: the register offset is unsigned.)
    CHECK(b.run(load_from("0x7fc")) == "");
    check_caught(b.run(load_from("0x7fd")), {"global_load_", "lane 5"});
    check_caught(b.run(load_from("0x800")), {"global_load_", "lane 5"});
    // Far away; a little further than the buffer another one may begin.
    check_caught(b.run(load_from("0x50000000")), {"global_load_", "lane 5"});
    check_caught(b.run("global_load_dword v3, v1, s[4:5] offset:-4; $load_wait; "
                       "global_store_dword v1, v3, s[6:7]"),
                 {"global_load_", "lane 0"});
    check_caught(b.run("global_store_dword v1, v0, s[6:7] offset:1792", 65, 1), {"global_store_"});
    check_caught(b.run("global_store_dwordx4 v1, v[0:3], s[6:7] offset:2040", 64, 1),
                 {"global_store_"});
    check_caught(b.run("s_mov_b64 s[4:5], 0; s_load_dword s20, s[4:5], 0x0; $scalar_wait"),
                 {"s_load_"});
    check_caught(b.run("s_load_dword s20, s[4:5], 0x800; $scalar_wait"), {"s_load_"});
    check_caught(b.run("s_mov_b64 s[4:5], 0; global_load_dword v3, v1, s[4:5]; $load_wait"),
                 {"global_load_"});
    check_caught(
        b.run("v_mov_b32 v2, 1; " +
              std::string(is_wave32(target) ? "global_atomic_add_u32" : "global_atomic_add") +
              " v1, v2, s[6:7] offset:2044"),
        {"global_atomic_add", "lane 1"});
    // A buffer that was given back.
    const std::string copy =
        "global_load_dword v3, v1, s[4:5]; $load_wait; "
        "global_store_dword v1, v3, s[6:7]";
    CHECK(b.run(copy) == "");
    b.machine.release(b.in);
    check_caught(b.run(copy), {"global_load_"});
  }
}

TEST_CASE("simulator: LDS outside its allocation and before it is written is caught") {
  for (const char* target : kTargets) {
    if (!can_probe(target, "LDS bounds")) continue;
    Broken b(target);
    b.form.lds = 256;
    CHECK(b.run("ds_write_b32 v1, v0; $lds_wait; ds_read_b32 v2, v1; $lds_wait", 64) == "");
    const unsigned threads = is_wave32(target) ? 32 : 64;
    const std::string lane = is_wave32(target) ? "lane 31" : "lane 63";
    const std::string at_end = is_wave32(target) ? "132" : "4";
    check_caught(b.run("ds_write_b32 v1, v0 offset:" + at_end + "; $lds_wait", threads, 1),
                 {"ds_", lane});
    check_caught(b.run("ds_write_b32 v1, v0; $lds_wait; v_mov_b32 v2, 0xfc; "
                       "ds_read_b64 v[4:5], v2; $lds_wait",
                       threads, 1),
                 {"ds_"});
    check_caught(b.run("v_mov_b32 v2, -4; ds_write_b32 v2, v0; $lds_wait", threads, 1), {"ds_"});
    check_caught(b.run("ds_read_b32 v2, v1; $lds_wait", threads, 1), {"ds_"});
    // One byte of four never written.
    check_caught(b.run("ds_write_b16 v1, v0; ds_write_b8 v1, v0 offset:2; $lds_wait; "
                       "ds_read_b32 v2, v1; $lds_wait",
                       threads, 1),
                 {"ds_"});
    CHECK(b.run("ds_write_b16 v1, v0; ds_write_b8 v1, v0 offset:2; ds_write_b8 v1, v0 offset:3; "
                "$lds_wait; ds_read_b32 v2, v1; $lds_wait",
                threads, 1) == "");
    // What an earlier workgroup left there counts for nothing.
    check_caught(b.run("s_cmp_eq_u32 $group, 7; s_cbranch_scc1 .Lread; ds_write_b32 v1, v0; "
                       "$lds_wait; s_branch .Lend_of_it; .Lread:; ds_read_b32 v2, v1; $lds_wait; "
                       ".Lend_of_it:",
                       threads, 8),
                 {"ds_", "workgroup"});
  }
}

TEST_CASE("simulator: a barrier that some waves never reach is caught") {
  for (const char* target : kTargets) {
    if (!can_probe(target, "divergent barrier")) continue;
    Broken b(target);
    const std::string first = "v_readfirstlane_b32 s20, v0; s_cmp_lg_u32 s20, 0; ";
    check_caught(
        b.run(first + "s_cbranch_scc1 .Lout; $barrier; .Lout:; s_nop 0", two_waves(target)),
        {"barrier"});
    CHECK(b.run(first + "s_cbranch_scc1 .Lout; $barrier; .Lout:; s_nop 0", two_waves(target) / 2) ==
          "");
    // With some lanes off: the source had it in a branch that not all of them take.
    const std::string half = "s_mov_b32 exec_lo, 0xffff; $barrier; s_mov_b32 exec_lo, -1";
    check_caught(b.run(half, two_waves(target)), {"barrier"});
    // The hardware counts arrivals; where in the code a wave waits is its own affair.
    CHECK(b.run(first + "s_cbranch_scc1 .Lother; $barrier; s_branch .Lout; .Lother:; s_nop 0; "
                        "$barrier; .Lout:; s_nop 0",
                two_waves(target)) == "");
    CHECK(b.run("$barrier; $barrier", two_waves(target)) == "");
  }
}

TEST_CASE("simulator: private memory beyond what the kernel asked for is caught") {
  for (const char* target : {"gfx942", "gfx1100", "gfx1201"}) {
    if (!can_probe(target, "scratch bounds")) continue;
    Broken b(target);
    b.form.scratch = 32;
    CHECK(b.run("scratch_store_dword off, v0, off offset:28") == "");
    check_caught(b.run("scratch_store_dword off, v0, off offset:32"), {"scratch_store_"});
    check_caught(b.run("v_mov_b32 v2, 0x400; scratch_load_dword v3, v2, off; $load_wait"),
                 {"scratch_load_"});
  }
}

TEST_CASE("simulator: a kernel that does not end is ended") {
  jit::sim::Options options;
  options.instructions_per_wave = 20000;
  jit::sim::set_options(options);
  for (const char* target : kTargets) {
    if (!can_probe(target, "endless loop")) continue;
    Broken b(target);
    check_caught(b.run(".Lagain:; v_mov_b32 v3, v0; s_branch .Lagain"), {});
    CHECK(b.run("s_movk_i32 s20, 2000; .Lagain:; s_sub_u32 s20, s20, 1; s_cmp_lg_u32 s20, 0; "
                "s_cbranch_scc1 .Lagain") == "");
  }
  jit::sim::set_options({});
}

TEST_CASE("simulator: bytes that are no instruction are caught when they are reached") {
  for (const char* target : kTargets) {
    if (!can_probe(target, "unknown opcode")) continue;
    Broken b(target);
    const std::string junk = ".long 0xbfffffff; ";
    const std::string fault = b.run("s_nop 0; " + junk + "s_nop 0");
    INFO(fault);
    CHECK(fault != "");
    CHECK(fault.find("probe") != std::string::npos);
    CHECK(b.run("s_branch .Lover; " + junk + ".Lover:; s_nop 0") == "");
  }
}

TEST_CASE("simulator: reads of registers that nothing wrote are counted, not refused") {
  for (const char* target : kTargets) {
    if (!can_probe(target, "undefined registers")) continue;
    Broken b(target);
    CHECK(b.run("v_mov_b32 v2, v77; v_add_f32 v3, v78, v2", 64, 1) == "");
    const auto counters = b.machine.counters();
    CHECK(counters.undefined_reads > 0);
    CHECK(counters.first_undefined.find("v77") != std::string::npos);
    CHECK(counters.first_undefined.find("v_mov_b32") != std::string::npos);
    CHECK(b.run("v_mov_b32 v77, 0; v_mov_b32 v2, v77", 64, 1) == "");
    CHECK(b.machine.counters().undefined_reads == 0);
    // Written in some lanes, read in all.
    CHECK(
        b.run("s_mov_b32 exec_lo, 0xff; v_mov_b32 v77, 0; s_mov_b32 exec_lo, -1; v_mov_b32 v2, v77",
              64, 1) == "");
    CHECK(b.machine.counters().undefined_reads > 0);
  }
}

TEST_CASE("simulator: registers beyond what the kernel asked for are caught") {
  for (const char* target : kTargets) {
    if (!can_probe(target, "register limits")) continue;
    Broken b(target);
    b.form.vgprs = 24;
    b.form.sgprs = 26;  // 32 with VCC and the like, which the allocation is a multiple of 16 of
    CHECK(b.run("v_mov_b32 v23, v0; v_mov_b32 v2, v23") == "");
    check_caught(b.run("s_nop 0; v_mov_b32 v24, v0"), {"v_mov_b32", "v24", "lane 0", "24 vector"});
    check_caught(b.run("s_mov_b32 exec_lo, 0x30; v_mov_b32 v2, v255"),
                 {"v_mov_b32", "v255", "lane 4", "24 vector"});
    check_caught(b.run("global_load_dwordx4 v[22:25], v1, s[4:5]; $load_wait"),
                 {"global_load", "v24"});
    check_caught(b.run("global_store_dwordx4 v1, v[22:25], s[6:7]"), {"global_store", "v24"});
    check_caught(b.run("ds_write_b32 v1, v0; $lds_wait; ds_read_b32 v24, v1; $lds_wait"),
                 {"ds_", "v24"});
    if (!is_cdna(target)) {
      CHECK(b.run("s_mov_b32 s105, s4") == "");
      continue;
    }
    CHECK(b.run("v_accvgpr_write_b32 a23, v0; s_mov_b32 s31, s4; s_mov_b64 vcc, s[30:31]") == "");
    check_caught(b.run("v_accvgpr_write_b32 a24, v0"),
                 {"v_accvgpr_write_b32", "a24", "24 accumulation"});
    check_caught(b.run("s_mov_b32 s32, s4"), {"s_mov_b32", "s32", "32 scalar"});
    check_caught(b.run("s_load_dwordx4 s[32:35], s[4:5], 0x0; $scalar_wait"),
                 {"s_load_dwordx4", "s32"});
  }
}

TEST_CASE("simulator: launches that do not fit the kernel are refused") {
  for (const char* target : kTargets) {
    if (!can_probe(target, "launch limits")) continue;
    Broken b(target);
    b.form.max_workgroup = 64;
    CHECK(b.run("s_nop 0", 64) == "");
    CHECK(b.run("s_nop 0", 65) != "");
    CHECK(b.run("s_nop 0", 0) != "");
    b.form.max_workgroup = 1024;
    b.form.lds = 65536;
    CHECK(b.run("s_nop 0", 64) == "");
    const auto object = assemble(target, body(target, "s_nop 0"), b.form);
    Shape shape;
    shape.dynamic_lds = 4;
    CHECK(b.machine.launch(*object, "probe", shape, Arguments().add(b.in).add(b.out)) != "");
    shape.dynamic_lds = 0;
    CHECK(b.machine.launch(*object, "no such kernel", shape, Arguments().add(b.in).add(b.out)) !=
          "");
    // More work-items than a dispatch can count, more scratch than a wave can have.
    shape.grid[0] = 1u << 27;
    CHECK(b.machine.launch(*object, "probe", shape, Arguments().add(b.in).add(b.out)) != "");
    shape.grid[0] = 1;
    if (is_gfx12(target)) {
      shape.grid[1] = 1u << 16;
      CHECK(b.machine.launch(*object, "probe", shape, Arguments().add(b.in).add(b.out)) != "");
      shape.grid[1] = 1;
    }
    b.form.lds = 2048;
    b.form.scratch = 1 << 20;
    CHECK(b.run("s_nop 0", 64).find("scratch") != std::string::npos);
    b.form.scratch = 0;
    // Code for another target.
    const auto other = assemble(std::string(target) == "gfx942" ? "gfx90a" : "gfx942", "", b.form);
    CHECK(b.machine.launch(*other, "probe", shape, Arguments().add(b.in).add(b.out)) != "");
    CHECK(b.machine.launch("no object at all, but some bytes of text to read behind it, so that "
                           "nothing past the end is looked at",
                           "probe", shape, Arguments()) != "");
  }
}

}  // namespace hstu::test
