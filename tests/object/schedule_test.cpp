// SPDX-License-Identifier: Apache-2.0
// The issue model on loops short enough to time by hand. Ticks below are of 4 clocks (CDNA).
#include "object/schedule.hpp"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "base/temp_dir.hpp"
#include "catch.hpp"
#include "object/loop.hpp"
#include "object/machine.hpp"
#include "object/make_object.hpp"
#include "object/operands.hpp"
#include "object/toolchains.hpp"
#include "target/target.hpp"

using namespace hstu::jit;
using namespace hstu::test;

namespace {

std::string repeat(int count, const std::string& line) {
  std::string out;
  for (int i = 0; i < count; ++i) out += fmt::format(fmt::runtime(line), i) + "\n";
  return out;
}

// Rounds of `body`: two scalar instructions close each.
std::string loop(const std::string& body) {
  return ".Lloop:\n" + body + "s_sub_u32 s0, s0, 1\ns_cbranch_scc0 .Lloop\n";
}

constexpr const char* kMfma = "v_mfma_f32_32x32x8_f16 v[32:47], v[0:1], v[2:3], v[32:47]\n";

// A text that an assembler of this machine refuses is a mistake of the test's.
std::optional<std::string> assembled(const std::string& folder, const std::string& target,
                                     const std::string& code, const AmdKernelText& kernel = {}) {
  auto object = assemble_amd(folder, target, code, kernel);
  if (!object) {
    REQUIRE((!find_program("clang-19") || !find_program("ld.lld-19")));
    skipped("schedule " + target, "no clang-19 and ld.lld-19");
  }
  return object;
}

// The schedule of a hand-written kernel; nothing, and a line, where it cannot be assembled.
std::optional<Schedule> schedule_of(const std::string& target, const std::string& code,
                                    const AmdKernelText& kernel = {},
                                    const std::vector<std::string>& overrides = {}) {
  auto folder = TempDir::create("schedule-test");
  if (!folder) return std::nullopt;
  const auto object = assembled(folder->path(), target, code, kernel);
  if (!object) return std::nullopt;
  std::vector<std::string> notes;
  auto schedules = model_schedules(*object, overrides, notes);
  INFO((schedules ? "" : schedules.error().message));
  REQUIRE(schedules.ok());
  REQUIRE(schedules->size() == 1);
  return schedules->front();
}

const MatrixShare& at_waves(const Schedule& schedule, int waves) {
  for (const MatrixShare& share : schedule.shares) {
    if (share.waves == waves) return share;
  }
  FAIL("no share at " << waves << " waves");
  return schedule.shares.front();
}

void check_share(const Schedule& schedule, int waves, double want) {
  INFO(waves << " waves, want " << want << "\n" << to_text(schedule));
  CHECK(at_waves(schedule, waves).low == Approx(want).margin(0.002));
  CHECK(at_waves(schedule, waves).high == Approx(want).margin(0.002));
}

Error refusal(const std::string& object, const std::vector<std::string>& overrides = {}) {
  std::vector<std::string> notes;
  const auto schedules = model_schedules(object, overrides, notes);
  REQUIRE(!schedules.ok());
  INFO(schedules.error().message);
  CHECK(schedules.error().message.find('\n') == std::string::npos);
  return schedules.error();
}

}  // namespace

TEST_CASE("Matrix instructions alone fill the matrix unit", "[schedule]") {
  const auto s = schedule_of("gfx942", loop(repeat(8, kMfma)));
  if (!s) return;
  CHECK(s->matrix_clocks == 8 * 32);
  CHECK(s->bound_low == 1);
  CHECK(s->limited_by == "matrix");
  check_share(*s, 1, 1);
  check_share(*s, 2, 1);
  CHECK(at_waves(*s, 1).clocks_per_round == Approx(8 * 32));
  // The same shape takes twice as long on the older part.
  const auto older = schedule_of(
      "gfx90a", loop(repeat(8, "v_mfma_f32_32x32x8f16 v[32:47], v[0:1], v[2:3], v[32:47]\n")));
  REQUIRE(older);
  CHECK(older->matrix_clocks == 8 * 64);
  check_share(*older, 1, 1);
}

