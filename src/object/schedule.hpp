// SPDX-License-Identifier: Apache-2.0
// How well the main loop of an AMD kernel keeps the matrix unit busy, by an issue model that
// honours waits. A static estimate: no device and no run is needed.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "object/inspect.hpp"

namespace hstu::jit {

// Waves a SIMD holds of one kernel.
struct Occupancy {
  double waves_per_simd = 0;  // with whole workgroups; 0 when none fits
  int workgroup_waves = 0;    // of the largest workgroup the object allows
  int by_registers = 0;       // waves a SIMD has registers for
  int workgroups = 0;         // that share an LDS
  std::string limited_by;     // "registers", "LDS", "waves"
};

struct ScheduleAccess {
  std::string kind;  // "lds_read", "lds_write", "global_read", ...
  int bytes = 0;     // of one lane
  int64_t count = 0;
};

// Share of all clocks in which the matrix unit works. `low` and `high`: over waves that take turns
// and matrix instructions that go first, each with and without overlap (see the rules). The oldest
// wave going first is given apart: it lets waves run in step or apart as chance has it.
struct MatrixShare {
  int waves = 0;         // on the SIMD
  bool reached = false;  // the kernel's occupancy has as many
  double low = 0, high = 0;
  double oldest_low = 0, oldest_high = 0;
  std::map<std::string, double> policies;
  double clocks_per_round = 0;           // of one wave, first policy
  std::map<std::string, double> stalls;  // "issuing", "lds wait", ...: shares of its time
};

struct LoopReport {
  uint64_t address = 0;
  int blocks = 0, blocks_on_path = 0, matrix_loops = 0;
  int64_t instructions = 0;      // of the path that is modelled
  int64_t all_instructions = 0;  // of the whole loop, other paths included
  int64_t mask_instructions = 0;
  bool inner_loops = false;
  std::map<std::string, int64_t> classes, mnemonics;  // of the path; every instruction counts
  std::vector<ScheduleAccess> accesses;               // LDS and global, of the path
};

struct Schedule {
  KernelInfo kernel;
  std::string target;
  Occupancy occupancy;
  LoopReport loop;
  // Clocks one round of one wave needs of each unit, were it alone; LDS: this SIMD's share.
  double matrix_clocks = 0, valu_clocks = 0, transcendental_clocks = 0, matrix_issue_clocks = 0,
         lds_clocks = 0;
  double bound_low = 0, bound_high = 0;  // no schedule can have a greater matrix share
  std::string limited_by;                // "matrix", "VALU", "LDS", "transcendental"
  std::vector<MatrixShare> shares;       // 1, 2 and (where it fits) 4 waves and the occupancy
  struct Assumption {
    std::string name;
    int clocks = 0;
    std::string source;
  };
  std::vector<Assumption> assumptions;
  std::vector<std::string> rules;
};

// Models each kernel of an AMDGPU code object. `overrides`: "transcendental=16" and the like.
// A kernel that cannot be modelled adds a line to `notes`. Errors: kFailed for bytes that are no
// AMDGPU object or hold no kernel with a loop around matrix instructions (the first kernel's
// reason); kUnsupported without a disassembler or for a target without a model; kUsage for a bad
// override.
Result<std::vector<Schedule>> model_schedules(std::string_view object,
                                              std::span<const std::string> overrides,
                                              std::vector<std::string>& notes);

std::string to_text(const Schedule& schedule);
// One report of the "reports" of hstu-jit/schedule/1.
std::string to_json(const Schedule& schedule, int indent = -1);

}  // namespace hstu::jit
