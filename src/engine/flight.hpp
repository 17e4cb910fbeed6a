// SPDX-License-Identifier: Apache-2.0
// One making of one kernel, and the callers who wait for it. Internal to the engine.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/fork_mutex.hpp"
#include "base/result.hpp"
#include "engine/engine.hpp"

namespace hstu::jit {

struct Made {
  std::shared_ptr<const Kernel> kernel;
  KernelOrigin origin = KernelOrigin::compiled;
  double compile_ms = 0;
  std::string note;
};

struct Arrival {
  std::mutex mutex;
  std::condition_variable landed;
};
// In a child made by fork, destroying a condition its parent's threads wait for would wait for
// them: what the child has of it is left alone.
struct OwnProcess {
  pid_t maker = ::getpid();
  void operator()(Arrival* arrival) const {
    if (maker == ::getpid()) delete arrival;
  }
};

class Flight {
 public:
  using Clock = std::chrono::steady_clock;
  using Outcome = Result<Made>;

  bool landed() const { return landed_.load(std::memory_order_acquire); }
  // Of a child made by fork: the thread that was making it is its parent's.
  bool lost() const { return !landed() && maker_ != ::getpid(); }
  // A failure that may be tried again.
  bool expired() const { return landed() && !outcome_->ok() && Clock::now() >= try_again_; }
  const Outcome& outcome() const { return *outcome_; }  // once landed

  // Once, by the maker. The outcome does not change afterwards.
  void land(Outcome outcome, std::chrono::milliseconds failure_memory);
  // True when it has landed in time.
  bool wait(std::chrono::milliseconds most);

 private:
  const pid_t maker_ = ::getpid();
  std::atomic<bool> landed_{false};
  std::optional<Outcome> outcome_;
  Clock::time_point try_again_{};
  std::unique_ptr<Arrival, OwnProcess> arrival_{new Arrival};
};

// Who makes which kernel. No lock is held while one is made.
class Flights {
 public:
  struct Ticket {
    std::shared_ptr<Flight> flight;
    bool mine = false;  // the caller makes it and must land it
  };
  Ticket join(const std::string& key);
  std::shared_ptr<const Kernel> find(const std::string& key) const;  // null when not ready
  size_t kernels() const;

 private:
  mutable ForkMutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<Flight>> flights_;
};

}  // namespace hstu::jit
