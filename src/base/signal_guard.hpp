// SPDX-License-Identifier: Apache-2.0
// Keeps a signal that this thread's own system calls raise (SIGPIPE, SIGXFSZ) from ending the
// program: a library may not touch the process-wide handlers of its host.
#pragma once

#include <signal.h>

namespace hstu::jit {

class SignalGuard {
 public:
  explicit SignalGuard(int signal) {
    sigemptyset(&set_);
    sigaddset(&set_, signal);
    sigset_t pending;
    sigemptyset(&pending);
    sigpending(&pending);
    was_pending_ = sigismember(&pending, signal) == 1;
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
  }
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;
  ~SignalGuard() {
    if (!was_pending_) {  // swallow what came while the guard stood
      const timespec now{0, 0};
      while (sigtimedwait(&set_, nullptr, &now) > 0) {
      }
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t set_;
  sigset_t before_;
  bool was_pending_ = false;
};

}  // namespace hstu::jit
