// SPDX-License-Identifier: Apache-2.0
// One row of the kernel table: a kernel planned, compiled, modelled and executed in simulation.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.hpp"
#include "object/schedule.hpp"
#include "sim/counters.hpp"

namespace hstu::jit::table {

struct RowKey {
  std::string target;
  int head_dim = 0;
  Dtype dtype = Dtype::bf16;
  Activation activation = Activation::silu;
};
const char* dtype_name(Dtype dtype);
const char* activation_name(Activation activation);

// A modelled matrix share that a kernel is to reach at two waves a SIMD, or at the occupancy it
// has where two do not fit.
struct Goal {
  const char* target;
  int head_dim;
  double share;
};
// The goal of a row, if it has one: of SiLU in bf16, rounded to nearest even.
std::optional<double> goal_of(const RowKey& key);

// LDS accesses of one direction and width over both launches, whole kernel.
struct Conflicts {
  std::string kind;  // "read b128"
  uint64_t phases = 0, minimum = 0;
};

// One way round the main loop, modelled alone, at the waves that a goal is held against.
struct PathShare {
  int64_t turns = 0;
  int64_t instructions = 0;
  double low = 0, high = 0;
};

struct Row {
  RowKey key;
  std::string entry, toolchain;
  std::optional<Error> error;  // the row ends where this happened
  std::optional<Schedule> schedule;
  int64_t lds_bytes = 0;  // static and dynamic
  std::vector<Conflicts> conflicts;
  int64_t turns = 0;             // of the main loop that the launches differ by, all waves
  int64_t tiles_a_turn = 0;      // tiles of keys
  int64_t simulated_waves = 0;   // instructions that waves executed, in thousands
  std::vector<PathShare> paths;  // ways round the main loop that waves took; the model's first
  std::map<std::string, int> accesses;  // "lds_read": bytes a lane of the narrowest on these ways
  std::vector<std::string> count_differences;
  std::vector<std::string> wrong_results;  // a line for each launch that differs from the reference
  std::optional<double> relative_error;    // Frobenius, the larger one of both launches

  int64_t spills() const;
  const MatrixShare* share_at(int waves) const;  // null when not modelled
  // The share a goal is held against: at two waves, or at the occupancy reached.
  const MatrixShare* judged() const;
  int narrowest(const std::string& kind) const;  // of `accesses`; 0: none
  // What is wrong with the kernel; a missed goal is not among it.
  std::vector<std::string> failures() const;
  // How far the lowest share, of all paths, stays below the goal; 0 when it is reached or there is
  // none.
  double missed_by() const;
};

// Errors are part of the row.
Row make_row(Engine& engine, const Target& target, const RowKey& key);

}  // namespace hstu::jit::table