TEST_CASE("The vector port bounds the matrix share", "[schedule]") {
  // 1 + 31 ticks of vector issue for 8 of the matrix unit; alone, a wave also issues 2 scalars.
  const auto s = schedule_of("gfx942", loop(kMfma + repeat(31, "v_add_f32 v{}, v60, v61")));
  if (!s) return;
  CHECK(s->valu_clocks == 31 * 4);
  CHECK(s->bound_low == Approx(8.0 / 32));
  CHECK(s->limited_by == "VALU");
  check_share(*s, 1, 8.0 / 34);
  check_share(*s, 2, 8.0 / 32);

  // Four transcendentals: 16 ticks and one of matrix issue. At half rate: 8 and one.
  const std::string code = loop(kMfma + repeat(4, "v_exp_f32 v{}, v60"));
  const auto slow = schedule_of("gfx942", code);
  const auto fast = schedule_of("gfx942", code, {}, {"transcendental=8"});
  REQUIRE((slow && fast));
  CHECK(slow->bound_low == Approx(8.0 / 17));
  CHECK(fast->bound_low == Approx(8.0 / 9));
  CHECK(slow->transcendental_clocks == 4 * 16);
  CHECK(fast->transcendental_clocks == 4 * 8);
  CHECK(at_waves(*slow, 2).high < at_waves(*fast, 2).low);
}

TEST_CASE("Waits for LDS are honoured", "[schedule]") {
  // Tick 0 read, 8 ticks of the port and 28 of latency, 36 wait ends, 37 matrix, 38 and 39 scalars.
  const std::string body = "ds_read_b128 v[0:3], v60\ns_waitcnt lgkmcnt(0)\n" + std::string(kMfma);
  const auto s = schedule_of("gfx942", loop(body));
  if (!s) return;
  check_share(*s, 1, 8.0 / 40);
  CHECK(at_waves(*s, 2).low > 0.35);
  const auto doubled = schedule_of("gfx942", loop(body), {}, {"lds-latency=224"});
  REQUIRE(doubled);
  check_share(*doubled, 1, 8.0 / 68);
  // A wait that lets the newest read fly on does not wait for it.
  const auto behind = schedule_of(
      "gfx942", loop("ds_read_b128 v[4:7], v60\ns_waitcnt lgkmcnt(1)\n" + repeat(5, kMfma)));
  REQUIRE(behind);
  check_share(*behind, 1, 1);
  // Global loads take longer: 1 tick, 200 of latency, then matrix and two scalars.
  const auto global = schedule_of(
      "gfx942",
      loop("global_load_dwordx4 v[4:7], v[60:61], off\ns_waitcnt vmcnt(0)\n" + std::string(kMfma)));
  REQUIRE(global);
  check_share(*global, 1, 8.0 / 204);
}

TEST_CASE("The LDS port bounds the matrix share", "[schedule]") {
  // 4 reads of 1 KB, each asked for by 4 SIMDs of a port of 128 bytes a clock: 32 clocks each.
  const auto s =
      schedule_of("gfx942", loop(repeat(4, "ds_read_b128 v[0:3], v60") + "s_waitcnt lgkmcnt(0)\n" +
                                 "v_mfma_f32_16x16x16_f16 v[32:35], v[0:1], v[2:3], v[32:35]\n"));
  if (!s) return;
  CHECK(s->lds_clocks == 4 * 32);
  CHECK(s->matrix_clocks == 16);
  CHECK(s->bound_low == Approx(16.0 / 128));
  CHECK(s->limited_by == "LDS");
  REQUIRE(s->loop.accesses.size() == 1);
  CHECK(s->loop.accesses[0].kind == "lds_read");
  CHECK(s->loop.accesses[0].bytes == 16);
  CHECK(s->loop.accesses[0].count == 4);
}

