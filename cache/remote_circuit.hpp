// SPDX-License-Identifier: Apache-2.0
// Back-off: after a failure nobody asks for a while, then one caller tries, and the others follow
// when it succeeds. Without locks, so that fork() cannot leave one held.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace hstu::cache {

// Times are milliseconds of one steady clock, greater than 0.
class Circuit {
 public:
  enum class Pass { none, normal, probe };

  Circuit(int64_t first_pause, int64_t longest_pause)
      : first_(first_pause), longest_(std::max(first_pause, longest_pause)), pause_(first_pause) {}

  // May a caller ask now? A probe that never reports stands for `probe_time` at most.
  Pass enter(int64_t now, int64_t probe_time) {
    int64_t until = until_.load();
    if (until == 0) return Pass::normal;
    if (now < until) return Pass::none;
    return until_.compare_exchange_strong(until, now + probe_time) ? Pass::probe : Pass::none;
  }

  void succeeded(Pass pass) {
    // An answer from before the failure proves nothing.
    if (pass == Pass::probe) until_.store(0);
  }

  void failed(Pass pass, int64_t now) {
    if (pass == Pass::probe) {
      const int64_t pause = std::min(pause_.load() * 2, longest_);
      pause_.store(pause);
      until_.store(now + pause);
      return;
    }
    // Many callers find the same failure: the first of them counts.
    int64_t closed = 0;
    if (until_.compare_exchange_strong(closed, now + first_)) pause_.store(first_);
  }

  int64_t left(int64_t now) const { return std::max<int64_t>(until_.load() - now, 0); }

 private:
  const int64_t first_, longest_;
  std::atomic<int64_t> until_{0};  // 0: closed, all may ask
  std::atomic<int64_t> pause_;
};

}  // namespace hstu::cache
