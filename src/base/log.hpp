// SPDX-License-Identifier: Apache-2.0
// Log lines on standard error, by HSTU_JIT_LOG = error | warn (default) | info | debug.
#pragma once

#include <string_view>

namespace hstu::jit {

enum class LogLevel { error, warn, info, debug };

LogLevel log_level();
// A library host takes the lines over by setting a sink; null restores standard error.
using LogSink = void (*)(LogLevel level, std::string_view line, void* user);
void set_log_sink(LogSink sink, void* user);

void log(LogLevel level, std::string_view line);
inline void log_warn(std::string_view line) { log(LogLevel::warn, line); }
inline void log_info(std::string_view line) { log(LogLevel::info, line); }
inline void log_debug(std::string_view line) { log(LogLevel::debug, line); }

}  // namespace hstu::jit
