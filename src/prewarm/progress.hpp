// SPDX-License-Identifier: Apache-2.0
// What somebody who waits for a prewarm sees: a bar on a terminal, lines elsewhere, or one JSON
// object per event for programs.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "prewarm/runner.hpp"

namespace hstu::jit {

enum class ProgressStyle { none, lines, bar, ndjson };

// "auto" (a bar where `out` is a terminal that can move its cursor, else lines), "bar", "lines",
// "ndjson", "none". Errors: kUsage.
Result<ProgressStyle> progress_style(std::string_view word, std::FILE* out);

// Everything a bar shows, at most `columns` wide, without escapes: "[=====>    ] 12/64 ...".
std::string bar_text(const RunCount& count, size_t threads, int columns);

// "about 40 s left", "" while nothing is known. From the kernels compiled so far.
std::string time_left(const RunCount& count, size_t threads);

// Events are lines of schema "hstu-jit/prewarm-event/1": "start", "refused", "kernel". Bars and
// lines: while it lives, log lines take turns with the bar.
class Progress : public RunWatcher {
 public:
  // Tells what is about to be done.
  virtual void begin(const JobList& list, size_t threads) = 0;
  // Leaves the terminal as it was. Called once, also when the run was stopped.
  virtual void end() = 0;
};
std::unique_ptr<Progress> make_progress(ProgressStyle style, std::FILE* out);

}  // namespace hstu::jit
