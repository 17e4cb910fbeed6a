// SPDX-License-Identifier: Apache-2.0
// Loads a fake NVIDIA driver for one test and points HSTU_JIT_CUDA at it.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "catch.hpp"
#include "fake_cuda.hpp"
#include "hidden.hpp"

namespace hstu::test {

class FakeDriver {
 public:
  explicit FakeDriver(const std::string& variant = "fake_cuda")
      : path(std::string(HSTU_FAKE_HIP) + "/" + variant + ".so") {
    setenv("HSTU_JIT_CUDA", path.c_str(), 1);
    library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library_ != nullptr);
    state = reinterpret_cast<FakeCudaState* (*)()>(find("fake_cuda_state"))();
    reset();
  }
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;

  void reset() {
    reinterpret_cast<void (*)()>(find("fake_cuda_forget"))();
    *state = FakeCudaState{};
    state->devices = {
        {"NVIDIA H200", 9, 0, size_t{141} << 30, 132, 232448},
        {"NVIDIA A100-SXM4-80GB", 8, 0, size_t{80} << 30, 108, 166912},
    };
  }
  void fail(const std::string& call, int code, int after = 0) {
    state->failing_call = call;
    state->failing_code = code;
    state->failing_after = after;
    state->failed = false;
  }
  // A context of the host program's own on a device, not its primary one.
  void* new_context(int device) const {
    return reinterpret_cast<void* (*)(int)>(find("fake_cuda_new_context"))(device);
  }
  void* primary(int device) const {
    return reinterpret_cast<void* (*)(int)>(find("fake_cuda_primary"))(device);
  }
  void push(void* context) const {
    CHECK(reinterpret_cast<int (*)(void*)>(find("cuCtxPushCurrent_v2"))(context) == 0);
  }
  void pop() const {
    void* context = nullptr;
    CHECK(reinterpret_cast<int (*)(void**)>(find("cuCtxPopCurrent_v2"))(&context) == 0);
  }
  void* current() const {
    void* context = nullptr;
    CHECK(reinterpret_cast<int (*)(void**)>(find("cuCtxGetCurrent"))(&context) == 0);
    return context;
  }
  // What was made was ended, and no call was given something wrong.
  void check_balance() const {
    CHECK(state->retains == state->releases);
    CHECK(state->allocations == state->frees);
    CHECK(state->modules == state->unloads);
    CHECK(state->streams == state->stream_ends);
    CHECK(state->events == state->event_ends);
    CHECK(state->graphs == state->graph_ends);
    CHECK(state->allocated == 0);
    CHECK(state->misuse == "");
  }

  std::string path;
  FakeCudaState* state = nullptr;

 private:
  void* find(const char* name) const {
    void* symbol = dlsym(library_, name);
    REQUIRE(symbol != nullptr);
    return symbol;
  }
  HiddenLibraries hidden_;
  void* library_ = nullptr;
};

}  // namespace hstu::test
