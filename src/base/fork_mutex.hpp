// SPDX-License-Identifier: Apache-2.0
// A mutex that no fork leaves locked in the child: fork() waits until it is free.
#pragma once

#include <mutex>

namespace hstu::jit {

// For short sections that neither fork nor take another ForkMutex; then no order of locks matters.
// Works with std::lock_guard and std::unique_lock.
class ForkMutex {
 public:
  ForkMutex();
  ForkMutex(const ForkMutex&) = delete;
  ForkMutex& operator=(const ForkMutex&) = delete;
  ~ForkMutex();
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }
  bool try_lock() { return mutex_.try_lock(); }

 private:
  friend struct ForkMutexes;
  std::mutex mutex_;
  ForkMutex* next_ = nullptr;
  ForkMutex* previous_ = nullptr;
};

}  // namespace hstu::jit
