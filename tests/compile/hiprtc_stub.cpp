// SPDX-License-Identifier: Apache-2.0
// A hipRTC whose comgr is not installed: it has the functions, and names what it would open.
// Calling one of them ends the process, as the real one does.
#include <cstdlib>

extern "C" {
extern const char hstu_stub_comgr[];
const char hstu_stub_comgr[] = "libamd_comgr.so.98765";
#define FUNCTION(name) \
  __attribute__((visibility("default"))) void name() { std::abort(); }
FUNCTION(hiprtcCreateProgram)
FUNCTION(hiprtcCompileProgram)
FUNCTION(hiprtcGetProgramLogSize)
FUNCTION(hiprtcGetProgramLog)
FUNCTION(hiprtcGetCodeSize)
FUNCTION(hiprtcGetCode)
FUNCTION(hiprtcDestroyProgram)
FUNCTION(hiprtcGetErrorString)
}
