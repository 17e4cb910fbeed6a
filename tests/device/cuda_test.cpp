// SPDX-License-Identifier: Apache-2.0
// The HIP back-end over a fake NVIDIA driver: what it passes, what it refuses, what it cleans up.
#include <array>
#include <cstring>
#include <optional>
#include <thread>

#include "base/log.hpp"
#include "device/device.hpp"
#include "fake_driver.hpp"
#include "object/make_object.hpp"

using namespace hstu::jit;
using hstu::test::FakeDriver;
using hstu::test::make_cubin;

namespace {

struct Arguments {
  void* out = nullptr;
  int64_t rows = 0;
  float scale = 0;
};
static_assert(sizeof(Arguments) == 24);

// Kernels for sm_90a: the driver's KiB and 256 bytes of the kernel's own in shared memory.
std::string object_for_h200(uint32_t argument_bytes = sizeof(Arguments)) {
  return make_cubin(90, true, {"attention", {{48, argument_bytes}}, 1024 + 256});
}

// Everything a caller does with a device, up to the first error.
Status use_device(Device& device, const std::string& object) {
  auto buffer = device.allocate(1024);
  if (!buffer) return buffer.error();
  std::string sent(1024, 'x'), got(1024, ' ');
  if (Status s = device.upload(**buffer, 0, sent.data(), sent.size()); !s) return s;
  auto kernel = device.load(object, "attention");
  if (!kernel) return kernel.error();
  auto stream = device.create_stream();
  if (!stream) return stream.error();
  const auto with_stream = [&]() -> Status {
    auto begin = device.record(*stream);
    if (!begin) return begin.error();
    const Arguments arguments{(*buffer)->data(), 7, 0.5f};
    const LaunchGrid grid{12, 256, 1024};
    if (Status s = device.launch(**kernel, grid, &arguments, sizeof(arguments), *stream); !s)
      return s;
    auto end = device.record(*stream);
    if (!end) return end.error();
    auto time = device.elapsed(**begin, **end);
    if (!time) return time.error();
    if (!(*time > 0)) return Error{ErrorKind::kInternal, "time went backwards", {}, {}};
    if (Status s = device.flush_cache(*stream); !s) return s;
    if (Status s = device.begin_capture(*stream); !s) return s;
    Status launched = device.launch(**kernel, grid, &arguments, sizeof(arguments), *stream);
    auto graph = device.end_capture(*stream);  // also after a failure: it ends the capture
    if (!launched) return launched;
    if (!graph) return graph.error();
    if (Status s = device.launch(**graph, *stream); !s) return s;
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

TEST_CASE("cuda: a launch hands the driver exactly what was asked for", "[cuda]") {
  FakeDriver fake;
  {
    auto device = open_device(GENERATE(as<std::string>(), "cuda", "cuda:0"));
    REQUIRE(device.ok());
    CHECK((*device)->name() == "cuda:0");
    CHECK((*device)->target().name == "sm_90a");
    CHECK((*device)->target().lds_bytes == 232448);
    CHECK((*device)->total_memory() == size_t{141} << 30);
    CHECK((*device)->description() == "NVIDIA H200 (sm_90a), 132 SMs, 141 GiB");

    auto kernel = (*device)->load(object_for_h200(), "attention");
    REQUIRE(kernel.ok());
    CHECK(fake.state->dynamic_shared_limit == 232448 - 256);
    auto stream = (*device)->create_stream();
    REQUIRE(stream.ok());
    const Arguments arguments{reinterpret_cast<void*>(0x1234), -5, 2.5f};
    // More workgroups than a grid has in y or z, and all the shared memory there is.
    REQUIRE((*device)
                ->launch(**kernel, {3'000'000, 256, 232448 - 256}, &arguments, sizeof(arguments),
                         *stream)
                .ok());
    REQUIRE(fake.state->launches.size() == 1);
    const FakeCudaLaunch& launch = fake.state->launches[0];
    CHECK(launch.kernel == "attention");
    CHECK(launch.grid[0] == 3'000'000);
    CHECK((launch.grid[1] == 1 && launch.grid[2] == 1));
    CHECK(launch.block[0] == 256);
    CHECK((launch.block[1] == 1 && launch.block[2] == 1));
    CHECK(launch.dynamic_shared == 232448 - 256);
    CHECK(launch.stream == *stream);
    REQUIRE(launch.argument.size() == sizeof(arguments));
    CHECK(std::memcmp(launch.argument.data(), &arguments, sizeof(arguments)) == 0);
    (*device)->destroy_stream(*stream);
  }
  fake.check_balance();
}

TEST_CASE("cuda: a launch is one call more than looking at the thread's context", "[cuda]") {
  FakeDriver fake;
  {
    auto device = open_device("cuda");
    REQUIRE(device.ok());
    auto kernel = (*device)->load(object_for_h200(), "attention");
    REQUIRE(kernel.ok());
    const Arguments arguments;
    const auto calls_of_launch = [&] {
      fake.state->calls.clear();
      CHECK((*device)->launch(**kernel, {1, 256, 0}, &arguments, sizeof(arguments), nullptr).ok());
      return fake.state->calls;
    };
    using Calls = std::vector<std::string>;
    CHECK(calls_of_launch() ==
          Calls{"cuCtxGetCurrent", "cuCtxPushCurrent", "cuLaunchKernel", "cuCtxPopCurrent"});
    // Where the primary context is the thread's own, as in a program of the CUDA runtime's.
    fake.push(fake.primary(0));
    CHECK(calls_of_launch() == Calls{"cuCtxGetCurrent", "cuLaunchKernel"});
    fake.pop();
  }
  fake.check_balance();
}

TEST_CASE("cuda: an argument of 64-byte alignment passes whole, with tensor maps in it", "[cuda]") {
  FakeDriver fake;
  struct alignas(64) Map {
    std::array<uint64_t, 16> words;
  };
  struct WithMaps {
    Arguments forward;
    Map q, k, v;
    void* workspace;
  };
  static_assert(sizeof(WithMaps) == 512 && offsetof(WithMaps, q) == 64);
  fake.state->argument_bytes = sizeof(WithMaps);
  {
    auto device = open_device("cuda");
    REQUIRE(device.ok());
    auto kernel = (*device)->load(object_for_h200(sizeof(WithMaps)), "attention");
    REQUIRE(kernel.ok());
    WithMaps arguments{};
    arguments.workspace = reinterpret_cast<void*>(0x4321);
    TensorMapShape shape;
    shape.address = reinterpret_cast<const void*>(0x10000);
    shape.rank = 3;
    shape.extents[0] = 128, shape.extents[1] = 5'000'000'000, shape.extents[2] = 4;
    shape.strides[0] = 1024, shape.strides[1] = 256;
    shape.box[0] = 64, shape.box[1] = 128, shape.box[2] = 1;
    REQUIRE((*device)->encode_tensor_map(shape, &arguments.q).ok());
    shape.bf16 = false;
    shape.swizzle_bytes = 64;
    shape.l2_promotion_bytes = 256;
    REQUIRE((*device)->encode_tensor_map(shape, &arguments.k).ok());
    REQUIRE(fake.state->tensor_maps.size() == 2);
    const FakeTensorMap& first = fake.state->tensor_maps[0];
    CHECK(first.data_type == 9);  // CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
    CHECK(first.extents == std::vector<uint64_t>{128, 5'000'000'000, 4});
    CHECK(first.strides == std::vector<uint64_t>{1024, 256});
    CHECK(first.box == std::vector<uint32_t>{64, 128, 1});
    CHECK(first.swizzle == 3);       // 128 bytes
    CHECK(first.l2_promotion == 2);  // 128 bytes
    CHECK(first.address == shape.address);
    const FakeTensorMap& second = fake.state->tensor_maps[1];
    CHECK(second.data_type == 6);  // CU_TENSOR_MAP_DATA_TYPE_FLOAT16
    CHECK(second.swizzle == 2);
    CHECK(second.l2_promotion == 3);

    shape.box[1] = 300;
    const Status large = (*device)->encode_tensor_map(shape, &arguments.v);
    REQUIRE_FALSE(large.ok());
    CHECK_THAT(large.error().message, ContainsSubstring("cuTensorMapEncodeTiled failed"));
    shape.swizzle_bytes = 48;
    CHECK_FALSE((*device)->encode_tensor_map(shape, &arguments.v).ok());
    shape.swizzle_bytes = 64;
    shape.rank = 6;
    CHECK_FALSE((*device)->encode_tensor_map(shape, &arguments.v).ok());

    REQUIRE((*device)->launch(**kernel, {1, 256, 0}, &arguments, sizeof(arguments), nullptr).ok());
    REQUIRE(fake.state->launches.size() == 1);
    CHECK(std::memcmp(fake.state->launches[0].argument.data(), &arguments, sizeof(arguments)) == 0);
  }
  fake.check_balance();
}

TEST_CASE("cuda: a launch that cannot be right is refused before the driver sees it", "[cuda]") {
  FakeDriver fake;
  {
    auto device = open_device("cuda");
    REQUIRE(device.ok());
    auto kernel = (*device)->load(object_for_h200(), "attention");
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
    refused({int64_t{1} << 31, 32, 0}, bytes, "CUDA cannot launch so many");
    refused({-1, 256, 0}, bytes, "-1 workgroups");
    refused({1, 512, 0}, bytes, "256 at most");
    refused({1, 256, 232448 - 255}, bytes, "needs 232449 bytes of LDS, sm_90a has 232448");
    refused({3, 256, 0, 2}, bytes, "3 workgroups in clusters of 2");
    refused({2, 256, 0, 0}, bytes, "in clusters of 0");
    refused({1, 256, 0}, bytes - 4, "takes 24 bytes of arguments, 20 were given");
    CHECK(launch({0, 256, 0}, bytes).ok());  // nothing to do
    CHECK(fake.state->launches.empty());
    CHECK(launch({(int64_t{1} << 31) - 1, 256, 0}, bytes).ok());
    CHECK(launch({4, 256, 1024, 2}, bytes).ok());
    CHECK(fake.state->launches.back().grid[0] == 4);
    CHECK(fake.state->launches.back().cluster == 2);
    CHECK(fake.state->launches.back().argument == fake.state->launches.front().argument);
  }
  fake.check_balance();
}

TEST_CASE("cuda: an object for another device is refused with both names", "[cuda]") {
  FakeDriver fake;
  {
    auto device = open_device("cuda:1");
    REQUIRE(device.ok());
    CHECK((*device)->target().name == "sm_80");
    const auto refused = [&](const std::string& object, const std::string& why) {
      auto kernel = (*device)->load(object, "attention");
      REQUIRE_FALSE(kernel.ok());
      CHECK(kernel.error().kind == ErrorKind::kDevice);
      CHECK_THAT(kernel.error().message, ContainsSubstring("cuda:1"));
      CHECK_THAT(kernel.error().message, ContainsSubstring(why));
    };
    refused(object_for_h200(), "compiled for sm_90a, the device is sm_80");
    refused(make_cubin(80, true, {}), "compiled for sm_80a, the device is sm_80");
    refused(make_cubin(80, false, {"other", {}, 0}), "no kernel attention");
    refused(make_cubin(80, false, {"attention", {{0, 8}, {8, 8}}, 0}),
            "attention takes 2 arguments");
    refused(hstu::test::make_amd_object(0x53f, hstu::test::amd_metadata("attention", 24)),
            "compiled for gfx90a");
    refused("", "empty");
    refused("nonsense", "not an ELF file");
    CHECK(fake.state->modules == 0);
    // Where the driver keeps nothing, all of the section is the kernel's.
    fake.state->static_shared = 2048;
    CHECK((*device)->load(make_cubin(80, false, {"attention", {{0, 8}}, 2048}), "attention").ok());
    CHECK(fake.state->dynamic_shared_limit == 166912 - 2048);
    CHECK((*device)->load(make_cubin(80, false, {}), "attention").ok());
  }
  fake.check_balance();
}

TEST_CASE("cuda: every call that fails once gives one clean error and leaks nothing", "[cuda]") {
  FakeDriver fake;
  const std::string call =
      GENERATE(as<std::string>(), "cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName",
               "cuDeviceTotalMem", "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain",
               "cuCtxGetCurrent", "cuCtxPushCurrent", "cuMemGetInfo", "cuMemAlloc", "cuMemcpyHtoD",
               "cuMemcpyDtoH", "cuMemsetD8", "cuMemsetD8Async", "cuModuleLoadData",
               "cuModuleGetFunction", "cuFuncGetAttribute", "cuFuncSetAttribute", "cuFuncLoad",
               "cuLaunchKernel", "cuStreamCreate", "cuStreamSynchronize", "cuCtxSynchronize",
               "cuEventCreate", "cuEventRecord", "cuEventSynchronize", "cuEventElapsedTime",
               "cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphInstantiate", "cuGraphLaunch");
  // In destructors these have nobody to tell.
  const bool also_at_the_end =
      call == "cuCtxGetCurrent" || call == "cuCtxPushCurrent" || call == "cuDeviceGet";
  int failures = 0;
  for (int after = 0; after < 60; ++after) {
    fake.reset();
    fake.state->devices.resize(1);
    fake.state->devices[0].memory = size_t{8} << 20;
    fake.fail(call, 700, after);
    std::optional<Error> error;
    {
      auto device = open_device("cuda");
      if (!device) {
        error = device.error();
      } else if (Status used = use_device(**device, object_for_h200()); !used) {
        error = used.error();
      }
    }
    INFO(call << " after " << after << " calls");
    if (error) {
      ++failures;
      fake.check_balance();
      CHECK(error->kind == ErrorKind::kFailed);  // a fault of a kernel, whichever call tells
      CHECK_THAT(error->message, ContainsSubstring(call + " failed: CUDA_ERROR_ILLEGAL_ADDRESS, "
                                                          "an illegal memory access\\nwas"));
      CHECK_THAT(error->message, ContainsSubstring("(700)"));
      CHECK(error->message.find('\n') == std::string::npos);
    } else if (!fake.state->failed) {
      fake.check_balance();
      break;
    } else {
      CHECK(also_at_the_end);
    }
    CHECK(fake.current() == nullptr);
  }
  CHECK(failures > 0);
}

TEST_CASE("cuda: a failure at the end of a thing's life is a warning", "[cuda]") {
  FakeDriver fake;
  const std::string call = GENERATE(as<std::string>(), "cuMemFree", "cuModuleUnload",
                                    "cuEventDestroy", "cuStreamDestroy", "cuGraphDestroy",
                                    "cuGraphExecDestroy", "cuDevicePrimaryCtxRelease");
  logged.clear();
  set_log_sink(remember, nullptr);
  fake.fail(call, 999);
  {
    auto device = open_device("cuda");
    REQUIRE(device.ok());
    CHECK(use_device(**device, object_for_h200()).ok());
  }
  set_log_sink(nullptr, nullptr);
  CHECK(fake.state->failed);
  CHECK_THAT(logged, ContainsSubstring(call + " failed: an error this driver has no name for"));
  CHECK_THAT(logged, ContainsSubstring("(999)"));
  fake.check_balance();
}

TEST_CASE("cuda: two devices serve side by side and leave the host's contexts alone", "[cuda]") {
  FakeDriver fake;
  {
    auto first = open_device("cuda:0");
    auto second = open_device("cuda:1");
    REQUIRE((first.ok() && second.ok()));
    // The host program works in a context that is no primary one, of either device.
    const int device = GENERATE(0, 1);
    void* own = fake.new_context(device);
    fake.push(own);
    CHECK(use_device(**first, object_for_h200()).ok());
    CHECK(fake.current() == own);
    CHECK(use_device(**second, make_cubin(80, false, {"attention", {{0, 24}}, 0})).ok());
    CHECK(fake.current() == own);
    REQUIRE(fake.state->launches.size() == 4);
    for (size_t i = 0; i < 4; ++i) CHECK(fake.state->launches[i].device == (i < 2 ? 0 : 1));
    // Nothing of one device is taken by the other.
    auto buffer = (*first)->allocate(16);
    REQUIRE(buffer.ok());
    char byte = 0;
    const Status foreign = (*second)->upload(**buffer, 0, &byte, 1);
    REQUIRE_FALSE(foreign.ok());
    CHECK_THAT(foreign.error().message, ContainsSubstring("another device"));
    auto kernel = (*first)->load(object_for_h200(8), "attention");
    REQUIRE(kernel.ok());
    CHECK_FALSE((*second)->launch(**kernel, {1, 64, 0}, &byte, 8, nullptr).ok());
    fake.pop();
  }
  fake.check_balance();
  auto third = open_device("cuda:2");
  REQUIRE_FALSE(third.ok());
  CHECK(third.error().kind == ErrorKind::kDevice);
  CHECK_THAT(third.error().message, ContainsSubstring("cuda:2: there are 2 devices"));
}

TEST_CASE("cuda: a thread that never saw the device may use and free what another made", "[cuda]") {
  FakeDriver fake;
  {
    auto device = open_device("cuda");
    REQUIRE(device.ok());
    auto buffer = (*device)->allocate(64);
    REQUIRE(buffer.ok());
    bool used = false, clean = false;
    std::thread([&] {
      used = use_device(**device, object_for_h200()).ok();
      *buffer = nullptr;
      clean = fake.current() == nullptr;
    }).join();
    CHECK(used);
    CHECK(clean);
  }
  fake.check_balance();
}

TEST_CASE("cuda: when the context cannot be made current, nothing is done elsewhere", "[cuda]") {
  FakeDriver fake;
  auto device = open_device("cuda");
  REQUIRE(device.ok());
  fake.fail("cuCtxPushCurrent", 719);
  auto buffer = (*device)->allocate(16);
  REQUIRE_FALSE(buffer.ok());
  CHECK_THAT(buffer.error().message, ContainsSubstring("cuCtxPushCurrent failed"));
  CHECK(fake.state->allocations == 0);
}

TEST_CASE("cuda: a captured launch runs when its graph does, as often as it does", "[cuda]") {
  FakeDriver fake;
  {
    auto device = open_device("cuda");
    REQUIRE(device.ok());
    auto kernel = (*device)->load(object_for_h200(), "attention");
    auto stream = (*device)->create_stream();
    REQUIRE((kernel.ok() && stream.ok()));
    REQUIRE((*device)->begin_capture(*stream).ok());
    const Arguments arguments{nullptr, 3, 1};
    REQUIRE((*device)->launch(**kernel, {5, 256, 0}, &arguments, sizeof arguments, *stream).ok());
    auto graph = (*device)->end_capture(*stream);
    REQUIRE(graph.ok());
    CHECK(fake.state->launches.empty());
    for (int i = 0; i < 3; ++i) REQUIRE((*device)->launch(**graph, *stream).ok());
    REQUIRE(fake.state->launches.size() == 3);
    for (const FakeCudaLaunch& launch : fake.state->launches) {
      CHECK(launch.captured);
      CHECK(launch.grid[0] == 5);
    }
    CHECK_FALSE((*device)->begin_capture(nullptr).ok());  // the default stream cannot be captured
    fake.state->misuse.clear();
    (*device)->destroy_stream(*stream);
  }
  fake.check_balance();
}

TEST_CASE("cuda: a driver without tensor maps and graphs serves all the rest", "[cuda]") {
  FakeDriver fake("fake_cuda_old");
  {
    auto device = open_device("cuda");
    REQUIRE(device.ok());
    alignas(64) char map[128];
    const Status encoded = (*device)->encode_tensor_map({}, map);
    REQUIRE_FALSE(encoded.ok());
    CHECK(encoded.error().kind == ErrorKind::kUnsupported);
    auto stream = (*device)->create_stream();
    REQUIRE(stream.ok());
    CHECK((*device)->begin_capture(*stream).error().kind == ErrorKind::kUnsupported);
    CHECK((*device)->end_capture(*stream).error().kind == ErrorKind::kUnsupported);
    (*device)->destroy_stream(*stream);
    auto kernel = (*device)->load(object_for_h200(), "attention");
    REQUIRE(kernel.ok());
    const Arguments arguments;
    const Status pairs =
        (*device)->launch(**kernel, {2, 256, 0, 2}, &arguments, sizeof arguments, nullptr);
    REQUIRE_FALSE(pairs.ok());
    CHECK_THAT(pairs.error().message, ContainsSubstring("this device has none"));
  }
  fake.check_balance();
}

TEST_CASE("cuda: a kernel that faults is a failed run, told once", "[cuda]") {
  FakeDriver fake;
  const std::pair<int, ErrorKind> kinds[] = {
      {719, ErrorKind::kFailed}, {700, ErrorKind::kFailed},      {715, ErrorKind::kFailed},
      {716, ErrorKind::kFailed}, {209, ErrorKind::kUnsupported}, {801, ErrorKind::kUnsupported},
      {2, ErrorKind::kDevice},   {999, ErrorKind::kDevice}};
  for (const auto& [code, kind] : kinds) {
    auto device = open_device("cuda");
    REQUIRE(device.ok());
    fake.fail("cuModuleLoadData", code);
    auto kernel = (*device)->load(object_for_h200(), "attention");
    INFO(code);
    REQUIRE_FALSE(kernel.ok());
    CHECK(kernel.error().kind == kind);
  }
  logged.clear();
  set_log_sink(remember, nullptr);
  {
    auto device = open_device("cuda");
    REQUIRE(device.ok());
    auto buffer = (*device)->allocate(16);
    REQUIRE(buffer.ok());
    fake.fail("cuCtxSynchronize", 700);
    CHECK_FALSE((*device)->synchronize(nullptr).ok());
    fake.fail("cuMemFree", 700);  // as all calls do from then on
  }
  set_log_sink(nullptr, nullptr);
  CHECK(fake.state->failed);
  CHECK(logged == "");
}
