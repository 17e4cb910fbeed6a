// SPDX-License-Identifier: Apache-2.0
// Threads that live as long as the device and sleep between launches.
#pragma once

#include <pthread.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "base/result.hpp"

namespace hstu::jit {

class ThreadPool {
 public:
  using Function = void (*)(const void* arguments, void* queue);

  // Errors: kDevice when fewer than one thread can be started; a pool may be smaller than asked.
  static Result<std::unique_ptr<ThreadPool>> create(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(threads_.size()); }

  // Calls function(arguments, queue) once on each thread and returns when all are done. Calls from
  // several threads take turns. Nothing is allocated.
  void run(Function function, const void* arguments, void* queue);

 private:
  ThreadPool() = default;
  static void* thread_main(void* pool);
  void serve();

  std::vector<pthread_t> threads_;
  std::mutex turn_;
  std::atomic<unsigned> round_{0};  // grows by one with each run
  std::atomic<int> busy_{0};        // threads still in this round
  std::atomic<bool> stop_{false};
  Function function_ = nullptr;  // written before round_, read after it
  const void* arguments_ = nullptr;
  void* queue_ = nullptr;
};

}  // namespace hstu::jit
