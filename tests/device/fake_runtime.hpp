// SPDX-License-Identifier: Apache-2.0
// Loads a fake HIP runtime for one test and points HSTU_JIT_HIP at it.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "catch.hpp"
#include "fake_hip.hpp"
#include "hidden.hpp"

namespace hstu::test {

class FakeRuntime {
 public:
  explicit FakeRuntime(const std::string& variant = "fake_hip")
      : path(std::string(HSTU_FAKE_HIP) + "/" + variant + ".so") {
    setenv("HSTU_JIT_HIP", path.c_str(), 1);
    library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library_ != nullptr);
    void* symbol = dlsym(library_, "fake_hip_state");
    REQUIRE(symbol != nullptr);
    state = reinterpret_cast<FakeHipState* (*)()>(symbol)();
    *state = FakeHipState{};
    state->devices = {
        {"AMD Instinct MI210", "gfx90a:sramecc+:xnack-", size_t{64} << 30, 104},
        {"AMD Instinct MI300X", "gfx942:sramecc+:xnack-", size_t{192} << 30, 304},
    };
  }
  FakeRuntime(const FakeRuntime&) = delete;
  FakeRuntime& operator=(const FakeRuntime&) = delete;

  void fail(const std::string& call, int code, int after = 0) {
    state->failing_call = call;
    state->failing_code = code;
    state->failing_after = after;
    state->failed = false;
  }
  // What was made was ended, and no call was given something wrong.
  void check_balance() const {
    CHECK(state->mallocs == state->frees);
    CHECK(state->modules == state->unloads);
    CHECK(state->streams == state->stream_ends);
    CHECK(state->events == state->event_ends);
    CHECK(state->allocated == 0);
    CHECK(state->misuse == "");
  }

  std::string path;
  FakeHipState* state = nullptr;

 private:
  HiddenLibraries hidden_;
  void* library_ = nullptr;
};

}  // namespace hstu::test
