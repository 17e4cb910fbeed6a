// SPDX-License-Identifier: Apache-2.0
// Counters of small kernels whose counts are known by hand.
#include <fmt/format.h>

#include "catch.hpp"
#include "gpu.hpp"
#include "probe.hpp"

namespace hstu::test {
namespace {

using jit::sim::LaunchCounters;

class Counted {
 public:
  explicit Counted(const std::string& target) : machine(target) {
    in = machine.upload(std::vector<uint32_t>(65536, 1));
    form.lds = 65536;
    form.arguments = 8;
  }
  // One workgroup of `threads`; v0 is the work-item, s[4:5] the buffer, v1 the given address
  // computation's result.
  LaunchCounters run(const std::string& code, unsigned threads = 64, unsigned groups = 1) {
    std::string text =
        "s_load_dwordx2 s[4:5], s[0:1], 0x0; v_and_b32 v0, 0x3ff, v0; "
        "s_waitcnt lgkmcnt(0); " +
        code;
    for (size_t at = text.find("; "); at != text.npos; at = text.find("; ", at))
      text.replace(at, 2, "\n  ");
    const auto object = assemble(machine.target(), "  " + text, form);
    REQUIRE(object.has_value());
    Shape shape;
    shape.grid[0] = groups, shape.block[0] = threads;
    const std::string fault = machine.launch(*object, "probe", shape, Arguments().add(in));
    CHECK(fault == "");
    return machine.counters();
  }
  Machine machine;
  KernelForm form;
  uint64_t in = 0;
};

uint64_t of(const LaunchCounters& c, const std::string& name) {
  const auto found = c.by_class.find(name);
  return found == c.by_class.end() ? 0 : found->second;
}

}  // namespace

TEST_CASE("simulator counters: instructions by class") {
  for (const char* target : {"gfx90a", "gfx942"}) {
    if (!can_probe(target, "instruction counts")) continue;
    Counted k(target);
    // 3 workgroups of 2 waves; a loop of 5 turns.
    const LaunchCounters c = k.run(
        "v_lshlrev_b32 v1, 2, v0; s_mov_b32 s20, 5; .Lloop:; v_exp_f32 v2, 1.0; v_add_f32 v3, v2, "
        "v2; "
        "ds_write_b32 v1, v3; s_waitcnt lgkmcnt(0); ds_read_b32 v4, v1; s_waitcnt lgkmcnt(0); "
        "s_sub_u32 s20, s20, 1; s_cmp_lg_u32 s20, 0; s_cbranch_scc1 .Lloop; s_barrier; "
        "global_load_dword v5, v1, s[4:5]; s_waitcnt vmcnt(0); global_store_dword v1, v5, s[4:5]; "
        "s_barrier",
        128, 3);
    const uint64_t waves = 6;
    CHECK(c.workgroups == 3);
    CHECK(c.waves == waves);
    CHECK(of(c, "valu") == waves * (2 + 5));
    CHECK(of(c, "transcendental") == waves * 5);
    CHECK(of(c, "matrix") == 0);
    CHECK(of(c, "salu") == waves * (1 + 2 * 5));
    CHECK(of(c, "scalar_memory") == waves);
    CHECK(of(c, "lds_read") == waves * 5);
    CHECK(of(c, "lds_write") == waves * 5);
    CHECK(of(c, "global_read") == waves);
    CHECK(of(c, "global_write") == waves);
    CHECK(of(c, "barrier") == waves * 2);
    CHECK(c.barriers == waves * 2);
    CHECK(of(c, "waitcnt") == waves * (1 + 2 * 5 + 1));
    CHECK(c.waits == waves * 12);
    CHECK(of(c, "branch") == waves * (5 + 1));  // s_endpgm is one
    uint64_t sum = 0;
    for (const auto& [name, count] : c.by_class) sum += count;
    CHECK(sum == c.instruction_total());
    uint64_t listed = 0, exps = 0, before = 0;
    for (const auto& i : c.instructions) {
      listed += i.waves;
      if (i.text.find("v_exp_f32") == 0) exps = i.waves;
      CHECK(i.address >= before);
      before = i.address;
    }
    CHECK(listed == sum);
    CHECK(exps == waves * 5);
    CHECK(c.undefined_reads == 0);
  }
}

TEST_CASE("simulator counters: waits that had something to wait for") {
  for (const char* target : {"gfx90a", "gfx942"}) {
    if (!can_probe(target, "waits")) continue;
    Counted k(target);
    const LaunchCounters c = k.run(
        "v_lshlrev_b32 v1, 2, v0; s_waitcnt vmcnt(0); global_load_dword v2, v1, s[4:5]; "
        "s_waitcnt vmcnt(1); s_waitcnt vmcnt(0); s_waitcnt vmcnt(0)");
    // The one for the arguments and the second one after the load.
    CHECK(c.waits == 5);
    CHECK(c.waits_needed == 2);
  }
}

// Bytes, and lines of 128, of one access by all 64 lanes.
TEST_CASE("simulator counters: global memory") {
  for (const char* target : {"gfx90a", "gfx942"}) {
    if (!can_probe(target, "global memory counters")) continue;
    Counted k(target);
    struct Case {
      const char *address, *access;
      int bytes, lines_of_128;
      bool write;
    };
    const Case cases[] = {
        {"v_lshlrev_b32 v1, 2, v0", "global_load_dword v2, v1, s[4:5]", 256, 2, false},
        {"v_lshlrev_b32 v1, 4, v0", "global_load_dwordx4 v[2:5], v1, s[4:5]", 1024, 8, false},
        {"v_lshlrev_b32 v1, 7, v0", "global_load_dword v2, v1, s[4:5]", 256, 64, false},
        {"v_lshlrev_b32 v1, 8, v0", "global_load_dwordx2 v[2:3], v1, s[4:5]", 512, 64, false},
        {"v_mov_b32 v1, 0", "global_load_dword v2, v1, s[4:5]", 256, 1, false},
        {"v_lshlrev_b32 v1, 2, v0", "global_load_dword v2, v1, s[4:5] offset:64", 256, 3, false},
        {"v_lshlrev_b32 v1, 1, v0", "global_load_ushort v2, v1, s[4:5]", 128, 1, false},
        {"v_lshlrev_b32 v1, 2, v0", "global_store_dword v1, v0, s[4:5]", 256, 2, true},
        {"v_lshlrev_b32 v1, 6, v0", "global_store_dword v1, v0, s[4:5]", 256, 32, true},
    };
    for (const Case& x : cases) {
      const LaunchCounters c =
          k.run(std::string(x.address) + "; " + x.access + "; s_waitcnt vmcnt(0)");
      INFO(target << " " << x.address << "; " << x.access);
      const uint64_t bytes = x.write ? c.global_write_bytes : c.global_read_bytes;
      const uint64_t lines = x.write ? c.global_write_lines : c.global_read_lines;
      CHECK(bytes == static_cast<uint64_t>(x.bytes));
      // Buffers begin at multiples of a line.
      CHECK(k.in % 128 == 0);
      if (c.line_bytes == 128) CHECK(lines == static_cast<uint64_t>(x.lines_of_128));
      CHECK((x.write ? c.global_read_bytes : c.global_write_bytes) == 0);
      const uint64_t least = (static_cast<uint64_t>(x.bytes) + 127) / 128;
      if (c.line_bytes == 128)
        CHECK((x.write ? c.global_write_minimum : c.global_read_minimum) == least);
    }
    // Lanes that are off ask for nothing.
    const LaunchCounters c = k.run(
        "v_lshlrev_b32 v1, 2, v0; s_mov_b64 exec, 0xf; "
        "global_load_dword v2, v1, s[4:5]; s_waitcnt vmcnt(0)");
    CHECK(c.global_read_bytes == 16);
    CHECK(c.global_read_lines == 1);
  }
}

// 32 banks of 4 bytes. A 32-bit access serves 32 lanes a cycle, a 64-bit access 16 lanes (32 banks
// of 16 x 8 bytes), a 128-bit access 8 lanes: 2, 4 and 8 cycles for a wave without conflicts.
TEST_CASE("simulator counters: LDS bank conflicts") {
  for (const char* target : {"gfx90a", "gfx942"}) {
    if (!can_probe(target, "LDS conflicts")) continue;
    Counted k(target);
    struct Case {
      const char* op;
      int width_index;  // into lds_read: 8, 16, 32, 64, 96, 128 bits
      int shift;        // lane stride is 1 << shift bytes
      uint64_t phases, minimum;
    };
    const Case cases[] = {
        {"ds_read_b32 v2, v1", 2, 2, 2, 2},   // neighbours
        {"ds_read_b32 v2, v1", 2, 3, 4, 2},   // every other bank: 2 lanes each
        {"ds_read_b32 v2, v1", 2, 4, 8, 2},   // 4 lanes on a bank
        {"ds_read_b32 v2, v1", 2, 7, 64, 2},  // all on one bank
        {"ds_read_b64 v[2:3], v1", 3, 3, 4, 4},   {"ds_read_b64 v[2:3], v1", 3, 4, 8, 4},
        {"ds_read_b64 v[2:3], v1", 3, 7, 64, 4},  {"ds_read_b128 v[2:5], v1", 5, 4, 8, 8},
        {"ds_read_b128 v[2:5], v1", 5, 5, 16, 8}, {"ds_read_b128 v[2:5], v1", 5, 7, 64, 8},
    };
    for (const Case& x : cases) {
      const std::string fill = fmt::format(
          "v_lshlrev_b32 v1, {}, v0; v_mov_b32 v2, 0; v_mov_b32 v3, 0; v_mov_b32 v4, 0; "
          "v_mov_b32 v5, 0; ds_write_b128 v1, v[2:5]; s_waitcnt lgkmcnt(0); ",
          x.shift);
      const LaunchCounters c = k.run(fill + x.op + "; s_waitcnt lgkmcnt(0)");
      INFO(target << " " << x.op << " stride " << (1 << x.shift));
      const auto& width = c.lds_read[static_cast<size_t>(x.width_index)];
      CHECK(width.accesses == 1);
      CHECK(width.phases == x.phases);
      CHECK(width.minimum == x.minimum);
    }
    // One word for all lanes is read once per half wave.
    const LaunchCounters c = k.run(
        "v_mov_b32 v1, 0; ds_write_b32 v1, v0; s_waitcnt lgkmcnt(0); "
        "ds_read_b32 v2, v1; s_waitcnt lgkmcnt(0)");
    CHECK(c.lds_read[2].phases == 2);
    // Both halves of a paired read count.
    const LaunchCounters pair = k.run(
        "v_lshlrev_b32 v1, 2, v0; ds_write_b32 v1, v0; ds_write_b32 v1, v0 offset:256; "
        "s_waitcnt lgkmcnt(0); ds_read2st64_b32 v[2:3], v1 offset0:0 offset1:1; "
        "s_waitcnt lgkmcnt(0)");
    CHECK(pair.lds_read[2].accesses == 2);
    CHECK(pair.lds_read[2].phases == 4);
    CHECK(pair.lds_write[2].accesses == 2);
  }
}

// 32x32x8 takes 16 passes of 4 clocks on gfx90a and 8 on gfx942; 16x16x16 8 and 4.
TEST_CASE("simulator counters: matrix passes") {
  struct Case {
    const char *target, *op;
    int results;
    uint64_t passes;
  };
  const Case cases[] = {
      {"gfx90a", "v_mfma_f32_32x32x8f16", 16, 16},  {"gfx90a", "v_mfma_f32_32x32x8bf16_1k", 16, 16},
      {"gfx90a", "v_mfma_f32_16x16x16f16", 4, 8},   {"gfx942", "v_mfma_f32_32x32x8_f16", 16, 8},
      {"gfx942", "v_mfma_f32_32x32x8_bf16", 16, 8}, {"gfx942", "v_mfma_f32_16x16x16_f16", 4, 4},
  };
  for (const Case& x : cases) {
    if (!can_probe(x.target, "matrix passes")) continue;
    Counted k(x.target);
    std::string code = "v_mov_b32 v2, 0; v_mov_b32 v3, 0; ";
    for (int r = 0; r < x.results; ++r) code += fmt::format("v_mov_b32 v{}, 0; ", 32 + r);
    code += fmt::format("{0} v[32:{1}], v[2:3], v[2:3], v[32:{1}]; s_nop 15; s_nop 15", x.op,
                        31 + x.results);
    const LaunchCounters c = k.run(code, 128);
    INFO(x.target << " " << x.op);
    CHECK(of(c, "matrix") == 2);
    CHECK(c.matrix_passes == 2 * x.passes);
  }
}

}  // namespace hstu::test
