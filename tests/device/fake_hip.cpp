// SPDX-License-Identifier: Apache-2.0
// A HIP runtime that computes nothing: device memory is host memory, launches are recorded, wrong
// handles are noticed, and any call can be told to fail. Macros make its variants:
// FAKE_HIP_OLD_LAYOUT lacks the properties call of ROCm 6, FAKE_HIP_INCOMPLETE a needed symbol.
#include "fake_hip.hpp"

#include <cstdlib>
#include <cstring>
#include <map>
#include <set>

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

struct Module {
  std::set<std::string*> functions;
  int device = 0;
};

FakeHipState state;
std::map<char*, size_t> memory;
std::set<Module*> modules;
std::map<std::string*, Module*> functions;
std::set<int*> streams, events;
using Graph = std::vector<FakeHipLaunch>;
std::map<void*, Graph*> capturing;  // by stream
std::set<Graph*> graphs, executables;

// Notes the call; the code it has to fail with, or 0.
int enter(const char* call) {
  state.calls.emplace_back(call);
  if (state.failing_call != call || state.failed) return 0;
  if (state.failing_after-- > 0) return 0;
  state.failed = true;
  return state.failing_code;
}

int misused(const char* call) {
  if (state.misuse.empty()) state.misuse = call;
  return 1;
}

bool inside(const void* pointer, size_t bytes) {
  const char* at = static_cast<const char*>(pointer);
  for (const auto& [begin, size] : memory) {
    if (at >= begin && at + bytes <= begin + size) return true;
  }
  return false;
}

bool known_stream(void* stream) {
  return stream == nullptr || streams.count(static_cast<int*>(stream)) != 0;
}

int properties(void* out, int ordinal, size_t size, size_t memory_at, size_t units_at,
               size_t arch_at) {
  if (ordinal < 0 || ordinal >= static_cast<int>(state.devices.size())) return 101;
  char* bytes = static_cast<char*>(out);
  std::memset(bytes, 0x5a, size);
  const FakeHipDevice& device = state.devices[ordinal];
  std::strncpy(bytes, device.name.c_str(), 256);
  std::memcpy(bytes + memory_at, &device.memory, sizeof(device.memory));
  std::memcpy(bytes + units_at, &device.compute_units, sizeof(int));
  std::strncpy(bytes + arch_at, device.arch.c_str(), 256);
  return 0;
}

}  // namespace

FAKE_EXPORT FakeHipState* fake_hip_state() { return &state; }

