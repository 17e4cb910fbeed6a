// SPDX-License-Identifier: Apache-2.0
// The main job on a CUDA device, as far as a driver that computes nothing can take it.
#include <cstdio>
#include <cstdlib>

#include "base/subprocess.hpp"
#include "catch.hpp"
#include "program.hpp"

namespace {

Program with_driver() {
  Program p;
  p.environment["HSTU_JIT_CUDA"] = HSTU_FAKE_CUDA;
  p.environment["HSTU_JIT_HIP"] = "/nonexistent/libamdhip64.so";
  return p;
}

// NVRTC is in no distribution's main archive.
bool has_compiler(const Program& p, const std::string& spec) {
  const Outcome made = p.run({"compile", spec, "--target", "sm_90a", "-o", p.folder() + "/k"});
  if (made.code == 0) return true;
  INFO(made.err);
  CHECK(made.code == 5);
  CHECK_THAT(made.err, ContainsSubstring("NVRTC"));
  std::printf("SKIPPED: runs on a fake CUDA device: no NVRTC\n");
  return false;
}

}  // namespace

TEST_CASE("cuda: devices and doctor list the device and the driver") {
  const Program p = with_driver();
  for (const char* command : {"devices", "doctor"}) {
    const Outcome said = p.run({command});
    CHECK_THAT(said.out, ContainsSubstring("cuda:0  NVIDIA H200 (sm_90a), 132 SMs, 141 GiB"));
  }
  CHECK_THAT(p.run({"devices"}).out, ContainsSubstring("NVIDIA driver for CUDA 13.0"));
}

TEST_CASE("cuda: a spec is compiled, loaded and launched; what was not computed is a mismatch") {
  const Program p = with_driver();
  const std::string spec = p.file("spec.json", kSmallSpec);
  if (!has_compiler(p, spec)) return;
  for (const char* name : {"cuda", "cuda:0", "auto"}) {
    const Outcome ran = p.run({"run", spec, "--device", name, "--no-validate"});
    INFO(ran.err);
    CHECK(ran.code == 0);
    CHECK_THAT(ran.out, ContainsSubstring("device    cuda:0 (sm_90a)"));
    CHECK(ran.err == "");
  }
  // The outputs stay as they were poisoned.
  const Outcome wrong = p.run({"run", spec, "--device", "cuda:0"});
  CHECK(wrong.code == 6);
  CHECK_THAT(wrong.out, ContainsSubstring("FAIL"));
}

TEST_CASE("cuda: without a driver, or without that device, there is no device") {
  Program p = with_driver();
  const std::string spec = p.file("spec.json", kSmallSpec);
  const Outcome second = p.run({"run", spec, "--device", "cuda:1"});
  CHECK(second.code == 7);
  CHECK_THAT(second.err, ContainsSubstring("cuda:1: there is 1 device here"));
  p.environment["HSTU_JIT_CUDA"] = "/nonexistent/libcuda.so.1";
  const Outcome none = p.run({"run", spec, "--device", "cuda:0"});
  CHECK(none.code == 7);
  CHECK_THAT(none.err, ContainsSubstring("HSTU_JIT_CUDA"));
  CHECK(p.run({"run", spec, "--device", "cpu"}).code == 0);
}

TEST_CASE("cuda: the overhead program times each layer and checks what its graph wrote") {
  const Program p = with_driver();
  const std::string spec = p.file("spec.json", kSmallSpec);
  if (!has_compiler(p, spec)) return;
  hstu::jit::ProcessOptions options;
  options.argv = {HSTU_OVERHEAD, spec,       "--device", "cuda:0",      "--launches",
                  "5",           "--rounds", "3",        "--cache-dir", p.cache_dir()};
  options.environment.emplace();
  options.environment->push_back("HSTU_JIT_CUDA=" HSTU_FAKE_CUDA);
  options.environment->push_back(std::string("PATH=") + std::getenv("PATH"));
  const auto ran = hstu::jit::run_process(options);
  REQUIRE(ran.ok());
  INFO(ran->errors);
  for (const char* layer : {"cuLaunchKernel ", "Device::launch ", "hstu_launch ", "graph with"})
    CHECK_THAT(ran->output, ContainsSubstring(layer));
  // The fake driver computes nothing, so the graph cannot have written the right thing.
  CHECK(ran->exit_code == 6);
  CHECK_THAT(ran->errors, ContainsSubstring("the graph's output is wrong"));
}
