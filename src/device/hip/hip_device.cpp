// SPDX-License-Identifier: Apache-2.0
#include "device/hip/hip_device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <string_view>
#include <utility>

#include "base/log.hpp"
#include "base/text.hpp"
#include "device/hip/hip_objects.hpp"
#include "object/inspect.hpp"

namespace hstu::jit {
namespace {

// The bytes a launch must hand over: all but what the runtime itself appends. Offsets in cubins are
// places in a constant bank, whose alignment may put even a first argument elsewhere than at 0: the
// driver is told where the argument is and knows its size, which only works for one.
Result<size_t> explicit_argument_bytes(const KernelInfo& info, Vendor vendor) {
  if (vendor == Vendor::nvidia) {
    if (info.arguments.empty()) return size_t{0};
    if (info.arguments.size() == 1) return size_t{info.arguments[0].size};
    return Error{ErrorKind::kDevice,
                 fmt::format("{} takes {} arguments, kernels here take one structure", info.name,
                             info.arguments.size()),
                 {},
                 {}};
  }
  size_t end = 0;
  for (const KernelArgument& argument : info.arguments) {
    if (argument.kind.rfind("hidden_", 0) == 0) continue;
    end = std::max(end, size_t{argument.offset} + argument.size);
  }
  return end;
}

// LDS a kernel declares; the driver's own part does not count against the limit.
int64_t own_lds_bytes(const KernelInfo& info) {
  return info.lds_bytes.value_or(0) - info.reserved_lds_bytes;
}

// An object made for one mode of a feature runs on a device in that mode only.
bool feature_fits(const std::string& object_features, const std::string& device_arch,
                  const std::string& feature) {
  const bool wants_on = object_features.find(feature + " on") != std::string::npos;
  const bool wants_off = object_features.find(feature + " off") != std::string::npos;
  const bool has_on = device_arch.find(":" + feature + "+") != std::string::npos;
  const bool has_off = device_arch.find(":" + feature + "-") != std::string::npos;
  return !(wants_on && has_off) && !(wants_off && has_on);
}

class HipDevice : public Device {
 public:
  HipDevice(std::shared_ptr<const HipContext> context, Target target, HipProperties properties)
      : context_(std::move(context)),
        target_(std::move(target)),
        properties_(std::move(properties)),
        description_(hip_description(properties_)) {}

  const std::string& name() const override { return context_->name; }
  const std::string& description() const override { return description_; }
  const Target& target() const override { return target_; }
  size_t total_memory() const override { return properties_.total_memory; }

  size_t free_memory() const override {
    const Result<size_t> free = query_free_memory();
    if (!free) log_warn(free.error().message);
    return free ? *free : 0;
  }

  Result<std::unique_ptr<DeviceBuffer>> allocate(size_t bytes) override {
    if (bytes == 0) return std::unique_ptr<DeviceBuffer>(new HipBuffer(context_, nullptr, 0));
    const CurrentDevice current(*context_);
    if (!current.status()) return current.status().error();
    const Result<size_t> free = query_free_memory();
    if (!free) return free.error();
    if (bytes > *free) {
      return failure(fmt::format("{} bytes are needed, {} of {} are free", bytes, *free,
                                 properties_.total_memory));
    }
    void* data = nullptr;
    const int code = context_->api->malloc(&data, bytes);
    if (code != 0) {
      return hip_error(*context_->api, fmt::format("{}: {} bytes", name(), bytes), "hipMalloc",
                       code);
    }
    if (data == nullptr) return failure("hipMalloc gave no address");
    return std::unique_ptr<DeviceBuffer>(new HipBuffer(context_, data, bytes));
  }

  Status upload(DeviceBuffer& to, size_t offset, const void* from, size_t bytes) override {
    return copy(to, offset, bytes, [&](char* device) {
      return context_->api->memcpy(device, from, bytes, kHipMemcpyHostToDevice);
    });
  }

  Status download(void* to, const DeviceBuffer& from, size_t offset, size_t bytes) override {
    return copy(from, offset, bytes, [&](char* device) {
      return context_->api->memcpy(to, device, bytes, kHipMemcpyDeviceToHost);
    });
  }

  Status fill(DeviceBuffer& buffer, uint8_t byte) override {
    const size_t bytes = buffer.size();
    return copy(
        buffer, 0, bytes, [&](char* device) { return context_->api->memset(device, byte, bytes); },
        "hipMemset");
  }

