// SPDX-License-Identifier: Apache-2.0
// The parent's side of a compile: worker process or, on demand, this process.
#pragma once

#include <chrono>
#include <string>

#include "compile/job.hpp"

namespace hstu::jit {

struct Call {
  bool answered = false;
  Answer answer;        // when answered
  std::string problem;  // one line when not: crash, time-out, nonsense, no worker
};

// HSTU_JIT_COMPILE=inprocess asks for the compiler in this process.
bool compile_in_process();

// Runs the job within the time given. A crash is retried once in a fresh worker. Leaves no process
// and no temporary folder.
Call call_worker(const Job& job, std::chrono::milliseconds timeout, int nice = 0);

}  // namespace hstu::jit
