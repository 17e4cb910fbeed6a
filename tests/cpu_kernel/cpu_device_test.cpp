// SPDX-License-Identifier: Apache-2.0
// The cpu device: what it refuses, and that kernels loaded one after another stay apart.
#include "device/cpu/cpu_device.hpp"

#include <cstdlib>

#include "catch.hpp"
#include "problem.hpp"
#include "target/cpu_level.hpp"

namespace hstu::test {
namespace {

std::unique_ptr<jit::Device> open_device() {
  auto device = jit::open_cpu_device();
  REQUIRE(device.ok());
  return std::move(*device);
}

}  // namespace

TEST_CASE("the number of threads is a number") {
  for (const char* bad : {"0", "-1", "two", "2x", "1025", "99999999999"}) {
    setenv("HSTU_JIT_THREADS", bad, 1);
    auto device = jit::open_cpu_device();
    unsetenv("HSTU_JIT_THREADS");
    INFO(bad);
    REQUIRE_FALSE(device.ok());
    CHECK(device.error().kind == jit::ErrorKind::kUsage);
  }
  auto count = jit::cpu_thread_count();
  REQUIRE(count.ok());
  CHECK(*count >= 1);
}

TEST_CASE("what is no kernel is refused with a reason") {
  auto device = open_device();
  std::string almost(
      "\x7f"
      "ELF\x02",
      5);
  almost.resize(200);
  for (const std::string& object : {std::string(), std::string("text"), almost}) {
    auto kernel = device->load(object, "entry");
    REQUIRE_FALSE(kernel.ok());
    CHECK(kernel.error().kind == jit::ErrorKind::kDevice);
  }
  almost[16] = 3;  // a shared object by its header, with nothing behind it
  auto kernel = device->load(almost, "entry");
  REQUIRE_FALSE(kernel.ok());
  CHECK(kernel.error().kind == jit::ErrorKind::kDevice);
}

TEST_CASE("memory: bounds are checked, too much is an error") {
  auto device = open_device();
  auto buffer = device->allocate(100);
  REQUIRE(buffer.ok());
  char bytes[100] = {};
  CHECK(device->upload(**buffer, 0, bytes, 100).ok());
  CHECK(device->fill(**buffer, 7).ok());
  CHECK(device->download(bytes, **buffer, 99, 1).ok());
  CHECK(bytes[0] == 7);
  CHECK_FALSE(device->upload(**buffer, 1, bytes, 100).ok());
  CHECK_FALSE(device->download(bytes, **buffer, 101, 0).ok());
  CHECK_FALSE(device->allocate(SIZE_MAX).ok());
  CHECK_FALSE(device->allocate(SIZE_MAX / 4).ok());
  auto empty = device->allocate(0);
  CHECK(empty.ok());
}

TEST_CASE("kernels loaded one after another are different kernels") {
  auto device = open_device();
  const std::string level = jit::detect_cpu_level();
  TestProblem p;
  p.seqlen_q = p.seqlen_kv = {40};
  p.groups = {{0, 0, 0, 1}};
  for (bool causal : {true, false}) {
    p.config = plain_config(Dtype::bf16, 16, 16);
    p.config.mask.causal = causal;
    CHECK(disagreement(p, launch(*device, kernel_for(*device, p.config, level), p)) == "");
  }
  // Arguments of another size are another kernel's.
  ForwardArguments arguments{};
  CHECK_FALSE(device
                  ->launch(kernel_for(*device, p.config, level), {}, &arguments,
                           sizeof arguments - 8, nullptr)
                  .ok());
}

TEST_CASE("a level answers for targets and for bare names") {
  const std::string here = jit::detect_cpu_level();
  CHECK(jit::cpu_level_runs_here(here));
  CHECK(jit::cpu_level_runs_here("cpu:" + here));
  CHECK_FALSE(jit::cpu_level_runs_here("cpu:x86-64-v9"));
  CHECK(jit::cpu_level_flags("cpu:x86-64-v9").empty());
  for (const std::string& level : jit::cpu_levels())
    CHECK(jit::cpu_level_flags(level) == jit::cpu_level_flags("cpu:" + level));
}

}  // namespace hstu::test
