// SPDX-License-Identifier: Apache-2.0
// What the issue model assumes of each AMD architecture: one table, every constant with its source.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace hstu::jit::object {

// Durations are in clocks of one SIMD. A tick is the time one vector instruction of the kernel's
// wave width takes to issue: 4 clocks on CDNA (64 lanes on a 16-lane SIMD), 1 on RDNA.
struct Machine {
  const char* name;  // of the family's row, "gfx942"
  int tick;
  // Registers of one lane of a SIMD, their allocation granule, and waves a SIMD holds.
  int registers, register_granule, max_waves;
  bool agprs_apart;  // AGPRs are a second file instead of a part of `registers`
  // LDS that workgroups share, the SIMDs of that share, and what the port of `lds_port_simds`
  // SIMDs moves per clock.
  int lds_bytes, lds_simds, lds_port_simds, lds_port_bytes;
  // VALU issue and result; packed float32; transcendental issue (its unit is busy so long), whether
  // that unit is apart from the VALU.
  int valu_latency, packed_f32, transcendental, transcendental_latency, quarter_rate;
  bool transcendental_apart;
  int matrix_extra;  // from the end of a matrix instruction to a VALU read of its result
  int lds_latency, global_latency, scalar_latency;
};

// The machine of a target ("gfx942", or a member of a row's family), with `overrides` of the form
// "name=clocks" applied (names: machine_assumptions). Errors: kUnsupported for a target without a
// row, kUsage for an override that is none.
Result<Machine> find_machine(std::string_view target, std::span<const std::string> overrides);

// Clocks a matrix instruction keeps the matrix unit busy; nothing when the table has no row for it.
std::optional<int> matrix_clocks(const Machine& machine, std::string_view mnemonic);

// The durations that may be overridden, with where the number comes from.
struct Assumption {
  const char* name;
  int Machine::*clocks;
  const char* source;
};
std::span<const Assumption> machine_assumptions();

// Sentences on what the model holds true of this machine beside the numbers.
std::vector<std::string> machine_rules(const Machine& machine);

}  // namespace hstu::jit::object
