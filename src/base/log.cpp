// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>

#include "base/env.hpp"
#include "base/fork_mutex.hpp"
#include "base/text.hpp"

namespace hstu::jit {
namespace {

struct Sink {
  ForkMutex mutex;
  LogSink function = nullptr;
  void* user = nullptr;
};

Sink& sink() {
  static Sink* instance = new Sink;  // never destroyed: threads may log while the program ends
  return *instance;
}

const char* level_name(LogLevel level) {
  switch (level) {
    case LogLevel::error:
      return "error";
    case LogLevel::warn:
      return "warning";
    case LogLevel::info:
      return "info";
    case LogLevel::debug:
      return "debug";
  }
  return "?";
}

}  // namespace

LogLevel log_level() {
  const std::string text = get_env("HSTU_JIT_LOG").value_or("warn");
  if (text == "error") return LogLevel::error;
  if (text == "info") return LogLevel::info;
  if (text == "debug") return LogLevel::debug;
  return LogLevel::warn;
}

void set_log_sink(LogSink function, void* user) {
  const std::lock_guard<ForkMutex> lock(sink().mutex);
  sink().function = function;
  sink().user = user;
}

void log(LogLevel level, std::string_view line) {
  if (level > log_level()) return;
  LogSink function = nullptr;
  void* user = nullptr;
  {
    const std::lock_guard<ForkMutex> lock(sink().mutex);
    function = sink().function;
    user = sink().user;
  }
  if (function != nullptr) {  // called without the lock: a sink may log or change the sink
    function(level, line, user);
    return;
  }
  // One write per line, so that lines of several threads and processes do not mix.
  const std::string text =
      fmt::format("hstu-jit: {}: {}\n", level_name(level), printable(line, 4000));
  const char* at = text.data();
  size_t left = text.size();
  while (left > 0) {
    const ssize_t wrote = ::write(STDERR_FILENO, at, left);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return;  // standard error is gone: there is nobody to tell
    at += wrote;
    left -= static_cast<size_t>(wrote);
  }
}

}  // namespace hstu::jit
