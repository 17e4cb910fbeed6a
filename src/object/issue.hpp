// SPDX-License-Identifier: Apache-2.0
// Issue model of one SIMD: replays a loop for some waves, honouring waits, ports and latencies.
#pragma once

#include <array>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "object/listing.hpp"
#include "object/machine.hpp"

namespace hstu::jit::object {

// Counters of memory operations in flight: loads, stores, LDS, scalar. Older machines count stores
// with loads and scalar loads with LDS.
constexpr size_t kCounters = 4;

struct Step {
  enum class Kind : uint8_t {
    valu,
    transcendental,
    matrix,
    scalar,
    lds,
    global,
    wait,
    arrive,   // at a split barrier
    barrier,  // waits for the others; `arrives` when it is both
    pause,
    priority
  };
  Kind kind = Kind::scalar;
  bool arrives = false;
  double busy = 1;       // ticks its unit is taken; of a pause: ticks until the next instruction
  double result = 1;     // ticks from issue to result (memory: to the end of the access)
  double lds_ticks = 0;  // of the LDS port, this SIMD's share
  int counter = -1;      // of kCounters, the one a memory operation is counted by
  int number = 0;        // priority
  std::array<int, kCounters> wait_for = {-1, -1, -1, -1};
  std::vector<uint16_t> reads, writes;
};

// The steps of a loop's path; hints that take no time are left out. Errors: kFailed for a matrix
// instruction whose duration is unknown.
Result<std::vector<Step>> make_steps(std::span<const ListedInstruction> path,
                                     const Machine& machine, int wave_width);

// Which wave goes first in a tick, after those of higher s_setprio.
enum class Order : uint8_t { turns, matrix_first, oldest_first };

struct Policy {
  const char* name;
  Order order;
  // CDNA: a transcendental under way holds matrix instructions back. RDNA: a matrix instruction
  // under way holds other vector instructions back.
  bool exclusive;
};
std::span<const Policy> issue_policies();

struct Replay {
  double matrix_share = 0;               // of all ticks of the steady state, 0 to 1
  double ticks_per_round = 0;            // of one wave
  std::map<std::string, double> stalls;  // reason -> share of one wave's ticks
};

// `waves` on the SIMD, of which each `group` in sequence share a barrier. Errors: kFailed when the
// waves come to no steady state (they wait for each other).
Result<Replay> replay(std::span<const Step> steps, const Machine& machine, int waves, int group,
                      const Policy& policy);

}  // namespace hstu::jit::object
