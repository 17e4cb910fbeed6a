// SPDX-License-Identifier: Apache-2.0
// Reads code objects (AMDGPU ELF, NVIDIA cubin, host shared object) from their bytes alone.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace hstu::jit {

struct KernelArgument {
  std::string name;
  std::string kind;  // "by_value", "global_buffer", "hidden_...": as the object says
  uint32_t offset = 0, size = 0;
};

struct KernelInfo {
  std::string name;
  // Absent where the format does not record it.
  std::optional<int> vgprs, agprs, sgprs;  // NVIDIA: vgprs = registers per thread
  std::optional<int> vgpr_spills, sgpr_spills;
  std::optional<int64_t> scratch_bytes;  // private segment / local memory per lane
  std::optional<int64_t> lds_bytes;
  int64_t reserved_lds_bytes = 0;  // of these, what NVIDIA's driver keeps for itself
  std::optional<int> wave_width, max_workgroup;
  std::vector<KernelArgument> arguments;
  // From a disassembler, when one was asked for and found.
  std::optional<int64_t> matrix_instructions;
  std::map<std::string, int64_t> instructions;  // mnemonic class -> count
};

struct ObjectInfo {
  std::string format;           // "amdgpu", "cubin", "host"
  std::string target;           // "gfx90a", "sm_90a", "x86-64"
  std::string target_features;  // "xnack any, sramecc any"; empty elsewhere
  int code_object_version = 0;  // AMDGPU 4, 5
  std::vector<KernelInfo> kernels;
  std::string note;  // why counts are missing, when they are
};

// Errors: kFailed with what is odd and where. Safe on hostile bytes: every read is bounds-checked.
Result<ObjectInfo> read_object(std::string_view bytes);

// Adds instruction counts by running a disassembler found on this machine (llvm-objdump-N,
// cuobjdump); sets `note` where none serves.
void count_instructions(ObjectInfo& info, std::string_view bytes);

std::string to_json(const ObjectInfo& info, int indent = -1);  // schema hstu-jit/inspect/1
std::string to_text(const ObjectInfo& info);

}  // namespace hstu::jit
