// SPDX-License-Identifier: Apache-2.0
// A small attention problem in memory and its double-precision answer, straight from the mask's
// predicate: independent of the intervals and tiles the kernel works with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "build.hpp"

namespace hstu::test {

struct TestProblem {
  jit::ForwardConfig config;
  int heads = 2;
  std::vector<int> seqlen_q, seqlen_kv;  // physical; equal unless cross; batched: all equal
  std::vector<int> targets;              // empty: none
  std::vector<GroupArguments> groups;    // one entry unless config.grouped
  float alpha = 0.125f;
  float magnitude = 1.0f;  // of q, k and v
  int padding = 0;         // extra elements per token and head: strides that are not dense
  uint64_t seed = 1;
};

struct TestRun {
  std::vector<uint16_t> o;
  std::vector<float> lse;
};

// Launches with every output poisoned. Fails the test when an element of the output is left as it
// was or one that is no output is not.
TestRun launch(jit::Device& device, jit::DeviceKernel& kernel, const TestProblem& problem);

// Empty when the run agrees with the reference within the validator's tolerances (element,
// Frobenius, LSE); else the first disagreement.
std::string disagreement(const TestProblem& problem, const TestRun& run);

}  // namespace hstu::test
