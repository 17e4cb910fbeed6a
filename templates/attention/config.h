// SPDX-License-Identifier: Apache-2.0
// The configuration a forward kernel is written over. This file holds the defaults that make a
// template compile on its own; the source writer puts the planner's values in its place.
#pragma once

#include "base/types.h"

namespace hstu {

struct Config {
  static constexpr Dtype dtype = Dtype::bf16;
  static constexpr int head_dim_qk = 128;  // exact, a multiple of 8
  static constexpr int head_dim_v = 128;
  static constexpr Activation activation = Activation::silu;
  static constexpr bool write_lse = false;
  // Layout
  static constexpr bool jagged = true;
  static constexpr bool grouped = false;
  // Mask structure; a feature that is off costs nothing
  static constexpr bool causal = true;
  static constexpr bool cross = false;
  static constexpr bool local = true;
  static constexpr bool context = true;
  static constexpr bool minfull = true;
  static constexpr bool targets = true;
  // Schedule
  static constexpr int tile_m = 128;        // query rows of a workgroup
  static constexpr int tile_n = 64;         // keys of a step
  static constexpr int waves = 4;           // waves (warps) of a workgroup; cpu: 1
  static constexpr int waves_per_simd = 2;  // occupancy the registers are budgeted for
  static constexpr int stages = 2;          // steps of keys in shared memory (sm_90a)
  static constexpr int q_buffers = 2;       // query tiles in shared memory (sm_90a)
  static constexpr bool apart = false;      // each warpgroup has its own steps of keys (sm_90a)
};

}  // namespace hstu

#define HSTU_ENTRY hstu_forward
