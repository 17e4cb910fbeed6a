// SPDX-License-Identifier: Apache-2.0
// How run_process starts a program: its pipes, its life bound to ours. Internal to this room.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <utility>

#include "base/subprocess.hpp"

namespace hstu::jit {

struct Pipe {
  int read = -1;
  int write = -1;
  Pipe() = default;
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close_read();
    close_write();
  }
  void close_read() {
    if (read >= 0) ::close(std::exchange(read, -1));
  }
  void close_write() {
    if (write >= 0) ::close(std::exchange(write, -1));
  }
  int open();  // 0 or errno; neither end is a standard descriptor's number
};

// A place for the group of a running program among those that kill_running_processes() kills.
class RunningGroup {
 public:
  RunningGroup();
  RunningGroup(const RunningGroup&) = delete;
  RunningGroup& operator=(const RunningGroup&) = delete;
  ~RunningGroup() { clear(); }
  void set(pid_t group) {
    if (place_ != nullptr) *place_ = group;
  }
  // Before its leader is reaped: the number may be another group's afterwards.
  void clear() {
    if (place_ != nullptr) *std::exchange(place_, nullptr) = 0;
  }

 private:
  std::atomic<pid_t>* place_ = nullptr;
};

// Starts a program with these pipes as its standard descriptors, in its group where it gets one of
// its own; it is killed when this thread ends before it. 0 or errno.
int spawn(const std::string& program, const ProcessOptions& options, const Pipe& in,
          const Pipe& out, const Pipe& err, RunningGroup& group, pid_t* pid);

}  // namespace hstu::jit
