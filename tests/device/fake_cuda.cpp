// SPDX-License-Identifier: Apache-2.0
// An NVIDIA driver that computes nothing: device memory is host memory, launches are recorded,
// contexts are per thread as the real ones are, wrong handles and wrong contexts are noticed, and
// any call can be told to fail. Macros make its variants: FAKE_CUDA_OLD lacks clusters, tensor maps
// and graphs, FAKE_CUDA_INCOMPLETE a needed symbol, FAKE_CUDA_H200 has a device without being told.
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>

#include "fake_cuda_state.hpp"

using namespace fake_cuda;

namespace {

struct Module {
  std::set<std::string*> functions;
  Context* context = nullptr;
};

FakeCudaState initial_state() {
  FakeCudaState made;
#ifdef FAKE_CUDA_H200
  made.devices = {{"NVIDIA H200", 9, 0, size_t{141} << 30, 132, 232448}};
#endif
  return made;
}
bool initialized = false;
std::map<int, Context> primary;
std::list<Context> others;
std::map<char*, std::pair<size_t, Context*>> memory;
std::set<Module*> modules;
std::map<std::string*, Module*> functions;
std::set<int*> events;
thread_local std::vector<Context*> stack;

Context* current() { return stack.empty() ? nullptr : stack.back(); }
bool is_device(int device) {
  return device >= 0 && device < static_cast<int>(state.devices.size());
}
bool inside(const void* pointer, size_t bytes) {
  const char* at = static_cast<const char*>(pointer);
  for (const auto& [begin, block] : memory) {
    if (at >= begin && at + bytes <= begin + block.first) return block.second == current();
  }
  return false;
}

}  // namespace

namespace fake_cuda {

FakeCudaState state = initial_state();
std::set<Stream*> streams;
std::set<Graph*> graphs, executables;

int enter(const char* call) {
  state.calls.emplace_back(call);
  if (!initialized && std::strcmp(call, "cuInit") != 0) return kNotInitialized;
  if (state.failing_call != call || state.failed) return 0;
  if (state.failing_after-- > 0) return 0;
  state.failed = true;
  return state.failing_code;
}

int misused(const char* call) {
  if (state.misuse.empty()) state.misuse = call;
  return kInvalidValue;
}

int enter_in_context(const char* call) {
  if (const int code = enter(call)) return code;
  const Context* context = current();
  if (context == nullptr || context->holders == 0) {
    misused(call);
    return kInvalidContext;
  }
  return 0;
}
bool known_stream(void* stream) {
  auto* own = static_cast<Stream*>(stream);
  return own == nullptr || (streams.count(own) != 0 && own->context == current());
}

}  // namespace fake_cuda

FAKE_EXPORT FakeCudaState* fake_cuda_state() { return &state; }
FAKE_EXPORT void* fake_cuda_new_context(int device) {
  return &others.emplace_back(Context{device, 1});
}
FAKE_EXPORT void fake_cuda_forget() {
  for (const auto& [function, module] : functions) delete function;
  for (Module* module : modules) delete module;
  for (Stream* stream : streams) delete stream;
  for (int* event : events) delete event;
  for (Graph* graph : graphs) delete graph;
  for (Graph* graph : executables) delete graph;
  for (const auto& [begin, block] : memory) std::free(begin);
  functions.clear(), modules.clear(), streams.clear(), events.clear();
  graphs.clear(), executables.clear(), memory.clear();
}
FAKE_EXPORT void* fake_cuda_primary(int device) { return &primary[device]; }

