// SPDX-License-Identifier: Apache-2.0
// A shared object in memory, loaded into this process without a file that could be left behind.
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"

namespace hstu::jit {

class CpuModule {
 public:
  // Errors: kDevice with the loader's reason.
  static Result<CpuModule> load(std::string_view object);
  CpuModule(CpuModule&& other) noexcept : handle_(other.handle_) { other.handle_ = nullptr; }
  CpuModule& operator=(CpuModule&&) = delete;
  ~CpuModule();

  // Errors: kDevice when there is no such name.
  Result<void*> find(const std::string& name) const;

 private:
  explicit CpuModule(void* handle) : handle_(handle) {}
  void* handle_;
};

}  // namespace hstu::jit
