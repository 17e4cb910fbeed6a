// SPDX-License-Identifier: Apache-2.0
#include "cache/remote_queue.hpp"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace hstu::cache {

struct JobQueue::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::pair<uint64_t, std::function<void()>>> jobs;
  uint64_t bytes = 0;
  bool running = false;  // the thread is there and will look at `jobs` again
  std::thread thread;

  void work() {
    std::unique_lock lock(mutex);
    while (!jobs.empty()) {
      auto [size, job] = std::move(jobs.front());
      jobs.pop_front();
      lock.unlock();
      job();
      job = nullptr;
      lock.lock();
      bytes -= size;
    }
    running = false;
    changed.notify_all();
  }
};

JobQueue::JobQueue(size_t most_jobs, uint64_t most_bytes)
    : state_(std::make_unique<State>()),
      most_jobs_(most_jobs),
      most_bytes_(most_bytes),
      process_(::getpid()) {}

JobQueue::~JobQueue() {
  if (::getpid() != process_) {
    // The thread and whoever held the lock are in the parent: nothing here may be touched.
    static_cast<void>(state_.release());
    return;
  }
  {
    const std::lock_guard lock(state_->mutex);
    state_->jobs.clear();
  }
  if (state_->thread.joinable()) state_->thread.join();
}

bool JobQueue::add(uint64_t bytes, std::function<void()> job) {
  if (::getpid() != process_) return false;
  std::thread finished;  // of the jobs before; it has nothing left to do but to return
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->jobs.size() >= most_jobs_ || bytes > most_bytes_ - state_->bytes) return false;
    state_->jobs.emplace_back(bytes, std::move(job));
    state_->bytes += bytes;
    if (state_->running) return true;
    finished = std::move(state_->thread);
    // The host program's signals are none of the thread's business.
    sigset_t all, before;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      state_->thread = std::thread([state = state_.get()] { state->work(); });
      state_->running = true;
    } catch (const std::system_error&) {
      state_->jobs.pop_back();
      state_->bytes -= bytes;
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (!state_->running) {
      state_->thread = std::move(finished);
      return false;
    }
  }
  if (finished.joinable()) finished.join();
  return true;
}

bool JobQueue::wait_idle(int timeout_ms) {
  if (::getpid() != process_) return true;
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                                  [this] { return !state_->running; });
}

}  // namespace hstu::cache
