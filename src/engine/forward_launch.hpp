// SPDX-License-Identifier: Apache-2.0
// From what every forward kernel is told (ForwardArguments) to the launch its template wants: the
// grid, and for copy-engine kernels the tensor maps and a workspace.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "attention/arguments.h"  // templates/
#include "base/result.hpp"
#include "device/device.hpp"
#include "plan/plan.hpp"

namespace hstu::jit {

// Rows of q and of k and v in memory: batched, the length of every sequence; jagged, of all
// sequences together.
struct TokenCounts {
  int64_t q = 0, kv = 0;
};

// The template whose kernels take HopperArguments.
constexpr const char* kHopperTemplate = "attention/forward_hopper.hip";

class ForwardLauncher {
 public:
  // Allocates what launches of the plan's kernel need on the device, which must outlive this.
  static Result<std::unique_ptr<ForwardLauncher>> create(Device& device, const Plan& plan);

  // Workgroups for a batch. Errors: kUnsupported when they cannot be counted.
  Result<int64_t> grid(const ForwardArguments& arguments) const;

  // Enqueues the kernel; nothing for a batch without rows. Allocates nothing, waits for nothing and
  // may be called from several threads. Errors: kUsage when the tokens are needed and not there.
  Status launch(DeviceKernel& kernel, const ForwardArguments& arguments, const TokenCounts& tokens,
                void* stream);

  // Whether launches need the tokens of jagged tensors.
  bool needs_tokens() const { return hopper_; }

  // The argument of one launch on `stream`, for who launches by other means; only where
  // needs_tokens().
  Status fill(const ForwardArguments& forward, const TokenCounts& tokens, void* stream,
              HopperArguments& arguments);

 private:
  // Launches that may run at the same time need counters of their own. The next of a ring, which
  // comes round when far more launches are under way than a device takes; a captured launch, whose
  // graph may run beside anything, has one that no other gets. (Two instances of one graph would
  // share it: they may not run at the same time, as they may not write to one output.)
  static constexpr size_t kRing = 16384, kCaptures = 16384;

  ForwardLauncher(Device& device, const Plan& plan);
  Status encode(const TensorMapShape& shape, int which, TensorMap& map) const;
  Result<size_t> slot_of(void* stream);
  Result<int64_t> tiles(const ForwardArguments& arguments, int rows_of_tile) const;
  bool shares_tiles(const ForwardArguments& arguments) const;

  const uint64_t number_;  // never another launcher's
  Device* device_;
  ForwardConfig config_;
  LaunchShape shape_;
  bool hopper_ = false;
  bool splits_ = false;  // its kernel can share a tile between two workgroups
  int compute_units_ = 0;
  std::unique_ptr<DeviceBuffer> counters_;
  std::atomic<size_t> launches_{0}, captures_{0};
};

}  // namespace hstu::jit
