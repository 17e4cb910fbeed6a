// SPDX-License-Identifier: Apache-2.0
// What somebody who waits for a simulated launch is told on standard error: how long it may take,
// and how far it is.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "plan/plan.hpp"
#include "sim/sim.hpp"

namespace hstu::jit::cli {

// Seconds that `launches` of a plan take on `threads` threads, from the tiles its visible pairs lie
// in and a rate that was measured (see simulation.cpp): right within a factor of about three.
double simulated_seconds(const Plan& plan, int64_t launches, int threads);

// "40 s", "3.5 min", "2.1 h", "12 days".
std::string duration_text(double seconds);

// What is said before the launches; empty where they take less than about a minute.
std::string simulation_notice(const Plan& plan, int64_t launches, int threads);

// Says it, and reports progress while it lives: on a terminal in one line that is written over,
// elsewhere a line after 1, 2, 4 ... minutes and then every 15 minutes.
class SimulationWatch {
 public:
  // `first`: after how long the first line comes where there is no terminal.
  SimulationWatch(const Plan& plan, int64_t launches, std::FILE* out = stderr,
                  std::chrono::milliseconds first = std::chrono::minutes(1));
  SimulationWatch(const SimulationWatch&) = delete;
  SimulationWatch& operator=(const SimulationWatch&) = delete;
  ~SimulationWatch();

 private:
  void watch();

  std::FILE* out_;
  std::chrono::milliseconds first_;
  bool terminal_;
  uint64_t total_;  // workgroups of all launches
  std::shared_ptr<sim::Progress> progress_ = std::make_shared<sim::Progress>();
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::condition_variable over_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace hstu::jit::cli
