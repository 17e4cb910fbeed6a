// SPDX-License-Identifier: Apache-2.0
// The memory of the simulated devices: host memory, with a register of what was allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace hstu::jit::sim {

struct MemoryRange {
  uint64_t begin = 0, end = 0;
  bool writable = true;
  const char* what = "";  // "buffer", "code object", "kernel arguments"
};

// The ranges that one launch may touch, sorted; fixed while it runs.
class MemoryMap {
 public:
  explicit MemoryMap(std::vector<MemoryRange> ranges);
  // The range that holds `address`, or null.
  const MemoryRange* find(uint64_t address) const;
  // The range that ends last at or before `address`, or null: what was probably meant.
  const MemoryRange* before(uint64_t address) const;

 private:
  std::vector<MemoryRange> ranges_;
};

// Allocations of one device. Neighbours lie apart, so that running over an end meets nothing.
class DeviceMemory {
 public:
  ~DeviceMemory();
  // 256-byte aligned, filled with a poison byte; null when the host has no more.
  void* allocate(size_t bytes, size_t limit);
  bool release(void* pointer);
  // Whether [pointer, pointer + bytes) lies inside one allocation.
  bool holds(const void* pointer, size_t bytes) const;
  size_t used() const;
  std::vector<MemoryRange> ranges() const;

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, std::pair<size_t, void*>> blocks_;  // begin -> size, what malloc gave
  size_t used_ = 0;
};

}  // namespace hstu::jit::sim
