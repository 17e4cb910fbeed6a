// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/cuda_library.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "base/env.hpp"

namespace hstu::jit {
namespace {

constexpr const char* kNames[] = {"libcuda.so.1"};

// Entry points whose signature is not that of the HIP call they stand for. Device addresses are
// 64-bit integers to CUDA and pointers here: one register either way.
static_assert(sizeof(void*) == 8);
struct Driver {
  int (*init)(unsigned flags) = nullptr;
  int (*device_get)(int* device, int ordinal) = nullptr;
  int (*device_name)(char* name, int bytes, int device) = nullptr;
  int (*device_memory)(size_t* bytes, int device) = nullptr;
  int (*device_attribute)(int* value, int attribute, int device) = nullptr;
  int (*context_retain)(void** context, int device) = nullptr;
  int (*context_release)(int device) = nullptr;
  int (*copy_in)(void* to, const void* from, size_t bytes) = nullptr;
  int (*copy_out)(void* to, const void* from, size_t bytes) = nullptr;
  int (*set_bytes)(void* to, unsigned char byte, size_t bytes) = nullptr;
  int (*set_bytes_async)(void* to, unsigned char byte, size_t bytes, void* stream) = nullptr;
  int (*function_ask)(int* value, int attribute, void* function) = nullptr;
  int (*function_set)(void* function, int attribute, int value) = nullptr;
  int (*function_load)(void* function) = nullptr;  // from CUDA 12.4
  int (*launch)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream,
                void** parameters, void** extra) = nullptr;
  int (*launch_with)(const void* config, void* function, void** parameters,
                     void** extra) = nullptr;  // from CUDA 11.8
  int (*stream_create)(void** stream, unsigned flags) = nullptr;
  int (*event_create)(void** event, unsigned flags) = nullptr;
  int (*error_name)(int code, const char** text) = nullptr;
  int (*error_string)(int code, const char** text) = nullptr;
};

std::atomic<const Driver*> current_driver{nullptr};
const Driver& driver() { return *current_driver.load(std::memory_order_acquire); }

// Where one HIP call stands for several of CUDA's: the last of them that this thread made.
thread_local const char* last_call = "";

int initialize() { return driver().init(0); }

enum Attribute : int {
  kMultiprocessors = 16,
  kCapabilityMajor = 75,
  kCapabilityMinor = 76,
  kMaxSharedBytesOptIn = 97,
};

// Kernels for 9.0 and for the data centre's 10.x use instructions that exist on that part only.
void write_arch(int major, int minor, GpuFacts* facts) {
  const bool own_instructions = major == 9 || major == 10;
  std::snprintf(facts->arch, sizeof facts->arch, "sm_%d%d%s", major, minor,
                own_instructions ? "a" : "");
}

int get_facts(GpuFacts* facts, int ordinal) {
  const Driver& d = driver();
  int device = 0, major = 0, minor = 0;
  last_call = "cuDeviceGet";
  if (const int code = d.device_get(&device, ordinal)) return code;
  last_call = "cuDeviceGetName";
  if (const int code = d.device_name(facts->name, sizeof facts->name, device)) return code;
  facts->name[sizeof facts->name - 1] = '\0';
  size_t memory = 0;
  last_call = "cuDeviceTotalMem";
  if (const int code = d.device_memory(&memory, device)) return code;
  facts->total_memory = memory;
  last_call = "cuDeviceGetAttribute";
  const std::pair<int, int*> wanted[] = {{kMultiprocessors, &facts->compute_units},
                                         {kCapabilityMajor, &major},
                                         {kCapabilityMinor, &minor},
                                         {kMaxSharedBytesOptIn, &facts->lds_bytes}};
  for (const auto& [attribute, value] : wanted) {
    if (const int code = d.device_attribute(value, attribute, device)) return code;
  }
  write_arch(major, minor, facts);
  return 0;
}

int retain_context(void** context, int ordinal) {
  int device = 0;
  last_call = "cuDeviceGet";
  if (const int code = driver().device_get(&device, ordinal)) return code;
  last_call = "cuDevicePrimaryCtxRetain";
  return driver().context_retain(context, device);
}

int release_context(int ordinal) {
  int device = 0;
  last_call = "cuDeviceGet";
  if (const int code = driver().device_get(&device, ordinal)) return code;
  last_call = "cuDevicePrimaryCtxRelease";
  return driver().context_release(device);
}

int copy(void* to, const void* from, size_t bytes, int kind) {
  if (kind == kHipMemcpyHostToDevice) {
    last_call = "cuMemcpyHtoD";
    return driver().copy_in(to, from, bytes);
  }
  last_call = "cuMemcpyDtoH";
  return driver().copy_out(to, from, bytes);
}

int set_bytes(void* to, int byte, size_t bytes) {
  return driver().set_bytes(to, static_cast<unsigned char>(byte), bytes);
}

int set_bytes_async(void* to, int byte, size_t bytes, void* stream) {
  return driver().set_bytes_async(to, static_cast<unsigned char>(byte), bytes, stream);
}

// Also loads the function, which a lazy driver would do in the first launch: one that is captured
// into a graph may not.
int set_lds_total(void* function, int bytes) {
  constexpr int kStaticSharedBytes = 1, kMaxDynamicSharedBytes = 8;
  int declared = 0;
  last_call = "cuFuncGetAttribute";
  if (const int code = driver().function_ask(&declared, kStaticSharedBytes, function)) return code;
  last_call = "cuFuncSetAttribute";
  const int dynamic = std::max(bytes - declared, 0);
  const int code = driver().function_set(function, kMaxDynamicSharedBytes, dynamic);
  if (code != 0 || driver().function_load == nullptr) return code;
  last_call = "cuFuncLoad";
  return driver().function_load(function);
}

// The one argument goes by its address: the driver knows its size and its place, which the compiler
// aligns in the constant bank and not in a buffer of ours.
void* argument_of(void** extra) {
  for (void** at = extra; *at != hip_launch_end(); at += 2) {
    if (*at == hip_launch_buffer_pointer()) return at[1];
  }
  return nullptr;
}

int launch(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
           unsigned block_y, unsigned block_z, unsigned dynamic_lds, void* stream, void**,
           void** extra) {
  void* parameters[] = {argument_of(extra)};
  return driver().launch(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, dynamic_lds,
                         stream, parameters, nullptr);
}

// CUlaunchConfig and CUlaunchAttribute of cuda.h.
struct LaunchAttribute {
  int id;
  int unused;
  unsigned value[16];
};
struct LaunchConfig {
  unsigned grid[3], block[3], shared_bytes;
  void* stream;
  LaunchAttribute* attributes;
  unsigned count;
};
static_assert(sizeof(LaunchAttribute) == 72 && sizeof(LaunchConfig) == 56);

int launch_clusters(void* function, unsigned grid_x, unsigned cluster, unsigned block_x,
                    unsigned dynamic_lds, void* stream, void** extra) {
  constexpr int kClusterDimension = 4;
  LaunchAttribute attribute{kClusterDimension, 0, {cluster, 1, 1}};
  const LaunchConfig config{{grid_x, 1, 1}, {block_x, 1, 1}, dynamic_lds, stream, &attribute, 1};
  void* parameters[] = {argument_of(extra)};
  return driver().launch_with(&config, function, parameters, nullptr);
}

int stream_create(void** stream) { return driver().stream_create(stream, 0); }
int event_create(void** event) { return driver().event_create(event, 0); }

// "CUDA_ERROR_INVALID_IMAGE, device kernel image is invalid", valid until the thread's next error.
const char* error_string(int code) {
  thread_local std::string text;
  const char *name = nullptr, *words = nullptr;
  driver().error_name(code, &name);
  driver().error_string(code, &words);
  text = name == nullptr ? "an error this driver has no name for" : name;
  if (words != nullptr) text += std::string(", ") + words;
  return text.c_str();
}

constexpr std::array<std::pair<std::string_view, const char*>, 23> kCallNames = {{
    {"hipInit", "cuInit"},
    {"hipGetDeviceCount", "cuDeviceGetCount"},
    {"hipCtxGetCurrent", "cuCtxGetCurrent"},
    {"hipCtxPushCurrent", "cuCtxPushCurrent"},
    {"hipMemGetInfo", "cuMemGetInfo"},
    {"hipMalloc", "cuMemAlloc"},
    {"hipFree", "cuMemFree"},
    {"hipMemset", "cuMemsetD8"},
    {"hipMemsetAsync", "cuMemsetD8Async"},
    {"hipModuleLoadData", "cuModuleLoadData"},
    {"hipModuleUnload", "cuModuleUnload"},
    {"hipModuleGetFunction", "cuModuleGetFunction"},
    {"hipModuleLaunchKernel", "cuLaunchKernel"},
    {"hipStreamCreate", "cuStreamCreate"},
    {"hipStreamDestroy", "cuStreamDestroy"},
    {"hipStreamSynchronize", "cuStreamSynchronize"},
    {"hipDeviceSynchronize", "cuCtxSynchronize"},
    {"hipEventCreate", "cuEventCreate"},
    {"hipEventDestroy", "cuEventDestroy"},
    {"hipEventRecord", "cuEventRecord"},
    {"hipEventSynchronize", "cuEventSynchronize"},
    {"hipEventElapsedTime", "cuEventElapsedTime"},
    {"hipTensorMapEncodeTiled", "cuTensorMapEncodeTiled"},
}};
constexpr std::array<std::pair<std::string_view, const char*>, 7> kGraphCallNames = {{
    {"hipStreamBeginCapture", "cuStreamBeginCapture"},
    {"hipStreamEndCapture", "cuStreamEndCapture"},
    {"hipStreamIsCapturing", "cuStreamIsCapturing"},
    {"hipGraphInstantiate", "cuGraphInstantiate"},
    {"hipGraphLaunch", "cuGraphLaunch"},
    {"hipGraphDestroy", "cuGraphDestroy"},
    {"hipGraphExecDestroy", "cuGraphExecDestroy"},
}};

const char* call_name(const char* hip_name) {
  for (const auto& [hip, cuda] : kCallNames) {
    if (hip == hip_name) return cuda;
  }
  for (const auto& [hip, cuda] : kGraphCallNames) {
    if (hip == hip_name) return cuda;
  }
  return last_call;
}

// Names with _v2 are what programs link with. `drivers` keeps what the table's functions call.
Result<std::shared_ptr<const HipApi>> new_table(void* library, const std::string& path,
                                                std::vector<std::unique_ptr<Driver>>& drivers) {
  auto found = std::make_unique<Driver>();
  auto api = std::make_shared<HipApi>();
  api->origin = path;
  api->backend = "cuda";
  Symbols symbols(library);
  symbols.required("cuInit", found->init);
  symbols.required("cuDeviceGet", found->device_get);
  symbols.required("cuDeviceGetName", found->device_name);
  symbols.required("cuDeviceTotalMem_v2", found->device_memory);
  symbols.required("cuDeviceGetAttribute", found->device_attribute);
  symbols.required("cuDevicePrimaryCtxRetain", found->context_retain);
  symbols.required("cuDevicePrimaryCtxRelease_v2", found->context_release);
  symbols.required("cuMemcpyHtoD_v2", found->copy_in);
  symbols.required("cuMemcpyDtoH_v2", found->copy_out);
  symbols.required("cuMemsetD8_v2", found->set_bytes);
  symbols.required("cuMemsetD8Async", found->set_bytes_async);
  symbols.required("cuFuncGetAttribute", found->function_ask);
  symbols.required("cuFuncSetAttribute", found->function_set);
  symbols.optional("cuFuncLoad", found->function_load);
  symbols.required("cuLaunchKernel", found->launch);
  symbols.optional("cuLaunchKernelEx", found->launch_with);
  symbols.required("cuStreamCreate", found->stream_create);
  symbols.required("cuEventCreate", found->event_create);
  symbols.required("cuGetErrorName", found->error_name);
  symbols.required("cuGetErrorString", found->error_string);

  symbols.required("cuDeviceGetCount", api->get_device_count);
  symbols.required("cuCtxGetCurrent", api->get_context);
  symbols.required("cuCtxPushCurrent_v2", api->push_context);
  symbols.required("cuCtxPopCurrent_v2", api->pop_context);
  symbols.required("cuMemGetInfo_v2", api->mem_get_info);
  symbols.required("cuMemAlloc_v2", api->malloc);
  symbols.required("cuMemFree_v2", api->free);
  symbols.required("cuModuleLoadData", api->module_load_data);
  symbols.required("cuModuleUnload", api->module_unload);
  symbols.required("cuModuleGetFunction", api->module_get_function);
  symbols.required("cuStreamDestroy_v2", api->stream_destroy);
  symbols.required("cuStreamSynchronize", api->stream_synchronize);
  symbols.required("cuCtxSynchronize", api->device_synchronize);
  symbols.required("cuEventDestroy_v2", api->event_destroy);
  symbols.required("cuEventRecord", api->event_record);
  symbols.required("cuEventSynchronize", api->event_synchronize);
  symbols.required("cuEventElapsedTime", api->event_elapsed_time);
  symbols.optional("cuDriverGetVersion", api->runtime_get_version);
  symbols.optional("cuTensorMapEncodeTiled", api->tensor_map_encode);
  symbols.optional("cuStreamBeginCapture_v2", api->stream_begin_capture);
  symbols.optional("cuStreamEndCapture", api->stream_end_capture);
  symbols.optional("cuStreamIsCapturing", api->stream_is_capturing);
  symbols.optional("cuGraphInstantiateWithFlags", api->graph_instantiate);
  symbols.optional("cuGraphLaunch", api->graph_launch);
  symbols.optional("cuGraphDestroy", api->graph_destroy);
  symbols.optional("cuGraphExecDestroy", api->graph_exec_destroy);
  if (!symbols.missing().empty()) {
    return Error{ErrorKind::kDevice,
                 fmt::format("{} lacks {}: not a driver of CUDA 11.4 or later", path,
                             fmt::join(symbols.missing(), ", ")),
                 {},
                 {}};
  }
  api->initialize = initialize;
  api->call_name = call_name;
  api->get_facts = get_facts;
  api->retain_context = retain_context;
  api->release_context = release_context;
  api->memcpy = copy;
  api->memset = set_bytes;
  api->memset_async = set_bytes_async;
  api->set_lds_total = set_lds_total;
  api->module_launch_kernel = launch;
  if (found->launch_with != nullptr) api->launch_clusters = launch_clusters;
  api->stream_create = stream_create;
  api->event_create = event_create;
  api->get_error_string = error_string;
  current_driver.store(drivers.emplace_back(std::move(found)).get(), std::memory_order_release);
  return std::shared_ptr<const HipApi>(std::move(api));
}

// One table per library, however often it is looked for.
Result<std::shared_ptr<const HipApi>> fill_table(void* library, const std::string& path) {
  static std::mutex mutex;
  static void* last_library = nullptr;
  static std::shared_ptr<const HipApi> last_table;
  // Never taken back, as the library is not: something may hold a table of it to the very end.
  static auto* drivers = new std::vector<std::unique_ptr<Driver>>;
  const std::lock_guard<std::mutex> lock(mutex);
  if (library == last_library) return last_table;
  Result<std::shared_ptr<const HipApi>> table = new_table(library, path, *drivers);
  if (table) {
    last_library = library;
    last_table = *table;
  }
  return table;
}

// "NVIDIA driver 580.95.05 for CUDA 13.0": the file's own name ends with the driver's version.
std::string version_text(const HipApi& api) {
  std::string release;
  if (char* real = ::realpath(api.origin.c_str(), nullptr)) {
    const std::string_view path(real);
    const size_t at = path.rfind(".so.");
    if (at != std::string_view::npos && path.find('.', at + 4) != std::string_view::npos) {
      release = fmt::format(" {}", path.substr(at + 4));
    }
    std::free(real);
  }
  int version = 0;
  if (api.runtime_get_version == nullptr || api.runtime_get_version(&version) != 0) {
    return fmt::format("NVIDIA driver{} of unknown CUDA version", release);
  }
  return fmt::format("NVIDIA driver{} for CUDA {}.{}", release, version / 1000,
                     version % 1000 / 10);
}

}  // namespace

HipSearch find_cuda() {
  LibraryFinder finder(fill_table, version_text);
  if (finder.use_loaded(kNames)) return finder.take();
  if (const auto chosen = get_env("HSTU_JIT_CUDA")) {
    finder.use_path(*chosen);  // a choice of the user's is not second-guessed
    return finder.take();
  }
  finder.use_path(kNames[0]);
  return finder.take();
}

}  // namespace hstu::jit
