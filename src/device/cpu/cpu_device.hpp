// SPDX-License-Identifier: Apache-2.0
// The `cpu` device: loads the shared object a host compiler made and runs it on all cores.
#pragma once

#include <memory>

#include "device/device.hpp"

namespace hstu::jit {

// Threads: HSTU_JIT_THREADS, else what affinity mask and control group allow. Turns the AMX tiles
// on where there are any. Work is finished when launch returns, so streams are formal.
// Errors: kUsage for an HSTU_JIT_THREADS that is no number from 1 to 1024, kDevice when no thread
// can be started.
Result<std::unique_ptr<Device>> open_cpu_device();

// What that number is here, without starting a thread.
Result<int> cpu_thread_count();

}  // namespace hstu::jit