FAKE_EXPORT int cuInit(unsigned flags) {
  if (const int code = enter("cuInit")) return code;
  if (flags != 0) return misused("cuInit");
  initialized = state.init_error == 0;
  return state.init_error;
}
FAKE_EXPORT int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
FAKE_EXPORT int cuDeviceGetCount(int* count) {
  if (const int code = enter("cuDeviceGetCount")) return code;
  *count = static_cast<int>(state.devices.size());
  return 0;
}
FAKE_EXPORT int cuDeviceGet(int* device, int ordinal) {
  if (const int code = enter("cuDeviceGet")) return code;
  if (!is_device(ordinal)) return kInvalidDevice;
  *device = ordinal + 100;  // a handle, not the ordinal
  return 0;
}
FAKE_EXPORT int cuDeviceGetName(char* name, int bytes, int device) {
  if (const int code = enter("cuDeviceGetName")) return code;
  if (!is_device(device - 100)) return misused("cuDeviceGetName");
  std::strncpy(name, state.devices[device - 100].name.c_str(), static_cast<size_t>(bytes));
  return 0;
}
FAKE_EXPORT int cuDeviceTotalMem_v2(size_t* bytes, int device) {
  if (const int code = enter("cuDeviceTotalMem")) return code;
  if (!is_device(device - 100)) return misused("cuDeviceTotalMem");
  *bytes = state.devices[device - 100].memory;
  return 0;
}
FAKE_EXPORT int cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (const int code = enter("cuDeviceGetAttribute")) return code;
  if (!is_device(device - 100)) return misused("cuDeviceGetAttribute");
  const FakeCudaDevice& d = state.devices[device - 100];
  switch (attribute) {
    case 16:
      *value = d.multiprocessors;
      return 0;
    case 75:
      *value = d.major;
      return 0;
    case 76:
      *value = d.minor;
      return 0;
    case 97:
      *value = d.shared_bytes;
      return 0;
    default:
      return misused("cuDeviceGetAttribute");
  }
}
FAKE_EXPORT int cuDevicePrimaryCtxRetain(void** context, int device) {
  if (const int code = enter("cuDevicePrimaryCtxRetain")) return code;
  if (!is_device(device - 100)) return misused("cuDevicePrimaryCtxRetain");
  Context& own = primary[device - 100];
  own.device = device - 100;
  ++own.holders;
  ++state.retains;
  *context = &own;
  return 0;
}
#ifndef FAKE_CUDA_INCOMPLETE
FAKE_EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
  const int code = enter("cuDevicePrimaryCtxRelease");
  if (!is_device(device - 100) || primary[device - 100].holders == 0) {
    return misused("cuDevicePrimaryCtxRelease");
  }
  --primary[device - 100].holders;
  ++state.releases;
  return code;
}
#endif
FAKE_EXPORT int cuCtxGetCurrent(void** context) {
  *context = current();
  return enter("cuCtxGetCurrent");
}
FAKE_EXPORT int cuCtxPushCurrent_v2(void* context) {
  if (const int code = enter("cuCtxPushCurrent")) return code;
  stack.push_back(static_cast<Context*>(context));
  return 0;
}
FAKE_EXPORT int cuCtxPopCurrent_v2(void** context) {
  if (const int code = enter("cuCtxPopCurrent")) return code;
  if (stack.empty()) return misused("cuCtxPopCurrent");
  *context = stack.back();
  stack.pop_back();
  return 0;
}
FAKE_EXPORT int cuMemGetInfo_v2(size_t* free, size_t* total) {
  if (const int code = enter_in_context("cuMemGetInfo")) return code;
  *total = state.devices[current()->device].memory;
  *free = *total - state.allocated;
  return 0;
}
FAKE_EXPORT int cuMemAlloc_v2(void** pointer, size_t bytes) {
  if (const int code = enter_in_context("cuMemAlloc")) return code;
  if (bytes > size_t{1} << 30) return 2;  // this host's memory is what is really used
  char* made = static_cast<char*>(std::malloc(bytes));
  std::memset(made, 0x5a, bytes);
  memory[made] = {bytes, current()};
  state.allocated += bytes;
  ++state.allocations;
  *pointer = made;
  return 0;
}
FAKE_EXPORT int cuMemFree_v2(void* pointer) {
  const int code = enter_in_context("cuMemFree");
  const auto found = memory.find(static_cast<char*>(pointer));
  if (found == memory.end() || found->second.second != current()) return misused("cuMemFree");
  state.allocated -= found->second.first;
  std::free(found->first);
  memory.erase(found);
  ++state.frees;
  return code;
}
FAKE_EXPORT int cuMemcpyHtoD_v2(void* to, const void* from, size_t bytes) {
  if (const int code = enter_in_context("cuMemcpyHtoD")) return code;
  if (!inside(to, bytes)) return misused("cuMemcpyHtoD");
  std::memcpy(to, from, bytes);
  return 0;
}
FAKE_EXPORT int cuMemcpyDtoH_v2(void* to, const void* from, size_t bytes) {
  if (const int code = enter_in_context("cuMemcpyDtoH")) return code;
  if (!inside(from, bytes)) return misused("cuMemcpyDtoH");
  std::memcpy(to, from, bytes);
  return 0;
}
FAKE_EXPORT int cuMemcpyDtoDAsync_v2(void* to, const void* from, size_t bytes, void* stream) {
  if (const int code = enter_in_context("cuMemcpyDtoDAsync")) return code;
  if (!inside(to, bytes) || !inside(from, bytes) || !known_stream(stream))
    return misused("cuMemcpyDtoDAsync");
  std::memcpy(to, from, bytes);
  return 0;
}
FAKE_EXPORT int cuMemsetD8_v2(void* to, unsigned char byte, size_t bytes) {
  if (const int code = enter_in_context("cuMemsetD8")) return code;
  if (!inside(to, bytes)) return misused("cuMemsetD8");
  std::memset(to, byte, bytes);
  return 0;
}
FAKE_EXPORT int cuMemsetD8Async(void* to, unsigned char byte, size_t bytes, void* stream) {
  if (const int code = enter_in_context("cuMemsetD8Async")) return code;
  if (!inside(to, bytes) || !known_stream(stream)) return misused("cuMemsetD8Async");
  std::memset(to, byte, bytes);
  return 0;
}
FAKE_EXPORT int cuModuleLoadData(void** module, const void* image) {
  if (const int code = enter_in_context("cuModuleLoadData")) return code;
  constexpr char kElf[] = {0x7f, 'E', 'L', 'F'};
  if (std::memcmp(image, kElf, sizeof kElf) != 0) return kInvalidImage;
  auto* made = new Module{{}, current()};
  modules.insert(made);
  ++state.modules;
  *module = made;
  return 0;
}
FAKE_EXPORT int cuModuleUnload(void* handle) {
  const int code = enter_in_context("cuModuleUnload");
  auto* module = static_cast<Module*>(handle);
  if (modules.count(module) == 0 || module->context != current()) return misused("cuModuleUnload");
  modules.erase(module);
  for (std::string* function : module->functions) {
    functions.erase(function);
    delete function;
  }
  delete module;
  ++state.unloads;
  return code;
}
FAKE_EXPORT int cuModuleGetFunction(void** function, void* handle, const char* name) {
  if (const int code = enter_in_context("cuModuleGetFunction")) return code;
  auto* module = static_cast<Module*>(handle);
  if (modules.count(module) == 0) return misused("cuModuleGetFunction");
  auto* made = new std::string(name);
  module->functions.insert(made);
  functions[made] = module;
  *function = made;
  return 0;
}
FAKE_EXPORT int cuFuncGetAttribute(int* value, int attribute, void* function) {
  if (const int code = enter_in_context("cuFuncGetAttribute")) return code;
  if (functions.count(static_cast<std::string*>(function)) == 0 || attribute != 1) {
    return misused("cuFuncGetAttribute");
  }
  *value = state.static_shared;
  return 0;
}
FAKE_EXPORT int cuFuncSetAttribute(void* function, int attribute, int value) {
  if (const int code = enter_in_context("cuFuncSetAttribute")) return code;
  if (functions.count(static_cast<std::string*>(function)) == 0 || attribute != 8 || value < 0 ||
      value > state.devices[current()->device].shared_bytes - state.static_shared) {
    return misused("cuFuncSetAttribute");
  }
  state.dynamic_shared_limit = value;
  return 0;
}
static int launch(const char* call, void* handle, const unsigned (&grid)[3],
                  const unsigned (&block)[3], unsigned shared_bytes, void* stream,
                  void** parameters, void** extra, unsigned cluster) {
  if (const int code = enter_in_context(call)) return code;
  auto* function = static_cast<std::string*>(handle);
  const auto found = functions.find(function);
  if (found == functions.end() || found->second->context != current() || !known_stream(stream) ||
      parameters == nullptr || extra != nullptr ||
      shared_bytes > static_cast<unsigned>(state.dynamic_shared_limit) || grid[0] % cluster != 0) {
    return misused(call);
  }
  FakeCudaLaunch launch{current()->device,
                        *function,
                        {grid[0], grid[1], grid[2]},
                        {block[0], block[1], block[2]},
                        shared_bytes,
                        stream,
                        {},
                        false,
                        cluster};
  launch.argument.assign(static_cast<const char*>(parameters[0]), state.argument_bytes);
  auto* own = static_cast<Stream*>(stream);
  launch.captured = own != nullptr && own->capturing != nullptr;
  if (launch.captured) {
    own->capturing->launches.push_back(launch);
  } else {
    state.launches.push_back(launch);
  }
  return 0;
}
FAKE_EXPORT int cuLaunchKernel(void* handle, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                               unsigned by, unsigned bz, unsigned shared_bytes, void* stream,
                               void** parameters, void** extra) {
  return launch("cuLaunchKernel", handle, {gx, gy, gz}, {bx, by, bz}, shared_bytes, stream,
                parameters, extra, 1);
}
#ifndef FAKE_CUDA_OLD
// CUlaunchConfig as cuda.h lays it out, with one attribute: the size of a cluster.
FAKE_EXPORT int cuLaunchKernelEx(const void* config, void* handle, void** parameters,
                                 void** extra) {
  struct {
    unsigned grid[3], block[3], shared_bytes, unused;
    void* stream;
    const unsigned* attributes;  // id, nothing, x, y, z
    unsigned count;
  } c;
  std::memcpy(&c, config, sizeof c);
  if (c.count != 1 || c.attributes[0] != 4 || c.attributes[3] != 1 || c.attributes[4] != 1) {
    return misused("cuLaunchKernelEx");
  }
  return launch("cuLaunchKernelEx", handle, c.grid, c.block, c.shared_bytes, c.stream, parameters,
                extra, c.attributes[2]);
}
#endif
FAKE_EXPORT int cuStreamCreate(void** stream, unsigned flags) {
  if (const int code = enter_in_context("cuStreamCreate")) return code;
  if (flags != 0) return misused("cuStreamCreate");
  *stream = *streams.insert(new Stream{current(), nullptr}).first;
  ++state.streams;
  return 0;
}
FAKE_EXPORT int cuStreamDestroy_v2(void* stream) {
  const int code = enter_in_context("cuStreamDestroy");
  if (!known_stream(stream) || stream == nullptr) return misused("cuStreamDestroy");
  auto* own = static_cast<Stream*>(stream);
  if (own->capturing != nullptr) {  // what nobody could end goes with its stream
    graphs.erase(own->capturing);
    delete own->capturing;
    ++state.graph_ends;
  }
  streams.erase(own);
  delete own;
  ++state.stream_ends;
  return code;
}
FAKE_EXPORT int cuStreamSynchronize(void* stream) {
  if (const int code = enter_in_context("cuStreamSynchronize")) return code;
  return known_stream(stream) ? 0 : misused("cuStreamSynchronize");
}
FAKE_EXPORT int cuCtxSynchronize() { return enter_in_context("cuCtxSynchronize"); }
FAKE_EXPORT int cuEventCreate(void** event, unsigned flags) {
  if (const int code = enter_in_context("cuEventCreate")) return code;
  if (flags != 0) return misused("cuEventCreate");
  *event = *events.insert(new int(0)).first;
  ++state.events;
  return 0;
}
FAKE_EXPORT int cuEventDestroy_v2(void* event) {
  const int code = enter_in_context("cuEventDestroy");
  if (events.erase(static_cast<int*>(event)) == 0) return misused("cuEventDestroy");
  delete static_cast<int*>(event);
  ++state.event_ends;
  return code;
}
FAKE_EXPORT int cuEventRecord(void* event, void* stream) {
  if (const int code = enter_in_context("cuEventRecord")) return code;
  if (events.count(static_cast<int*>(event)) == 0 || !known_stream(stream)) {
    return misused("cuEventRecord");
  }
  // Time is the number of calls so far: an event recorded later is later.
  *static_cast<int*>(event) = static_cast<int>(state.calls.size());
  return 0;
}
FAKE_EXPORT int cuEventSynchronize(void* event) {
  if (const int code = enter_in_context("cuEventSynchronize")) return code;
  return events.count(static_cast<int*>(event)) != 0 ? 0 : misused("cuEventSynchronize");
}
FAKE_EXPORT int cuEventElapsedTime(float* milliseconds, void* from, void* to) {
  if (const int code = enter_in_context("cuEventElapsedTime")) return code;
  *milliseconds = static_cast<float>(*static_cast<int*>(to) - *static_cast<int*>(from));
  return 0;
}
FAKE_EXPORT int cuGetErrorName(int code, const char** text) {
  *text = code == 2     ? "CUDA_ERROR_OUT_OF_MEMORY"
          : code == 100 ? "CUDA_ERROR_NO_DEVICE"
          : code == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : code == 719 ? "CUDA_ERROR_LAUNCH_FAILED"
          : code == 803 ? "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"
                        : nullptr;
  return *text == nullptr ? kInvalidValue : 0;
}
FAKE_EXPORT int cuGetErrorString(int code, const char** text) {
  *text = code == 2     ? "out of memory"
          : code == 100 ? "no CUDA-capable device is detected"
          : code == 700 ? "an illegal memory access\nwas encountered"
          : code == 719 ? "unspecified launch failure"
          : code == 803 ? "system has unsupported display driver / cuda driver combination"
                        : nullptr;
  return *text == nullptr ? kInvalidValue : 0;
}

