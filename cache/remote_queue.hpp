// SPDX-License-Identifier: Apache-2.0
// Jobs for the background, one after the other, bounded in number and bytes. Its thread lives only
// while there are jobs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace hstu::cache {

class JobQueue {
 public:
  JobQueue(size_t most_jobs, uint64_t most_bytes);
  // Drops what has not begun and waits for what has. In a child after fork(): forgets all.
  ~JobQueue();
  JobQueue(const JobQueue&) = delete;
  JobQueue& operator=(const JobQueue&) = delete;

  // False when the queue is full, no thread can be had, or this is a child after fork().
  bool add(uint64_t bytes, std::function<void()> job);
  // True when nothing is queued or runs, within `timeout_ms`.
  bool wait_idle(int timeout_ms);

 private:
  struct State;
  std::unique_ptr<State> state_;
  const size_t most_jobs_;
  const uint64_t most_bytes_;
  const int process_;
};

}  // namespace hstu::cache
