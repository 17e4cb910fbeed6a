// SPDX-License-Identifier: Apache-2.0
// The HIP run-time library of simulated machines.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "sim/hip_state.hpp"
#include "sim/launch.hpp"

namespace hstu::jit::sim {

Simulator& simulator() {
  static Simulator* s = new Simulator;  // outlives whatever still holds handles at exit
  return *s;
}

namespace {

thread_local LaunchReport thread_report;
thread_local std::string thread_text;  // of the last error with words of its own

size_t device_memory_bytes() {
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  return static_cast<size_t>(std::max(pages, 1L)) * static_cast<size_t>(std::max(page, 4096L)) / 2;
}

bool known_device(int ordinal) {
  return ordinal >= 0 && ordinal < static_cast<int>(machines().size());
}

// ---- Entry points.

int get_device_count(int* count) {
  HSTU_SIM_ENTRY("get_device_count");
  *count = static_cast<int>(machines().size());
  return 0;
}

int get_device(int* ordinal) {
  HSTU_SIM_ENTRY("get_device");
  *ordinal = current_device;
  return 0;
}

int set_device(int ordinal) {
  HSTU_SIM_ENTRY("set_device");
  if (!known_device(ordinal)) return kHipErrorInvalidDevice;
  current_device = ordinal;
  return 0;
}

// Offsets into hipDeviceProp_t, as hip_library.cpp reads them.
struct PropertiesLayout {
  size_t bytes, total_memory, compute_units, arch;
};
int fill_properties(void* out, int ordinal, const PropertiesLayout& layout) {
  if (!known_device(ordinal)) return kHipErrorInvalidDevice;
  const Machine& machine = machines()[static_cast<size_t>(ordinal)];
  auto* bytes = static_cast<char*>(out);
  std::memset(bytes, 0, layout.bytes);
  std::string arch(machine.target);
  if (machine.cdna()) arch += ":sramecc+:xnack-";
  const uint64_t memory = device_memory_bytes();
  const int units = machine.compute_units;
  std::memcpy(bytes, machine.product.data(), std::min<size_t>(machine.product.size(), 255));
  std::memcpy(bytes + layout.arch, arch.data(), arch.size());
  std::memcpy(bytes + layout.total_memory, &memory, sizeof memory);
  std::memcpy(bytes + layout.compute_units, &units, sizeof units);
  return 0;
}
int get_properties_r0600(void* properties, int ordinal) {
  HSTU_SIM_ENTRY("get_properties_r0600");
  return fill_properties(properties, ordinal, {1472, 288, 388, 1160});
}
int get_properties(void* properties, int ordinal) {
  HSTU_SIM_ENTRY("get_properties");
  return fill_properties(properties, ordinal, {792, 256, 336, 396});
}

int mem_get_info(size_t* free, size_t* total) {
  HSTU_SIM_ENTRY("mem_get_info");
  *total = device_memory_bytes();
  const size_t used = simulator().memory[current_device].used();
  *free = *total - std::min(used, *total);
  return 0;
}

int allocate(void** pointer, size_t bytes) {
  HSTU_SIM_ENTRY("malloc");
  *pointer = simulator().memory[current_device].allocate(bytes, device_memory_bytes());
  return *pointer == nullptr ? kHipErrorOutOfMemory : 0;
}

int release(void* pointer) {
  HSTU_SIM_ENTRY("free");
  if (pointer == nullptr) return 0;
  Simulator& s = simulator();
  for (size_t d = 0; d < std::size(s.memory); ++d) {
    if (!s.memory[d].holds(pointer, 0)) continue;
    // As hipFree does: what runs on the device may still use it.
    const std::unique_lock<std::shared_mutex> idle(s.running[d]);
    if (s.memory[d].release(pointer)) return 0;
  }
  return kHipErrorInvalidValue;
}

bool on_device(const void* pointer, size_t bytes) {
  for (const DeviceMemory& memory : simulator().memory) {
    if (memory.holds(pointer, bytes)) return true;
  }
  return false;
}

int copy(void* to, const void* from, size_t bytes, int kind) {
  HSTU_SIM_ENTRY("memcpy");
  if (bytes == 0) return 0;
  constexpr int kDeviceToDevice = 3;
  const bool to_device = kind == kHipMemcpyHostToDevice || kind == kDeviceToDevice;
  const bool from_device = kind == kHipMemcpyDeviceToHost || kind == kDeviceToDevice;
  if (kind < 0 || kind > 4 || to == nullptr || from == nullptr ||
      (to_device && !on_device(to, bytes)) || (from_device && !on_device(from, bytes))) {
    return kHipErrorInvalidValue;
  }
  std::memmove(to, from, bytes);
  return 0;
}

int set_bytes(void* to, int byte, size_t bytes) {
  HSTU_SIM_ENTRY("memset");
  if (bytes == 0) return 0;
  if (!on_device(to, bytes)) return kHipErrorInvalidValue;
  std::memset(to, byte, bytes);
  return 0;
}

int set_bytes_async(void* to, int byte, size_t bytes, void* stream) {
  HSTU_SIM_ENTRY("memset_async");
  if (!known_stream(stream)) return kHipErrorInvalidHandle;
  if (bytes == 0) return 0;
  if (!on_device(to, bytes)) return kHipErrorInvalidValue;
  std::memset(to, byte, bytes);
  return 0;
}

// The bytes of an ELF file in memory whose length nobody said: to the end of its section headers,
// which the toolchains put last, and of the sections themselves.
std::string_view elf_image(const void* image) {
  const auto* bytes = static_cast<const char*>(image);
  constexpr char kMagic[] = {0x7f, 'E', 'L', 'F', 2, 1};
  if (std::memcmp(bytes, kMagic, sizeof kMagic) != 0) return {};
  uint64_t table = 0;
  uint16_t entry = 0, count = 0;
  std::memcpy(&table, bytes + 40, 8);
  std::memcpy(&entry, bytes + 58, 2);
  std::memcpy(&count, bytes + 60, 2);
  constexpr uint64_t kMost = uint64_t{1} << 30;
  if (entry != 64 || table > kMost) return {};
  return {bytes, table + uint64_t{entry} * count};
}

int module_load_data(void** module, const void* image) {
  HSTU_SIM_ENTRY("module_load_data");
  thread_text.clear();
  if (module == nullptr || image == nullptr) return kHipErrorInvalidValue;
  const std::string_view bytes = elf_image(image);
  if (bytes.empty()) return kHipErrorInvalidImage;
  // What the disassembler fails of is this host's trouble, not the object's.
  bool listed = true;
  Result<std::shared_ptr<const Code>> code = Code::load(bytes, [&](std::string_view object) {
    Result<Listing> listing = disassemble(object);
    listed = listing.ok();
    return listing;
  });
  if (!code) {
    thread_text = code.error().message;
    const ErrorKind kind = code.error().kind;
    if (kind == ErrorKind::kUnsupported) return kHipErrorNoBinaryForGpu;
    if (kind == ErrorKind::kTimeout) return kHipErrorLaunchTimeOut;
    return listed ? kHipErrorInvalidImage : kHipErrorOperatingSystem;
  }
  const std::string_view target = machines()[static_cast<size_t>(current_device)].target;
  if ((*code)->machine().target != target) {
    thread_text =
        fmt::format("the object is for {}, the device is {}", (*code)->machine().target, target);
    return kHipErrorNoBinaryForGpu;
  }
  auto loaded = std::make_shared<Module>(Module{current_device, std::move(*code)});
  Simulator& s = simulator();
  const std::lock_guard<std::mutex> lock(s.mutex);
  *module = s.modules.add(std::move(loaded));
  return 0;
}

int module_unload(void* module) {
  HSTU_SIM_ENTRY("module_unload");
  Simulator& s = simulator();
  const std::lock_guard<std::mutex> lock(s.mutex);
  const std::shared_ptr<Module> found = s.modules.find(module);
  if (!found) return kHipErrorInvalidHandle;
  s.functions.remove_if([&](const Function& f) { return f.module == found; });
  s.modules.remove(module);
  return 0;
}

int module_get_function(void** function, void* module, const char* name) {
  HSTU_SIM_ENTRY("module_get_function");
  Simulator& s = simulator();
  const std::lock_guard<std::mutex> lock(s.mutex);
  const std::shared_ptr<Module> found = s.modules.find(module);
  if (!found) return kHipErrorInvalidHandle;
  const KernelEntry* kernel = name == nullptr ? nullptr : found->code->find(name);
  if (kernel == nullptr) return kHipErrorNotFound;
  *function = s.functions.add(std::make_shared<Function>(Function{found, kernel}));
  return 0;
}

// The explicit arguments as one block, from either way of giving them.
bool collect_arguments(const KernelEntry& kernel, void** parameters, void** extra,
                       std::string& out) {
  if (extra != nullptr) {
    const void* buffer = nullptr;
    size_t bytes = 0;
    for (void** at = extra; *at != hip_launch_end(); at += 2) {
      if (*at == hip_launch_buffer_pointer()) {
        buffer = at[1];
      } else if (*at == hip_launch_buffer_size()) {
        bytes = *static_cast<const size_t*>(at[1]);
      } else {
        return false;
      }
    }
    if (buffer != nullptr) out.assign(static_cast<const char*>(buffer), bytes);
    return true;
  }
  size_t next = 0;
  for (const KernelArgument& a : kernel.info.arguments) {
    if (a.kind.rfind("hidden_", 0) == 0) continue;
    if (parameters == nullptr) return false;
    out.resize(std::max<size_t>(out.size(), size_t{a.offset} + a.size));
    std::memcpy(out.data() + a.offset, parameters[next++], a.size);
  }
  return true;
}

int module_launch_kernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                         unsigned block_x, unsigned block_y, unsigned block_z, unsigned dynamic_lds,
                         void* stream, void** parameters, void** extra) {
  HSTU_SIM_ENTRY("module_launch_kernel");
  thread_text.clear();
  Simulator& s = simulator();
  std::shared_ptr<Function> found;
  {
    const std::lock_guard<std::mutex> lock(s.mutex);
    found = s.functions.find(function);
  }
  if (!found || !known_stream(stream)) return kHipErrorInvalidHandle;
  if (found->module->device != current_device) return kHipErrorInvalidDevice;
  std::string arguments;
  if (!collect_arguments(*found->kernel, parameters, extra, arguments)) {
    return kHipErrorInvalidValue;
  }
  LaunchRequest request{found->module->code,
                        found->kernel,
                        {grid_x, grid_y, grid_z},
                        {block_x, block_y, block_z},
                        dynamic_lds,
                        arguments,
                        {}};
  const std::shared_lock<std::shared_mutex> running(s.running[current_device]);
  request.buffers = s.memory[current_device].ranges();
  thread_report = {};
  thread_report.kernel = found->kernel->info.name;
  thread_report.target = std::string(found->module->code->machine().target);
  Options options;
  {
    const std::lock_guard<std::mutex> lock(s.mutex);
    options = s.options;
  }
  const Result<Options> all = with_defaults(std::move(options));
  const Status ran = all ? run_launch(request, *all, thread_report) : Status(all.error());
  if (!ran) {
    thread_text = ran.error().message;
    return kHipErrorInvalidValue;
  }
  if (thread_report.fault.empty()) return 0;
  thread_text = thread_report.fault;
  return kHipErrorLaunchFailure;
}

int get_last_error() {
  HSTU_SIM_ENTRY("get_last_error");
  return 0;
}

int runtime_get_version(int* version) {
  HSTU_SIM_ENTRY("runtime_get_version");
  *version = 60000000;  // the ROCm whose interface this is
  return 0;
}

const char* get_error_string(int error) {
  switch (error) {
    case 0:
      return "no error";
    case kHipErrorOutOfMemory:
      return "out of memory";
    case kHipErrorInvalidDevice:
      return "no such device";
    case kHipErrorInvalidHandle:
      return "no such module, function, stream or event";
    case kHipErrorNotFound:
      return "the module has no such kernel";
    case kHipErrorInvalidValue:
    case kHipErrorInvalidImage:
    case kHipErrorNoBinaryForGpu:
    case kHipErrorOperatingSystem:
    case kHipErrorLaunchTimeOut:
    case kHipErrorLaunchFailure:
      if (!thread_text.empty()) return thread_text.c_str();
      return error == kHipErrorInvalidImage    ? "not a code object"
             : error == kHipErrorLaunchFailure ? "the launch failed"
                                               : "invalid value";
    default:
      return "an error that a test ordered";
  }
}

}  // namespace

