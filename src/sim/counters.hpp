// SPDX-License-Identifier: Apache-2.0
// What a simulated launch did. Instruction counts are exact; cycles follow the issue rates of the
// target as object/machine.cpp lists them, conflicts the LDS banks, bytes the addresses of each
// access.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace hstu::jit::sim {

// One instruction of the kernel, executed at least once; in order of address.
struct InstructionCount {
  uint64_t address = 0;  // in the code object
  std::string text;      // "v_add_f32_e32 v0, v1, v2"
  std::string op_class;  // as object/classify.hpp names them
  uint64_t waves = 0;    // how often a wave executed it
};

// LDS accesses of one width.
struct LdsWidth {
  uint64_t accesses = 0;  // wave instructions (each half of read2 counts)
  uint64_t phases = 0;    // cycles of the LDS they took
  uint64_t minimum = 0;   // the phases they would take without bank conflicts
};

struct LaunchCounters {
  uint64_t workgroups = 0, waves = 0;
  std::map<std::string, uint64_t> by_class;  // "valu", "lds_read": names of object/classify.hpp
  std::vector<InstructionCount> instructions;

  uint64_t matrix_passes = 0;  // of 4 clocks each
  // Matrix instructions whose duration is not known: not in matrix_passes, which is too small then.
  uint64_t matrix_unknown = 0;
  std::string first_unknown;  // the mnemonic of the first of them
  uint64_t valu_cycles = 0;   // clocks that vector instructions occupy a SIMD, all waves
  uint64_t lds_cycles = 0;    // clocks that the LDS is occupied, all workgroups
  static constexpr int kLdsWidths = 7;
  std::array<LdsWidth, kLdsWidths> lds_read{},
      lds_write{};  // of 8, 16, 32, 64, 96, 128 bits; atomics

  uint64_t global_read_bytes = 0, global_write_bytes = 0;  // asked for by active lanes
  uint64_t global_read_lines = 0, global_write_lines = 0;  // cache lines touched, per instruction
  uint64_t global_read_minimum = 0, global_write_minimum = 0;  // lines that many bytes need
  int line_bytes = 128;
  uint64_t scalar_read_bytes = 0;

  uint64_t waits = 0;         // wait instructions executed
  uint64_t waits_needed = 0;  // of these, with something outstanding that they waited for
  uint64_t barriers = 0;      // per wave
  // Barriers that a workgroup passed with its waves at different instructions: legal, the hardware
  // counts arrivals.
  uint64_t barriers_apart = 0;
  uint64_t undefined_reads = 0;  // reads of registers that no instruction wrote
  std::string first_undefined;   // where the first of them was

  uint64_t instruction_total() const;
};

// The bound that each unit alone puts on the launch, with its arithmetic; see bound.cpp.
struct Bound {
  double matrix_us = 0, valu_us = 0, lds_us = 0, memory_us = 0;
  std::string limit;       // "matrix", "VALU", "LDS" or "memory"
  std::string arithmetic;  // lines of text
};
Bound bound_of(const LaunchCounters& counters, const std::string& target);

std::string to_text(const LaunchCounters& counters, const std::string& target);
std::string to_json(const LaunchCounters& counters, const std::string& target);

}  // namespace hstu::jit::sim
