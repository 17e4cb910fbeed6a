// SPDX-License-Identifier: Apache-2.0
// Keeps this machine's own GPU libraries out of a test: one that is loaded stays, and would be
// taken by every later test in place of a fake.
#pragma once

#include <cstdlib>

namespace hstu::test {

class HiddenLibraries {
 public:
  HiddenLibraries() {
    setenv("HSTU_JIT_HIP", "/nonexistent/libamdhip64.so", 0);
    setenv("HSTU_JIT_CUDA", "/nonexistent/libcuda.so.1", 0);
  }
  HiddenLibraries(const HiddenLibraries&) = delete;
  HiddenLibraries& operator=(const HiddenLibraries&) = delete;
  ~HiddenLibraries() {
    unsetenv("HSTU_JIT_HIP");
    unsetenv("HSTU_JIT_CUDA");
  }
};

}  // namespace hstu::test
