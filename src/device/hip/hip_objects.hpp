// SPDX-License-Identifier: Apache-2.0
// Buffers, events, graphs and kernels of the HIP back-end: handles that end with their object.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "device/device.hpp"
#include "device/hip/hip_context.hpp"
#include "object/inspect.hpp"

namespace hstu::jit {

class HipBuffer : public DeviceBuffer {
 public:
  HipBuffer(std::shared_ptr<const HipContext> context, void* data, size_t size)
      : context_(std::move(context)), data_(data), size_(size) {}
  ~HipBuffer() override {
    if (data_ == nullptr) return;
    const CurrentDevice current(*context_);
    context_->finish("hipFree", context_->api->free(data_));
  }
  void* data() const override { return data_; }
  size_t size() const override { return size_; }
  const HipContext* context() const { return context_.get(); }

 private:
  std::shared_ptr<const HipContext> context_;
  void* data_;
  size_t size_;
};

class HipEvent : public DeviceEvent {
 public:
  explicit HipEvent(std::shared_ptr<const HipContext> context) : context_(std::move(context)) {}
  ~HipEvent() override {
    if (handle == nullptr) return;
    const CurrentDevice current(*context_);
    context_->finish("hipEventDestroy", context_->api->event_destroy(handle));
  }
  void* handle = nullptr;

 private:
  std::shared_ptr<const HipContext> context_;
};

class HipGraph : public DeviceGraph {
 public:
  explicit HipGraph(std::shared_ptr<const HipContext> context) : context_(std::move(context)) {}
  ~HipGraph() override {
    const CurrentDevice current(*context_);
    if (executable != nullptr) {
      context_->finish("hipGraphExecDestroy", context_->api->graph_exec_destroy(executable));
    }
    if (graph != nullptr) context_->finish("hipGraphDestroy", context_->api->graph_destroy(graph));
  }
  const HipContext* context() const { return context_.get(); }
  void* graph = nullptr;
  void* executable = nullptr;

 private:
  std::shared_ptr<const HipContext> context_;
};

class HipKernel : public DeviceKernel {
 public:
  HipKernel(std::shared_ptr<const HipContext> context, std::string_view object)
      : image(object), context_(std::move(context)) {}
  ~HipKernel() override {
    if (module == nullptr) return;
    const CurrentDevice current(*context_);
    context_->finish("hipModuleUnload", context_->api->module_unload(module));
  }
  const HipContext* context() const { return context_.get(); }

  std::string image;  // kept: a runtime may read it again when it loads lazily
  void* module = nullptr;
  void* function = nullptr;
  KernelInfo info;
  size_t argument_bytes = 0;

 private:
  std::shared_ptr<const HipContext> context_;
};

}  // namespace hstu::jit
