// SPDX-License-Identifier: Apache-2.0
#include "device/device.hpp"

#include <fmt/format.h>

#include <charconv>

#include "base/log.hpp"
#include "base/text.hpp"
#include "device/cpu/cpu_device.hpp"
#include "device/hip/hip_device.hpp"

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
  // Names of the spec's vocabulary that no back-end of this build serves: not a misspelling.
  if (name.substr(0, 5) == "cuda:" || name.substr(0, 4) == "sim:") {
    return Error{ErrorKind::kUnsupported,
                 fmt::format("device \"{}\": this build launches on cpu and hip only; \"hstu-jit "
                             "compile\" builds for the target without a device",
                             printable(name)),
                 "/device",
                 {}};
  }
  return Error{ErrorKind::kUsage,
               fmt::format("unknown device \"{}\": want auto, cpu, hip or hip:N", printable(name)),
               {},
               {}};
}

}  // namespace hstu::jit
