// SPDX-License-Identifier: Apache-2.0
// Which target a problem, a device and the command line ask for together.
#include <fmt/format.h>

#include "base/text.hpp"
#include "cli/commands.hpp"
#include "device/device.hpp"
#include "sim/sim.hpp"

namespace hstu::jit::cli {

Result<Target> target_of_device(const std::string& device, const Target& runs,
                                const std::string& wanted) {
  if (wanted == "auto") return runs;
  Result<Target> named = find_target(wanted);
  if (!named) return named;
  // Every level of the host's processor is a target of its own.
  if (named->vendor == runs.vendor && (runs.vendor == Vendor::cpu || named->name == runs.name))
    return named;
  std::string advice = "leave the target out, ";
  if (sim::find_machine(named->name)) {
    advice += fmt::format("simulate it with --device sim:{}, ", named->name);
  }
  return Error{ErrorKind::kUnsupported,
               fmt::format("/target: device {} runs {}, not {}; {}or use \"hstu-jit compile\" to "
                           "build for it without running",
                           device, runs.name, named->name, advice),
               "/target", ""};
}

Result<Target> plan_target(const Problem& problem, const Common& common) {
  const std::string& device = problem.device;
  // A named target needs no device, and --target wins over what the spec says of devices. Only a
  // device whose name alone says what it runs can contradict it.
  const bool telling = device == "cpu" || device.rfind("sim:", 0) == 0;
  const bool settled =
      problem.target != "auto" && (!telling || (!common.target.empty() && common.device.empty()));
  if (settled || device == "auto") {
    return find_target(problem.target == "auto" ? "cpu" : problem.target);
  }
  Result<std::unique_ptr<Device>> opened = open_device(device);
  if (!opened) {
    Error error = std::move(opened).error();
    if (error.kind == ErrorKind::kDevice) {
      error.message += "; to plan or compile without that device name its --target";
    }
    return error;
  }
  Result<Target> target = target_of_device(device, (*opened)->target(), problem.target);
  if (!target && target.error().kind == ErrorKind::kUnsupported && !common.target.empty()) {
    return Error{ErrorKind::kUsage,
                 fmt::format("--target {} and --device {} contradict each other: the device runs "
                             "{}; leave one of them out",
                             printable(common.target), device, (*opened)->target().name),
                 "", ""};
  }
  return target;
}

}  // namespace hstu::jit::cli
