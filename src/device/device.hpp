// SPDX-License-Identifier: Apache-2.0
// Device: where kernels run. Implementations: cpu, hip (of which simulated GPUs and NVIDIA's driver
// are run-time libraries); each hides its run-time library.
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
  int cluster = 1;  // workgroups that reach each other's LDS; `grid` is a multiple
};

// Launches captured from a stream, ready to be launched together.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
};

// A tensor of 16-bit elements in device memory as a copy engine (TMA) sees it: boxes are cut out of
// it, elements outside it read as zero. Dimension 0 is contiguous. Equal shapes have equal maps.
struct TensorMapShape {
  const void* address = nullptr;  // 16-byte aligned
  bool bf16 = true;               // else fp16
  int rank = 0;                   // 1 to 5
  uint64_t extents[5] = {};       // elements
  uint64_t strides[4] = {};       // bytes from one element of dimension 1, 2 ... to the next
  uint32_t box[5] = {};           // elements, at most 256 each
  int swizzle_bytes = 128;        // 0, 32, 64, 128
  int l2_promotion_bytes = 128;   // 0, 64, 128, 256
  bool operator==(const TensorMapShape&) const = default;
};

// All calls return errors as values; none aborts. Streams are opaque handles; null is the default.
class Device {
 public:
  virtual ~Device() = default;
  virtual const std::string& name() const = 0;         // "cpu", "hip:0", "cuda:0"
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
  // `arguments` is the kernel's one by-value argument. Legal while `stream` is captured.
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

  // Writes the 128 bytes of a tensor map for a kernel's argument; `map` is aligned to 64. Errors:
  // kUnsupported where the device has no such copy engine, kDevice for an impossible shape.
  virtual Status encode_tensor_map(const TensorMapShape& shape, void* map);
  // Whether a launch may have clusters of more than one workgroup.
  virtual bool has_clusters() const { return false; }
  // Everything enqueued on `stream` (not the default one) from here to end_capture goes into a
  // graph instead. Errors: kUnsupported where there are no graphs.
  virtual Status begin_capture(void* stream);
  virtual Result<std::unique_ptr<DeviceGraph>> end_capture(void* stream);
  virtual Result<bool> capturing(void* stream);  // false where there are no graphs
  virtual Status launch(DeviceGraph& graph, void* stream);

  // Several calls with the device made the thread's current one once, not for each.
  template <typename Calls>
  Status inside(Calls calls) {
    return call_inside([](void* data) { return (*static_cast<Calls*>(data))(); }, &calls);
  }

 protected:
  virtual Status call_inside(Status (*calls)(void* data), void* data) { return calls(data); }
};

// One library a back-end looked for and what came of it.
struct LibraryProbe {
  std::string library;  // name or path tried
  bool found = false;
  std::string reason;  // why it did not serve, or its version
};

struct BackendReport {
  std::string backend;  // "hip", "cuda", "cpu", "sim"
  std::vector<LibraryProbe> libraries;
  std::vector<std::string> devices;  // "hip:0  AMD Instinct MI210 (gfx90a) ..."
  std::string status;                // one line: "2 devices" or why there is none
};

// What every back-end found here.
std::vector<BackendReport> probe_backends();

// "cpu", "hip", "hip:1", "cuda", "cuda:1", "sim:gfx942", "auto" (first GPU that can be used, HIP's
// before CUDA's, else cpu). Errors: kDevice, kUnsupported for a GPU without a target of ours or a
// target that is not simulated, kUsage for unknown names.
Result<std::unique_ptr<Device>> open_device(std::string_view name);

}  // namespace hstu::jit
