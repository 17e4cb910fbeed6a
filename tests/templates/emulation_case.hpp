// SPDX-License-Identifier: Apache-2.0
// Runs one emulated kernel on one problem and holds the result against the reference.
#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "emulator/kernels.hpp"
#include "spec/problem.hpp"

namespace hstu::test {

// A problem that this kernel serves: lengths from 0 to a little past its tiles, mask numbers in and
// out of range, strides with gaps now and then. The same stream gives the same problem.
jit::Problem random_problem(const emulator::Kernel& kernel, std::mt19937& random);

// Emulates the kernel over poisoned output. Empty if it behaved and its output is right, else what
// is wrong, with the problem in words.
// `head_stride`, if given, replaces that of q, k, v and o: heads so far apart that 32-bit offsets
// would not reach. The problem's tensors are dense then.
std::string run_case(const emulator::Kernel& kernel, const jit::Problem& problem,
                     int64_t head_stride = 0);

}  // namespace hstu::test
