// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/env.hpp"
#include "base/text.hpp"
#include "device/hip/hip_api.hpp"

namespace hstu::jit {
namespace {

// Every name that ROCm 5 to 7 installs, newest first; wheels have no unversioned one.
constexpr const char* kNames[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5",
                                  "libamdhip64.so"};

Result<std::shared_ptr<const HipApi>> fill_table(void* library, const std::string& path) {
  auto api = std::make_shared<HipApi>();
  api->origin = path;
  Symbols symbols(library);
  symbols.required("hipGetDeviceCount", api->get_device_count);
  symbols.required("hipGetDevice", api->get_device);
  symbols.required("hipSetDevice", api->set_device);
  const bool new_layout =
      symbols.optional("hipGetDevicePropertiesR0600", api->get_properties_r0600);
  const bool old_layout = symbols.optional("hipGetDeviceProperties", api->get_properties);
  if (!new_layout && !old_layout) symbols.missing("hipGetDeviceProperties");
  symbols.required("hipMemGetInfo", api->mem_get_info);
  symbols.required("hipMalloc", api->malloc);
  symbols.required("hipFree", api->free);
  symbols.required("hipMemcpy", api->memcpy);
  symbols.required("hipMemset", api->memset);
  symbols.required("hipMemsetAsync", api->memset_async);
  symbols.required("hipModuleLoadData", api->module_load_data);
  symbols.required("hipModuleUnload", api->module_unload);
  symbols.required("hipModuleGetFunction", api->module_get_function);
  symbols.required("hipModuleLaunchKernel", api->module_launch_kernel);
  symbols.required("hipStreamCreate", api->stream_create);
  symbols.required("hipStreamDestroy", api->stream_destroy);
  symbols.required("hipStreamSynchronize", api->stream_synchronize);
  symbols.required("hipDeviceSynchronize", api->device_synchronize);
  symbols.required("hipEventCreate", api->event_create);
  symbols.required("hipEventDestroy", api->event_destroy);
  symbols.required("hipEventRecord", api->event_record);
  symbols.required("hipEventSynchronize", api->event_synchronize);
  symbols.required("hipEventElapsedTime", api->event_elapsed_time);
  symbols.required("hipGetErrorString", api->get_error_string);
  symbols.optional("hipGetLastError", api->get_last_error);
  symbols.optional("hipRuntimeGetVersion", api->runtime_get_version);
  symbols.optional("hipStreamBeginCapture", api->stream_begin_capture);
  symbols.optional("hipStreamEndCapture", api->stream_end_capture);
  symbols.optional("hipStreamIsCapturing", api->stream_is_capturing);
  symbols.optional("hipGraphInstantiateWithFlags", api->graph_instantiate);
  symbols.optional("hipGraphLaunch", api->graph_launch);
  symbols.optional("hipGraphDestroy", api->graph_destroy);
  symbols.optional("hipGraphExecDestroy", api->graph_exec_destroy);
  if (!symbols.missing().empty()) {
    return Error{ErrorKind::kDevice,
                 fmt::format("{} lacks {}: not a HIP runtime of ROCm 5.2 to 7", path,
                             fmt::join(symbols.missing(), ", ")),
                 {},
                 {}};
  }
  return std::shared_ptr<const HipApi>(std::move(api));
}

std::string version_text(const HipApi& api) {
  int version = 0;
  if (api.runtime_get_version == nullptr || api.runtime_get_version(&version) != 0) {
    return "HIP runtime of unknown version";
  }
  return fmt::format("HIP runtime {}.{}.{}", version / 10000000, version / 100000 % 100,
                     version % 100000);
}

bool is_folder(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

// A NUL-terminated string of at most 255 characters in a field of 256, or nothing.
std::optional<std::string> field(const char* bytes) {
  const void* end = std::memchr(bytes, '\0', 256);
  if (end == nullptr) return std::nullopt;
  return std::string(bytes, static_cast<const char*>(end));
}

struct PropertiesLayout {
  const char* call;
  int (*HipApi::*function)(void*, int);
  size_t total_memory, compute_units, arch;
};

// Offsets into hipDeviceProp_t; both layouts begin with char name[256].
constexpr PropertiesLayout kLayouts[] = {
    {"hipGetDevicePropertiesR0600", &HipApi::get_properties_r0600, 288, 388, 1160},
    {"hipGetDeviceProperties", &HipApi::get_properties, 256, 336, 396},
};

// A kernel that faults is a failed run, not a missing device; so is one that the host's system (a
// full disk) kept from being loaded. CUDA shares the numbers.
ErrorKind kind_of(int code) {
  switch (code) {
    case 304:  // a call of the operating system failed
    case 700:  // illegal address
    case 710:  // an assertion in the kernel
    case 714:  // hardware stack
    case 715:  // illegal instruction
    case 716:  // misaligned address
    case 717:  // invalid address space
    case 718:  // invalid program counter
    case 719:  // launch failure
      return ErrorKind::kFailed;
    case 702:  // it took too long
      return ErrorKind::kTimeout;
    case 209:  // no binary for this GPU
    case 222:  // PTX of a later version
    case 801:  // not supported
      return ErrorKind::kUnsupported;
    default:
      return ErrorKind::kDevice;
  }
}

}  // namespace

Error hip_error(const HipApi& api, const std::string& what, const char* call, int code) {
  const char* text = api.get_error_string == nullptr ? nullptr : api.get_error_string(code);
  // The runtime keeps the error for the host program's next hipGetLastError: it has been told.
  if (api.get_last_error != nullptr) api.get_last_error();
  const char* name = api.call_name == nullptr ? call : api.call_name(call);
  return Error{kind_of(code),
               fmt::format("{}: {} failed: {} ({})", what, name,
                           text == nullptr ? "no text" : printable(text, 1000), code),
               {},
               {}};
}

Result<HipProperties> hip_properties(const HipApi& api, int ordinal) {
  const std::string device = fmt::format("{}:{}", api.backend, ordinal);
  if (api.get_facts != nullptr) {
    GpuFacts facts{};
    if (const int code = api.get_facts(&facts, ordinal); code != 0) {
      return hip_error(api, device, "hipGetDeviceProperties", code);
    }
    return HipProperties{printable(facts.name, 200), printable(facts.arch, 60), facts.total_memory,
                         facts.compute_units, facts.lds_bytes};
  }
  Error error{ErrorKind::kDevice, device + ": no call for its properties", {}, {}};
  for (const PropertiesLayout& layout : kLayouts) {
    const auto call = api.*layout.function;
    if (call == nullptr) continue;
    // Larger than either layout and aligned as a structure of size_t is.
    alignas(16) std::array<char, 8192> bytes{};
    if (const int code = call(bytes.data(), ordinal); code != 0) {
      error = hip_error(api, device, layout.call, code);
      continue;
    }
    const std::optional<std::string> name = field(bytes.data());
    const std::optional<std::string> arch = field(bytes.data() + layout.arch);
    if (!name || !arch || arch->rfind("gfx", 0) != 0) {
      error.message =
          fmt::format("{}: {} gave no gfx name where its layout has one", device, layout.call);
      continue;
    }
    HipProperties properties{printable(*name, 200), printable(*arch, 200), 0, 0, 0};
    std::memcpy(&properties.total_memory, bytes.data() + layout.total_memory, 8);
    std::memcpy(&properties.compute_units, bytes.data() + layout.compute_units, 4);
    return properties;
  }
  return error;
}

HipSearch find_hip() {
  LibraryFinder finder(fill_table, version_text);
  if (finder.use_loaded(kNames)) return finder.take();
  if (const auto chosen = get_env("HSTU_JIT_HIP")) {
    finder.use_path(*chosen);  // a choice of the user's is not second-guessed
    return finder.take();
  }
  std::vector<std::string> folders = {""};
  if (const auto rocm = get_env("ROCM_PATH")) folders.push_back(*rocm + "/lib");
  if (std::find(folders.begin(), folders.end(), "/opt/rocm/lib") == folders.end()) {
    folders.push_back("/opt/rocm/lib");
  }
  for (const std::string& folder : folders) {
    if (!folder.empty() && !is_folder(folder)) {
      finder.not_there(folder + "/libamdhip64.so", "there is no such folder");
      continue;
    }
    for (const char* name : kNames) {
      if (finder.use_path(folder.empty() ? name : folder + "/" + name)) return finder.take();
    }
  }
  return finder.take();
}

}  // namespace hstu::jit
