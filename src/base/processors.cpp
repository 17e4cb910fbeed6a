// SPDX-License-Identifier: Apache-2.0
#include "base/processors.hpp"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <thread>

#include "base/file.hpp"

namespace hstu::jit {
namespace {

// First number of a file such as cpu.max; -1 if there is none ("max", no such file).
long long leading_number(const std::string& text) {
  long long value = -1;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// Whole CPUs the control group's quota grants; a large number without a quota.
int quota_cpus() {
  long long quota = -1, period = -1;
  if (Result<std::string> v2 = read_file("/sys/fs/cgroup/cpu.max", 4096); v2) {
    quota = leading_number(*v2);
    const size_t space = v2->find(' ');
    if (space != std::string::npos) period = leading_number(v2->substr(space + 1));
  } else {
    Result<std::string> q = read_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", 4096);
    Result<std::string> p = read_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us", 4096);
    if (q && p) quota = leading_number(*q), period = leading_number(*p);
  }
  if (quota <= 0 || period <= 0) return 1 << 20;
  return static_cast<int>(std::clamp<long long>((quota + period - 1) / period, 1, 1 << 20));
}

int affinity_cpus() {
  // Processors beyond a plain cpu_set_t make the call fail; the library then counts them all.
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace

int usable_processors() { return std::max(1, std::min(affinity_cpus(), quota_cpus())); }

}  // namespace hstu::jit
