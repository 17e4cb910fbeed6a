// SPDX-License-Identifier: Apache-2.0
// AMD GPUs simulated on this host's processors: a HIP run-time library as a table. Code objects are
// executed instruction by instruction with every access checked (see wave.hpp, lds.hpp,
// memory.hpp).
//
//   auto api = sim::simulator_api();
//   api->set_device(*sim::find_machine("gfx942"));
//   api->module_load_data(&module, object); ... api->module_launch_kernel(...);
//   sim::LaunchReport report = sim::last_launch();  // counters, or the fault in words
//
// Device addresses are host addresses of this process: a kernel may be given only what `malloc` of
// the table returned. A launch runs to its end before it returns; a fault makes it return
// kHipErrorLaunchFailure, whose text (`get_error_string`) is the fault of the calling thread's last
// launch.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/hip_table.hpp"
#include "base/result.hpp"
#include "sim/counters.hpp"

namespace hstu::jit::sim {

enum : int {
  kHipErrorInvalidValue = 1,
  kHipErrorOutOfMemory = 2,
  kHipErrorNoBinaryForGpu = 209,
  kHipErrorInvalidDevice = 101,
  kHipErrorInvalidImage = 200,
  kHipErrorOperatingSystem = 304,
  kHipErrorInvalidHandle = 400,
  kHipErrorNotFound = 500,
  kHipErrorLaunchTimeOut = 702,
  kHipErrorLaunchFailure = 719,
};

// The targets that are simulated; their place is their HIP ordinal.
std::span<const std::string_view> simulated_targets();
std::optional<int> find_machine(std::string_view target);

// One table for the process; every call of it is thread-safe.
std::shared_ptr<const HipApi> simulator_api();

struct LaunchReport {
  std::string kernel;  // empty when this thread launched nothing
  std::string target;
  std::string fault;        // one line; empty when the launch ended well
  LaunchCounters counters;  // of what was executed, also before a fault
};
// Of the calling thread's last launch.
LaunchReport last_launch();
void forget_last_launch();  // last_launch() is empty until the next one

// How far launches are, for whoever waits for them from another thread.
struct Progress {
  std::atomic<uint64_t> workgroups{0}, done{0};  // of the launches that have begun
};

struct Options {
  int threads = 0;  // 0: HSTU_JIT_SIM_THREADS, else the processors this process may use
  // A wave that executes more is a fault. 0: HSTU_JIT_SIM_LIMIT, else a hundred million.
  uint64_t instructions_per_wave = 0;
  std::shared_ptr<Progress> progress;  // counted up by every launch; may be null
};
// Zeros replaced by what the environment says, else by what is usual.
// Errors: kUsage for variables that hold no such number.
Result<Options> with_defaults(Options options);
void set_options(const Options& options);

// ---- Making entry points fail, for tests of what calls them.
// After `after` calls that go well, the next call of an entry point, named as its field of HipApi
// ("module_load_data"), does nothing and returns `code`. Unknown names: false.
bool fail_call(std::string_view entry_point, int code, int after = 0);
void forget_failures();

}  // namespace hstu::jit::sim
