// SPDX-License-Identifier: Apache-2.0
// The tensors of one problem on a device: inputs, poisoned and guarded outputs, index arrays.
#pragma once

#include <memory>
#include <vector>

#include "base/result.hpp"
#include "check/check.hpp"
#include "device/device.hpp"
#include "engine/forward_launch.hpp"
#include "spec/geometry.hpp"
#include "spec/problem.hpp"

namespace hstu::jit::cli {

// Outputs on the host, laid out by the geometry's strides.
struct HostOutput {
  std::vector<uint16_t> o;
  std::vector<float> lse;
};

class DeviceTensors {
 public:
  // Refuses a problem that does not fit host or device before anything is allocated.
  // Errors: kUnsupported with the bytes needed and the bytes there are.
  static Result<DeviceTensors> create(const Problem& problem, const Geometry& geometry,
                                      Device& device);
  // The same with inputs somebody else made, laid out by the geometry.
  static Result<DeviceTensors> create(const Problem& problem, const Geometry& geometry,
                                      Device& device, HostTensors inputs);

  const HostTensors& inputs() const { return inputs_; }
  ForwardArguments arguments() const { return arguments_; }
  TokenCounts tokens() const { return tokens_; }

  // Every byte of o and lse, guards included, becomes 0xFF: NaN in fp16, bf16 and fp32.
  Status poison_outputs();
  // Errors: kMismatch when a guard before or after an output was written to.
  Status download(HostOutput& output) const;

 private:
  DeviceTensors(Device& device, HostTensors inputs)
      : device_(&device), inputs_(std::move(inputs)) {}
  Status upload(const void* data, size_t bytes, const void** device_address);

  Device* device_;
  HostTensors inputs_;
  ForwardArguments arguments_{};
  TokenCounts tokens_;
  size_t o_bytes_ = 0, lse_bytes_ = 0;
  std::vector<std::unique_ptr<DeviceBuffer>> buffers_;
  std::unique_ptr<DeviceBuffer> o_, lse_;
};

// Writes output_dev.dat, output_host.dat (and lse_dev.dat, lse_host.dat) into problem.dump_dir.
Status dump_outputs(const Problem& problem, const Geometry& geometry, const HostTensors& inputs,
                    const HostOutput& output);

}  // namespace hstu::jit::cli
