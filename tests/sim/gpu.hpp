// SPDX-License-Identifier: Apache-2.0
// A simulated GPU behind the table of HIP entry points, with what a test needs to run a kernel.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "sim/sim.hpp"

namespace hstu::test {

struct Shape {
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {64, 1, 1};
  unsigned dynamic_lds = 0;
};

// Kernel arguments in their natural layout.
class Arguments {
 public:
  template <typename T>
  Arguments& add(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.resize((bytes_.size() + alignof(T) - 1) / alignof(T) * alignof(T));
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof value);
    std::memcpy(bytes_.data() + at, &value, sizeof value);
    return *this;
  }
  const std::vector<uint8_t>& bytes() const { return bytes_; }

 private:
  std::vector<uint8_t> bytes_;
};

class Machine {
 public:
  explicit Machine(const std::string& target);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  const jit::HipApi& api() const { return *api_; }
  const std::string& target() const { return target_; }

  uint64_t allocate(size_t bytes);
  void release(uint64_t address);
  void write(uint64_t address, const void* from, size_t bytes);
  void read(void* to, uint64_t address, size_t bytes);

  template <typename T>
  uint64_t upload(const std::vector<T>& values) {
    const uint64_t address = allocate(values.size() * sizeof(T));
    write(address, values.data(), values.size() * sizeof(T));
    return address;
  }
  template <typename T>
  std::vector<T> download(uint64_t address, size_t count) {
    std::vector<T> values(count);
    read(values.data(), address, count * sizeof(T));
    return values;
  }

  // Loads (once per object), launches and waits. Empty, or what the runtime says went wrong.
  std::string launch(const std::string& object, const std::string& kernel, const Shape& shape,
                     const Arguments& arguments);
  // Of the last launch.
  jit::sim::LaunchCounters counters() const { return jit::sim::last_launch().counters; }

 private:
  void select() const;
  std::string error_text(const char* call, int code) const;

  std::string target_;
  std::shared_ptr<const jit::HipApi> api_;
  std::vector<uint64_t> buffers_;
  std::map<std::string, void*> modules_;  // by the object's bytes
};

}  // namespace hstu::test
