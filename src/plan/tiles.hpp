// SPDX-License-Identifier: Apache-2.0
// Which tile a forward kernel uses on a machine family. Depends on structure only (dtype, head
// dims, features), never on lengths: problems that differ in lengths share one kernel.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "plan/plan.hpp"

namespace hstu::jit {

struct TileChoice {
  std::string template_name;
  int tile_m = 0, tile_n = 0, waves = 0, waves_per_simd = 0;
  int stages = 0, q_buffers = 0;    // sm_90a alone: steps of keys and query tiles in shared memory
  bool apart = false;               // sm_90a alone: each warpgroup has its own steps of keys
  bool short_first = false;         // a sequence's first tile is the short one, not its last
  int padded_qk = 0, padded_v = 0;  // head dims the matrix instructions run over
  int registers = 0;                // fragments one lane keeps through the loop; 0 on cpu
  int lds_bytes = 0;                // K and V buffers of a workgroup
  int dynamic_lds_bytes = 0;        // the part of it that the launch asks for
  std::vector<std::string> why;
};

// Errors: kUnsupported when the target has no matrix unit we write for.
Result<TileChoice> choose_tiles(const ForwardConfig& config, const Target& target);

}  // namespace hstu::jit
