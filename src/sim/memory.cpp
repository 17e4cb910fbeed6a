// SPDX-License-Identifier: Apache-2.0
#include "sim/memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace hstu::jit::sim {
namespace {

constexpr size_t kGap = 4096, kAlign = 256;
constexpr int kPoisonByte = 0xff;

}  // namespace

MemoryMap::MemoryMap(std::vector<MemoryRange> ranges) : ranges_(std::move(ranges)) {
  std::sort(ranges_.begin(), ranges_.end(),
            [](const MemoryRange& a, const MemoryRange& b) { return a.begin < b.begin; });
}

const MemoryRange* MemoryMap::before(uint64_t address) const {
  const auto at =
      std::upper_bound(ranges_.begin(), ranges_.end(), address,
                       [](uint64_t a, const MemoryRange& range) { return a < range.begin; });
  return at == ranges_.begin() ? nullptr : &*(at - 1);
}

const MemoryRange* MemoryMap::find(uint64_t address) const {
  const MemoryRange* range = before(address);
  return range != nullptr && address < range->end ? range : nullptr;
}

DeviceMemory::~DeviceMemory() {
  for (const auto& [begin, block] : blocks_) std::free(block.second);
}

void* DeviceMemory::allocate(size_t bytes, size_t limit) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (bytes > limit || used_ > limit - bytes || bytes > SIZE_MAX - 2 * kGap) return nullptr;
  void* raw = std::malloc(bytes + 2 * kGap);
  if (raw == nullptr) return nullptr;
  const uint64_t begin =
      (reinterpret_cast<uint64_t>(raw) + kGap / 2 + kAlign - 1) / kAlign * kAlign;
  // What is never uploaded reads as a NaN in every float format; the rest of large blocks stays
  // untouched pages.
  constexpr size_t kMostPoisoned = size_t{64} << 20;
  std::memset(reinterpret_cast<void*>(begin), kPoisonByte, std::min(bytes, kMostPoisoned));
  blocks_[begin] = {bytes, raw};
  used_ += bytes;
  return reinterpret_cast<void*>(begin);
}

bool DeviceMemory::release(void* pointer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto at = blocks_.find(reinterpret_cast<uint64_t>(pointer));
  if (at == blocks_.end()) return false;
  used_ -= at->second.first;
  std::free(at->second.second);
  blocks_.erase(at);
  return true;
}

bool DeviceMemory::holds(const void* pointer, size_t bytes) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto address = reinterpret_cast<uint64_t>(pointer);
  auto at = blocks_.upper_bound(address);
  if (at == blocks_.begin()) return false;
  --at;
  const uint64_t offset = address - at->first;
  return offset <= at->second.first && bytes <= at->second.first - offset;
}

size_t DeviceMemory::used() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return used_;
}

std::vector<MemoryRange> DeviceMemory::ranges() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<MemoryRange> out;
  for (const auto& [begin, block] : blocks_) {
    if (block.first > 0) out.push_back({begin, begin + block.first, true, "buffer"});
  }
  return out;
}

}  // namespace hstu::jit::sim
