// SPDX-License-Identifier: Apache-2.0
// Finding the HIP runtime and its devices, and saying why one does not serve.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>

#include "base/file.hpp"
#include "base/temp_dir.hpp"
#include "device/device.hpp"
#include "device/hip/hip_api.hpp"
#include "fake_runtime.hpp"

using namespace hstu::jit;
using hstu::test::FakeRuntime;
using hstu::test::HiddenLibraries;

namespace {

const BackendReport& report_of(const std::vector<BackendReport>& reports, const std::string& name) {
  for (const BackendReport& report : reports) {
    if (report.backend == name) return report;
  }
  FAIL("no report of " + name);
  return reports.front();
}

// In a process of its own, because a loaded runtime stays: true when `body` returned true.
bool in_child(const std::function<bool()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

TEST_CASE("Both layouts of the device properties are read", "[hip]") {
  const std::string variant = GENERATE(as<std::string>(), "fake_hip", "fake_hip_old");
  FakeRuntime fake(variant);
  const HipSearch search = find_hip();
  REQUIRE(search.api);
  CHECK((search.api->get_properties_r0600 == nullptr) == (variant == "fake_hip_old"));
  const auto properties = hip_properties(*search.api, 1);
  REQUIRE(properties.ok());
  CHECK(properties->name == "AMD Instinct MI300X");
  CHECK(properties->arch == "gfx942:sramecc+:xnack-");
  CHECK(properties->total_memory == uint64_t{192} << 30);
  CHECK(properties->compute_units == 304);
  CHECK_FALSE(hip_properties(*search.api, 2).ok());

  // Where no layout has a gfx name, the answer is not trusted.
  fake.state->devices[0].arch = "sm_90";
  const auto strange = hip_properties(*search.api, 0);
  REQUIRE_FALSE(strange.ok());
  CHECK_THAT(strange.error().message, ContainsSubstring("no gfx name"));
  fake.state->devices[0].arch = std::string(300, 'g');
  CHECK_FALSE(hip_properties(*search.api, 0).ok());
}

TEST_CASE("The report of a working runtime names library, version and devices", "[hip]") {
  FakeRuntime fake;
  const auto reports = probe_backends();
  const BackendReport& hip = report_of(reports, "hip");
  REQUIRE(hip.libraries.size() == 1);
  CHECK(hip.libraries[0].library == fake.path);
  CHECK(hip.libraries[0].found);
  CHECK_THAT(hip.libraries[0].reason, ContainsSubstring("HIP runtime 6.4.43484"));
  REQUIRE(hip.devices.size() == 2);
  CHECK(hip.devices[0] == "hip:0  AMD Instinct MI210 (gfx90a:sramecc+:xnack-), 104 CUs, 64 GiB");
  CHECK(hip.status == "2 devices");
  const BackendReport& cpu = report_of(reports, "cpu");
  CHECK(cpu.devices.size() == 1);
  CHECK(cpu.status == "1 device");
}

TEST_CASE("A device of an unknown architecture is listed and not used", "[hip]") {
  FakeRuntime fake;
  fake.state->devices = {{"AMD Radeon VII", "gfx906:sramecc-:xnack-", size_t{16} << 30, 60}};
  const auto reports = probe_backends();
  const BackendReport& hip = report_of(reports, "hip");
  REQUIRE(hip.devices.size() == 1);
  CHECK_THAT(hip.devices[0], ContainsSubstring("AMD Radeon VII (gfx906"));
  CHECK_THAT(hip.devices[0], ContainsSubstring("cannot be used"));
  CHECK(hip.status == "1 device, 0 usable");

  auto device = open_device("hip:0");
  REQUIRE_FALSE(device.ok());
  CHECK(device.error().kind == ErrorKind::kUnsupported);
  CHECK_THAT(device.error().message, ContainsSubstring("unknown target \"gfx906\""));
  auto automatic = open_device("auto");
  REQUIRE(automatic.ok());
  CHECK((*automatic)->name() == "cpu");
}

TEST_CASE("Without a device the runtime's own reason is passed on", "[hip]") {
  FakeRuntime fake;
  fake.state->devices.clear();
  fake.state->count_error = GENERATE(100, 0);
  const auto reports = probe_backends();
  const BackendReport& hip = report_of(reports, "hip");
  CHECK(hip.devices.empty());
  REQUIRE(hip.libraries.size() == 1);
  CHECK(hip.libraries[0].found);
  CHECK_THAT(hip.status, ContainsSubstring(fake.state->count_error == 100
                                               ? "no ROCm-capable device is detected (100)"
                                               : "hipGetDeviceCount counts 0 devices"));
  auto device = open_device("hip");
  REQUIRE_FALSE(device.ok());
  CHECK(device.error().kind == ErrorKind::kDevice);
  auto automatic = open_device("auto");
  REQUIRE(automatic.ok());
  CHECK((*automatic)->name() == "cpu");
}

TEST_CASE("A library that does not serve is named with the reason", "[hip]") {
  const HiddenLibraries hidden;
  const auto status_of = [](const std::string& path) {
    setenv("HSTU_JIT_HIP", path.c_str(), 1);
    const auto reports = probe_backends();
    unsetenv("HSTU_JIT_HIP");
    const BackendReport hip = report_of(reports, "hip");
    REQUIRE(hip.libraries.size() == 1);  // the choice of the user's is not second-guessed
    CHECK_FALSE(hip.libraries[0].found);
    CHECK(hip.devices.empty());
    CHECK_THAT(hip.status, ContainsSubstring("no HIP runtime library"));
    return hip.libraries[0].reason;
  };
  CHECK_THAT(status_of(std::string(HSTU_FAKE_HIP) + "/fake_hip_incomplete.so"),
             ContainsSubstring("lacks hipModuleLoadData"));
  CHECK_THAT(status_of("/nonexistent/libamdhip64.so"), ContainsSubstring("No such file"));

  auto folder = TempDir::create("hip-test");
  REQUIRE(folder.ok());
  const std::string garbage = folder->path() + "/garbage.so";
  REQUIRE(write_file_atomic(garbage, std::string(4096, 'x')).ok());
  CHECK_THAT(status_of(garbage), ContainsSubstring("invalid ELF header"));

  setenv("HSTU_JIT_HIP", garbage.c_str(), 1);
  auto device = open_device("hip");
  unsetenv("HSTU_JIT_HIP");
  REQUIRE_FALSE(device.ok());
  CHECK_THAT(device.error().message, ContainsSubstring("HSTU_JIT_HIP"));
  CHECK_THAT(device.error().detail, ContainsSubstring("invalid ELF header"));
}

TEST_CASE("A copy the process already loaded is the one that is used", "[hip]") {
  CHECK(in_child([] {
    const std::string path = std::string(HSTU_FAKE_HIP) + "/fake_hip_soname.so";
    if (dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) return false;
    setenv("HSTU_JIT_HIP", "/nonexistent.so", 1);
    const HipSearch search = find_hip();
    return search.api && search.api->origin == path && search.libraries.size() == 1 &&
           search.libraries[0].library == "libamdhip64.so.6" &&
           search.libraries[0].reason.find("already loaded") != std::string::npos;
  }));
  // And the check above can fail: without the copy the file that is not there is all there is.
  CHECK(in_child([] {
    setenv("HSTU_JIT_HIP", "/nonexistent.so", 1);
    return find_hip().api == nullptr;
  }));
}

TEST_CASE("The system's own runtime answers, with or without a device", "[hip]") {
  const bool answered = in_child([] {
    unsetenv("HSTU_JIT_HIP");
    const auto reports = probe_backends();
    const BackendReport& hip = report_of(reports, "hip");
    if (hip.libraries.empty()) return false;
    for (const LibraryProbe& probe : hip.libraries) {
      if (probe.reason.empty()) return false;
      std::printf("%s: %s\n", probe.library.c_str(), probe.reason.c_str());
    }
    std::printf("hip: %s\n", hip.status.c_str());
    std::fflush(nullptr);
    if (!hip.libraries.back().found) {
      std::printf("SKIPPED: system runtime: no libamdhip64 on this machine\n");
      std::fflush(nullptr);
      return true;
    }
    // Debian's runtime without a GPU says 100; with one it lists it.
    return !hip.devices.empty() || hip.status.find("(100)") != std::string::npos;
  });
  CHECK(answered);
}

TEST_CASE("Device names that mean nothing are a usage error", "[device]") {
  const std::string name = GENERATE(as<std::string>(), "", "hip:", "hip:x", "hip:-1", "hip:1x",
                                    "hip:99999999999999999999", "cuda:", "cuda:-1", "cuda:x",
                                    "hip1", "cudax", "cpu:1", "HIP\n");
  const auto device = open_device(name);
  REQUIRE_FALSE(device.ok());
  CHECK(device.error().kind == ErrorKind::kUsage);
  CHECK(device.error().message.find('\n') == std::string::npos);
}
