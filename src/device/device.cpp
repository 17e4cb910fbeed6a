// SPDX-License-Identifier: Apache-2.0
#include "device/device.hpp"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "base/log.hpp"
#include "base/text.hpp"
#include "device/cpu/cpu_device.hpp"
#include "device/cuda/cuda_library.hpp"
#include "device/hip/hip_device.hpp"
#include "object/listing.hpp"
#include "sim/sim.hpp"

namespace hstu::jit {
namespace {

std::string devices_text(size_t count) {
  return count == 1 ? "1 device" : fmt::format("{} devices", count);
}

// A kind of real GPU: how its run-time library is found.
struct Backend {
  const char* name;
  HipSearch (*find)();
  const char* none;  // what to say where no library serves
  const char* variable;
};
constexpr Backend kBackends[] = {
    {"hip", find_hip, "no HIP runtime library (libamdhip64) serves", "HSTU_JIT_HIP"},
    {"cuda", find_cuda, "no NVIDIA driver library (libcuda) serves", "HSTU_JIT_CUDA"},
};

BackendReport probe_gpus(const Backend& backend) {
  BackendReport report;
  report.backend = backend.name;
  HipSearch search = backend.find();
  report.libraries = std::move(search.libraries);
  if (!search.api) {
    report.status = backend.none;
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
          fmt::format("{}:{}  cannot be used: {}", backend.name, i, properties.error().message));
      continue;
    }
    const std::string line =
        fmt::format("{}:{}  {}", backend.name, i, hip_description(*properties));
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
  // Better now than by the launch, after a compile.
  if (const auto options = sim::with_defaults({}); !options) return options.error();
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
  return open_hip_device(sim::simulator_api(), *ordinal, fmt::format("sim:{}", target));
}

Result<std::unique_ptr<Device>> open_gpu(const Backend& backend, int ordinal) {
  const HipSearch search = backend.find();
  if (search.api) return open_hip_device(search.api, ordinal);
  std::string tried;
  for (const LibraryProbe& probe : search.libraries)
    tried += probe.library + ": " + probe.reason + '\n';
  return Error{ErrorKind::kDevice,
               fmt::format("{}: `hstu-jit devices` lists what was tried, {} names one",
                           backend.none, backend.variable),
               {},
               tried};
}

// The first device of the first kind that has one to use. A GPU that is there and cannot serve is
// worth a word; none at all is not.
Result<std::unique_ptr<Device>> open_best() {
  for (const Backend& backend : kBackends) {
    const HipSearch search = backend.find();
    const Result<int> count = search.api ? hip_device_count(*search.api) : Result<int>(0);
    for (int i = 0; count && i < *count; ++i) {
      Result<std::unique_ptr<Device>> gpu = open_hip_device(search.api, i);
      if (gpu) return gpu;
      log_warn(fmt::format("{}:{} is not used: {}", backend.name, i, gpu.error().message));
    }
  }
  return open_cpu_device();
}

// N of "<backend>:N", 0 of "<backend>".
std::optional<int> ordinal_of(std::string_view name, const Backend& backend) {
  const std::string_view prefix = backend.name;
  if (name == prefix) return 0;
  if (name.substr(0, prefix.size()) != prefix || name[prefix.size()] != ':') return std::nullopt;
  const std::string_view digits = name.substr(prefix.size() + 1);
  int ordinal = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), ordinal);
  const bool good = error == std::errc() && end == digits.data() + digits.size() && ordinal >= 0;
  return good ? std::optional(ordinal) : std::nullopt;
}

Error no_such_engine(const Device& device, const char* what) {
  return Error{ErrorKind::kUnsupported, fmt::format("{} has no {}", device.name(), what), {}, {}};
}

}  // namespace

Status Device::encode_tensor_map(const TensorMapShape&, void*) {
  return no_such_engine(*this, "tensor maps");
}
Status Device::begin_capture(void*) { return no_such_engine(*this, "graphs"); }
Result<std::unique_ptr<DeviceGraph>> Device::end_capture(void*) {
  return no_such_engine(*this, "graphs");
}
Result<bool> Device::capturing(void*) { return false; }
Status Device::launch(DeviceGraph&, void*) { return no_such_engine(*this, "graphs"); }

std::vector<BackendReport> probe_backends() {
  std::vector<BackendReport> reports;
  for (const Backend& backend : kBackends) reports.push_back(probe_gpus(backend));
  reports.push_back(probe_cpu());
  reports.push_back(probe_simulator());
  return reports;
}

Result<std::unique_ptr<Device>> open_device(std::string_view name) {
  if (name == "cpu") return open_cpu_device();
  if (name == "auto") return open_best();
  for (const Backend& backend : kBackends) {
    if (const auto ordinal = ordinal_of(name, backend)) return open_gpu(backend, *ordinal);
  }
  if (name.substr(0, 4) == "sim:") return open_simulated(name.substr(4));
  return Error{ErrorKind::kUsage,
               fmt::format("unknown device \"{}\": want auto, cpu, hip:N, cuda:N or sim:TARGET",
                           printable(name)),
               {},
               {}};
}

}  // namespace hstu::jit
