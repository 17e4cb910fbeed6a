// SPDX-License-Identifier: Apache-2.0
#include "compile/client.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "base/env.hpp"
#include "base/log.hpp"
#include "base/subprocess.hpp"
#include "base/temp_dir.hpp"
#include "base/text.hpp"
#include "compile/locate.hpp"
#include "compile/root.hpp"

namespace hstu::jit {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxAnswer = size_t{128} << 20;

// What a compiler needs and nothing else: the host's other variables must not change the code.
std::vector<std::string> worker_environment(const std::string& folder) {
  std::vector<std::string> list{"LC_ALL=C", "TMPDIR=" + folder, "AMD_COMGR_CACHE=0"};
  for (const char* name : {"PATH", "LD_LIBRARY_PATH", "ROCM_PATH", "CUDA_HOME", "CUDA_PATH",
                           "HSTU_JIT_HIPRTC", "HSTU_JIT_NVRTC", "HSTU_JIT_CLANG", "HSTU_JIT_CXX"}) {
    if (auto value = get_env(name)) list.push_back(fmt::format("{}={}", name, *value));
  }
  return list;
}

Call problem(std::string text) {
  Call call;
  call.problem = std::move(text);
  return call;
}

Call call_in_process(const Job& job, std::chrono::milliseconds timeout) {
  // hipRTC miscompiles when called from several threads. A child forked during a compile finds the
  // mutex locked for ever, and the compiler in no state to be called.
  static std::timed_mutex mutex;
  const std::unique_lock<std::timed_mutex> lock(mutex, timeout);
  if (!lock.owns_lock()) return problem("the compiler in this process did not become free in time");
  Call call;
  call.answer = run_job(job);
  call.answered = true;
  return call;
}

}  // namespace

bool compile_in_process() {
  const std::string mode = get_env("HSTU_JIT_COMPILE").value_or("worker");
  if (mode != "worker" && mode != "inprocess") {
    log_warn(fmt::format("HSTU_JIT_COMPILE=\"{}\" is neither worker nor inprocess; worker it is",
                         printable(mode)));
  }
  return mode == "inprocess";
}

Call call_worker(const Job& job, std::chrono::milliseconds timeout, int nice) {
  if (compile_in_process()) return call_in_process(job, timeout);
  Result<std::string> worker = find_worker();
  if (!worker.ok()) return problem(worker.error().message);

  const Clock::time_point deadline = Clock::now() + timeout;
  std::string last;
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (attempt > 0 && left.count() <= 0) break;
    Result<TempDir> folder = TempDir::create("hstu-jit-worker-");
    if (!folder.ok()) return problem(folder.error().message);
    ProcessOptions options;
    options.argv = worker_command(*worker, job);
    options.input = encode_job(job);
    options.environment = worker_environment(folder->path());
    options.timeout = std::max(left, std::chrono::milliseconds(1));
    options.nice = nice;
    // A worker gone wild; objects are far smaller, and what it says is for people.
    options.max_output = kMaxAnswer;
    options.max_errors = size_t{1} << 20;
    options.end_when_cut = true;
    Result<ProcessResult> result = run_process(options);
    if (!result.ok()) return problem(result.error().message);
    if (result->timed_out) {
      return problem(
          fmt::format("the compiler gave no answer within {} s and was ended; "
                      "HSTU_JIT_COMPILE_TIMEOUT sets the limit",
                      static_cast<double>(timeout.count()) / 1000));
    }
    if (result->output_cut) {
      return problem(fmt::format("the compile worker {} gave more than {} MiB and was ended",
                                 *worker, kMaxAnswer >> 20));
    }
    const std::string said = printable(result->errors, 200);
    const std::string quoted = said.empty() ? said : fmt::format(" (it said: {})", said);
    if (result->signal != 0) {
      last =
          fmt::format("the compiler crashed: {} was {}{}", *worker, result->how_it_ended(), quoted);
      log_debug(last);
      continue;
    }
    Result<Answer> answer = decode_answer(result->output);
    if (!answer.ok() || result->exit_code > 0) {
      return problem(fmt::format(
          "the compile worker {} ended with {} and without a usable answer: {}{}", *worker,
          result->how_it_ended(),
          answer.ok() ? std::string("its exit code says failure") : answer.error().message,
          quoted));
    }
    Call call;
    call.answered = true;
    call.answer = std::move(*answer);
    return call;
  }
  return problem(last + "; twice");
}

}  // namespace hstu::jit