TEST_CASE("A result of the matrix unit is not read early", "[schedule]") {
  // 8 passes and 3 wait states, then the addition and two scalars: 14 ticks.
  const auto s = schedule_of("gfx942", loop(kMfma + std::string("v_add_f32 v0, v47, v60\n")));
  if (!s) return;
  check_share(*s, 1, 8.0 / 14);
  // Neither does a second matrix instruction read it as a factor: 11 ticks, and 2 for the scalars
  // that follow the second one before the first can start again, 8 after it: 19.
  const auto factor = schedule_of(
      "gfx942",
      loop(kMfma + std::string("v_mfma_f32_32x32x8_f16 v[64:79], v[46:47], v[2:3], v[64:79]\n")));
  REQUIRE(factor);
  check_share(*factor, 1, 16.0 / 19);
  // s_nop N holds a wave for N + 1 ticks: 1 + 16 + 2.
  const auto pause = schedule_of("gfx942", loop(kMfma + std::string("s_nop 15\n")));
  REQUIRE(pause);
  check_share(*pause, 1, 8.0 / 19);
}

TEST_CASE("The steady path leaves out masks and skips, and fetches", "[schedule]") {
  const std::string masked =
      repeat(6, "v_cmp_gt_u32 vcc, s4, v60\nv_cndmask_b32 v{}, v60, v61, vcc") + repeat(2, kMfma);
  const std::string code = "s_nop 0\n.Louter:\ns_mov_b32 s0, 9\n" + loop(R"(
  s_cmp_eq_u32 s1, s2
  s_cbranch_scc1 .Lnext
  s_cmp_eq_u32 s3, s2
  s_cbranch_scc1 .Lno_fetch
  global_load_dwordx4 v[4:7], v[60:61], off
.Lno_fetch:
  s_cmp_eq_u32 s4, s2
  s_cbranch_scc1 .Lmasked
)" + repeat(2, kMfma) + "s_branch .Lnext\n.Lmasked:\n" + masked + ".Lnext:\n") +
                           kMfma + "s_cmp_eq_u32 s7, s8\ns_cbranch_scc1 .Louter\n";
  const auto s = schedule_of("gfx942", code);
  if (!s) return;
  INFO(to_text(*s));
  CHECK(s->loop.matrix_loops == 1);  // the outer one holds another
  CHECK(s->loop.mask_instructions == 0);
  CHECK(s->loop.mnemonics.at("v_mfma_f32_32x32x8_f16") == 2);
  CHECK(s->loop.mnemonics.at("global_load_dwordx4") == 1);
  CHECK(s->loop.mnemonics.count("v_cndmask_b32_e32") == 0);
  CHECK(s->loop.instructions == 12);  // 3 x 2 scalars, load, 2 matrix, branch, 2 scalars
  CHECK(s->loop.all_instructions == 12 + 12 + 2);  // and the masked tile
  CHECK(s->loop.blocks_on_path == 6);

  // Of two loops, the one without masks, though the other has one matrix instruction more.
  const std::string two = ".Lfirst:\n" + masked + kMfma +
                          "s_sub_u32 s0, s0, 1\ns_cbranch_scc0 .Lfirst\n" + loop(repeat(2, kMfma));
  const auto chosen = schedule_of("gfx942", two);
  REQUIRE(chosen);
  CHECK(chosen->loop.matrix_loops == 2);
  CHECK(chosen->loop.mask_instructions == 0);
  CHECK(chosen->loop.instructions == 4);
}

