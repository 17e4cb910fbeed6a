// SPDX-License-Identifier: Apache-2.0
// Finding a HIP run-time library, and what its answers mean. No HIP header is needed.
#pragma once

#include <cstdint>
#include <string>

#include "base/hip_table.hpp"
#include "base/result.hpp"
#include "device/library.hpp"

namespace hstu::jit {

// What the layouts of hipDeviceProp_t are read for.
struct HipProperties {
  std::string name;  // "AMD Instinct MI210"
  std::string arch;  // "gfx90a:sramecc+:xnack-", "sm_90a"
  uint64_t total_memory = 0;
  int compute_units = 0;
  int lds_bytes = 0;  // 0: as the target has it
};

// Errors: kDevice with the call and the runtime's reason, or when the answer fits no layout.
Result<HipProperties> hip_properties(const HipApi& api, int ordinal);

// "<what>: <call> failed: <the runtime's text> (<code>)". kFailed when a kernel faulted,
// kUnsupported when the runtime cannot run the object, else kDevice.
Error hip_error(const HipApi& api, const std::string& what, const char* call, int code);

// A copy this process already loaded, else the file of HSTU_JIT_HIP alone, else libamdhip64.so.7,
// .6, .5 and unversioned on the loader's path, in $ROCM_PATH/lib and in /opt/rocm/lib. Libraries
// stay loaded: HIP does not survive being unloaded.
HipSearch find_hip();

}  // namespace hstu::jit