#ifndef FAKE_CUDA_OLD
FAKE_EXPORT int cuFuncLoad(void* function) {
  if (const int code = enter_in_context("cuFuncLoad")) return code;
  return functions.count(static_cast<std::string*>(function)) != 0 ? 0 : misused("cuFuncLoad");
}
FAKE_EXPORT int cuTensorMapEncodeTiled(void* map, int data_type, uint32_t rank, void* address,
                                       const uint64_t* extents, const uint64_t* strides,
                                       const uint32_t* box, const uint32_t* element_strides,
                                       int interleave, int swizzle, int l2_promotion,
                                       int out_of_bounds) {
  if (const int code = enter_in_context("cuTensorMapEncodeTiled")) return code;
  if (reinterpret_cast<uintptr_t>(map) % 64 != 0 || interleave != 0 || out_of_bounds != 0 ||
      rank < 1 || rank > 5) {
    return misused("cuTensorMapEncodeTiled");
  }
  for (uint32_t i = 0; i < rank; ++i) {
    if (element_strides[i] != 1 || box[i] == 0 || box[i] > 256) return kInvalidValue;
  }
  state.tensor_maps.push_back({data_type,
                               {extents, extents + rank},
                               {strides, strides + rank - 1},
                               {box, box + rank},
                               swizzle,
                               l2_promotion,
                               address});
  std::memset(map, 0x77, 128);
  return 0;
}
#endif
