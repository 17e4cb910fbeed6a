// SPDX-License-Identifier: Apache-2.0
#include "gpu.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "catch.hpp"

namespace hstu::test {

Machine::~Machine() {
  for (const auto& [object, module] : modules_) api_->module_unload(module);
  for (const uint64_t address : buffers_) api_->free(reinterpret_cast<void*>(address));
}

Machine::Machine(const std::string& target) : target_(target), api_(jit::sim::simulator_api()) {
  REQUIRE(api_);
  INFO(target);
  REQUIRE(jit::sim::find_machine(target).has_value());
}

void Machine::select() const { REQUIRE(api_->set_device(*jit::sim::find_machine(target_)) == 0); }

std::string Machine::error_text(const char* call, int code) const {
  const char* text = api_->get_error_string(code);
  return fmt::format("{}: {} ({})", call, text ? text : "", code);
}

uint64_t Machine::allocate(size_t bytes) {
  select();
  void* address = nullptr;
  REQUIRE(api_->malloc(&address, bytes) == 0);
  buffers_.push_back(reinterpret_cast<uint64_t>(address));
  return buffers_.back();
}

void Machine::release(uint64_t address) {
  REQUIRE(api_->free(reinterpret_cast<void*>(address)) == 0);
  buffers_.erase(std::remove(buffers_.begin(), buffers_.end(), address), buffers_.end());
}

void Machine::write(uint64_t address, const void* from, size_t bytes) {
  if (bytes == 0) return;
  REQUIRE(api_->memcpy(reinterpret_cast<void*>(address), from, bytes,
                       jit::kHipMemcpyHostToDevice) == 0);
}

void Machine::read(void* to, uint64_t address, size_t bytes) {
  if (bytes == 0) return;
  REQUIRE(api_->memcpy(to, reinterpret_cast<void*>(address), bytes, jit::kHipMemcpyDeviceToHost) ==
          0);
}

std::string Machine::launch(const std::string& object, const std::string& kernel,
                            const Shape& shape, const Arguments& arguments) {
  select();
  auto found = modules_.find(object);
  if (found == modules_.end()) {
    found = modules_.emplace(object, nullptr).first;
    // The module may read the image later: give it the copy that stays.
    const int code = api_->module_load_data(&found->second, found->first.data());
    if (code != 0) {
      modules_.erase(found);
      return error_text("hipModuleLoadData", code);
    }
  }
  void* function = nullptr;
  int code = api_->module_get_function(&function, found->second, kernel.c_str());
  if (code != 0) return error_text("hipModuleGetFunction", code);
  size_t bytes = arguments.bytes().size();
  void* extra[] = {jit::hip_launch_buffer_pointer(), const_cast<uint8_t*>(arguments.bytes().data()),
                   jit::hip_launch_buffer_size(), &bytes, jit::hip_launch_end()};
  code = api_->module_launch_kernel(function, shape.grid[0], shape.grid[1], shape.grid[2],
                                    shape.block[0], shape.block[1], shape.block[2],
                                    shape.dynamic_lds, nullptr, nullptr, extra);
  if (code != 0) return error_text("hipModuleLaunchKernel", code);
  code = api_->stream_synchronize(nullptr);
  return code == 0 ? "" : error_text("hipStreamSynchronize", code);
}

}  // namespace hstu::test
