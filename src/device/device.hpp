// SPDX-License-Identifier: Apache-2.0
// Device: where kernels run. Implementations: cpu, hip (of which simulated GPUs are a run-time
// library); each hides its run-time library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "target/target.hpp"

namespace hstu::jit {

// A loaded kernel: owns the module it came from.
class DeviceKernel {
 public:
  virtual ~DeviceKernel() = default;
};

// Device memory, freed with the object. `data()` is a device address (host address on cpu).
class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;
  virtual void* data() const = 0;
  virtual size_t size() const = 0;
};

class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
};

struct LaunchGrid {
  int64_t grid = 1;
  int block = 1;
  int dynamic_lds_bytes = 0;
};

// All calls return errors as values; none aborts. Streams are opaque handles; null is the default.
class Device {
 public:
  virtual ~Device() = default;
  virtual const std::string& name() const = 0;         // "cpu", "hip:0"
  virtual const std::string& description() const = 0;  // "AMD Instinct MI210, 104 CUs, 64 GB"
  virtual const Target& target() const = 0;
  virtual size_t total_memory() const = 0;
  virtual size_t free_memory() const = 0;

  virtual Result<std::unique_ptr<DeviceBuffer>> allocate(size_t bytes) = 0;
  virtual Status upload(DeviceBuffer& to, size_t offset, const void* from, size_t bytes) = 0;
  virtual Status download(void* to, const DeviceBuffer& from, size_t offset, size_t bytes) = 0;
  virtual Status fill(DeviceBuffer& buffer, uint8_t byte) = 0;

  virtual Result<std::unique_ptr<DeviceKernel>> load(std::string_view object,
                                                     const std::string& entry) = 0;
  // `arguments` is the kernel's one by-value argument.
  virtual Status launch(DeviceKernel& kernel, const LaunchGrid& grid, const void* arguments,
                        size_t argument_bytes, void* stream) = 0;
  virtual Result<void*> create_stream() = 0;
  virtual void destroy_stream(void* stream) = 0;
  virtual Status synchronize(void* stream) = 0;
  virtual Result<std::unique_ptr<DeviceEvent>> record(void* stream) = 0;
  // Milliseconds between two events, waiting for the second.
  virtual Result<double> elapsed(DeviceEvent& from, DeviceEvent& to) = 0;
  // Evicts the last-level cache by writing a scratch buffer (benchmarks).
  virtual Status flush_cache(void* stream) = 0;
};

// One library a back-end looked for and what came of it.
struct LibraryProbe {
  std::string library;  // name or path tried
  bool found = false;
  std::string reason;  // why it did not serve, or its version
};

struct BackendReport {
  std::string backend;  // "hip", "cpu", "sim"
  std::vector<LibraryProbe> libraries;
  std::vector<std::string> devices;  // "hip:0  AMD Instinct MI210 (gfx90a) ..."
  std::string status;                // one line: "2 devices" or why there is none
};

// What every back-end found here.
std::vector<BackendReport> probe_backends();

// "cpu", "hip", "hip:1", "sim:gfx942", "auto" (first GPU, else cpu). Errors: kDevice, kUnsupported
// for a target that is not simulated, kUsage for unknown names.
Result<std::unique_ptr<Device>> open_device(std::string_view name);

}  // namespace hstu::jit
