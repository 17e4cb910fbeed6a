// SPDX-License-Identifier: Apache-2.0
// The HIP back-end against a fake runtime: what it passes, what it refuses, what it cleans up.
#include <cstring>
#include <optional>

#include "base/log.hpp"
#include "device/device.hpp"
#include "device/hip/hip_device.hpp"
#include "fake_runtime.hpp"
#include "object/make_object.hpp"

using namespace hstu::jit;
using hstu::test::amd_metadata;
using hstu::test::FakeRuntime;
using hstu::test::make_amd_object;

namespace {

struct Arguments {
  void* out = nullptr;
  int64_t rows = 0;
  float scale = 0;
};

std::string object_for_gfx90a() {
  return make_amd_object(0x53f, amd_metadata("attention", sizeof(Arguments)));
}

// Everything a caller does with a device, up to the first error.
Status use_device(Device& device) {
  auto buffer = device.allocate(1024);
  if (!buffer) return buffer.error();
  std::string sent(1024, 'x'), got(1024, ' ');
  if (Status s = device.upload(**buffer, 0, sent.data(), sent.size()); !s) return s;
  auto kernel = device.load(object_for_gfx90a(), "attention");
  if (!kernel) return kernel.error();
  auto stream = device.create_stream();
  if (!stream) return stream.error();
  const auto with_stream = [&]() -> Status {
    auto begin = device.record(*stream);
    if (!begin) return begin.error();
    const Arguments arguments{(*buffer)->data(), 7, 0.5f};
    if (Status s = device.launch(**kernel, {12, 256, 1024}, &arguments, sizeof(arguments), *stream);
        !s) {
      return s;
    }
    auto end = device.record(*stream);
    if (!end) return end.error();
    auto time = device.elapsed(**begin, **end);
    if (!time) return time.error();
    if (!(*time > 0)) return Error{ErrorKind::kInternal, "time went backwards", {}, {}};
    if (Status s = device.flush_cache(*stream); !s) return s;
    return device.synchronize(*stream);
  };
  Status status = with_stream();
  device.destroy_stream(*stream);
  if (!status) return status;
  if (Status s = device.download(got.data(), **buffer, 0, got.size()); !s) return s;
  if (got != sent) return Error{ErrorKind::kInternal, "other bytes came back", {}, {}};
  if (Status s = device.fill(**buffer, 0x11); !s) return s;
  return device.synchronize(nullptr);
}

std::string logged;
void remember(LogLevel, std::string_view line, void*) { logged += std::string(line) + '\n'; }

}  // namespace

TEST_CASE("A launch hands the runtime exactly what was asked for", "[hip]") {
  FakeRuntime fake;
  {
    auto device = open_device("hip:0");
    REQUIRE(device.ok());
    CHECK((*device)->name() == "hip:0");
    CHECK((*device)->target().name == "gfx90a");
    CHECK((*device)->total_memory() == size_t{64} << 30);
    CHECK_THAT((*device)->description(), ContainsSubstring("AMD Instinct MI210"));
    CHECK_THAT((*device)->description(), ContainsSubstring("104 CUs"));
    CHECK_THAT((*device)->description(), ContainsSubstring("64 GiB"));

    auto kernel = (*device)->load(object_for_gfx90a(), "attention");
    REQUIRE(kernel.ok());
    auto stream = (*device)->create_stream();
    REQUIRE(stream.ok());
    const Arguments arguments{reinterpret_cast<void*>(0x1234), -5, 2.5f};
    REQUIRE((*device)
                ->launch(**kernel, {3'000'000, 256, 2048}, &arguments, sizeof(arguments), *stream)
                .ok());
    REQUIRE(fake.state->launches.size() == 1);
    const FakeHipLaunch& launch = fake.state->launches[0];
    CHECK(launch.kernel == "attention");
    CHECK(launch.grid[0] == 3'000'000);
    CHECK((launch.grid[1] == 1 && launch.grid[2] == 1));
    CHECK(launch.block[0] == 256);
    CHECK((launch.block[1] == 1 && launch.block[2] == 1));
    CHECK(launch.dynamic_lds == 2048);
    CHECK(launch.stream == *stream);
    REQUIRE(launch.arguments.size() == sizeof(arguments));
    CHECK(std::memcmp(launch.arguments.data(), &arguments, sizeof(arguments)) == 0);
    (*device)->destroy_stream(*stream);
  }
  fake.check_balance();
}