  Result<std::unique_ptr<DeviceKernel>> load(std::string_view object,
                                             const std::string& entry) override;
  Status launch(DeviceKernel& kernel, const LaunchGrid& grid, const void* arguments,
                size_t argument_bytes, void* stream) override;

  Result<void*> create_stream() override {
    const CurrentDevice current(*context_);
    if (!current.status()) return current.status().error();
    void* stream = nullptr;
    if (Status made = context_->check("hipStreamCreate", context_->api->stream_create(&stream));
        !made) {
      return std::move(made).error();
    }
    return stream;
  }

  void destroy_stream(void* stream) override {
    if (stream == nullptr) return;
    const CurrentDevice current(*context_);
    context_->finish("hipStreamDestroy", context_->api->stream_destroy(stream));
  }

  Status synchronize(void* stream) override {
    const CurrentDevice current(*context_);
    if (!current.status()) return current.status();
    if (stream == nullptr) {
      return context_->check("hipDeviceSynchronize", context_->api->device_synchronize());
    }
    return context_->check("hipStreamSynchronize", context_->api->stream_synchronize(stream));
  }

  Result<std::unique_ptr<DeviceEvent>> record(void* stream) override {
    const CurrentDevice current(*context_);
    if (!current.status()) return current.status().error();
    auto event = std::make_unique<HipEvent>(context_);
    Status status = context_->check("hipEventCreate", context_->api->event_create(&event->handle));
    if (!status) {
      event->handle = nullptr;
      return std::move(status).error();
    }
    status = context_->check("hipEventRecord", context_->api->event_record(event->handle, stream));
    if (!status) return std::move(status).error();
    return std::unique_ptr<DeviceEvent>(std::move(event));
  }

  Result<double> elapsed(DeviceEvent& from, DeviceEvent& to) override {
    const auto* first = dynamic_cast<HipEvent*>(&from);
    const auto* second = dynamic_cast<HipEvent*>(&to);
    if (first == nullptr || second == nullptr) return foreign("event");
    const CurrentDevice current(*context_);
    if (!current.status()) return current.status().error();
    float milliseconds = 0;
    Status status =
        context_->check("hipEventSynchronize", context_->api->event_synchronize(second->handle));
    if (status) {
      status = context_->check(
          "hipEventElapsedTime",
          context_->api->event_elapsed_time(&milliseconds, first->handle, second->handle));
    }
    if (!status) return std::move(status).error();
    return static_cast<double>(milliseconds);
  }

  Status encode_tensor_map(const TensorMapShape& shape, void* map) override;
  bool has_clusters() const override {
    return context_->api->launch_clusters != nullptr && target_.name.starts_with("sm_9");
  }
  Status begin_capture(void* stream) override;
  Result<std::unique_ptr<DeviceGraph>> end_capture(void* stream) override;
  Result<bool> capturing(void* stream) override;
  Status launch(DeviceGraph& graph, void* stream) override;
  Status call_inside(Status (*calls)(void*), void* data) override {
    const EnteredDevice entered(*context_);
    return entered.status() ? calls(data) : entered.status();
  }

  Status flush_cache(void* stream) override {
    const std::lock_guard<std::mutex> lock(flush_mutex_);
    if (!flush_buffer_) {
      // Twice the largest last-level cache there is (256 MiB on MI300X), less on small devices.
      const size_t bytes =
          std::min(size_t{512} << 20, std::max<size_t>(properties_.total_memory / 8, 1));
      Result<std::unique_ptr<DeviceBuffer>> buffer = allocate(bytes);
      if (!buffer) return std::move(buffer).error();
      flush_buffer_ = std::move(*buffer);
    }
    const CurrentDevice current(*context_);
    if (!current.status()) return current.status();
    return context_->check(
        "hipMemsetAsync",
        context_->api->memset_async(flush_buffer_->data(), 0, flush_buffer_->size(), stream));
  }

 private:
  Error failure(const std::string& what) const {
    return Error{ErrorKind::kDevice, name() + ": " + what, {}, {}};
  }
  Error unsupported(const char* what) const {
    return Error{ErrorKind::kUnsupported,
                 fmt::format("{}: {} has no {}", name(), context_->api->origin, what),
                 {},
                 {}};
  }
  Error foreign(const char* what) const {
    return Error{ErrorKind::kInternal,
                 fmt::format("{}: a {} of another device was given", name(), what),
                 {},
                 {}};
  }

