// SPDX-License-Identifier: Apache-2.0
// Plan: how one Problem runs on one Target. plan() is pure: no device, no file, no clock.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "spec/geometry.hpp"
#include "spec/problem.hpp"
#include "target/target.hpp"

namespace hstu::jit {

// Everything baked into a forward kernel: the fields of templates/attention/config.h.
struct ForwardConfig {
  Dtype dtype = Dtype::bf16;
  int head_dim_qk = 0, head_dim_v = 0;
  Activation activation = Activation::silu;
  bool write_lse = false;
  bool jagged = true, grouped = false;
  MaskFeatures mask{};
  // Windows are so narrow that 64 rows hardly need more than one step; not baked by itself.
  bool narrow = false;
  int tile_m = 0, tile_n = 0, waves = 0, waves_per_simd = 0;
  int stages = 0, q_buffers = 0;  // sm_90a alone
  bool apart = false;             // sm_90a alone: each warpgroup has its own steps of keys
};

struct LaunchShape {
  int64_t grid = 1;  // workgroups, one-dimensional; cpu: work items
  int block = 1;     // threads of a workgroup
  int dynamic_lds_bytes = 0;
};

struct Estimate {
  int64_t visible_pairs = 0;  // all heads
  int64_t dense_pairs = 0;
  double useful_flop = 0;  // 2 * (head_dim_qk + head_dim_v) * visible pairs
  double dense_flop = 0;
  double bytes = 0;  // q, k, v read once, o (and lse) written once
  double full_tiles = 0, partial_tiles = 0;
  int registers = 0;  // budget per lane
  int lds_bytes = 0;  // static + dynamic
  int workgroups_per_cu = 0;
  double matrix_ms = 0, memory_ms = 0;  // lower bounds on the usual part; 0 where unknown
  std::string bound;                    // "matrix", "memory", "empty"
};

struct Plan {
  Target target;
  std::string template_name;  // file under templates/, "attention/forward_gpu.hip.h"
  std::string entry;          // extern "C" name, carries the parameters
  ForwardConfig config;
  LaunchShape launch;
  Estimate estimate;
  std::vector<std::string> why;  // one sentence per choice
};

// How much of a plan is wanted. launch: target, template, entry, configuration and launch shape, in
// microseconds whatever the batch; estimate and `why` stay empty.
enum class PlanDetail { full, launch };

// Errors: kUnsupported when the target has no kernel for this problem.
Result<Plan> make_plan(const Problem& problem, const Geometry& geometry, const Target& target,
                       PlanDetail detail = PlanDetail::full);

std::string to_json(const Plan& plan, int indent = -1);  // schema hstu-jit/plan/1
std::string to_text(const Plan& plan);                   // for people

}  // namespace hstu::jit