TEST_CASE("A launch that cannot be right is refused before the runtime sees it", "[hip]") {
  FakeRuntime fake;
  {
    auto device = open_device("hip");
    REQUIRE(device.ok());
    auto kernel = (*device)->load(object_for_gfx90a(), "attention");
    REQUIRE(kernel.ok());
    const Arguments arguments;
    const auto launch = [&](LaunchGrid grid, size_t bytes) {
      return (*device)->launch(**kernel, grid, &arguments, bytes, nullptr);
    };
    const auto refused = [&](LaunchGrid grid, size_t bytes, const std::string& why) {
      const Status status = launch(grid, bytes);
      REQUIRE_FALSE(status.ok());
      CHECK(status.error().kind == ErrorKind::kDevice);
      CHECK_THAT(status.error().message, ContainsSubstring(why));
    };
    const size_t bytes = sizeof(arguments);
    refused({int64_t{1} << 24, 256, 0}, bytes, "2^32 threads");
    refused({INT64_MAX, 1, 0}, bytes, "2^32 threads");
    refused({-1, 256, 0}, bytes, "-1 workgroups");
    refused({1, 0, 0}, bytes, "workgroups of 0");
    refused({1, 512, 0}, bytes, "256 at most");
    refused({1, 256, 65536}, bytes, "needs 69632 bytes of LDS, gfx90a has 65536");
    refused({1, 256, -1}, bytes, "-1 bytes of LDS");
    refused({1, 256, 0}, bytes - 4, "takes 24 bytes of arguments, 20 were given");
    CHECK(launch({0, 256, 0}, bytes).ok());  // nothing to do
    CHECK(fake.state->launches.empty());
    CHECK(launch({(int64_t{1} << 24) - 1, 256, 61440}, bytes).ok());  // the largest that fits
    CHECK(fake.state->launches.size() == 1);
  }
  fake.check_balance();
}

TEST_CASE("An object for another device is refused with both names", "[hip]") {
  FakeRuntime fake;
  {
    auto device = open_device("hip:1");
    REQUIRE(device.ok());
    const auto refused = [&](const std::string& object, const std::string& entry,
                             const std::string& why) {
      auto kernel = (*device)->load(object, entry);
      REQUIRE_FALSE(kernel.ok());
      CHECK(kernel.error().kind == ErrorKind::kDevice);
      CHECK_THAT(kernel.error().message, ContainsSubstring("hip:1"));
      CHECK_THAT(kernel.error().message, ContainsSubstring(why));
    };
    const auto metadata = amd_metadata("attention", 24);
    refused(object_for_gfx90a(), "attention", "compiled for gfx90a, the device is gfx942");
    refused(make_amd_object(0x74c, metadata), "attention", "xnack on");
    refused(make_amd_object(0x94c, metadata), "attention", "sramecc off");
    refused(make_amd_object(0x54c, metadata), "other", "no kernel other");
    refused("", "attention", "empty");
    refused("nonsense", "attention", "not an ELF file");
    CHECK(fake.state->modules == 0);
    auto kernel = (*device)->load(make_amd_object(0x54c, metadata), "attention");
    CHECK(kernel.ok());
    CHECK(
        (*device)->load(make_amd_object(0xe4c, metadata), "attention").ok());  // xnack off, ecc on
  }
  fake.check_balance();
}