TEST_CASE("The mix of a loop is what llvm-objdump lists", "[schedule]") {
  auto folder = TempDir::create("schedule-test");
  REQUIRE(folder.ok());
  const std::string body = repeat(3, kMfma) + repeat(7, "v_exp_f32 v{}, v60") +
                           repeat(5, "v_pk_mul_f32 v[4:5], v[6:7], v[8:9]") +
                           "ds_read2_b64 v[0:3], v60 offset1:1\nds_write_b64 v60, v[0:1]\n" +
                           "buffer_load_dwordx2 v[8:9], v60, s[4:7], 0 offen\ns_barrier\n" +
                           "s_setprio 1\nv_accvgpr_write_b32 a0, v1\ns_nop 3\n";
  const auto object = assembled(folder->path(), "gfx942", loop(body), {128, 32, 8});
  const auto text = output_of({"llvm-objdump-19", "-d", folder->path() + "/kernel.hsaco"});
  if (!object || !text) {
    skipped("schedule mix", "no clang-19 and llvm-objdump-19");
    return;
  }
  std::map<std::string, int64_t> want;
  const std::regex line("^\t([a-z0-9_]+)[^\n]*// ", std::regex::multiline);
  for (std::sregex_iterator i(text->begin(), text->end(), line), end; i != end; ++i) {
    want[(*i)[1]] += 1;
    if ((*i)[1] == "s_cbranch_scc0") break;  // the loop begins the kernel and ends here
  }
  std::vector<std::string> notes;
  const auto schedules = model_schedules(*object, {}, notes);
  REQUIRE(schedules.ok());
  const Schedule& s = schedules->front();
  CHECK(s.loop.mnemonics == want);
  int64_t total = 0;
  for (const auto& [kind, count] : s.loop.classes) total += count;
  CHECK(total == s.loop.instructions);
  CHECK(s.loop.instructions == 3 + 7 + 5 + 4 + 3 + 2);
  CHECK(s.loop.classes.at("matrix") == 3);
  CHECK(s.loop.classes.at("transcendental") == 7);

  const auto json = nlohmann::json::parse(to_json(s));
  CHECK(json["loop"]["mnemonics"]["v_exp_f32_e32"] == 7);
  CHECK(json["loop"]["instructions"] == 24);
  CHECK(json["shares"].size() >= 2);
}

TEST_CASE("RDNA: clocks of a wave32, split barriers and counters", "[schedule]") {
  const std::string wmma11 = "v_wmma_f32_16x16x16_f16 v[32:39], v[0:7], v[8:15], v[32:39]\n";
  const auto eleven = schedule_of("gfx1100", loop(wmma11 + repeat(16, "v_add_f32 v50, v60, v61")));
  if (!eleven) return;
  CHECK(eleven->matrix_clocks == 32);
  CHECK(eleven->valu_clocks == 16);
  // Alone on the vector ALU, or beside its other instructions.
  CHECK(eleven->bound_low == Approx(32.0 / 48));
  CHECK(eleven->bound_high == 1);
  CHECK(at_waves(*eleven, 2).low == Approx(32.0 / 48).margin(0.01));
  CHECK(at_waves(*eleven, 2).high == Approx(1).margin(0.01));

  // Clock 0 read (512 bytes for 2 SIMDs at 128 a clock: 8), 80 of latency: wait ends at 88, matrix
  // at 89, the scalars at 90 and 91.
  const auto twelve = schedule_of(
      "gfx1201", loop("ds_load_b128 v[0:3], v60\ns_wait_dscnt 0x0\n" +
                      std::string("v_wmma_f32_16x16x16_f16 v[32:39], v[0:3], v[4:7], v[32:39]\n")));
  REQUIRE(twelve);
  CHECK(twelve->matrix_clocks == 16);
  check_share(*twelve, 1, 16.0 / 92);
  // A barrier in two halves lets both waves through, whatever is between them.
  const auto barrier =
      schedule_of("gfx1201", loop("s_barrier_signal -1\n" + repeat(5, "v_add_f32 v{}, v60, v61") +
                                  "s_barrier_wait -1\n" +
                                  "v_wmma_f32_16x16x16_f16 v[32:39], v[0:3], v[4:7], v[32:39]\n"));
  REQUIRE(barrier);
  CHECK(at_waves(*barrier, 2).low > 0.3);
}

