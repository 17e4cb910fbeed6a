// SPDX-License-Identifier: Apache-2.0
// Every entry point of the HIP table made to fail in turn, under the code that serves real GPUs:
// one clean error, nothing left behind.
#include <fmt/format.h>

#include <functional>

#include "catch.hpp"
#include "device/hip/hip_device.hpp"
#include "probe.hpp"
#include "sim/sim.hpp"

namespace hstu::test {
namespace {

// A host program's own choice of device, which every call must leave as it was.
int other_device() { return *jit::sim::find_machine("gfx942"); }

// Opens a device, allocates, copies, loads, launches, times, downloads: what a run does.
jit::Status whole_run(const std::string& object) {
  auto opened =
      jit::open_hip_device(jit::sim::simulator_api(), *jit::sim::find_machine("gfx90a"), "sim");
  if (!opened) return std::move(opened).error();
  jit::Device& device = **opened;
  auto buffer = device.allocate(1024);
  if (!buffer) return std::move(buffer).error();
  const std::vector<uint32_t> zeros(256);
  if (jit::Status s = device.upload(**buffer, 0, zeros.data(), 1024); !s) return s;
  if (jit::Status s = device.fill(**buffer, 0); !s) return s;
  auto kernel = device.load(object, "probe");
  if (!kernel) return std::move(kernel).error();
  auto stream = device.create_stream();
  if (!stream) return std::move(stream).error();
  const jit::Status on_stream = [&]() -> jit::Status {
    auto before = device.record(*stream);
    if (!before) return std::move(before).error();
    const uint64_t address = reinterpret_cast<uint64_t>((*buffer)->data());
    jit::LaunchGrid grid;
    grid.block = 64;
    if (jit::Status s = device.launch(**kernel, grid, &address, sizeof address, *stream); !s)
      return s;
    auto after = device.record(*stream);
    if (!after) return std::move(after).error();
    if (jit::Status s = device.synchronize(*stream); !s) return s;
    auto elapsed = device.elapsed(**before, **after);
    if (!elapsed) return std::move(elapsed).error();
    if (*elapsed < 0) return jit::Error{jit::ErrorKind::kInternal, "time went backwards", {}, {}};
    return device.flush_cache(*stream);
  }();
  device.destroy_stream(*stream);
  if (!on_stream) return on_stream;
  std::vector<uint32_t> got(256);
  if (jit::Status s = device.download(got.data(), **buffer, 0, 1024); !s) return s;
  for (uint32_t i = 0; i < 64; ++i)
    if (got[i] != i) return jit::Error{jit::ErrorKind::kMismatch, "wrong result", {}, {}};
  return {};
}

std::string sample_object() {
  KernelForm form;
  form.arguments = 8;
  return *assemble("gfx90a",
                   "  s_load_dwordx2 s[4:5], s[0:1], 0x0\n  v_and_b32 v0, 0x3ff, v0\n"
                   "  v_lshlrev_b32 v1, 2, v0\n  s_waitcnt lgkmcnt(0)\n"
                   "  global_store_dword v1, v0, s[4:5]",
                   form);
}

size_t free_bytes() {
  const auto api = jit::sim::simulator_api();
  api->set_device(*jit::sim::find_machine("gfx90a"));
  size_t free = 0, total = 0;
  REQUIRE(api->mem_get_info(&free, &total) == 0);
  return free;
}

}  // namespace

TEST_CASE("simulator: each entry point fails in turn and the run says so") {
  if (!can_probe("gfx90a", "failing entry points")) return;
  const std::string object = sample_object();
  const auto api = jit::sim::simulator_api();
  const jit::Status fine = whole_run(object);
  INFO((fine ? std::string() : fine.error().message));
  REQUIRE(fine.ok());
  const size_t free = free_bytes();
  // Calls whose failure ends the run, at their first use and later.
  const char* const ending[] = {"get_device",
                                "set_device",
                                "get_properties_r0600",
                                "mem_get_info",
                                "malloc",
                                "memcpy",
                                "memset",
                                "module_load_data",
                                "module_get_function",
                                "module_launch_kernel",
                                "stream_create",
                                "stream_synchronize",
                                "event_create",
                                "event_record",
                                "event_synchronize",
                                "event_elapsed_time"};
  for (const char* call : ending) {
    int reached = 0;
    for (int after = 0; after < 3; ++after) {
      jit::sim::forget_failures();
      REQUIRE(api->set_device(other_device()) == 0);
      REQUIRE(jit::sim::fail_call(call, 719, after));
      const jit::Status run = whole_run(object);
      jit::sim::forget_failures();
      INFO(call << " after " << after);
      int current = -1;
      CHECK(api->get_device(&current) == 0);
      // Where it is set_device itself that fails, it cannot be put back.
      if (std::string(call) != "set_device") CHECK(current == other_device());
      CHECK(free_bytes() == free);
      if (run.ok()) continue;  // not called that often, or asked again
      ++reached;
      CHECK(run.error().kind != jit::ErrorKind::kInternal);
      CHECK(run.error().kind != jit::ErrorKind::kMismatch);
      CHECK(!run.error().message.empty());
      CHECK(run.error().message.find('\n') == std::string::npos);
    }
    INFO(call);
    // Either layout of the properties serves.
    if (std::string(call) != "get_properties_r0600") CHECK(reached > 0);
  }
  // Calls that only give things back: the run is good, the failure is nobody's but the log's.
  for (const char* call : {"free", "module_unload", "stream_destroy", "event_destroy"}) {
    REQUIRE(jit::sim::fail_call(call, 719));
    const jit::Status run = whole_run(object);
    jit::sim::forget_failures();
    INFO(call);
    CHECK(run.ok());
  }
  CHECK(whole_run(object).ok());
  CHECK_FALSE(jit::sim::fail_call("no such call", 1));
}

TEST_CASE("simulator: memory calls refuse what is not theirs") {
  const auto api = jit::sim::simulator_api();
  REQUIRE(api->set_device(*jit::sim::find_machine("gfx90a")) == 0);
  CHECK(api->set_device(1000) != 0);
  CHECK(api->set_device(-1) != 0);
  void* pointer = nullptr;
  REQUIRE(api->malloc(&pointer, 100) == 0);
  char bytes[200] = {};
  CHECK(api->memcpy(pointer, bytes, 100, jit::kHipMemcpyHostToDevice) == 0);
  CHECK(api->memcpy(pointer, bytes, 101, jit::kHipMemcpyHostToDevice) != 0);
  CHECK(api->memcpy(bytes, static_cast<char*>(pointer) + 50, 51, jit::kHipMemcpyDeviceToHost) != 0);
  CHECK(api->memset(pointer, 1, 100) == 0);
  CHECK(api->memset(pointer, 1, 101) != 0);
  CHECK(api->free(static_cast<char*>(pointer) + 1) != 0);
  CHECK(api->free(pointer) == 0);
  CHECK(api->free(pointer) != 0);
  CHECK(api->memcpy(pointer, bytes, 1, jit::kHipMemcpyHostToDevice) != 0);
  CHECK(api->malloc(&pointer, SIZE_MAX) != 0);
  CHECK(api->malloc(&pointer, SIZE_MAX / 2) != 0);
  void* module = nullptr;
  CHECK(api->module_load_data(&module,
                              "\x7f"
                              "ELF but no more than that, and this text behind it "
                              "so that nothing past the end is read by mistake") != 0);
  int count = 0;
  CHECK(api->get_device_count(&count) == 0);
  CHECK(count == static_cast<int>(jit::sim::simulated_targets().size()));
}

}  // namespace hstu::test
