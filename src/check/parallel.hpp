// SPDX-License-Identifier: Apache-2.0
// Reference rows of a whole problem, cut into tasks and run on all cores.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <span>
#include <system_error>
#include <thread>
#include <vector>

#include "check/check.hpp"
#include "reference/rows.hpp"

namespace hstu::jit {

// Some rows of one sequence and head.
struct RowTask {
  int64_t b = 0;
  int32_t h = 0;
  std::vector<int32_t> rows;
};

// Tasks of at most 256 rows, so that one long sequence still keeps every core busy. `rows_of` gives
// the rows of (b, h), ascending.
template <typename RowsOf>
std::vector<RowTask> row_tasks(const Problem& problem, const Geometry& geometry, RowsOf rows_of) {
  constexpr size_t kRows = 256;
  std::vector<RowTask> tasks;
  for (size_t b = 0; b < geometry.sequences.size(); ++b)
    for (int32_t h = 0; h < problem.heads; ++h) {
      const std::vector<int32_t> rows = rows_of(static_cast<int64_t>(b), h);
      for (size_t begin = 0; begin < rows.size(); begin += kRows) {
        const size_t end = std::min(begin + kRows, rows.size());
        tasks.push_back({static_cast<int64_t>(b), h, {rows.begin() + begin, rows.begin() + end}});
      }
    }
  return tasks;
}

// Calls body(n) for n in [0, count) on all cores, in no order. False if some call threw (out of
// memory); the rest may then be left out.
template <typename Body>
bool parallel_for(size_t count, Body body) {
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  const auto work = [&] {
    try {
      for (size_t n = next++; n < count && !failed; n = next++) body(n);
    } catch (const std::exception&) {
      failed = true;
    }
  };
  std::vector<std::thread> threads;
  try {
    const size_t wanted = std::min<size_t>(std::thread::hardware_concurrency(), count);
    for (size_t n = 1; n < wanted; ++n) threads.emplace_back(work);
  } catch (const std::exception&) {
    // No more threads to be had: the ones that run, and this one, do it all.
  }
  work();
  for (std::thread& thread : threads) thread.join();
  return !failed;
}

}  // namespace hstu::jit
