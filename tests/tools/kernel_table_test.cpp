// SPDX-License-Identifier: Apache-2.0
// The comparison of simulated instruction counts with the model's loop notices every kind of
// change.
#include "catch.hpp"
#include "kernel_table_counts.hpp"

namespace hstu::test {
namespace {

using jit::ListedInstruction;
using jit::sim::LaunchCounters;

// A loop of six instructions between a prologue and an epilogue of one each. Within it, a third of
// the waves execute a part that the others branch over.
struct Example {
  jit::table::KernelCode kernel;
  std::map<std::string, int64_t> mix{{"transcendental", 1}, {"valu", 3}, {"branch", 2}};
  LaunchCounters fewer = launch(30), more = launch(42);
  int64_t turns = 12;

  Example() {
    kernel.code = {{4, 4, "v_mov_b32_e32", "v0, 0"},       {8, 4, "v_exp_f32_e32", "v1, v0"},
                   {12, 4, "s_cbranch_vccz", "1"},         {16, 4, "v_mul_f32_e32", "v3, v1, v0"},
                   {20, 4, "v_add_f32_e32", "v1, v1, v0"}, {24, 4, "v_add_f32_e32", "v2, v1, v0"},
                   {28, 4, "s_cbranch_scc1", "65530"},     {32, 4, "s_endpgm", ""}};
    kernel.loop.address = 8;
    kernel.loop.path.assign(kernel.code.begin() + 1, kernel.code.end() - 1);
  }

  static LaunchCounters launch(uint64_t turns) {
    LaunchCounters out;
    out.instructions = {{4, "v_mov_b32_e32 v0, 0", "valu", 3},
                        {8, "v_exp_f32_e32 v1, v0", "transcendental", turns},
                        {12, "s_cbranch_vccz 1", "branch", turns},
                        {16, "v_mul_f32_e32 v3, v1, v0", "valu", turns / 3},
                        {20, "v_add_f32_e32 v1, v1, v0", "valu", turns},
                        {24, "v_add_f32_e32 v2, v1, v0", "valu", turns},
                        {28, "s_cbranch_scc1 65530", "branch", turns},
                        {32, "s_endpgm", "other", 3}};
    for (const auto& i : out.instructions) out.by_class[i.op_class] += i.waves;
    return out;
  }
  jit::table::TurnReport compare() const {
    return jit::table::compare_turns(kernel, mix, fewer, more, turns);
  }
  size_t differences() const { return compare().differences.size(); }
  // Changes a count consistently, as a wrong execution would.
  void change(size_t index, int64_t by) {
    more.instructions[index].waves += static_cast<uint64_t>(by);
    more.by_class[more.instructions[index].op_class] += static_cast<uint64_t>(by);
  }
};

}  // namespace

TEST_CASE("kernel table: equal counts are found equal, with the paths that waves took") {
  const jit::table::TurnReport report = Example().compare();
  CHECK(report.differences.empty());
  REQUIRE(report.paths.size() == 2);
  CHECK(report.paths[0].turns == 4);
  CHECK(report.paths[0].path.size() == 6);
  CHECK(report.paths[1].turns == 8);
  CHECK(report.paths[1].path.size() == 5);
}

TEST_CASE("kernel table: a changed count is noticed") {
  for (const size_t index : {0, 1, 2, 4, 5, 6, 7}) {
    for (const int by : {-1, 1}) {
      Example e;
      e.change(index, by);
      INFO("instruction " << index << " by " << by);
      CHECK(e.differences() >= 2);  // its address and its class
    }
  }
  // One wave more or less on the other branch is another, equally whole, way round.
  for (const int by : {-1, 1}) {
    Example e;
    e.change(3, by);
    const jit::table::TurnReport report = e.compare();
    CHECK(report.differences.empty());
    CHECK(report.paths[0].turns == 4 + by);
    CHECK(report.paths[1].turns == 8 - by);
  }
  Example moved;  // within a class
  moved.change(4, 1);
  moved.change(5, -1);
  CHECK(moved.differences() >= 2);
  Example class_only;
  class_only.more.by_class["valu"] += 1;
  CHECK(class_only.differences() == 2);
  Example no_class;
  no_class.more.by_class.erase("branch");
  CHECK(no_class.differences() >= 2);
  Example other_turns;
  other_turns.turns = 11;
  CHECK(other_turns.differences() == 1);
}

TEST_CASE("kernel table: another path, mix or instruction is noticed") {
  Example never;  // on the path, executed in one launch only
  never.fewer.by_class["valu"] -= never.fewer.instructions[3].waves;
  never.fewer.instructions.erase(never.fewer.instructions.begin() + 3);
  CHECK(never.differences() >= 1);
  Example not_taken;  // the model's path skips what all waves execute
  not_taken.kernel.loop.path.erase(not_taken.kernel.loop.path.begin() + 3);
  not_taken.mix["valu"] = 2;
  CHECK(not_taken.differences() == 1);
  Example mix;
  mix.mix["valu"] = 4;
  CHECK(mix.differences() == 1);
  Example less;
  less.mix.erase("branch");
  CHECK(less.differences() == 1);
  Example renamed;
  renamed.kernel.loop.path[2].mnemonic = "v_sub_f32_e32";
  CHECK(renamed.differences() >= 1);
}

TEST_CASE("kernel table: shapes of matrix instructions") {
  using jit::table::multiply_adds;
  CHECK(multiply_adds("v_mfma_f32_32x32x8f16") == 32 * 32 * 8);
  CHECK(multiply_adds("v_mfma_f32_32x32x8_bf16_1k") == 32 * 32 * 8);
  CHECK(multiply_adds("v_mfma_f32_32x32x8bf16_1k") == 32 * 32 * 8);
  CHECK(multiply_adds("v_mfma_f32_32x32x16_bf16") == 32 * 32 * 16);
  CHECK(multiply_adds("v_wmma_f32_16x16x16_f16") == 16 * 16 * 16);
  CHECK(multiply_adds("v_mfma_f32") == 0);
  CHECK(multiply_adds("v_mfma_f32_32x32") == 0);
  CHECK(multiply_adds("v_add_f32_e32") == 0);
  const std::vector<ListedInstruction> path = {{0, 8, "v_mfma_f32_16x16x16f16", ""},
                                               {8, 4, "v_add_f32_e32", ""},
                                               {12, 8, "v_mfma_f32_16x16x16f16", ""}};
  CHECK(multiply_adds(path) == 2 * 16 * 16 * 16);
}

}  // namespace hstu::test