TEST_CASE("Waves per SIMD by registers, LDS and workgroups", "[schedule]") {
  struct Want {
    const char* target;
    int vgprs, lds, workgroup;
    double waves;
    const char* by;
  };
  // Registers: the occupancy tables of the CDNA and RDNA instruction set documents.
  const Want table[] = {
      {"gfx942", 64, 0, 256, 8, "waves"},       {"gfx942", 80, 0, 256, 6, "registers"},
      {"gfx942", 96, 0, 256, 5, "registers"},   {"gfx942", 128, 0, 256, 4, "registers"},
      {"gfx942", 168, 0, 256, 3, "registers"},  {"gfx942", 256, 0, 256, 2, "registers"},
      {"gfx942", 257, 0, 256, 1, "registers"},  {"gfx942", 512, 0, 256, 1, "registers"},
      {"gfx942", 168, 0, 512, 2, "registers"},  {"gfx942", 257, 0, 512, 0, "registers"},
      {"gfx942", 64, 32768, 256, 2, "LDS"},     {"gfx942", 64, 65536, 512, 2, "LDS"},
      {"gfx90a", 128, 0, 64, 4, "registers"},   {"gfx908", 128, 0, 256, 2, "registers"},
      {"gfx1100", 96, 0, 128, 16, "waves"},     {"gfx1100", 192, 0, 128, 8, "registers"},
      {"gfx1100", 240, 0, 128, 6, "registers"}, {"gfx1100", 96, 32768, 128, 4, "LDS"},
  };
  for (const Want& want : table) {
    const bool old = std::string(want.target) == "gfx908";
    const bool rdna = std::string(want.target).substr(0, 5) == "gfx11";
    std::string code = kMfma;
    if (old || std::string(want.target) == "gfx90a") {
      code = "v_mfma_f32_32x32x8f16 a[0:15], v[0:1], v[2:3], a[0:15]\n";
    }
    if (rdna) code = "v_wmma_f32_16x16x16_f16 v[32:39], v[0:7], v[8:15], v[32:39]\n";
    AmdKernelText kernel;
    kernel.vgprs = want.vgprs;
    kernel.lds_bytes = want.lds;
    kernel.workgroup = want.workgroup;
    if (want.vgprs > 256) kernel.agprs = want.vgprs - 256;
    const auto s = schedule_of(want.target, loop(code), kernel);
    if (!s) return;
    INFO(want.target << " " << want.vgprs << " " << want.lds << " " << want.workgroup);
    CHECK(s->occupancy.waves_per_simd == want.waves);
    CHECK(s->occupancy.limited_by == want.by);
    CHECK(at_waves(*s, 2).reached == (want.waves >= 2));
  }
}

TEST_CASE("What cannot be modelled is refused in one line", "[schedule]") {
  CHECK(refusal("no object").kind == ErrorKind::kFailed);
  const auto self = read_file("/proc/self/exe", uint64_t{1} << 30);
  REQUIRE(self.ok());
  CHECK(refusal(*self).message.find("host object") != std::string::npos);
  const Error other = refusal(make_amd_object(0x36, amd_metadata("k", 8)));
  CHECK(other.kind == ErrorKind::kUnsupported);
  CHECK(other.message.find("no issue model for gfx1030") != std::string::npos);

  auto folder = TempDir::create("schedule-test");
  REQUIRE(folder.ok());
  const auto straight = assembled(folder->path(), "gfx942", kMfma);
  const auto plain = assembled(folder->path(), "gfx942", loop("v_add_f32 v0, v1, v2\n"));
  const auto good = assembled(folder->path(), "gfx942", loop(kMfma));
  if (!straight || !plain || !good) return;
  CHECK(refusal(*straight).message.find("no loop around any of its 1 matrix") != std::string::npos);
  CHECK(refusal(*plain).message.find("no matrix instruction") != std::string::npos);
  for (const char* assumption : {"lds-latency", "lds-latency=", "lds-latency=0", "lds-latency=1x",
                                 "speed=3", "=5", "lds-latency=-4", "lds-latency=4001"}) {
    const Error error = refusal(*good, {assumption});
    CHECK(error.kind == ErrorKind::kUsage);
    CHECK(error.message.find("want NAME=CLOCKS") != std::string::npos);
  }
}

