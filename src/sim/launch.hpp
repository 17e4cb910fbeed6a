// SPDX-License-Identifier: Apache-2.0
// Runs a kernel over a grid on the host's processors.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "sim/code.hpp"
#include "sim/memory.hpp"
#include "sim/sim.hpp"

namespace hstu::jit::sim {

struct LaunchRequest {
  std::shared_ptr<const Code> code;
  const KernelEntry* kernel = nullptr;
  std::array<uint32_t, 3> grid{}, block{};  // workgroups; work-items of each
  uint32_t dynamic_lds = 0;
  std::string_view arguments;        // the explicit ones, as the kernel lays them out
  std::vector<MemoryRange> buffers;  // what it may touch
};

// Executes it; `report.fault` tells how it ended. Errors: kUsage for what the kernel or machine
// cannot be launched with (the text says why); nothing was executed then.
Status run_launch(const LaunchRequest& request, const Options& options, LaunchReport& report);

}  // namespace hstu::jit::sim
