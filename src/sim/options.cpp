// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>

#include "base/env.hpp"
#include "base/text.hpp"
#include "sim/sim.hpp"

namespace hstu::jit::sim {
namespace {

// What a variable says, a number from 1 to `most`; `otherwise` where it is not set.
Result<uint64_t> number_from(const char* variable, uint64_t most, uint64_t otherwise) {
  const auto text = get_env(variable);
  if (!text) return otherwise;
  uint64_t value = 0;
  const char* last = text->data() + text->size();
  const auto [end, error] = std::from_chars(text->data(), last, value);
  if (error == std::errc() && end == last && value > 0 && value <= most) return value;
  return Error{ErrorKind::kUsage,
               fmt::format("{}: \"{}\" is no number from 1 to {}; correct or unset it", variable,
                           printable(*text), most),
               "", ""};
}

uint64_t processors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return static_cast<uint64_t>(std::max(1, CPU_COUNT(&set)));
}

}  // namespace

Result<Options> with_defaults(Options options) {
  constexpr uint64_t kMostThreads = 1024, kUsualLimit = 100'000'000, kMostLimit = ~uint64_t{0} / 2;
  const auto threads = number_from("HSTU_JIT_SIM_THREADS", kMostThreads, processors());
  if (!threads) return threads.error();
  const auto limit = number_from("HSTU_JIT_SIM_LIMIT", kMostLimit, kUsualLimit);
  if (!limit) return limit.error();
  if (options.threads <= 0) options.threads = static_cast<int>(*threads);
  if (options.instructions_per_wave == 0) options.instructions_per_wave = *limit;
  return options;
}

}  // namespace hstu::jit::sim
