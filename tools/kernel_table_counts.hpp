// SPDX-License-Identifier: Apache-2.0
// Whether a simulated kernel executed its main loop as the issue model describes it.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "object/loop.hpp"
#include "sim/counters.hpp"

namespace hstu::jit::table {

// The code of one kernel and its main loop, as model_schedules() finds it.
struct KernelCode {
  std::vector<ListedInstruction> code;
  object::Loop loop;
};
Result<KernelCode> read_kernel_code(std::string_view object, const std::string& kernel);

// Multiply-adds of one matrix instruction of a wave, from the shape in its name
// ("v_mfma_f32_32x32x8f16" 8192); 0 when the name holds no shape.
int64_t multiply_adds(std::string_view mnemonic);
int64_t multiply_adds(std::span<const ListedInstruction> path);

// Instructions of a path by class.
std::map<std::string, int64_t> mix_of(std::span<const ListedInstruction> path);

// One way round the loop that waves took.
struct ExecutedPath {
  int64_t turns = 0;  // of all waves
  std::vector<ListedInstruction> path;
};

struct TurnReport {
  // The model's path first. Others: waves of a workgroup may have different parts, such as fetching
  // keys or values. Where such branches follow each other, counts do not say which waves took both;
  // paths are then one way to sum up to the counts.
  std::vector<ExecutedPath> paths;
  std::vector<std::string> differences;  // empty: everything below holds exactly
};

// Two launches of one kernel that differ by `turns` turns of its main loop in the steady state,
// summed over all waves, and by nothing else. What must hold:
//  - the model's path was taken; its instructions are those that the simulator executed at these
//    addresses, and `mix` is its number of instructions by class;
//  - the loop's header was passed exactly `turns` times more;
//  - what each address of the kernel executed more, and each class, is exactly the sum of the
//    paths: whole ways round the loop, from its header back to it;
//  - the counts by class of each launch are the sums over its addresses.
TurnReport compare_turns(const KernelCode& kernel, const std::map<std::string, int64_t>& mix,
                         const sim::LaunchCounters& fewer, const sim::LaunchCounters& more,
                         int64_t turns);

}  // namespace hstu::jit::table
