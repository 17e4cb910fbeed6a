// SPDX-License-Identifier: Apache-2.0
// One problem, run to its end: plan, kernel, data, launch, check, figures.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "bench/bench.hpp"
#include "check/check.hpp"
#include "device/device.hpp"
#include "engine/engine.hpp"
#include "engine/forward_launch.hpp"
#include "spec/problem.hpp"

namespace hstu::jit::cli {

struct JobOptions {
  ToleranceSpec tolerance;
  bool keep_going = true;
  // Say on standard error how long simulated launches take and how far they are.
  bool watch_simulation = false;
};

struct JobReport {
  std::string name;
  std::optional<Error> error;  // status "error", or the mismatch
  std::string device, target;
  std::string kernel_name, key, origin, toolchain, cache_note;
  double compile_ms = 0, prepare_ms = 0;
  // Of a launch, in milliseconds. Of simulated devices: what simulating it took this host, which
  // says nothing of a GPU, so that there is no rate.
  Summary run_ms;
  bool simulated = false;
  double useful_tflops = 0, dense_tflops = 0;
  int64_t visible_pairs = 0;  // all heads
  std::optional<Comparison> validation;
  // What the first launch did, on simulated devices; empty elsewhere.
  std::string counters_text, counters_json;
  std::string problem_line;  // "bf16, 4 heads, 128/128, jagged, 10 sequences ..."

  bool failed() const { return error.has_value(); }
};

// Devices and kernels stay open over the problems of a suite.
class JobRunner {
 public:
  JobRunner(Engine& engine, JobOptions options) : engine_(engine), options_(options) {}
  JobReport run(const Problem& problem);

 private:
  Status run_into(const Problem& problem, JobReport& report);
  Result<Device*> device_for(const std::string& name);

  struct Loaded {
    Device* device;
    std::unique_ptr<DeviceKernel> kernel;
    std::unique_ptr<ForwardLauncher> launcher;
  };
  Engine& engine_;
  JobOptions options_;
  std::map<std::string, std::unique_ptr<Device>> devices_;
  std::map<std::string, Loaded> loaded_;  // by device and key; destroyed before the devices
};

}  // namespace hstu::jit::cli
