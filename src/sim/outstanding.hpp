// SPDX-License-Identifier: Apache-2.0
// Memory operations that a wave issued and did not wait for yet, one queue per counter of the
// hardware.
#pragma once

#include <array>
#include <cstdint>

#include "sim/isa/instruction.hpp"

namespace hstu::jit::sim {

// vector: loads (and stores where the machine has no store counter), in order. store: stores, in
// order. lds: DS, in order. scalar: scalar loads, in any order.
enum class Queue : uint8_t { vector, store, lds, scalar };
constexpr int kQueues = 4;

// The LDS bytes an operation touches, for the barrier it may cross. Lane l touches
// `bytes` bytes at each of address[l] and, when `second` is not 0, address[l] + second.
struct LdsTouch {
  uint64_t lanes = 0;
  uint16_t bytes = 0;
  bool write = false, atomic = false;
  bool arriving = false;  // a load to LDS: its bytes are not there before it was waited for
  int32_t second = 0;
  uint32_t address[64];
};

struct Outstanding {
  const Instruction* instruction = nullptr;
  uint16_t first = 0;  // register; none when `registers` is 0
  uint16_t registers = 0;
  bool scalar = false;
  LdsTouch touch;  // lanes is 0 for what touches no LDS
};

// First in, first out. The counters of the hardware hold 63 at most and stall at that, so the
// oldest of more has arrived.
class OutstandingQueue {
 public:
  static constexpr uint32_t kMost = 64;
  uint32_t size() const { return size_; }
  bool full() const { return size_ == kMost; }
  // The i-th oldest.
  const Outstanding& operator[](uint32_t i) const { return items_[(head_ + i) % kMost]; }
  Outstanding& push() { return items_[(head_ + size_++) % kMost]; }
  void pop() {
    head_ = (head_ + 1) % kMost;
    --size_;
  }
  void clear() { head_ = size_ = 0; }

 private:
  uint32_t head_ = 0, size_ = 0;
  std::array<Outstanding, kMost> items_;
};

}  // namespace hstu::jit::sim
