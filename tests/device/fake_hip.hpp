// SPDX-License-Identifier: Apache-2.0
// What the fake HIP runtime shows the test that loaded it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

struct FakeHipDevice {
  std::string name, arch;
  size_t memory = 0;
  int compute_units = 0;
};

struct FakeHipLaunch {
  int device = 0;
  std::string kernel;
  unsigned grid[3] = {}, block[3] = {};
  unsigned dynamic_lds = 0;
  void* stream = nullptr;
  std::string arguments;  // the bytes handed over
};

struct FakeHipState {
  std::vector<FakeHipDevice> devices;
  int current = 0;
  int count_error = 0;  // what hipGetDeviceCount answers instead of success

  // The call of this name fails once with this code, after so many calls that succeed.
  std::string failing_call;
  int failing_code = 0, failing_after = 0;
  bool failed = false;

  std::vector<std::string> calls;
  std::vector<FakeHipLaunch> launches;
  int mallocs = 0, frees = 0, modules = 0, unloads = 0;
  int streams = 0, stream_ends = 0, events = 0, event_ends = 0;
  size_t allocated = 0;
  std::string misuse;  // the first call that was given something it may not be given
};

// The library exports: extern "C" FakeHipState* fake_hip_state();
