// SPDX-License-Identifier: Apache-2.0
// Simulated devices through the same back-end as real ones: their names, and every entry point
// failing. What kernels compute is tested in tests/sim.
#include "sim/sim.hpp"

#include <algorithm>
#include <string>

#include "catch.hpp"
#include "device/device.hpp"
#include "hidden.hpp"

using namespace hstu::jit;

namespace {

// Everything but launching: what a caller does with a device, up to the first error.
Status use_device(Device& device) {
  auto buffer = device.allocate(1000);
  if (!buffer) return buffer.error();
  std::string sent(1000, 'x'), got(1000, ' ');
  if (Status s = device.upload(**buffer, 0, sent.data(), sent.size()); !s) return s;
  if (Status s = device.download(got.data(), **buffer, 0, got.size()); !s) return s;
  if (got != sent) return Error{ErrorKind::kInternal, "other bytes came back", {}, {}};
  if (Status s = device.fill(**buffer, 0x11); !s) return s;
  auto stream = device.create_stream();
  if (!stream) return stream.error();
  const auto with_stream = [&]() -> Status {
    auto begin = device.record(*stream);
    if (!begin) return begin.error();
    auto end = device.record(*stream);
    if (!end) return end.error();
    if (auto time = device.elapsed(**begin, **end); !time) return time.error();
    return device.synchronize(*stream);
  };
  Status status = with_stream();
  device.destroy_stream(*stream);
  return status ? device.synchronize(nullptr) : status;
}

}  // namespace

TEST_CASE("simulated devices: one per target, named by it") {
  for (const std::string_view target : sim::simulated_targets()) {
    const std::string name = "sim:" + std::string(target);
    auto device = open_device(name);
    REQUIRE(device);
    CHECK((*device)->name() == name);
    CHECK((*device)->target().name == target);
    CHECK((*device)->total_memory() > 0);
    CHECK_THAT((*device)->description(), ContainsSubstring("Simulated"));
    CHECK(use_device(**device));
  }
  const hstu::test::HiddenLibraries hidden;
  const auto reports = probe_backends();
  const auto report = std::find_if(reports.begin(), reports.end(),
                                   [](const BackendReport& r) { return r.backend == "sim"; });
  REQUIRE(report != reports.end());
  CHECK(report->devices.size() == sim::simulated_targets().size());
}

TEST_CASE("simulated devices: names that are none say what is there") {
  const auto misspelt = open_device("sim:gfx943");
  REQUIRE_FALSE(misspelt);
  CHECK(misspelt.error().kind == ErrorKind::kUnsupported);
  CHECK_THAT(misspelt.error().message, ContainsSubstring("sim:gfx942"));
  CHECK_FALSE(open_device("sim:"));
}

TEST_CASE("simulated devices: every entry point can fail, and the back-end says which one did") {
  struct Call {
    const char* field;
    const char* name;  // in the message
  };
  const Call calls[] = {
      {"set_device", "hipSetDevice"},
      {"mem_get_info", "hipMemGetInfo"},
      {"malloc", "hipMalloc"},
      {"memcpy", "hipMemcpy"},
      {"memset", "hipMemset"},
      {"stream_create", "hipStreamCreate"},
      {"stream_synchronize", "hipStreamSynchronize"},
      {"device_synchronize", "hipDeviceSynchronize"},
      {"event_create", "hipEventCreate"},
      {"event_record", "hipEventRecord"},
      {"event_synchronize", "hipEventSynchronize"},
      {"event_elapsed_time", "hipEventElapsedTime"},
  };
  auto device = open_device("sim:gfx90a");
  REQUIRE(device);
  for (const Call& call : calls) {
    INFO(call.field);
    REQUIRE(sim::fail_call(call.field, 999));
    const Status status = use_device(**device);
    sim::forget_failures();
    REQUIRE_FALSE(status);
    CHECK(status.error().kind == ErrorKind::kDevice);
    CHECK_THAT(status.error().message, ContainsSubstring(call.name));
    CHECK_THAT(status.error().message, ContainsSubstring("999"));
    CHECK(use_device(**device));
  }
  CHECK_FALSE(sim::fail_call("no_such_call", 1));
}

TEST_CASE("simulated devices: what is no code object is refused in words") {
  auto device = open_device("sim:gfx90a");
  REQUIRE(device);
  const auto kernel = (*device)->load("not an object", "kernel");
  REQUIRE_FALSE(kernel);
  CHECK_THAT(kernel.error().message, ContainsSubstring("ELF"));
}
