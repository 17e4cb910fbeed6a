// SPDX-License-Identifier: Apache-2.0
// The kernels' own source, run on the CPU over random problems, against the reference.
#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "catch.hpp"
#include "emulation_case.hpp"
#include "emulator/emulator.hpp"
#include "spec/geometry.hpp"

namespace {

// More with HSTU_TEST_EMULATION_CASES for a longer hunt.
int cases() {
  const char* text = std::getenv("HSTU_TEST_EMULATION_CASES");
  return text ? std::atoi(text) : 12;
}

unsigned seed_of(std::string_view name) {
  unsigned seed = 1;
  for (const char c : name) seed = seed * 31 + static_cast<unsigned char>(c);
  return seed;
}

// True if one of a few problems shows the fault; the last ones have keys for many steps.
bool noticed(const emulator::Kernel& kernel) {
  std::mt19937 random(7);
  for (int i = 0; i < 12; ++i) {
    hstu::jit::Problem problem = hstu::test::random_problem(kernel, random);
    if (i >= 8) {
      for (auto* lengths : {&problem.uih_q, &problem.uih_kv})
        for (auto& length : *lengths) length += 8 * kernel.tile_n;
      problem.mask.local_len = 0;
    }
    if (!hstu::test::run_case(kernel, problem).empty()) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("emulation: kernels agree with the reference", "[emulation]") {
  for (const emulator::Kernel* kernel : emulator::kernels()) {
    std::mt19937 random(seed_of(kernel->name));
    for (int i = 0; i < cases(); ++i) {
      const std::string wrong =
          hstu::test::run_case(*kernel, hstu::test::random_problem(*kernel, random));
      INFO("case " << i);
      CHECK(wrong == "");
    }
  }
}

// What random lengths seldom give: sequences without a key, beside others and alone, and queries
// so much longer than the keys that whole query tiles see none, or only those of a mask feature.
TEST_CASE("emulation: sequences without keys, queries longer than keys", "[emulation]") {
  int without_keys = 0, longer = 0, empty = 0;
  for (const emulator::Kernel* kernel : emulator::kernels()) {
    std::mt19937 random(seed_of(kernel->name) + 2);
    const int m = kernel->tile_m, n = kernel->tile_n;
    for (const int keys : {0, 1, n / 2 + 3}) {
      hstu::jit::Problem problem = hstu::test::random_problem(*kernel, random);
      problem.batch = 4;
      problem.heads = 1;
      problem.q_strides = problem.k_strides = problem.v_strides = problem.o_strides = std::nullopt;
      problem.num_targets = {0, 0, 0, kernel->targets && keys > 0 ? 5 : 0};
      problem.uih_q = {2 * m + 5, 33, 0, m};
      problem.uih_kv = {keys, 0, n, keys};
      if (!kernel->jagged) {
        problem.num_targets[3] = 0;
        problem.uih_q.assign(4, 2 * m + 5);
        problem.uih_kv.assign(4, keys);
      }
      if (!kernel->cross) problem.uih_q = problem.uih_kv;
      // Context rows are keys of every sequence.
      const int context = kernel->context && keys > 0 ? 3 : 0;
      for (hstu::jit::GroupSpec& group : problem.groups) group.context_len = context;
      problem.mask.context_len = context;
      const auto geometry = hstu::jit::make_geometry(problem);
      REQUIRE(geometry.ok());
      for (const auto& sequence : geometry->sequences) {
        empty += sequence.seqlen_q == 0;
        without_keys += sequence.seqlen_q > 0 && sequence.seqlen_kv == 0;
        longer += sequence.seqlen_kv > 0 && sequence.seqlen_q > sequence.seqlen_kv + m;
      }
      CHECK(hstu::test::run_case(*kernel, problem) == "");
    }
  }
  CHECK(without_keys > 0);
  CHECK(longer > 0);
  CHECK(empty > 0);
}

// Enough keys that main loops run many full steps; logits so large that fast forms of an activation
// overflow, of either sign, and rows whose largest logit keeps growing.
TEST_CASE("emulation: long sequences and large logits", "[emulation]") {
  for (const emulator::Kernel* kernel : emulator::kernels()) {
    std::mt19937 random(seed_of(kernel->name) + 1);
    for (const float alpha : {0.0f, 0.3f, -0.3f, 40.0f, -40.0f}) {
      hstu::jit::Problem problem = hstu::test::random_problem(*kernel, random);
      problem.batch = kernel->grouped ? problem.batch : 1;
      problem.heads = 1;
      problem.alpha = alpha;
      problem.uih_q.assign(problem.batch, kernel->tile_m + 5 * kernel->tile_n + 7);
      problem.uih_kv = problem.uih_q;
      problem.num_targets.assign(problem.batch, kernel->targets ? 9 : 0);
      problem.mask.local_len = kernel->local && alpha != 0.0f ? 4 * kernel->tile_n : 0;
      problem.q_strides = problem.k_strides = problem.v_strides = problem.o_strides = std::nullopt;
      INFO("alpha " << alpha);
      CHECK(hstu::test::run_case(*kernel, problem) == "");
    }
  }
}

// A grid of more (sequence, head) pairs than 16 bits count.
TEST_CASE("emulation: many sequences", "[emulation]") {
  const emulator::Kernel* small = nullptr;
  for (const emulator::Kernel* kernel : emulator::kernels())
    if (kernel->jagged && !kernel->grouped && !kernel->cross &&
        (!small || kernel->threads < small->threads))
      small = kernel;
  REQUIRE(small);
  std::mt19937 random(1);
  hstu::jit::Problem problem = hstu::test::random_problem(*small, random);
  problem.batch = 33000;
  problem.heads = 2;
  problem.uih_q.assign(problem.batch, 0);  // empty ones cost little
  problem.uih_q.front() = problem.uih_q.back() = 5;
  problem.uih_q[32766] = problem.uih_q[32768] = 3;
  problem.uih_kv = problem.uih_q;
  problem.num_targets.assign(problem.batch, 0);
  problem.mask.context_len = 0;
  problem.q_strides = problem.k_strides = problem.v_strides = problem.o_strides = std::nullopt;
  CHECK(hstu::test::run_case(*small, problem) == "");
}

// Offsets that do not fit 32 bits, neither in elements nor in bytes.
TEST_CASE("emulation: heads far apart", "[emulation]") {
  for (const emulator::Kernel* kernel : emulator::kernels()) {
    std::mt19937 random(5);
    hstu::jit::Problem problem = hstu::test::random_problem(*kernel, random);
    problem.heads = 2;
    problem.q_strides = problem.k_strides = problem.v_strides = problem.o_strides = std::nullopt;
    CHECK(hstu::test::run_case(*kernel, problem, (int64_t{1} << 32) + 64) == "");
  }
}

TEST_CASE("emulation: a missing barrier and a wrong lane map are noticed", "[emulation]") {
  for (const emulator::Kernel* kernel : emulator::kernels()) {
    INFO(kernel->name);
    emulator::faults.dropped_barrier = 0;
    CHECK(noticed(*kernel));
    if (kernel->asynchronous) {  // has no second one, but barriers in LDS
      emulator::faults.dropped_barrier = -1;
      for (const int arrival : {0, 40, 100, 250, 600}) {
        emulator::faults.dropped_arrival = arrival;
        CHECK(noticed(*kernel));
      }
      emulator::faults.dropped_arrival = -1;
      emulator::faults.uncounted_copies = true;
      CHECK(noticed(*kernel));
      emulator::faults.uncounted_copies = false;
    } else {
      emulator::faults.dropped_barrier = 1;
      CHECK(noticed(*kernel));
    }
    emulator::faults.dropped_barrier = -1;
    emulator::faults.wrong_lane_map = true;
    CHECK(noticed(*kernel));
    emulator::faults.wrong_lane_map = false;
  }
}

// Kernels of head dims that their LDS layouts promise to be free of conflicts for, whichever of the
// two known orders of lanes the machine has.
TEST_CASE("emulation: LDS is read and written without bank conflicts", "[emulation]") {
  int counted = 0;
  for (const emulator::Kernel* kernel : emulator::kernels()) {
    if (!kernel->conflict_free) continue;
    ++counted;
    for (const bool crossed : {false, true}) {
      emulator::LdsRecorder recorder;
      recorder.banks = kernel->lds_banks;
      recorder.crossed = crossed;
      std::mt19937 random(3);
      const hstu::jit::Problem problem = hstu::test::random_problem(*kernel, random);
      emulator::lds_recorder = &recorder;
      const std::string wrong = hstu::test::run_case(*kernel, problem);
      emulator::lds_recorder = nullptr;
      INFO(kernel->name << (crossed ? " crossed" : " in order"));
      CHECK(wrong == "");
      CHECK(recorder.report.phases > 0);
      CHECK(recorder.report.cycles == recorder.report.phases);
    }
  }
  if (counted == 0)
    fmt::print(
        "SKIPPED: LDS bank conflicts: {} kernels of a machine whose layouts promise nothing\n",
        emulator::kernels().size());
}
