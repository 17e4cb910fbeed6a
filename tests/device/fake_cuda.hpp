// SPDX-License-Identifier: Apache-2.0
// What the fake NVIDIA driver shows the test that loaded it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

struct FakeCudaDevice {
  std::string name;
  int major = 9, minor = 0;
  size_t memory = 0;
  int multiprocessors = 0;
  int shared_bytes = 0;
};

struct FakeCudaLaunch {
  int device = 0;
  std::string kernel;
  unsigned grid[3] = {}, block[3] = {};
  unsigned dynamic_shared = 0;
  void* stream = nullptr;
  std::string argument;  // the bytes of the one argument
  bool captured = false;
  unsigned cluster = 1;
};

struct FakeTensorMap {
  int data_type = 0;
  std::vector<uint64_t> extents, strides;
  std::vector<uint32_t> box;
  int swizzle = 0, l2_promotion = 0;
  const void* address = nullptr;
};

struct FakeCudaState {
  std::vector<FakeCudaDevice> devices;
  int init_error = 0;          // what cuInit answers
  size_t argument_bytes = 24;  // how many of them a launch copies

  // The call of this name fails once with this code, after so many calls that succeed.
  std::string failing_call;
  int failing_code = 0, failing_after = 0;
  bool failed = false;

  std::vector<std::string> calls;
  std::vector<FakeCudaLaunch> launches;
  std::vector<FakeTensorMap> tensor_maps;
  int static_shared = 256;       // what functions are said to declare
  int dynamic_shared_limit = 0;  // of the last function it was set for
  int retains = 0, releases = 0;
  int allocations = 0, frees = 0, modules = 0, unloads = 0;
  int streams = 0, stream_ends = 0, events = 0, event_ends = 0, graphs = 0, graph_ends = 0;
  size_t allocated = 0;
  std::string misuse;  // the first call that was given something it may not be given
};

// The library exports, as extern "C":
//   FakeCudaState* fake_cuda_state();
//   void* fake_cuda_new_context(int device);  a context that is nobody's primary one
//   void* fake_cuda_primary(int device);      the primary one
//   void fake_cuda_forget();                  frees what a test could not end
