// SPDX-License-Identifier: Apache-2.0
// The HIP back-end over any HipApi: a HIP runtime, a simulator, NVIDIA's driver.
#pragma once

#include <memory>
#include <string>

#include "device/device.hpp"
#include "device/hip/hip_api.hpp"

namespace hstu::jit {

// How many devices the runtime has. Errors: kDevice with the runtime's reason; none is an error.
Result<int> hip_device_count(const HipApi& api);

// Device `ordinal`, named `name` or else "<backend>:<ordinal>". The calling thread's current device
// (or context) is the same after every call as before. Errors: kDevice (no such device, a call
// failed), kUnsupported (an architecture that no target of ours fits).
Result<std::unique_ptr<Device>> open_hip_device(std::shared_ptr<const HipApi> api, int ordinal,
                                                const std::string& name = "");

// "AMD Instinct MI210 (gfx90a:sramecc+:xnack-), 104 CUs, 64 GiB".
std::string hip_description(const HipProperties& properties);

}  // namespace hstu::jit
