// SPDX-License-Identifier: Apache-2.0
#include "sim/failures.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <string>

#include "sim/sim.hpp"

namespace hstu::jit::sim {
namespace {

constexpr std::string_view kEntryPoints[] = {
    "get_device_count",
    "get_device",
    "set_device",
    "get_properties_r0600",
    "get_properties",
    "mem_get_info",
    "malloc",
    "free",
    "memcpy",
    "memset",
    "memset_async",
    "module_load_data",
    "module_unload",
    "module_get_function",
    "module_launch_kernel",
    "stream_create",
    "stream_destroy",
    "stream_synchronize",
    "device_synchronize",
    "event_create",
    "event_destroy",
    "event_record",
    "event_synchronize",
    "event_elapsed_time",
    "get_last_error",
    "runtime_get_version",
};

struct Order {
  int code, after;
};
std::mutex mutex;
std::map<std::string, Order, std::less<>> orders;
std::atomic<bool> any{false};

}  // namespace

int ordered_failure(std::string_view entry_point) {
  if (!any) return 0;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto at = orders.find(entry_point);
  if (at == orders.end()) return 0;
  if (at->second.after-- > 0) return 0;
  const int code = at->second.code;
  orders.erase(at);
  any = !orders.empty();
  return code;
}

bool fail_call(std::string_view entry_point, int code, int after) {
  const bool known = std::find(std::begin(kEntryPoints), std::end(kEntryPoints), entry_point) !=
                     std::end(kEntryPoints);
  if (!known) return false;
  const std::lock_guard<std::mutex> lock(mutex);
  orders[std::string(entry_point)] = {code, after};
  any = true;
  return true;
}

void forget_failures() {
  const std::lock_guard<std::mutex> lock(mutex);
  orders.clear();
  any = false;
}

}  // namespace hstu::jit::sim
