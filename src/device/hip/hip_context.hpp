// SPDX-License-Identifier: Apache-2.0
// What every object of one device shares, and making that device the thread's current one.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "device/hip/hip_api.hpp"

namespace hstu::jit {

// It outlives the Device for buffers, kernels and events that do.
class HipContext {
 public:
  HipContext(std::shared_ptr<const HipApi> table, int device, std::string device_name)
      : api(std::move(table)), ordinal(device), name(std::move(device_name)) {}
  HipContext(const HipContext&) = delete;
  HipContext& operator=(const HipContext&) = delete;
  ~HipContext() {
    if (handle == nullptr) return;
    finish("hipDevicePrimaryCtxRelease", api->release_context(ordinal));
  }

  // Takes hold of the device's context, where there are contexts.
  Status retain() {
    if (api->retain_context == nullptr) return {};
    void* context = nullptr;
    Status status = check("hipDevicePrimaryCtxRetain", api->retain_context(&context, ordinal));
    if (status) handle = context;
    return status;
  }

  Status check(const char* call, int code) const {
    if (code == 0) return {};
    Error error = hip_error(*api, name, call, code);
    if (error.kind == ErrorKind::kFailed) faulted_ = true;
    return error;
  }

  // Of a destructor's call, which has nobody to tell. After a kernel's fault every call fails in
  // the same way, and the fault itself has been told.
  void finish(const char* call, int code) const {
    const bool told = faulted_;
    const Status status = check(call, code);
    if (!status && !(told && status.error().kind == ErrorKind::kFailed)) {
      log_warn(status.error().message);
    }
  }

  const std::shared_ptr<const HipApi> api;
  const int ordinal;
  const std::string name;
  void* handle = nullptr;  // CUDA: the device's primary context

 private:
  mutable std::atomic<bool> faulted_{false};
};

// The device that an EnteredDevice of the calling thread keeps current.
inline thread_local const HipContext* entered_context = nullptr;

// Makes the device current for a scope and restores what the host program had chosen.
class CurrentDevice {
 public:
  explicit CurrentDevice(const HipContext& context) : context_(context) {
    if (entered_context == &context) return;
    const HipApi& api = *context.api;
    if (context.handle != nullptr) {
      void* now = nullptr;
      status_ = context.check("hipCtxGetCurrent", api.get_context(&now));
      if (!status_ || now == context.handle) return;
      status_ = context.check("hipCtxPushCurrent", api.push_context(context.handle));
    } else {
      status_ = context.check("hipGetDevice", api.get_device(&before_));
      if (!status_ || before_ == context.ordinal) return;
      status_ = context.check("hipSetDevice", api.set_device(context.ordinal));
    }
    changed_ = status_.ok();
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  ~CurrentDevice() {
    if (!changed_) return;
    void* popped = nullptr;
    if (context_.handle != nullptr) {
      context_.api->pop_context(&popped);
    } else {
      context_.api->set_device(before_);
    }
  }
  const Status& status() const { return status_; }

 private:
  const HipContext& context_;
  int before_ = 0;
  bool changed_ = false;
  Status status_;
};

// The same for a scope whose own calls need not ask again.
class EnteredDevice {
 public:
  explicit EnteredDevice(const HipContext& context) : current_(context), before_(entered_context) {
    if (current_.status()) entered_context = &context;
  }
  EnteredDevice(const EnteredDevice&) = delete;
  EnteredDevice& operator=(const EnteredDevice&) = delete;
  ~EnteredDevice() { entered_context = before_; }
  const Status& status() const { return current_.status(); }

 private:
  CurrentDevice current_;
  const HipContext* before_;
};

}  // namespace hstu::jit
