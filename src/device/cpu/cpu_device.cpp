// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/cpu_device.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "attention/arguments.h"
#include "attention/work_queue.h"
#include "base/env.hpp"
#include "base/file.hpp"
#include "base/processors.hpp"
#include "device/cpu/module.hpp"
#include "device/cpu/thread_pool.hpp"
#include "target/cpu_level.hpp"

namespace hstu::jit {
namespace {

using Clock = std::chrono::steady_clock;

Error device_error(std::string message) {
  return {ErrorKind::kDevice, "cpu: " + std::move(message), "", ""};
}

class CpuKernel : public DeviceKernel {
 public:
  CpuKernel(CpuModule module, ThreadPool::Function entry)
      : entry(entry), module_(std::move(module)) {}
  const ThreadPool::Function entry;

 private:
  CpuModule module_;
};

class CpuBuffer : public DeviceBuffer {
 public:
  CpuBuffer(void* data, size_t size) : data_(data), size_(size) {}
  ~CpuBuffer() override { std::free(data_); }
  void* data() const override { return data_; }
  size_t size() const override { return size_; }

 private:
  void* data_;
  size_t size_;
};

struct CpuEvent : DeviceEvent {
  Clock::time_point time = Clock::now();
};

std::string processor_name() {
  Result<std::string> info = read_file("/proc/cpuinfo", size_t{1} << 24);
  if (!info) return "CPU";
  const size_t at = info->find("model name");
  if (at == std::string::npos) return "CPU";
  const size_t colon = info->find(": ", at), end = info->find('\n', at);
  if (colon == std::string::npos || end == std::string::npos || colon > end) return "CPU";
  return info->substr(colon + 2, end - colon - 2);
}

size_t pages(int name) {
  const long count = sysconf(name), bytes = sysconf(_SC_PAGESIZE);
  return count > 0 && bytes > 0 ? static_cast<size_t>(count) * static_cast<size_t>(bytes) : 0;
}

class CpuDevice : public Device {
 public:
  CpuDevice(Target target, std::unique_ptr<ThreadPool> pool)
      : target_(std::move(target)),
        pool_(std::move(pool)),
        description_(
            fmt::format("{}, {} threads, {}", processor_name(), pool_->size(), target_.name)) {}

  const std::string& name() const override { return name_; }
  const std::string& description() const override { return description_; }
  const Target& target() const override { return target_; }
  size_t total_memory() const override { return pages(_SC_PHYS_PAGES); }
  size_t free_memory() const override { return pages(_SC_AVPHYS_PAGES); }

  Result<std::unique_ptr<DeviceBuffer>> allocate(size_t bytes) override {
    // Whole cache lines and one more, so that a vector read across the end stays inside.
    if (bytes > SIZE_MAX - 128) return device_error(fmt::format("cannot allocate {} bytes", bytes));
    void* data = std::aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (data == nullptr)
      return device_error(fmt::format("out of memory: cannot allocate {} bytes", bytes));
    return std::unique_ptr<DeviceBuffer>(new CpuBuffer(data, bytes));
  }

  Status upload(DeviceBuffer& to, size_t offset, const void* from, size_t bytes) override {
    if (Status s = check_range("upload", to, offset, bytes); !s) return s;
    if (bytes > 0) std::memcpy(static_cast<char*>(to.data()) + offset, from, bytes);
    return {};
  }
  Status download(void* to, const DeviceBuffer& from, size_t offset, size_t bytes) override {
    if (Status s = check_range("download", from, offset, bytes); !s) return s;
    if (bytes > 0) std::memcpy(to, static_cast<const char*>(from.data()) + offset, bytes);
    return {};
  }
  Status fill(DeviceBuffer& buffer, uint8_t byte) override {
    std::memset(buffer.data(), byte, buffer.size());
    return {};
  }

  Result<std::unique_ptr<DeviceKernel>> load(std::string_view object,
                                             const std::string& entry) override {
    Result<CpuModule> module = CpuModule::load(object);
    if (!module) return std::move(module).error();
    Result<void*> symbol = module->find(entry);
    if (!symbol) return std::move(symbol).error();
    return std::unique_ptr<DeviceKernel>(
        new CpuKernel(std::move(*module), reinterpret_cast<ThreadPool::Function>(*symbol)));
  }

  Status launch(DeviceKernel& kernel, const LaunchGrid& grid, const void* arguments,
                size_t argument_bytes, void*) override {
    if (argument_bytes != sizeof(ForwardArguments))
      return device_error(fmt::format("a kernel takes {} bytes of arguments, not {}",
                                      sizeof(ForwardArguments), argument_bytes));
    if (grid.grid <= 0) return {};
    WorkQueue queue{0, grid.grid};
    pool_->run(static_cast<CpuKernel&>(kernel).entry, arguments, &queue);
    return {};
  }

  Result<void*> create_stream() override { return static_cast<void*>(this); }
  void destroy_stream(void*) override {}
  Status synchronize(void*) override { return {}; }
  Result<std::unique_ptr<DeviceEvent>> record(void*) override {
    return std::unique_ptr<DeviceEvent>(new CpuEvent);
  }
  Result<double> elapsed(DeviceEvent& from, DeviceEvent& to) override {
    const auto span = static_cast<CpuEvent&>(to).time - static_cast<CpuEvent&>(from).time;
    return std::chrono::duration<double, std::milli>(span).count();
  }

  Status flush_cache(void*) override {
    if (scratch_.empty()) {
      const long l3 = std::max(0l, sysconf(_SC_LEVEL3_CACHE_SIZE));
      const long l2 = std::max(0l, sysconf(_SC_LEVEL2_CACHE_SIZE)) * pool_->size();
      scratch_.resize(static_cast<size_t>(std::clamp(l3 + 2 * l2, 16l << 20, 256l << 20)));
    }
    for (size_t i = 0; i < scratch_.size(); i += 64) ++scratch_[i];
    return {};
  }

 private:
  static Status check_range(const char* what, const DeviceBuffer& buffer, size_t offset,
                            size_t bytes) {
    if (offset <= buffer.size() && bytes <= buffer.size() - offset) return {};
    return device_error(fmt::format("{} of {} bytes at {} of a buffer of {} bytes", what, bytes,
                                    offset, buffer.size()));
  }

  std::string name_ = "cpu";
  Target target_;
  std::unique_ptr<ThreadPool> pool_;
  std::string description_;
  std::vector<unsigned char> scratch_;
};

}  // namespace

Result<int> cpu_thread_count() {
  if (std::optional<std::string> text = get_env("HSTU_JIT_THREADS")) {
    int count = 0;
    const char* end = text->data() + text->size();
    const auto [stop, error] = std::from_chars(text->data(), end, count);
    if (error != std::errc() || stop != end || count < 1 || count > 1024)
      return Error{ErrorKind::kUsage,
                   fmt::format("HSTU_JIT_THREADS: \"{}\" is no number from 1 to 1024", *text), "",
                   ""};
    return count;
  }
  return std::min(usable_processors(), 1024);
}

Result<std::unique_ptr<Device>> open_cpu_device() {
  Result<int> threads = cpu_thread_count();
  if (!threads) return std::move(threads).error();
  Result<Target> target = find_target("cpu");
  if (!target) return std::move(target).error();
  if (target->matrix == MatrixUnit::amx) enable_amx();
  Result<std::unique_ptr<ThreadPool>> pool = ThreadPool::create(*threads);
  if (!pool) return std::move(pool).error();
  return std::unique_ptr<Device>(new CpuDevice(std::move(*target), std::move(*pool)));
}

}  // namespace hstu::jit
