// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/thread_pool.hpp"

#include <fmt/format.h>

#include <cstring>

namespace hstu::jit {
namespace {
// A kernel keeps its scratch (up to about 1.5 MB) on the stack.
constexpr size_t kStackBytes = size_t{4} << 20;
}  // namespace

Result<std::unique_ptr<ThreadPool>> ThreadPool::create(int threads) {
  std::unique_ptr<ThreadPool> pool(new ThreadPool);
  pool->threads_.reserve(static_cast<size_t>(threads));
  pthread_attr_t attributes;
  int error = pthread_attr_init(&attributes);
  if (error == 0) {
    error = pthread_attr_setstacksize(&attributes, kStackBytes);
    for (int i = 0; i < threads && error == 0; ++i) {
      pthread_t thread;
      error = pthread_create(&thread, &attributes, thread_main, pool.get());
      if (error == 0) pool->threads_.push_back(thread);
    }
    pthread_attr_destroy(&attributes);
  }
  if (pool->threads_.empty())
    return Error{ErrorKind::kDevice,
                 fmt::format("cpu: no thread could be started: {}", std::strerror(error)), "", ""};
  return pool;
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  round_.fetch_add(1);
  round_.notify_all();
  for (pthread_t thread : threads_) pthread_join(thread, nullptr);
}

void* ThreadPool::thread_main(void* pool) {
  static_cast<ThreadPool*>(pool)->serve();
  return nullptr;
}

void ThreadPool::serve() {
  unsigned seen = 0;
  for (;;) {
    round_.wait(seen, std::memory_order_acquire);
    // One round at a time: the next starts only when this thread has left the last.
    ++seen;
    if (stop_.load()) return;
    function_(arguments_, queue_);
    if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_.notify_one();
  }
}

void ThreadPool::run(Function function, const void* arguments, void* queue) {
  const std::lock_guard<std::mutex> lock(turn_);
  function_ = function;
  arguments_ = arguments;
  queue_ = queue;
  busy_.store(size(), std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  for (int left = busy_.load(std::memory_order_acquire); left != 0;
       left = busy_.load(std::memory_order_acquire))
    busy_.wait(left, std::memory_order_acquire);
}

}  // namespace hstu::jit
