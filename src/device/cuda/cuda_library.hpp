// SPDX-License-Identifier: Apache-2.0
// NVIDIA's driver as a HIP run-time library: a table of HIP entry points over libcuda. No CUDA
// header is needed.
#pragma once

#include "device/library.hpp"

namespace hstu::jit {

// A copy this process already loaded, else the file of HSTU_JIT_CUDA alone, else libcuda.so.1 on
// the loader's path. The driver stays loaded. One driver serves a process: a second library found
// later takes the place of the first.
HipSearch find_cuda();

}  // namespace hstu::jit
