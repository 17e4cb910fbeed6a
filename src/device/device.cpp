// SPDX-License-Identifier: Apache-2.0
#include "device/device.hpp"

#include <fmt/format.h>

#include <charconv>

#include "base/log.hpp"
#include "base/text.hpp"
#include "device/cpu/cpu_device.hpp"
#include "device/hip/hip_device.hpp"
#include "object/listing.hpp"
#include "sim/sim.hpp"

namespace hstu::jit {
namespace {

std::string devices_text(size_t count) {
  return count == 1 ? "1 device" : fmt::format("{} devices", count);
}

BackendReport probe_hip() {
  BackendReport report;
  report.backend = "hip";
  HipSearch search = find_hip();
  report.libraries = std::move(search.libraries);
  if (!search.api) {
    report.status = "no HIP runtime library (libamdhip64) serves";
    return report;
  }
  const Result<int> count = hip_device_count(*search.api);
  if (!count) {
    report.status = count.error().message;
    return report;
  }
  size_t usable = 0;
  for (int i = 0; i < *count; ++i) {
    const Result<HipProperties> properties = hip_properties(*search.api, i);
    if (!properties) {
      report.devices.push_back(
          fmt::format("hip:{}  cannot be used: {}", i, properties.error().message));
      continue;
    }
    const std::string line = fmt::format("hip:{}  {}", i, hip_description(*properties));
    const Result<std::unique_ptr<Device>> device = open_hip_device(search.api, i);
    usable += device.ok();
    report.devices.push_back(device ? line : line + ", cannot be used: " + device.error().message);
  }
  report.status = devices_text(static_cast<size_t>(*count));
  if (usable != static_cast<size_t>(*count)) report.status += fmt::format(", {} usable", usable);
  return report;
}

BackendReport probe_cpu() {
  BackendReport report;
  report.backend = "cpu";
  const Result<std::unique_ptr<Device>> cpu = open_cpu_device();
  if (!cpu) {
    report.status = cpu.error().message;
    return report;
  }
  report.devices.push_back(fmt::format("cpu  {}", (*cpu)->description()));
  report.status = devices_text(1);
  return report;
}

// One line per simulated target; those whose code no disassembler here reads say so.
BackendReport probe_simulator() {
  BackendReport report;
  report.backend = "sim";
  size_t usable = 0;
  for (const std::string_view target : sim::simulated_targets()) {
    std::string line = fmt::format("sim:{}", target);
    const Result<std::unique_ptr<Device>> device = open_device(line);
    const Result<std::string> disassembler = find_amd_disassembler(std::string(target));
    line +=
        device ? "  " + (*device)->description() : "  cannot be used: " + device.error().message;
    if (device && !disassembler) line += ", cannot be used: " + disassembler.error().message;
    usable += device.ok() && disassembler.ok();
    report.devices.push_back(std::move(line));
  }
  report.status = fmt::format("{} simulated targets", report.devices.size());
  if (usable != report.devices.size()) report.status += fmt::format(", {} usable", usable);
  return report;
}

Result<std::unique_ptr<Device>> open_simulated(std::string_view target) {
  const std::optional<int> ordinal = sim::find_machine(target);
  if (!ordinal) {
    std::vector<std::string> known;
    for (const std::string_view name : sim::simulated_targets()) known.emplace_back(name);
    const std::string suggestion = nearest(target, known);
    std::string list;
    for (const std::string& name : known) list += (list.empty() ? "sim:" : ", sim:") + name;
    return Error{ErrorKind::kUnsupported,
                 fmt::format("device \"sim:{}\": simulated are {}{}", printable(target), list,
                             suggestion.empty() ? "" : "; did you mean sim:" + suggestion + "?"),
                 "/device",
                 {}};
  }
  return open_hip_device(sim::simulator_api(), *ordinal, "sim", fmt::format("sim:{}", target));
}

Result<std::unique_ptr<Device>> open_hip(int ordinal) {
  const HipSearch search = find_hip();
  if (search.api) return open_hip_device(search.api, ordinal);
  std::string tried;
  for (const LibraryProbe& probe : search.libraries)
    tried += probe.library + ": " + probe.reason + '\n';
  return Error{ErrorKind::kDevice,
               "no HIP runtime library (libamdhip64) serves: `hstu-jit devices` lists what was "
               "tried, HSTU_JIT_HIP names one",
               {},
               tried};
}

}  // namespace

std::vector<BackendReport> probe_backends() {
  std::vector<BackendReport> reports;
  reports.push_back(probe_hip());
  reports.push_back(probe_cpu());
  reports.push_back(probe_simulator());
  return reports;
}

Result<std::unique_ptr<Device>> open_device(std::string_view name) {
  if (name == "cpu") return open_cpu_device();
  if (name == "auto") {
    // A GPU that is there and cannot serve is worth a word; none at all is not.
    const HipSearch search = find_hip();
    if (search.api && hip_device_count(*search.api)) {
      Result<std::unique_ptr<Device>> gpu = open_hip_device(search.api, 0);
      if (gpu) return gpu;
      log_warn("the cpu is used: " + gpu.error().message);
    }
    return open_cpu_device();
  }
  if (name == "hip") return open_hip(0);
  if (name.substr(0, 4) == "hip:") {
    const std::string_view digits = name.substr(4);
    int ordinal = -1;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), ordinal);
    if (error == std::errc() && end == digits.data() + digits.size() && ordinal >= 0) {
      return open_hip(ordinal);
    }
  }
  if (name.substr(0, 4) == "sim:") return open_simulated(name.substr(4));
  // A name of the spec's vocabulary that no back-end of this build serves: not a misspelling.
  if (name.substr(0, 5) == "cuda:") {
    return Error{ErrorKind::kUnsupported,
                 fmt::format("device \"{}\": this build launches on cpu, hip and sim; \"hstu-jit "
                             "compile\" builds for the target without a device",
                             printable(name)),
                 "/device",
                 {}};
  }
  return Error{ErrorKind::kUsage,
               fmt::format("unknown device \"{}\": want auto, cpu, hip, hip:N or sim:TARGET",
                           printable(name)),
               {},
               {}};
}

}  // namespace hstu::jit