TEST_CASE("Durations of matrix instructions", "[schedule]") {
  struct Want {
    const char* target;
    const char* mnemonic;
    int clocks;
  };
  const Want table[] = {
      {"gfx908", "v_mfma_f32_32x32x4bf16", 64},    {"gfx90a", "v_mfma_f32_32x32x8bf16_1k", 64},
      {"gfx90a", "v_mfma_f32_16x16x16f16", 32},    {"gfx90a", "v_mfma_f64_16x16x4f64", 32},
      {"gfx942", "v_mfma_f32_32x32x8_bf16", 32},   {"gfx942", "v_mfma_f32_16x16x16_f16", 16},
      {"gfx942", "v_mfma_f32_32x32x2_f32", 64},    {"gfx942", "v_mfma_f32_16x16x4_f32", 32},
      {"gfx950", "v_mfma_f32_32x32x16_bf16", 32},  {"gfx950", "v_mfma_f32_16x16x32_f16", 16},
      {"gfx1100", "v_wmma_f32_16x16x16_bf16", 32}, {"gfx1201", "v_wmma_f32_16x16x16_bf16", 16},
      {"gfx1102", "v_wmma_f32_16x16x16_f16", 32},  {"gfx1200", "v_wmma_f32_16x16x16_f16", 16},
  };
  for (const Want& want : table) {
    const auto machine = object::find_machine(want.target, {});
    REQUIRE(machine.ok());
    INFO(want.target << " " << want.mnemonic);
    CHECK(object::matrix_clocks(*machine, want.mnemonic) == want.clocks);
  }
  const auto machine = object::find_machine("gfx942", {});
  REQUIRE(machine.ok());
  CHECK(!object::matrix_clocks(*machine, "v_mfma_f32_99x99x9_f16"));
  // Every AMD target of ours has a model.
  for (const Target& target : all_targets()) {
    if (target.vendor == Vendor::amd) CHECK(object::find_machine(target.name, {}).ok());
  }
}

