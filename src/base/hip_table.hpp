// SPDX-License-Identifier: Apache-2.0
// The HIP entry points the HIP back-end calls, as a table: what libamdhip64 fills on a machine with
// ROCm, libcuda through an adaptor on one with NVIDIA GPUs, and a simulator or a test library
// elsewhere. Errors are hipError_t values (0 is success), handles are opaque pointers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace hstu::jit {

// What is asked of a GPU before it is opened.
struct GpuFacts {
  char name[256];  // "NVIDIA H200"
  char arch[64];   // "gfx90a:sramecc+:xnack-", "sm_90a"
  uint64_t total_memory;
  int compute_units;
  int lds_bytes;  // a workgroup may use, if asked for; 0: as the table of targets says
};

struct HipApi {
  std::string origin;           // file the table came from
  const char* backend = "hip";  // "cuda" where libcuda fills the table

  // CUDA only. `initialize` comes before everything else.
  int (*initialize)() = nullptr;
  // What the run-time library calls an entry point of HIP; null: the same.
  const char* (*call_name)(const char* hip_name) = nullptr;
  // In place of the properties, where their structure is not frozen.
  int (*get_facts)(GpuFacts* facts, int ordinal) = nullptr;
  // In place of get_device and set_device, where a thread has a stack of contexts that may be the
  // host program's own.
  int (*retain_context)(void** context, int ordinal) = nullptr;
  int (*release_context)(int ordinal) = nullptr;
  int (*get_context)(void** context) = nullptr;  // null when the thread has none
  int (*push_context)(void* context) = nullptr;
  int (*pop_context)(void** context) = nullptr;
  // Lets launches of a function ask for dynamic LDS up to a total with what it declares.
  int (*set_lds_total)(void* function, int bytes) = nullptr;
  // cuTensorMapEncodeTiled; null below CUDA 12.
  int (*tensor_map_encode)(void* map, int data_type, uint32_t rank, void* address,
                           const uint64_t* extents, const uint64_t* strides, const uint32_t* box,
                           const uint32_t* element_strides, int interleave, int swizzle,
                           int l2_promotion, int out_of_bounds) = nullptr;

  int (*get_device_count)(int* count) = nullptr;
  int (*get_device)(int* ordinal) = nullptr;
  int (*set_device)(int ordinal) = nullptr;
  // hipDeviceProp_t has two frozen layouts: R0600 since ROCm 6.0 and the one before. At least one
  // of the two calls is there.
  int (*get_properties_r0600)(void* properties, int ordinal) = nullptr;
  int (*get_properties)(void* properties, int ordinal) = nullptr;
  int (*mem_get_info)(size_t* free, size_t* total) = nullptr;
  int (*malloc)(void** pointer, size_t bytes) = nullptr;
  int (*free)(void* pointer) = nullptr;
  int (*memcpy)(void* to, const void* from, size_t bytes, int kind) = nullptr;
  int (*memset)(void* to, int byte, size_t bytes) = nullptr;
  int (*memset_async)(void* to, int byte, size_t bytes, void* stream) = nullptr;
  int (*module_load_data)(void** module, const void* image) = nullptr;
  int (*module_unload)(void* module) = nullptr;
  int (*module_get_function)(void** function, void* module, const char* name) = nullptr;
  // Grid extents count workgroups.
  int (*module_launch_kernel)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                              unsigned block_x, unsigned block_y, unsigned block_z,
                              unsigned dynamic_lds, void* stream, void** parameters,
                              void** extra) = nullptr;
  // The same where each `cluster` workgroups reach each other's LDS. Optional.
  int (*launch_clusters)(void* function, unsigned grid_x, unsigned cluster, unsigned block_x,
                         unsigned dynamic_lds, void* stream, void** extra) = nullptr;
  int (*stream_create)(void** stream) = nullptr;
  int (*stream_destroy)(void* stream) = nullptr;
  int (*stream_synchronize)(void* stream) = nullptr;
  int (*device_synchronize)() = nullptr;
  int (*event_create)(void** event) = nullptr;
  int (*event_destroy)(void* event) = nullptr;
  int (*event_record)(void* event, void* stream) = nullptr;
  int (*event_synchronize)(void* event) = nullptr;
  int (*event_elapsed_time)(float* milliseconds, void* from, void* to) = nullptr;
  const char* (*get_error_string)(int error) = nullptr;
  int (*get_last_error)() = nullptr;  // optional: clears the error of the last call
  int (*runtime_get_version)(int* version) = nullptr;  // optional

  // Stream capture; all of them or none.
  int (*stream_begin_capture)(void* stream, int mode) = nullptr;
  int (*stream_end_capture)(void* stream, void** graph) = nullptr;
  int (*stream_is_capturing)(void* stream, int* status) = nullptr;  // 0: it is not
  int (*graph_instantiate)(void** executable, void* graph, unsigned long long flags) = nullptr;
  int (*graph_launch)(void* executable, void* stream) = nullptr;
  int (*graph_destroy)(void* graph) = nullptr;
  int (*graph_exec_destroy)(void* executable) = nullptr;
  bool captures() const {
    return stream_begin_capture && stream_end_capture && stream_is_capturing && graph_instantiate &&
           graph_launch && graph_destroy && graph_exec_destroy;
  }
};

enum : int { kHipMemcpyHostToDevice = 1, kHipMemcpyDeviceToHost = 2 };
// Markers of the `extra` list of a launch.
inline void* hip_launch_buffer_pointer() { return reinterpret_cast<void*>(uintptr_t{1}); }
inline void* hip_launch_buffer_size() { return reinterpret_cast<void*>(uintptr_t{2}); }
inline void* hip_launch_end() { return reinterpret_cast<void*>(uintptr_t{3}); }

}  // namespace hstu::jit