TEST_CASE("Every call that fails once gives one clean error and leaks nothing", "[hip]") {
  FakeRuntime fake;
  const std::string call = GENERATE(
      as<std::string>(), "hipGetDeviceCount", "hipGetDevice", "hipMemGetInfo", "hipMalloc",
      "hipMemcpy", "hipMemset", "hipMemsetAsync", "hipModuleLoadData", "hipModuleGetFunction",
      "hipModuleLaunchKernel", "hipStreamCreate", "hipStreamSynchronize", "hipDeviceSynchronize",
      "hipEventCreate", "hipEventRecord", "hipEventSynchronize", "hipEventElapsedTime");
  int failures = 0;
  for (int after = 0; after < 40; ++after) {
    *fake.state = FakeHipState{};
    fake.state->devices = {{"AMD Instinct MI210", "gfx90a:sramecc+:xnack-", size_t{8} << 20, 104}};
    fake.fail(call, 719, after);
    std::optional<Error> error;
    {
      auto device = open_device("hip");
      if (!device) {
        error = device.error();
      } else if (Status used = use_device(**device); !used) {
        error = used.error();
      }
    }
    INFO(call << " after " << after << " calls");
    fake.check_balance();
    // A destructor has nobody to tell, so a failing hipGetDevice there is none of the caller's.
    if (error) {
      ++failures;
      CHECK(error->kind == ErrorKind::kFailed);  // a fault of a kernel, whichever call tells
      CHECK_THAT(error->message, ContainsSubstring(call + " failed: "));
      CHECK_THAT(error->message, ContainsSubstring("unspecified launch\\nfailure (719)"));
      CHECK(error->message.find('\n') == std::string::npos);
    } else if (call != "hipGetDevice") {
      CHECK_FALSE(fake.state->failed);
      break;
    }
  }
  CHECK(failures > 0);
}

TEST_CASE("A failure at the end of a thing's life is a warning, and the thing is gone", "[hip]") {
  FakeRuntime fake;
  const std::string call = GENERATE(as<std::string>(), "hipFree", "hipModuleUnload",
                                    "hipEventDestroy", "hipStreamDestroy");
  logged.clear();
  set_log_sink(remember, nullptr);
  fake.fail(call, 999);
  {
    auto device = open_device("hip");
    REQUIRE(device.ok());
    CHECK(use_device(**device).ok());
  }
  set_log_sink(nullptr, nullptr);
  CHECK(fake.state->failed);
  CHECK_THAT(logged, ContainsSubstring(call + " failed: something of the fake's (999)"));
  fake.check_balance();
}

TEST_CASE("Two devices serve side by side and leave the host's choice of device alone", "[hip]") {
  FakeRuntime fake;
  fake.state->current = 1;
  {
    auto first = open_device("hip:0");
    auto second = open_device("hip:1");
    REQUIRE((first.ok() && second.ok()));
    CHECK(use_device(**first).ok());
    CHECK(fake.state->current == 1);
    auto buffer = (*first)->allocate(16);
    REQUIRE(buffer.ok());
    char byte = 0;
    const Status foreign = (*second)->upload(**buffer, 0, &byte, 1);
    REQUIRE_FALSE(foreign.ok());
    CHECK_THAT(foreign.error().message, ContainsSubstring("another device"));
    auto kernel =
        (*second)->load(make_amd_object(0x54c, amd_metadata("attention", 8)), "attention");
    REQUIRE(kernel.ok());
    CHECK_FALSE((*first)->launch(**kernel, {1, 64, 0}, &byte, 8, nullptr).ok());
  }
  CHECK(fake.state->current == 1);
  for (const FakeHipLaunch& launch : fake.state->launches) CHECK(launch.device == 0);
  fake.check_balance();

  auto third = open_device("hip:2");
  REQUIRE_FALSE(third.ok());
  CHECK(third.error().kind == ErrorKind::kDevice);
  CHECK_THAT(third.error().message, ContainsSubstring("hip:2: there are 2 devices"));
}

