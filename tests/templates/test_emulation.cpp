// SPDX-License-Identifier: Apache-2.0
// The kernels' own source, run on the CPU over random problems, against the reference.
#include <cstdlib>
#include <string_view>

#include "catch.hpp"
#include "emulation_case.hpp"
#include "emulator/emulator.hpp"

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

// True if one of a few problems with enough keys shows the fault.
bool noticed(const emulator::Kernel& kernel) {
  std::mt19937 random(7);
  for (int i = 0; i < 8; ++i)
    if (!hstu::test::run_case(kernel, hstu::test::random_problem(kernel, random)).empty())
      return true;
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

TEST_CASE("emulation: a missing barrier and a wrong lane map are noticed", "[emulation]") {
  for (const emulator::Kernel* kernel : emulator::kernels()) {
    INFO(kernel->name);
    emulator::faults.dropped_barrier = 0;
    CHECK(noticed(*kernel));
    emulator::faults.dropped_barrier = 1;
    CHECK(noticed(*kernel));
    emulator::faults.dropped_barrier = -1;
    emulator::faults.wrong_lane_map = true;
    CHECK(noticed(*kernel));
    emulator::faults.wrong_lane_map = false;
  }
}