std::shared_ptr<const HipApi> simulator_api() {
  static const std::shared_ptr<const HipApi> api = [] {
    auto table = std::make_shared<HipApi>();
    table->origin = "simulator";
    table->get_device_count = get_device_count;
    table->get_device = get_device;
    table->set_device = set_device;
    table->get_properties_r0600 = get_properties_r0600;
    table->get_properties = get_properties;
    table->mem_get_info = mem_get_info;
    table->malloc = allocate;
    table->free = release;
    table->memcpy = copy;
    table->memset = set_bytes;
    table->memset_async = set_bytes_async;
    table->module_load_data = module_load_data;
    table->module_unload = module_unload;
    table->module_get_function = module_get_function;
    table->module_launch_kernel = module_launch_kernel;
    add_stream_entries(*table);
    table->get_error_string = get_error_string;
    table->get_last_error = get_last_error;
    table->runtime_get_version = runtime_get_version;
    return table;
  }();
  return api;
}

std::span<const std::string_view> simulated_targets() {
  static const std::vector<std::string_view> targets = [] {
    std::vector<std::string_view> list;
    for (const Machine& machine : machines()) list.push_back(machine.target);
    return list;
  }();
  return targets;
}

std::optional<int> find_machine(std::string_view target) {
  const auto targets = simulated_targets();
  const auto at = std::find(targets.begin(), targets.end(), target);
  if (at == targets.end()) return std::nullopt;
  return static_cast<int>(at - targets.begin());
}

LaunchReport last_launch() { return thread_report; }

void forget_last_launch() { thread_report = {}; }

void set_options(const Options& options) {
  Simulator& s = simulator();
  const std::lock_guard<std::mutex> lock(s.mutex);
  s.options = options;
}

}  // namespace hstu::jit::sim