TEST_CASE("When the device cannot be made current, nothing is done on the wrong one", "[hip]") {
  FakeRuntime fake;
  auto second = open_device("hip:1");
  REQUIRE(second.ok());
  fake.fail("hipSetDevice", 719);
  auto buffer = (*second)->allocate(16);
  REQUIRE_FALSE(buffer.ok());
  CHECK_THAT(buffer.error().message, ContainsSubstring("hipSetDevice failed"));
  CHECK(fake.state->mallocs == 0);
}

TEST_CASE("Buffers are bounded", "[hip]") {
  FakeRuntime fake;
  {
    auto device = open_device("hip");
    REQUIRE(device.ok());
    auto huge = (*device)->allocate(SIZE_MAX);
    REQUIRE_FALSE(huge.ok());
    CHECK(huge.error().kind == ErrorKind::kDevice);
    CHECK_THAT(huge.error().message, ContainsSubstring("18446744073709551615 bytes are needed"));
    CHECK(fake.state->mallocs == 0);
    auto large = (*device)->allocate(size_t{2} << 30);  // free, says the fake, and then refuses
    REQUIRE_FALSE(large.ok());
    CHECK_THAT(large.error().message, ContainsSubstring("out of memory (2)"));
    CHECK_THAT(large.error().message, ContainsSubstring("2147483648 bytes"));

    auto buffer = (*device)->allocate(100);
    REQUIRE(buffer.ok());
    CHECK((*device)->free_memory() == (size_t{64} << 30) - 100);
    std::string bytes(100, 'a');
    CHECK((*device)->upload(**buffer, 90, bytes.data(), 10).ok());
    CHECK_FALSE((*device)->upload(**buffer, 90, bytes.data(), 11).ok());
    CHECK_FALSE((*device)->upload(**buffer, SIZE_MAX, bytes.data(), 2).ok());
    CHECK_FALSE((*device)->download(bytes.data(), **buffer, 1, SIZE_MAX).ok());
    auto empty = (*device)->allocate(0);
    REQUIRE(empty.ok());
    CHECK((*empty)->size() == 0);
    CHECK((*device)->fill(**empty, 1).ok());
  }
  fake.check_balance();
}

TEST_CASE("hip: a kernel that faults is a failed run, other failures are the device's") {
  FakeRuntime fake;
  const std::pair<int, ErrorKind> kinds[] = {{719, ErrorKind::kFailed},
                                             {700, ErrorKind::kFailed},
                                             {209, ErrorKind::kUnsupported},
                                             {2, ErrorKind::kDevice},
                                             {999, ErrorKind::kDevice}};
  for (const auto& [code, kind] : kinds) {
    auto device = open_device("hip");
    REQUIRE(device.ok());
    fake.fail("hipModuleLoadData", code);
    auto kernel = (*device)->load(object_for_gfx90a(), "attention");
    INFO(code);
    REQUIRE_FALSE(kernel.ok());
    CHECK(kernel.error().kind == kind);
  }
}

TEST_CASE("A captured launch runs when its graph does, as often as it does", "[hip]") {
  FakeRuntime fake;
  {
    auto device = open_device("hip");
    REQUIRE(device.ok());
    auto kernel = (*device)->load(object_for_gfx90a(), "attention");
    auto stream = (*device)->create_stream();
    REQUIRE((kernel.ok() && stream.ok()));
    CHECK_FALSE(*(*device)->capturing(*stream));
    REQUIRE((*device)->begin_capture(*stream).ok());
    CHECK(*(*device)->capturing(*stream));
    const Arguments arguments{nullptr, 3, 1};
    REQUIRE((*device)->launch(**kernel, {5, 256, 0}, &arguments, sizeof arguments, *stream).ok());
    auto graph = (*device)->end_capture(*stream);
    REQUIRE(graph.ok());
    CHECK(fake.state->launches.empty());
    for (int i = 0; i < 3; ++i) REQUIRE((*device)->launch(**graph, *stream).ok());
    CHECK(fake.state->launches.size() == 3);
    (*device)->destroy_stream(*stream);
  }
  fake.check_balance();
}
