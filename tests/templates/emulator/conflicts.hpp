// SPDX-License-Identifier: Apache-2.0
// LDS bank conflicts, counted from the addresses of a workgroup.
#pragma once

#include <vector>

#include "kernels.hpp"

namespace emulator {

// One LDS access of one lane: the index-th one from this place in the code.
struct Access {
  int wave;
  const void* place;
  int index, lane;
  int offset, bytes;
};

// Turns the workgroup's accesses into instructions, adds them up and forgets them.
void report_accesses(std::vector<Access>& accesses, int width, LdsRecorder& recorder);

}  // namespace emulator
