// SPDX-License-Identifier: Apache-2.0
#include "cli/simulation.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

namespace hstu::jit::cli {
namespace {

// Multiply-adds a second of one thread. Measured on a Sapphire Rapids core at 512 x 512 pairs: 0.46
// to 0.67 thousand million on gfx1100, 1.3 to 2.4 on gfx90a (bf16 and fp16, silu and softmax, head
// dims 64 to 256); partial tiles take about twice as long as the full ones of that measurement.
constexpr double kRate = 500e6;
constexpr double kWorthSaying = 60;
constexpr const char* kOver = "\r\033[K";  // back to the begin of an emptied line

double multiply_adds(const Plan& plan) {
  const double pairs = (plan.estimate.full_tiles + plan.estimate.partial_tiles) *
                       plan.config.tile_m * plan.config.tile_n;
  return std::max(pairs, static_cast<double>(plan.estimate.visible_pairs)) *
         (plan.config.head_dim_qk + plan.config.head_dim_v);
}

}  // namespace

double simulated_seconds(const Plan& plan, int64_t launches, int threads) {
  // No more threads work than there are workgroups.
  const auto busy = std::clamp<int64_t>(plan.launch.grid, 1, std::max(1, threads));
  return multiply_adds(plan) * static_cast<double>(launches) / kRate / static_cast<double>(busy);
}

std::string duration_text(double seconds) {
  if (seconds < 100) return fmt::format("{:.0f} s", seconds);
  if (seconds < 100 * 60) return fmt::format("{:.3g} min", seconds / 60);
  if (seconds < 100 * 3600) return fmt::format("{:.3g} h", seconds / 3600);
  return fmt::format("{:.0f} days", seconds / 86400);
}

std::string simulation_notice(const Plan& plan, int64_t launches, int threads) {
  const double seconds = simulated_seconds(plan, launches, threads);
  if (seconds < kWorthSaying) return "";
  return fmt::format(
      "simulating takes about {}, estimated: {} visible pairs in tiles of {:.2g} multiply-adds{}, "
      "{:.0f} million a second and thread, {} thread{}; \"hstu-jit plan\" and a smaller problem "
      "answer sooner",
      duration_text(seconds), plan.estimate.visible_pairs, multiply_adds(plan),
      launches == 1 ? "" : fmt::format(", {} launches", launches), kRate / 1e6, threads,
      threads == 1 ? "" : "s");
}

SimulationWatch::SimulationWatch(const Plan& plan, int64_t launches, std::FILE* out,
                                 std::chrono::milliseconds first)
    : out_(out),
      first_(first),
      terminal_(isatty(fileno(out)) != 0),
      total_(static_cast<uint64_t>(std::max<int64_t>(plan.launch.grid, 0)) *
             static_cast<uint64_t>(std::max<int64_t>(launches, 1))) {
  sim::Options options;
  options.progress = progress_;
  sim::set_options(options);
  if (const auto all = sim::with_defaults({})) {
    const std::string notice = simulation_notice(plan, launches, all->threads);
    if (!notice.empty()) fmt::print(out_, "hstu-jit: {}\n", notice);
  }
  try {
    thread_ = std::thread([this] { watch(); });
  } catch (const std::system_error&) {
    // No thread to be had: the launch matters more.
  }
}

SimulationWatch::~SimulationWatch() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  over_.notify_all();
  if (thread_.joinable()) thread_.join();
  sim::set_options({});
}

void SimulationWatch::watch() {
  using std::chrono::milliseconds;
  constexpr milliseconds kFirstOnTerminal{5000}, kOnTerminal{1000}, kMost{900'000};
  milliseconds wait = terminal_ ? kFirstOnTerminal : first_;
  bool shown = false;
  std::unique_lock<std::mutex> lock(mutex_);
  while (!over_.wait_for(lock, wait, [this] { return stop_; })) {
    const double elapsed =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    const uint64_t done = progress_->done;
    const uint64_t total = std::max<uint64_t>({total_, progress_->workgroups, 1});
    std::string line =
        fmt::format("simulated {} of {} workgroups in {}", done, total, duration_text(elapsed));
    if (done > 0 && done < total) {
      line +=
          ", about " +
          duration_text(elapsed * static_cast<double>(total - done) / static_cast<double>(done)) +
          " left";
    }
    fmt::print(out_, "{}hstu-jit: {}{}", terminal_ ? kOver : "", line, terminal_ ? "" : "\n");
    std::fflush(out_);
    shown = true;
    wait = terminal_ ? kOnTerminal
                     : std::min(kMost, milliseconds(static_cast<int64_t>(elapsed * 1000)));
  }
  if (shown && terminal_) {
    fmt::print(out_, "{}", kOver);
    std::fflush(out_);
  }
}

}  // namespace hstu::jit::cli
