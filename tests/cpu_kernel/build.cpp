// SPDX-License-Identifier: Apache-2.0
#include "build.hpp"

#include <cstdlib>
#include <map>

#include "base/file.hpp"
#include "base/subprocess.hpp"
#include "base/temp_dir.hpp"
#include "catch.hpp"
#include "source/source.hpp"
#include "target/cpu_level.hpp"

namespace hstu::test {

jit::ForwardConfig plain_config(Dtype dtype, int head_dim_qk, int head_dim_v) {
  jit::ForwardConfig c;
  c.dtype = dtype;
  c.head_dim_qk = head_dim_qk;
  c.head_dim_v = head_dim_v;
  c.tile_m = 64;
  c.tile_n = 64;
  c.waves = c.waves_per_simd = 1;
  return c;
}

jit::DeviceKernel& kernel_for(jit::Device& device, const jit::ForwardConfig& config,
                              const std::string& level) {
  static std::map<std::string, std::unique_ptr<jit::DeviceKernel>> kernels;
  jit::Plan plan;
  plan.config = config;
  plan.template_name = "attention/forward_cpu.h";
  plan.entry = "hstu_cpu_test";
  plan.target.name = "cpu:" + level;
  plan.target.vendor = jit::Vendor::cpu;
  auto source = jit::write_source(plan, "");
  REQUIRE(source.ok());
  std::unique_ptr<jit::DeviceKernel>& kernel = kernels[level + source->body];
  if (kernel) return *kernel;

  auto folder = jit::TempDir::create("hstu-cpu-test");
  REQUIRE(folder.ok());
  const std::string cpp = folder->path() + "/kernel.cpp", so = folder->path() + "/kernel.so";
  REQUIRE(jit::write_file_atomic(cpp, source->text()).ok());
  const char* compiler = std::getenv("CXX");
  jit::ProcessOptions process;
  process.argv = {compiler != nullptr && *compiler != '\0' ? compiler : "c++",
                  "-std=c++17",
                  "-O3",
                  "-fPIC",
                  "-shared",
                  "-fvisibility=hidden",
                  "-Wall",
                  "-Wextra",
                  "-Werror"};
  for (const std::string& flag : jit::cpu_level_flags(level)) process.argv.push_back(flag);
  process.argv.insert(process.argv.end(), {"-o", so, cpp});
  auto compiled = jit::run_process(process);
  REQUIRE(compiled.ok());
  INFO(compiled->errors);
  REQUIRE(compiled->succeeded());
  auto object = jit::read_file(so);
  REQUIRE(object.ok());
  auto loaded = device.load(*object, plan.entry);
  if (!loaded) FAIL(loaded.error().message);
  kernel = std::move(*loaded);
  return *kernel;
}

}  // namespace hstu::test
