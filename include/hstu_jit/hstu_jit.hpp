// SPDX-License-Identifier: Apache-2.0
// hstu-jit for C++: owning handles over the C interface (hstu_jit.h), header-only.
//
//   hstu::jit::api::Engine engine;
//   auto kernel = engine.prepare(spec_json);
//   kernel.launch(call, stream);
//
// Failures throw hstu::jit::api::Failure.
#pragma once

#include <hstu_jit/hstu_jit.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace hstu::jit::api {

// what() is one line; status, pointer and detail as in hstu_jit.h.
class Failure : public std::runtime_error {
 public:
  Failure(hstu_status status, const hstu_error* error)
      : std::runtime_error(error ? hstu_error_message(error) : "hstu-jit failed"),
        status_(status),
        pointer_(error ? hstu_error_pointer(error) : ""),
        detail_(error ? hstu_error_detail(error) : "") {}
  hstu_status status() const { return status_; }
  const std::string& pointer() const { return pointer_; }
  const std::string& detail() const { return detail_; }

 private:
  hstu_status status_;
  std::string pointer_, detail_;
};

namespace detail {

inline void check(hstu_status status, hstu_error* error) {
  const std::unique_ptr<hstu_error, decltype(&hstu_error_free)> owned(error, &hstu_error_free);
  if (status != HSTU_OK) throw Failure(status, error);
}

}  // namespace detail

class Kernel {
 public:
  explicit Kernel(hstu_kernel* kernel) : kernel_(kernel, &hstu_kernel_release) {}
  void launch(const hstu_forward& call, void* stream = nullptr) {
    hstu_error* error = nullptr;
    const hstu_status status = hstu_launch(kernel_.get(), &call, stream, &error);
    detail::check(status, error);
  }
  std::string info() const { return hstu_kernel_info(kernel_.get()); }
  hstu_kernel* get() const { return kernel_.get(); }

 private:
  std::unique_ptr<hstu_kernel, decltype(&hstu_kernel_release)> kernel_;
};

class Engine {
 public:
  Engine() : Engine(hstu_options{sizeof(hstu_options), nullptr, nullptr, 0, 0, nullptr}) {}
  explicit Engine(const hstu_options& options) : engine_(nullptr, &hstu_engine_destroy) {
    hstu_engine* engine = nullptr;
    hstu_error* error = nullptr;
    const hstu_status status = hstu_engine_create(&options, &engine, &error);
    detail::check(status, error);
    engine_.reset(engine);
  }
  Kernel prepare(std::string_view spec) {
    hstu_kernel* kernel = nullptr;
    hstu_error* error = nullptr;
    const hstu_status status =
        hstu_prepare(engine_.get(), spec.data(), spec.size(), &kernel, &error);
    detail::check(status, error);
    return Kernel(kernel);
  }
  // JSON, see hstu_engine_stats.
  std::string stats() const {
    char* json = nullptr;
    hstu_error* error = nullptr;
    const hstu_status status = hstu_engine_stats(engine_.get(), &json, &error);
    detail::check(status, error);
    const std::unique_ptr<char, decltype(&hstu_free)> owned(json, &hstu_free);
    return json;
  }
  hstu_engine* get() const { return engine_.get(); }

 private:
  std::unique_ptr<hstu_engine, decltype(&hstu_engine_destroy)> engine_;
};

}  // namespace hstu::jit::api
