// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
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

// The loader's reason, without the name it usually begins with.
std::string last_loader_error(const std::string& name) {
  const char* error = dlerror();
  std::string_view text = error == nullptr ? "unknown reason" : error;
  if (text.substr(0, name.size() + 2) == name + ": ") text.remove_prefix(name.size() + 2);
  return printable(text, 300);
}

std::string path_of(void* library, const std::string& fallback) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr || map->l_name == nullptr ||
      map->l_name[0] == '\0') {
    return fallback;
  }
  return map->l_name;
}

class Symbols {
 public:
  explicit Symbols(void* library) : library_(library) {}

  template <typename Function>
  bool optional(const char* name, Function& slot) {
    void* symbol = dlsym(library_, name);
    static_assert(sizeof(slot) == sizeof(symbol));
    std::memcpy(&slot, &symbol, sizeof(slot));
    return symbol != nullptr;
  }
  template <typename Function>
  void required(const char* name, Function& slot) {
    if (!optional(name, slot)) missing_.emplace_back(name);
  }
  void missing(const char* name) { missing_.emplace_back(name); }
  const std::vector<std::string>& missing() const { return missing_; }

 private:
  void* library_;
  std::vector<std::string> missing_;
};

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

// Adds what came of an opened library; true when it serves.
bool try_library(void* library, const std::string& name, const char* how, HipSearch& search) {
  const std::string path = path_of(library, name);
  Result<std::shared_ptr<const HipApi>> api = fill_table(library, path);
  if (!api) {
    search.libraries.push_back({name, false, api.error().message});
    return false;
  }
  search.api = *api;
  search.libraries.push_back(
      {name, true,
       fmt::format("{}{}{}", version_text(**api), path == name ? "" : ", " + path, how)});
  return true;
}

bool try_path(const std::string& name, HipSearch& search) {
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    search.libraries.push_back({name, false, last_loader_error(name)});
    return false;
  }
  return try_library(library, name, "", search);
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

// A kernel that faults is a failed run, not a missing device.
ErrorKind kind_of(int code) {
  constexpr int kNoBinaryForGpu = 209, kIllegalAddress = 700, kLaunchFailure = 719;
  if (code == kIllegalAddress || code == kLaunchFailure) return ErrorKind::kFailed;
  return code == kNoBinaryForGpu ? ErrorKind::kUnsupported : ErrorKind::kDevice;
}

}  // namespace

Error hip_error(const HipApi& api, const std::string& what, const char* call, int code) {
  const char* text = api.get_error_string == nullptr ? nullptr : api.get_error_string(code);
  // The runtime keeps the error for the host program's next hipGetLastError: it has been told.
  if (api.get_last_error != nullptr) api.get_last_error();
  return Error{kind_of(code),
               fmt::format("{}: {} failed: {} ({})", what, call,
                           text == nullptr ? "no text" : printable(text, 1000), code),
               {},
               {}};
}

Result<HipProperties> hip_properties(const HipApi& api, int ordinal) {
  const std::string device = fmt::format("hip:{}", ordinal);
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
    HipProperties properties{printable(*name, 200), printable(*arch, 200), 0, 0};
    std::memcpy(&properties.total_memory, bytes.data() + layout.total_memory, 8);
    std::memcpy(&properties.compute_units, bytes.data() + layout.compute_units, 4);
    return properties;
  }
  return error;
}

HipSearch find_hip() {
  HipSearch search;
  for (const char* name : kNames) {
    void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (library != nullptr && try_library(library, name, ", already loaded", search)) return search;
  }
  dlerror();  // what is not loaded is no news
  if (const auto chosen = get_env("HSTU_JIT_HIP")) {
    try_path(*chosen, search);  // a choice of the user's is not second-guessed
    return search;
  }
  std::vector<std::string> folders = {""};
  if (const auto rocm = get_env("ROCM_PATH")) folders.push_back(*rocm + "/lib");
  if (std::find(folders.begin(), folders.end(), "/opt/rocm/lib") == folders.end()) {
    folders.push_back("/opt/rocm/lib");
  }
  for (const std::string& folder : folders) {
    if (!folder.empty() && !is_folder(folder)) {
      search.libraries.push_back({folder + "/libamdhip64.so", false, "there is no such folder"});
      continue;
    }
    for (const char* name : kNames) {
      if (try_path(folder.empty() ? name : folder + "/" + name, search)) return search;
    }
  }
  return search;
}

}  // namespace hstu::jit
