// SPDX-License-Identifier: Apache-2.0
// Finding NVIDIA's driver and its devices, and saying why one does not serve.
#include "device/cuda/cuda_library.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>

#include "base/file.hpp"
#include "base/log.hpp"
#include "base/temp_dir.hpp"
#include "device/device.hpp"
#include "fake_driver.hpp"
#include "fake_runtime.hpp"

using namespace hstu::jit;
using hstu::test::FakeDriver;
using hstu::test::FakeRuntime;
using hstu::test::HiddenLibraries;

namespace {

BackendReport cuda_report() {
  for (BackendReport& report : probe_backends()) {
    if (report.backend == "cuda") return report;
  }
  FAIL("no report of cuda");
  return {};
}

// In a process of its own, because a loaded driver stays: true when `body` returned true.
bool in_child(const std::function<bool()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void ignore(LogLevel, std::string_view, void*) {}

}  // namespace

TEST_CASE("cuda: the report names library, CUDA version and devices", "[cuda]") {
  FakeDriver fake;
  const BackendReport cuda = cuda_report();
  REQUIRE(cuda.libraries.size() == 1);
  CHECK(cuda.libraries[0].library == fake.path);
  CHECK(cuda.libraries[0].found);
  CHECK_THAT(cuda.libraries[0].reason, ContainsSubstring("NVIDIA driver for CUDA 13.0"));
  REQUIRE(cuda.devices.size() == 2);
  CHECK(cuda.devices[0] == "cuda:0  NVIDIA H200 (sm_90a), 132 SMs, 141 GiB");
  CHECK(cuda.devices[1] == "cuda:1  NVIDIA A100-SXM4-80GB (sm_80), 108 SMs, 80 GiB");
  CHECK(cuda.status == "2 devices");
  fake.check_balance();
}

TEST_CASE("cuda: the file's name tells the driver's version", "[cuda]") {
  auto folder = TempDir::create("cuda-test");
  REQUIRE(folder.ok());
  const std::string link = folder->path() + "/libcuda.so.1";
  const std::string file = folder->path() + "/libcuda.so.580.95.05";
  const auto bytes = read_file(std::string(HSTU_FAKE_HIP) + "/fake_cuda.so");
  REQUIRE(bytes.ok());
  REQUIRE(write_file_atomic(file, *bytes).ok());
  REQUIRE(symlink(file.c_str(), link.c_str()) == 0);
  CHECK(in_child([&] {
    setenv("HSTU_JIT_CUDA", link.c_str(), 1);
    const HipSearch search = find_cuda();
    return search.api && search.libraries.size() == 1 &&
           search.libraries[0].reason.find("NVIDIA driver 580.95.05 for CUDA 13.0") == 0;
  }));
}

TEST_CASE("cuda: compute capabilities and their targets", "[cuda]") {
  FakeDriver fake;
  const struct {
    int major, minor, shared_bytes;
    const char* target;
  } parts[] = {{8, 0, 166912, "sm_80"},    {8, 6, 101376, "sm_86"},   {8, 7, 166912, "sm_87"},
               {8, 9, 101376, "sm_89"},    {9, 0, 232448, "sm_90a"},  {10, 0, 232448, "sm_100a"},
               {10, 3, 232448, "sm_103a"}, {12, 0, 101376, "sm_120"}, {12, 1, 101376, "sm_121"}};
  for (const auto& part : parts) {
    fake.state->devices = {
        {"A part", part.major, part.minor, size_t{8} << 30, 10, part.shared_bytes}};
    auto device = open_device("cuda");
    INFO(part.target);
    REQUIRE(device.ok());
    CHECK((*device)->target().name == part.target);
    // The table of targets, which plans without a device, agrees with the device.
    CHECK(find_target(part.target)->lds_bytes == part.shared_bytes);
    CHECK((*device)->target().lds_bytes == part.shared_bytes);
  }
  // A device's own word counts.
  fake.state->devices = {{"A part", 8, 0, size_t{8} << 30, 10, 65536}};
  auto small = open_device("cuda");
  REQUIRE(small.ok());
  CHECK((*small)->target().lds_bytes == 65536);
}

TEST_CASE("cuda: a device that is too old is listed and not used", "[cuda]") {
  FakeDriver fake;
  fake.state->devices[0] = {"Tesla V100", 7, 0, size_t{16} << 30, 80, 98304};
  const BackendReport cuda = cuda_report();
  REQUIRE(cuda.devices.size() == 2);
  CHECK_THAT(cuda.devices[0], ContainsSubstring("Tesla V100 (sm_70)"));
  CHECK_THAT(cuda.devices[0], ContainsSubstring("cannot be used"));
  CHECK(cuda.status == "2 devices, 1 usable");
  auto device = open_device("cuda:0");
  REQUIRE_FALSE(device.ok());
  CHECK(device.error().kind == ErrorKind::kUnsupported);
  CHECK_THAT(device.error().message, ContainsSubstring("unknown target \"sm_70\""));

  // "auto" takes the other one, or the cpu.
  set_log_sink(ignore, nullptr);
  auto second = open_device("auto");
  REQUIRE(second.ok());
  CHECK((*second)->name() == "cuda:1");
  second->reset();
  fake.state->devices.resize(1);
  auto cpu = open_device("auto");
  set_log_sink(nullptr, nullptr);
  REQUIRE(cpu.ok());
  CHECK((*cpu)->name() == "cpu");
  fake.check_balance();
}

TEST_CASE("cuda: \"auto\" prefers a HIP device, then a CUDA device, then the cpu", "[cuda]") {
  FakeDriver cuda;
  FakeRuntime hip;
  CHECK((*open_device("auto"))->name() == "hip:0");
  hip.state->devices.clear();
  CHECK((*open_device("auto"))->name() == "cuda:0");
  cuda.state->devices.clear();
  CHECK((*open_device("auto"))->name() == "cpu");
  cuda.check_balance();
}

TEST_CASE("cuda: without a device the driver's own reason is passed on", "[cuda]") {
  FakeDriver fake;
  fake.state->devices.clear();
  fake.state->init_error = GENERATE(100, 803, 0);
  const char* reason =
      fake.state->init_error == 100
          ? "cuInit failed: CUDA_ERROR_NO_DEVICE, no CUDA-capable device is detected (100)"
      : fake.state->init_error == 803 ? "cuInit failed: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, system"
                                      : "cuDeviceGetCount counts 0 devices";
  const BackendReport cuda = cuda_report();
  CHECK(cuda.devices.empty());
  REQUIRE(cuda.libraries.size() == 1);
  CHECK(cuda.libraries[0].found);
  CHECK_THAT(cuda.status, ContainsSubstring(reason));
  auto device = open_device("cuda");
  REQUIRE_FALSE(device.ok());
  CHECK(device.error().kind == ErrorKind::kDevice);
  CHECK_THAT(device.error().message, ContainsSubstring(reason));
}

TEST_CASE("cuda: a library that does not serve is named with the reason", "[cuda]") {
  const HiddenLibraries hidden;
  const auto reason_of = [](const std::string& path) {
    setenv("HSTU_JIT_CUDA", path.c_str(), 1);
    const BackendReport cuda = cuda_report();
    unsetenv("HSTU_JIT_CUDA");
    REQUIRE(cuda.libraries.size() == 1);  // the choice of the user's is not second-guessed
    CHECK_FALSE(cuda.libraries[0].found);
    CHECK(cuda.devices.empty());
    CHECK_THAT(cuda.status, ContainsSubstring("no NVIDIA driver library"));
    return cuda.libraries[0].reason;
  };
  CHECK_THAT(reason_of(std::string(HSTU_FAKE_HIP) + "/fake_cuda_incomplete.so"),
             ContainsSubstring("lacks cuDevicePrimaryCtxRelease_v2"));
  CHECK_THAT(reason_of("/nonexistent/libcuda.so.1"), ContainsSubstring("No such file"));

  setenv("HSTU_JIT_CUDA", "/nonexistent/libcuda.so.1", 1);
  auto device = open_device("cuda");
  unsetenv("HSTU_JIT_CUDA");
  REQUIRE_FALSE(device.ok());
  CHECK(device.error().kind == ErrorKind::kDevice);
  CHECK_THAT(device.error().message, ContainsSubstring("HSTU_JIT_CUDA"));
  CHECK_THAT(device.error().detail, ContainsSubstring("No such file"));
}

TEST_CASE("cuda: a driver the process already loaded is the one that is used", "[cuda]") {
  CHECK(in_child([] {
    const std::string path = std::string(HSTU_FAKE_HIP) + "/fake_cuda_soname.so";
    if (dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) return false;
    setenv("HSTU_JIT_CUDA", "/nonexistent.so", 1);
    const HipSearch search = find_cuda();
    return search.api && search.api->origin == path && search.libraries.size() == 1 &&
           search.libraries[0].library == "libcuda.so.1" &&
           search.libraries[0].reason.find("already loaded") != std::string::npos;
  }));
  // And the check above can fail: without the copy the file that is not there is all there is.
  CHECK(in_child([] {
    setenv("HSTU_JIT_CUDA", "/nonexistent.so", 1);
    return find_cuda().api == nullptr;
  }));
}

TEST_CASE("cuda: the toolkit's stub library is named, not called a device", "[cuda]") {
  const std::string stub = "/usr/local/cuda/lib64/stubs/libcuda.so";
  if (access(stub.c_str(), R_OK) != 0) {
    std::printf("SKIPPED: stub of libcuda: no CUDA toolkit\n");
    return;
  }
  CHECK(in_child([&] {
    setenv("HSTU_JIT_CUDA", stub.c_str(), 1);
    const Result<std::unique_ptr<Device>> device = open_device("cuda");
    if (device) return false;
    std::printf("%s\n", device.error().message.c_str());
    std::fflush(nullptr);
    return device.error().kind == ErrorKind::kDevice;
  }));
}

TEST_CASE("cuda: the system's own driver answers, with or without a device", "[cuda]") {
  const bool answered = in_child([] {
    unsetenv("HSTU_JIT_CUDA");
    const BackendReport cuda = cuda_report();
    if (cuda.libraries.empty() || cuda.libraries.back().reason.empty()) return false;
    std::printf("cuda: %s\n", cuda.status.c_str());
    if (!cuda.libraries.back().found) {
      std::printf("SKIPPED: system driver: no libcuda on this machine\n");
      std::fflush(nullptr);
      return true;
    }
    std::fflush(nullptr);
    return !cuda.devices.empty() || !cuda.status.empty();
  });
  CHECK(answered);
}