FAKE_EXPORT int hipGetDeviceCount(int* count) {
  const int code = enter("hipGetDeviceCount");
  *count = static_cast<int>(state.devices.size());
  return code != 0 ? code : state.count_error;
}
FAKE_EXPORT int hipGetDevice(int* ordinal) {
  *ordinal = state.current;
  return enter("hipGetDevice");
}
FAKE_EXPORT int hipSetDevice(int ordinal) {
  if (const int code = enter("hipSetDevice")) return code;
  if (ordinal < 0 || ordinal >= static_cast<int>(state.devices.size())) return 101;
  state.current = ordinal;
  return 0;
}
#ifndef FAKE_HIP_OLD_LAYOUT
FAKE_EXPORT int hipGetDevicePropertiesR0600(void* out, int ordinal) {
  if (const int code = enter("hipGetDevicePropertiesR0600")) return code;
  return properties(out, ordinal, 1472, 288, 388, 1160);
}
#endif
FAKE_EXPORT int hipGetDeviceProperties(void* out, int ordinal) {
  if (const int code = enter("hipGetDeviceProperties")) return code;
  return properties(out, ordinal, 792, 256, 336, 396);
}
FAKE_EXPORT int hipMemGetInfo(size_t* free, size_t* total) {
  if (const int code = enter("hipMemGetInfo")) return code;
  *total = state.devices[state.current].memory;
  *free = *total - state.allocated;
  return 0;
}
FAKE_EXPORT int hipMalloc(void** pointer, size_t bytes) {
  if (const int code = enter("hipMalloc")) return code;
  if (bytes > size_t{1} << 30) return 2;  // this host's memory is what is really used
  char* made = static_cast<char*>(std::malloc(bytes));
  std::memset(made, 0x5a, bytes);
  memory[made] = bytes;
  state.allocated += bytes;
  ++state.mallocs;
  *pointer = made;
  return 0;
}
FAKE_EXPORT int hipFree(void* pointer) {
  const int code = enter("hipFree");
  const auto found = memory.find(static_cast<char*>(pointer));
  if (found == memory.end()) return misused("hipFree");
  state.allocated -= found->second;
  std::free(found->first);
  memory.erase(found);
  ++state.frees;
  return code;
}
FAKE_EXPORT int hipMemcpy(void* to, const void* from, size_t bytes, int kind) {
  if (const int code = enter("hipMemcpy")) return code;
  if (kind != 1 && kind != 2) return misused("hipMemcpy");
  if (!inside(kind == 1 ? to : from, bytes)) return misused("hipMemcpy");
  std::memcpy(to, from, bytes);
  return 0;
}
FAKE_EXPORT int hipMemset(void* to, int byte, size_t bytes) {
  if (const int code = enter("hipMemset")) return code;
  if (!inside(to, bytes)) return misused("hipMemset");
  std::memset(to, byte, bytes);
  return 0;
}
FAKE_EXPORT int hipMemsetAsync(void* to, int byte, size_t bytes, void* stream) {
  if (const int code = enter("hipMemsetAsync")) return code;
  if (!inside(to, bytes) || !known_stream(stream)) return misused("hipMemsetAsync");
  std::memset(to, byte, bytes);
  return 0;
}
#ifndef FAKE_HIP_INCOMPLETE
FAKE_EXPORT int hipModuleLoadData(void** module, const void* image) {
  if (const int code = enter("hipModuleLoadData")) return code;
  if (std::memcmp(image,
                  "\x7f"
                  "ELF",
                  4) != 0)
    return 200;
  auto* made = new Module{{}, state.current};
  modules.insert(made);
  ++state.modules;
  *module = made;
  return 0;
}
#endif
FAKE_EXPORT int hipModuleUnload(void* handle) {
  const int code = enter("hipModuleUnload");
  auto* module = static_cast<Module*>(handle);
  if (modules.erase(module) == 0) return misused("hipModuleUnload");
  for (std::string* function : module->functions) {
    functions.erase(function);
    delete function;
  }
  delete module;
  ++state.unloads;
  return code;
}
FAKE_EXPORT int hipModuleGetFunction(void** function, void* handle, const char* name) {
  if (const int code = enter("hipModuleGetFunction")) return code;
  auto* module = static_cast<Module*>(handle);
  if (modules.count(module) == 0) return misused("hipModuleGetFunction");
  auto* made = new std::string(name);
  module->functions.insert(made);
  functions[made] = module;
  *function = made;
  return 0;
}
FAKE_EXPORT int hipModuleLaunchKernel(void* handle, unsigned gx, unsigned gy, unsigned gz,
                                      unsigned bx, unsigned by, unsigned bz, unsigned lds,
                                      void* stream, void** parameters, void** extra) {
  if (const int code = enter("hipModuleLaunchKernel")) return code;
  auto* function = static_cast<std::string*>(handle);
  const auto found = functions.find(function);
  if (found == functions.end() || found->second->device != state.current || !known_stream(stream) ||
      parameters != nullptr || extra == nullptr) {
    return misused("hipModuleLaunchKernel");
  }
  FakeHipLaunch launch{state.current, *function, {gx, gy, gz}, {bx, by, bz}, lds, stream, {}};
  const char* bytes = nullptr;
  size_t size = 0;
  for (; *extra != reinterpret_cast<void*>(3); extra += 2) {
    if (*extra == reinterpret_cast<void*>(1)) bytes = static_cast<const char*>(extra[1]);
    if (*extra == reinterpret_cast<void*>(2)) size = *static_cast<size_t*>(extra[1]);
  }
  launch.arguments.assign(bytes, size);
  const auto captured = capturing.find(stream);
  (captured == capturing.end() ? state.launches : *captured->second).push_back(launch);
  return 0;
}
FAKE_EXPORT int hipStreamCreate(void** stream) {
  if (const int code = enter("hipStreamCreate")) return code;
  *stream = *streams.insert(new int(state.current)).first;
  ++state.streams;
  return 0;
}
FAKE_EXPORT int hipStreamDestroy(void* stream) {
  const int code = enter("hipStreamDestroy");
  if (streams.erase(static_cast<int*>(stream)) == 0) return misused("hipStreamDestroy");
  delete static_cast<int*>(stream);
  ++state.stream_ends;
  return code;
}
FAKE_EXPORT int hipStreamSynchronize(void* stream) {
  if (const int code = enter("hipStreamSynchronize")) return code;
  return known_stream(stream) ? 0 : misused("hipStreamSynchronize");
}
FAKE_EXPORT int hipDeviceSynchronize() { return enter("hipDeviceSynchronize"); }
FAKE_EXPORT int hipEventCreate(void** event) {
  if (const int code = enter("hipEventCreate")) return code;
  *event = *events.insert(new int(0)).first;
  ++state.events;
  return 0;
}
FAKE_EXPORT int hipEventDestroy(void* event) {
  const int code = enter("hipEventDestroy");
  if (events.erase(static_cast<int*>(event)) == 0) return misused("hipEventDestroy");
  delete static_cast<int*>(event);
  ++state.event_ends;
  return code;
}
FAKE_EXPORT int hipEventRecord(void* event, void* stream) {
  if (const int code = enter("hipEventRecord")) return code;
  if (events.count(static_cast<int*>(event)) == 0 || !known_stream(stream)) {
    return misused("hipEventRecord");
  }
  // Time is the number of calls so far: an event recorded later is later.
  *static_cast<int*>(event) = static_cast<int>(state.calls.size());
  return 0;
}
FAKE_EXPORT int hipEventSynchronize(void* event) {
  if (const int code = enter("hipEventSynchronize")) return code;
  return events.count(static_cast<int*>(event)) != 0 ? 0 : misused("hipEventSynchronize");
}
FAKE_EXPORT int hipEventElapsedTime(float* milliseconds, void* from, void* to) {
  if (const int code = enter("hipEventElapsedTime")) return code;
  *milliseconds = static_cast<float>(*static_cast<int*>(to) - *static_cast<int*>(from));
  return 0;
}
FAKE_EXPORT int hipStreamBeginCapture(void* stream, int mode) {
  if (const int code = enter("hipStreamBeginCapture")) return code;
  if (stream == nullptr || !known_stream(stream) || mode < 0 || mode > 2 ||
      capturing.count(stream) != 0) {
    return misused("hipStreamBeginCapture");
  }
  capturing[stream] = *graphs.insert(new Graph).first;
  return 0;
}
FAKE_EXPORT int hipStreamIsCapturing(void* stream, int* status) {
  if (const int code = enter("hipStreamIsCapturing")) return code;
  *status = static_cast<int>(capturing.count(stream));
  return 0;
}
FAKE_EXPORT int hipStreamEndCapture(void* stream, void** graph) {
  if (const int code = enter("hipStreamEndCapture")) return code;
  const auto found = capturing.find(stream);
  if (found == capturing.end()) return misused("hipStreamEndCapture");
  *graph = found->second;
  capturing.erase(found);
  return 0;
}
FAKE_EXPORT int hipGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long) {
  if (const int code = enter("hipGraphInstantiate")) return code;
  if (graphs.count(static_cast<Graph*>(graph)) == 0) return misused("hipGraphInstantiate");
  *executable = *executables.insert(new Graph(*static_cast<Graph*>(graph))).first;
  return 0;
}
FAKE_EXPORT int hipGraphLaunch(void* executable, void* stream) {
  if (const int code = enter("hipGraphLaunch")) return code;
  const auto found = executables.find(static_cast<Graph*>(executable));
  if (found == executables.end() || !known_stream(stream)) return misused("hipGraphLaunch");
  state.launches.insert(state.launches.end(), (*found)->begin(), (*found)->end());
  return 0;
}
FAKE_EXPORT int hipGraphDestroy(void* graph) {
  if (graphs.erase(static_cast<Graph*>(graph)) == 0) return misused("hipGraphDestroy");
  delete static_cast<Graph*>(graph);
  return enter("hipGraphDestroy");
}
FAKE_EXPORT int hipGraphExecDestroy(void* executable) {
  if (executables.erase(static_cast<Graph*>(executable)) == 0) {
    return misused("hipGraphExecDestroy");
  }
  delete static_cast<Graph*>(executable);
  return enter("hipGraphExecDestroy");
}
FAKE_EXPORT const char* hipGetErrorString(int code) {
  switch (code) {
    case 2:
      return "out of memory";
    case 100:
      return "no ROCm-capable device is detected";
    case 719:
      return "unspecified launch\nfailure";
    default:
      return "something of the fake's";
  }
}
FAKE_EXPORT int hipGetLastError() { return 0; }
FAKE_EXPORT int hipRuntimeGetVersion(int* version) {
  *version = 60443484;
  return 0;
}