TEST_CASE("Registers read and written, from operand text", "[schedule]") {
  using object::kExec;
  using object::kFirstAgpr;
  using object::kFirstSgpr;
  using object::kM0;
  using object::kScc;
  using object::kVcc;
  const auto s = [](int i) { return static_cast<uint16_t>(kFirstSgpr + i); };
  const auto a = [](int i) { return static_cast<uint16_t>(kFirstAgpr + i); };
  using Set = std::vector<uint16_t>;
  struct Want {
    const char* mnemonic;
    const char* operands;
    Set reads, writes;
  };
  const Want table[] = {
      {"v_fma_f32", "v1, -v2, |v3|, s4", {2, 3, s(4), kExec}, {1}},
      {"v_pk_mul_f32", "v[2:3], v[4:5], s[6:7] op_sel_hi:[1,0]", {4, 5, s(6), s(7), kExec}, {2, 3}},
      {"v_fmac_f32_e32", "v1, v2, v3", {2, 3, 1, kExec}, {1}},
      {"v_add_co_u32_e32", "v1, vcc, v2, v3", {2, 3, kExec}, {1, kVcc}},
      {"v_addc_co_u32_e32", "v1, vcc, v2, v3, vcc", {2, 3, kVcc, kExec}, {1, kVcc}},
      {"v_cmp_gt_u32_e32", "vcc, v1, v2", {1, 2, kExec}, {kVcc}},
      {"v_cmp_gt_u32_e64", "s[2:3], v1, v2", {1, 2, kExec}, {s(2), s(3)}},
      {"v_cndmask_b32_e32", "v1, v2, v3, vcc", {2, 3, kVcc, kExec}, {1}},
      {"v_mfma_f32_4x4x4_16b_f16",
       "a[0:3], v[4:5], v[6:7], a[0:3]",
       {4, 5, 6, 7, a(0), a(1), a(2), a(3), kExec},
       {a(0), a(1), a(2), a(3)}},
      {"v_accvgpr_read_b32", "v1, a9", {a(9), kExec}, {1}},
      {"v_readfirstlane_b32", "s3, v8", {8, kExec}, {s(3)}},
      {"ds_read_b64", "v[0:1], v2 offset:16", {2, kExec}, {0, 1}},
      {"ds_write_b64", "v2, v[0:1]", {2, 0, 1, kExec}, {}},
      {"buffer_load_dword", "v1, v2, s[4:7], 0 offen", {2, s(4), s(5), s(6), s(7), kExec}, {1}},
      {"buffer_store_dword", "v1, v2, s[4:7], 0 offen", {1, 2, s(4), s(5), s(6), s(7), kExec}, {}},
      {"global_load_lds_dwordx4", "v[0:1], off", {0, 1, kExec, kM0}, {}},
      {"global_atomic_add", "v0, v1, s[2:3]", {0, 1, s(2), s(3), kExec}, {}},
      {"global_atomic_add", "v5, v0, v1, s[2:3] glc", {0, 1, s(2), s(3), kExec}, {5}},
      {"s_add_u32", "s1, s2, s3", {s(2), s(3)}, {s(1), kScc}},
      {"s_addc_u32", "s1, s2, 0", {s(2), kScc}, {s(1), kScc}},
      {"s_mov_b32", "m0, s2", {s(2)}, {kM0}},
      {"s_cselect_b32", "s1, 0, -1", {kScc}, {s(1)}},
      {"s_cmp_lg_u32", "s1, 0", {s(1)}, {kScc}},
      {"s_cbranch_vccnz", "65500", {kVcc}, {}},
      {"s_and_saveexec_b64", "s[2:3], vcc", {kVcc, kExec}, {s(2), s(3), kScc, kExec}},
      {"s_waitcnt", "vmcnt(0)", {}, {}},
      {"v_dual_mul_f32",
       "v0, v1, v2 :: v_dual_fmac_f32 v3, s4, v5",
       {1, 2, s(4), 5, 3, kExec},
       {0, 3}},
      {"v_cmpx_gt_u32_e32", "v1, v2", {1, 2, kExec}, {kExec}},
  };
  for (const Want& want : table) {
    const object::Operands got = object::operands_of({0, 4, want.mnemonic, want.operands});
    INFO(want.mnemonic << " " << want.operands);
    CHECK(std::multiset<uint16_t>(got.reads.begin(), got.reads.end()) ==
          std::multiset<uint16_t>(want.reads.begin(), want.reads.end()));
    CHECK(std::multiset<uint16_t>(got.writes.begin(), got.writes.end()) ==
          std::multiset<uint16_t>(want.writes.begin(), want.writes.end()));
  }
  const std::map<std::string, int> widths = {
      {"ds_read_b128", 16},          {"ds_read2_b64", 16},
      {"ds_write2st64_b32", 8},      {"ds_read_b64_tr_b16", 8},
      {"ds_load_2addr_b32", 8},      {"ds_read_u16_d16", 2},
      {"global_load_dwordx4", 16},   {"buffer_load_dword", 4},
      {"global_load_ushort", 2},     {"buffer_load_ubyte", 1},
      {"global_store_b128", 16},     {"global_load_lds_dwordx3", 12},
      {"global_load_d16_hi_b16", 2}, {"ds_store_b96", 12},
      {"flat_load_sbyte_d16", 1},    {"ds_write_b8", 1},
      {"buffer_load_format_xy", 0}};
  for (const auto& [mnemonic, bytes] : widths) {
    INFO(mnemonic);
    CHECK(object::bytes_per_lane(mnemonic) == bytes);
  }
}
