// SPDX-License-Identifier: Apache-2.0
// Builds cpu kernels for the tests: a configuration through the source writer and the host's
// compiler, loaded by the cpu device.
#pragma once

#include <memory>
#include <string>

#include "device/device.hpp"
#include "plan/plan.hpp"

namespace hstu::test {

// A configuration with the given sizes and no mask feature.
jit::ForwardConfig plain_config(Dtype dtype, int head_dim_qk, int head_dim_v);

// The kernel of `config` compiled for a level ("x86-64-v3"), built once per program and kept.
// Fails the test when the compiler does.
jit::DeviceKernel& kernel_for(jit::Device& device, const jit::ForwardConfig& config,
                              const std::string& level);

}  // namespace hstu::test
