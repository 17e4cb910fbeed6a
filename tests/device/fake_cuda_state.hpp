// SPDX-License-Identifier: Apache-2.0
// What the parts of the fake NVIDIA driver share: its state, and how a call begins.
#pragma once

#include <set>

#include "fake_cuda.hpp"

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

namespace fake_cuda {

constexpr int kInvalidValue = 1, kNotInitialized = 3, kInvalidDevice = 101, kInvalidImage = 200,
              kInvalidContext = 201;

struct Context {
  int device = 0;
  int holders = 0;  // of a primary context; dead at 0
};
struct Graph {
  std::vector<FakeCudaLaunch> launches;
};
struct Stream {
  Context* context = nullptr;
  Graph* capturing = nullptr;
};

extern FakeCudaState state;
extern std::set<Stream*> streams;
extern std::set<Graph*> graphs, executables;

// Notes the call; the code it has to fail with, or 0.
int enter(const char* call);
// The same of most calls, which need a live context; those without one are a fault of the caller's.
int enter_in_context(const char* call);
// Notes a fault of the caller's; the code of the call.
int misused(const char* call);
// Whether it is the default stream, or one of the current context.
bool known_stream(void* stream);

}  // namespace fake_cuda