  Result<size_t> query_free_memory() const {
    const CurrentDevice current(*context_);
    if (!current.status()) return current.status().error();
    size_t free = 0, total = 0;
    Status status = context_->check("hipMemGetInfo", context_->api->mem_get_info(&free, &total));
    if (!status) return std::move(status).error();
    return free;
  }

  template <typename Call>
  Status copy(const DeviceBuffer& buffer, size_t offset, size_t bytes, const Call& call,
              const char* call_name = "hipMemcpy") {
    const auto* own = dynamic_cast<const HipBuffer*>(&buffer);
    if (own == nullptr || own->context()->ordinal != context_->ordinal) return foreign("buffer");
    if (offset > buffer.size() || bytes > buffer.size() - offset) {
      return Error{ErrorKind::kInternal,
                   fmt::format("{}: {} bytes at {} lie outside a buffer of {}", name(), bytes,
                               offset, buffer.size()),
                   {},
                   {}};
    }
    if (bytes == 0) return {};
    const CurrentDevice current(*context_);
    if (!current.status()) return current.status();
    return context_->check(call_name, call(static_cast<char*>(buffer.data()) + offset));
  }

  std::shared_ptr<const HipContext> context_;
  Target target_;
  HipProperties properties_;
  std::string description_;
  std::mutex flush_mutex_;
  std::unique_ptr<DeviceBuffer> flush_buffer_;
};

Result<std::unique_ptr<DeviceKernel>> HipDevice::load(std::string_view object,
                                                      const std::string& entry) {
  // A runtime given an object of another architecture says "invalid image", or worse.
  Result<ObjectInfo> read = read_object(object);
  if (!read) {
    Error error = std::move(read).error();
    error.kind = ErrorKind::kDevice;
    return std::move(error).with_context(name());
  }
  const char* format = target_.vendor == Vendor::nvidia ? "cubin" : "amdgpu";
  if (read->format != format || read->target != target_.name) {
    return failure(fmt::format("the object is compiled for {}, the device is {}", read->target,
                               properties_.arch));
  }
  for (const char* feature : {"xnack", "sramecc"}) {
    if (!feature_fits(read->target_features, properties_.arch, feature)) {
      return failure(fmt::format("the object is compiled for {} ({}), the device is {}",
                                 read->target, read->target_features, properties_.arch));
    }
  }
  const auto found = std::find_if(read->kernels.begin(), read->kernels.end(),
                                  [&](const KernelInfo& kernel) { return kernel.name == entry; });
  if (found == read->kernels.end()) {
    return failure(fmt::format("the object has no kernel {}", printable(entry, 200)));
  }

  auto kernel = std::make_unique<HipKernel>(context_, object);
  kernel->info = std::move(*found);
  const Result<size_t> bytes = explicit_argument_bytes(kernel->info, target_.vendor);
  if (!bytes) return Error(bytes.error()).with_context(name());
  kernel->argument_bytes = *bytes;
  const CurrentDevice current(*context_);
  if (!current.status()) return current.status().error();
  Status status = context_->check(
      "hipModuleLoadData", context_->api->module_load_data(&kernel->module, kernel->image.data()));
  if (!status) {
    kernel->module = nullptr;
    return std::move(status).error();
  }
  status = context_->check(
      "hipModuleGetFunction",
      context_->api->module_get_function(&kernel->function, kernel->module, entry.c_str()));
  if (!status) return std::move(status).error();
  if (context_->api->set_lds_total != nullptr) {
    // Once and for the largest launch there can be, so that a launch is one call.
    status = context_->check("hipFuncSetAttribute",
                             context_->api->set_lds_total(kernel->function, target_.lds_bytes));
    if (!status) return std::move(status).error();
  }
  return std::unique_ptr<DeviceKernel>(std::move(kernel));
}

Status HipDevice::launch(DeviceKernel& kernel, const LaunchGrid& grid, const void* arguments,
                         size_t argument_bytes, void* stream) {
  const auto* own = dynamic_cast<HipKernel*>(&kernel);
  if (own == nullptr || own->context()->ordinal != context_->ordinal) return foreign("kernel");
  const KernelInfo& info = own->info;
  if (grid.grid == 0) return {};
  if (grid.grid < 0 || grid.block < 1 || grid.dynamic_lds_bytes < 0) {
    return failure(fmt::format("a launch of {} workgroups of {} with {} bytes of LDS", grid.grid,
                               grid.block, grid.dynamic_lds_bytes));
  }
  if (grid.cluster < 1 || grid.grid % grid.cluster != 0 || (grid.cluster > 1 && !has_clusters())) {
    return failure(fmt::format("a launch of {} workgroups in clusters of {}{}", grid.grid,
                               grid.cluster, has_clusters() ? "" : ": this device has none"));
  }
  // HIP counts the threads of a dimension in 32 bits and wraps silently above; CUDA counts blocks
  // in 31.
  constexpr int64_t kMaxThreads = std::numeric_limits<uint32_t>::max();
  constexpr int64_t kMaxBlocks = std::numeric_limits<int32_t>::max();
  if (target_.vendor == Vendor::nvidia ? grid.grid > kMaxBlocks
                                       : grid.grid > kMaxThreads / grid.block) {
    return failure(fmt::format(
        "{} workgroups of {} are {} or more: {} cannot launch so many at once", grid.grid,
        grid.block, target_.vendor == Vendor::nvidia ? "2^31" : "2^32 threads",
        target_.vendor == Vendor::nvidia ? "CUDA" : "HIP"));
  }
  if (grid.block > info.max_workgroup.value_or(1024)) {
    return failure(fmt::format("workgroups of {} were asked for, {} is compiled for {} at most",
                               grid.block, info.name, info.max_workgroup.value_or(1024)));
  }
  const int64_t lds = own_lds_bytes(info) + grid.dynamic_lds_bytes;
  if (lds > target_.lds_bytes) {
    return failure(fmt::format("{} needs {} bytes of LDS, {} has {}", info.name, lds, target_.name,
                               target_.lds_bytes));
  }
  if (argument_bytes != own->argument_bytes) {
    return failure(fmt::format("{} takes {} bytes of arguments, {} were given", info.name,
                               own->argument_bytes, argument_bytes));
  }

  const CurrentDevice current(*context_);
  if (!current.status()) return current.status();
  size_t size = argument_bytes;
  void* extra[] = {hip_launch_buffer_pointer(), const_cast<void*>(arguments),
                   hip_launch_buffer_size(), &size, hip_launch_end()};
  if (grid.cluster > 1) {
    return context_->check(
        "cuLaunchKernelEx",
        context_->api->launch_clusters(
            own->function, static_cast<unsigned>(grid.grid), static_cast<unsigned>(grid.cluster),
            static_cast<unsigned>(grid.block), static_cast<unsigned>(grid.dynamic_lds_bytes),
            stream, extra));
  }
  return context_->check(
      "hipModuleLaunchKernel",
      context_->api->module_launch_kernel(
          own->function, static_cast<unsigned>(grid.grid), 1, 1, static_cast<unsigned>(grid.block),
          1, 1, static_cast<unsigned>(grid.dynamic_lds_bytes), stream, nullptr, extra));
}

Status HipDevice::encode_tensor_map(const TensorMapShape& shape, void* map) {
  const HipApi& api = *context_->api;
  if (api.tensor_map_encode == nullptr) return unsupported("tensor maps");
  const bool known = shape.rank >= 1 && shape.rank <= 5 &&
                     (shape.swizzle_bytes == 0 || shape.swizzle_bytes == 32 ||
                      shape.swizzle_bytes == 64 || shape.swizzle_bytes == 128);
  if (!known) {
    return failure(fmt::format("a tensor map of rank {} with a swizzle of {} bytes", shape.rank,
                               shape.swizzle_bytes));
  }
  const auto code_of = [](int bytes, int first) {  // 0, 32, 64 ... to 0, 1, 2 ...
    int code = 0;
    for (int step = first; bytes > 0 && step <= bytes; step *= 2) ++code;
    return code;
  };
  const CurrentDevice current(*context_);  // the driver asks the context what the device can do
  if (!current.status()) return current.status();
  constexpr int kFp16 = 6, kBf16 = 9;
  const uint32_t ones[5] = {1, 1, 1, 1, 1};
  const int code = api.tensor_map_encode(
      map, shape.bf16 ? kBf16 : kFp16, static_cast<uint32_t>(shape.rank),
      const_cast<void*>(shape.address), shape.extents, shape.strides, shape.box, ones, 0,
      code_of(shape.swizzle_bytes, 32), code_of(shape.l2_promotion_bytes, 64), 0);
  return context_->check("hipTensorMapEncodeTiled", code);
}

Status HipDevice::begin_capture(void* stream) {
  if (!context_->api->captures()) return unsupported("graphs");
  const CurrentDevice current(*context_);
  if (!current.status()) return current.status();
  constexpr int kRelaxed = 2;  // other threads go on as they do
  return context_->check("hipStreamBeginCapture",
                         context_->api->stream_begin_capture(stream, kRelaxed));
}

Result<std::unique_ptr<DeviceGraph>> HipDevice::end_capture(void* stream) {
  if (!context_->api->captures()) return unsupported("graphs");
  auto made = std::make_unique<HipGraph>(context_);
  const CurrentDevice current(*context_);
  if (!current.status()) return current.status().error();
  Status status = context_->check("hipStreamEndCapture",
                                  context_->api->stream_end_capture(stream, &made->graph));
  if (status) {
    status = context_->check("hipGraphInstantiate",
                             context_->api->graph_instantiate(&made->executable, made->graph, 0));
  }
  if (!status) return std::move(status).error();
  return std::unique_ptr<DeviceGraph>(std::move(made));
}

Result<bool> HipDevice::capturing(void* stream) {
  if (stream == nullptr || !context_->api->captures()) return false;  // the default one never is
  int status = 0;
  const CurrentDevice current(*context_);
  if (!current.status()) return current.status().error();
  Status asked =
      context_->check("hipStreamIsCapturing", context_->api->stream_is_capturing(stream, &status));
  if (!asked) return std::move(asked).error();
  return status != 0;
}

Status HipDevice::launch(DeviceGraph& graph, void* stream) {
  const auto* own = dynamic_cast<HipGraph*>(&graph);
  if (own == nullptr || own->context()->ordinal != context_->ordinal) return foreign("graph");
  const CurrentDevice current(*context_);
  if (!current.status()) return current.status();
  return context_->check("hipGraphLaunch", context_->api->graph_launch(own->executable, stream));
}

}  // namespace

std::string hip_description(const HipProperties& properties) {
  return fmt::format("{} ({}), {} {}, {:.0f} GiB", properties.name, properties.arch,
                     properties.compute_units, properties.arch.rfind("sm_", 0) == 0 ? "SMs" : "CUs",
                     static_cast<double>(properties.total_memory) / (uint64_t{1} << 30));
}

Result<int> hip_device_count(const HipApi& api) {
  if (api.initialize != nullptr) {
    if (const int code = api.initialize(); code != 0) {
      return hip_error(api, api.origin, "hipInit", code);
    }
  }
  int count = 0;
  if (const int code = api.get_device_count(&count); code != 0) {
    return hip_error(api, api.origin, "hipGetDeviceCount", code);
  }
  if (count <= 0) {
    const char* call = "hipGetDeviceCount";
    if (api.call_name != nullptr) call = api.call_name(call);
    return Error{
        ErrorKind::kDevice, fmt::format("{}: {} counts 0 devices", api.origin, call), {}, {}};
  }
  return count;
}

Result<std::unique_ptr<Device>> open_hip_device(std::shared_ptr<const HipApi> api, int ordinal,
                                                const std::string& given_name) {
  const Result<int> count = hip_device_count(*api);
  if (!count) return count.error();
  const std::string name =
      given_name.empty() ? fmt::format("{}:{}", api->backend, ordinal) : given_name;
  if (ordinal < 0 || ordinal >= *count) {
    return Error{ErrorKind::kDevice,
                 fmt::format("{}: there {} here, numbered from 0", name,
                             *count == 1 ? "is 1 device" : fmt::format("are {} devices", *count)),
                 {},
                 {}};
  }
  Result<HipProperties> properties = hip_properties(*api, ordinal);
  if (!properties) return std::move(properties).error();
  Result<Target> target =
      find_target(std::string_view(properties->arch).substr(0, properties->arch.find(':')));
  if (!target) {
    return Error{
        ErrorKind::kUnsupported,
        fmt::format("{} is {}: {}", name, hip_description(*properties), target.error().message),
        {},
        {}};
  }
  auto context = std::make_shared<HipContext>(std::move(api), ordinal, name);
  if (Status retained = context->retain(); !retained) return std::move(retained).error();
  if (const CurrentDevice current(*context); !current.status()) return current.status().error();
  if (properties->lds_bytes > 0) target->lds_bytes = properties->lds_bytes;
  if (target->vendor == Vendor::nvidia && properties->compute_units > 0) {
    target->compute_units = properties->compute_units;  // persistent kernels count on them
  }
  return std::unique_ptr<Device>(
      new HipDevice(std::move(context), *target, std::move(*properties)));
}

}  // namespace hstu::jit
