// SPDX-License-Identifier: Apache-2.0
// What one host thread counts while it executes waves; added up when a launch ends.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/counters.hpp"

namespace hstu::jit::object {
struct Machine;
}

namespace hstu::jit::sim {

// Accesses of global memory in one direction.
struct GlobalTally {
  uint64_t bytes = 0, lines = 0, minimum = 0;
};

struct Tally {
  explicit Tally(size_t instructions) : executed(instructions, 0) {}
  std::vector<uint64_t> executed;  // by index of the instruction
  std::array<LdsWidth, LaunchCounters::kLdsWidths> lds_read{}, lds_write{};
  GlobalTally global_read, global_write;
  uint64_t scalar_read_bytes = 0;
  uint64_t workgroups = 0, waves = 0, barriers = 0, barriers_apart = 0;
  uint64_t waits = 0, waits_needed = 0;
  uint64_t undefined_reads = 0;
  std::string first_undefined;

  void add(const Tally& other);
};

class Code;
struct Machine;
// Everything that follows from the counts of a launch of `code`.
LaunchCounters counters_of(const Tally& tally, const Code& code, const Machine& machine);

// Adds the clocks of `n` executions of an instruction of class `kind` (object/classify.hpp).
void add_clocks(LaunchCounters& counters, const object::Machine& rates, std::string_view kind,
                const std::string& mnemonic, uint64_t n);

// Place of a width in LaunchCounters::lds_read: 1, 2, 4, 8, 12 and 16 bytes.
inline int lds_width_index(int bytes) {
  return bytes <= 1 ? 0 : bytes == 2 ? 1 : bytes == 4 ? 2 : bytes == 8 ? 3 : bytes == 12 ? 4 : 5;
}
constexpr int kLdsAtomicIndex = 6;

}  // namespace hstu::jit::sim
