// SPDX-License-Identifier: Apache-2.0
// What the entry points of the simulated HIP run-time library share.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "base/hip_table.hpp"
#include "sim/code.hpp"
#include "sim/failures.hpp"
#include "sim/memory.hpp"
#include "sim/sim.hpp"

namespace hstu::jit::sim {

using Clock = std::chrono::steady_clock;

struct Module {
  int device = 0;
  std::shared_ptr<const Code> code;
};
struct Function {
  std::shared_ptr<Module> module;
  const KernelEntry* kernel = nullptr;
};
struct Event {
  bool recorded = false;
  Clock::time_point time;
};

// Handles are numbers that are never used again, so a stale one is known as such.
template <typename T>
class Handles {
 public:
  void* add(std::shared_ptr<T> object) {
    const uintptr_t handle = next_ += 16;
    objects_[handle] = std::move(object);
    return reinterpret_cast<void*>(handle);
  }
  std::shared_ptr<T> find(const void* handle) const {
    const auto at = objects_.find(reinterpret_cast<uintptr_t>(handle));
    return at == objects_.end() ? nullptr : at->second;
  }
  bool remove(const void* handle) {
    return objects_.erase(reinterpret_cast<uintptr_t>(handle)) > 0;
  }
  template <typename Predicate>
  void remove_if(const Predicate& predicate) {
    std::erase_if(objects_, [&](const auto& entry) { return predicate(*entry.second); });
  }

 private:
  uintptr_t next_ = 4096;
  std::unordered_map<uintptr_t, std::shared_ptr<T>> objects_;
};

struct Simulator {
  std::mutex mutex;  // for the handles and options
  DeviceMemory memory[16];
  std::shared_mutex running[16];  // shared by the launches on a device
  Handles<Module> modules;
  Handles<Function> functions;
  Handles<int> streams;
  Handles<Event> events;
  Options options;
};
Simulator& simulator();  // the one of this process

inline thread_local int current_device = 0;

bool known_stream(void* stream);
void add_stream_entries(HipApi& table);  // streams, events, synchronising

// The first line of an entry point: the failure a test may have ordered.
#define HSTU_SIM_ENTRY(name) \
  if (const int ordered = ordered_failure(name); ordered != 0) return ordered

}  // namespace hstu::jit::sim
