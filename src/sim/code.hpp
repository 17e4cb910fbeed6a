// SPDX-License-Identifier: Apache-2.0
// A loaded code object: its segments in memory, its instructions decoded, its kernels described.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.hpp"
#include "object/inspect.hpp"
#include "object/listing.hpp"
#include "sim/isa/instruction.hpp"
#include "sim/machine.hpp"
#include "sim/memory.hpp"

namespace hstu::jit::sim {

// The fields of a kernel descriptor (LLVM's "User Guide for AMDGPU Backend", section "Kernel
// Descriptor") that a launch follows.
struct KernelEntry {
  KernelInfo info;
  uint32_t entry = 0;  // index of its first instruction
  uint32_t lds_bytes = 0, scratch_bytes = 0, kernarg_bytes = 0;
  RegisterCounts registers;  // of a wave
  int user_sgprs = 0;
  bool private_segment_buffer = false, dispatch_ptr = false, queue_ptr = false, kernarg_ptr = false,
       dispatch_id = false, flat_scratch_init = false, private_segment_size = false;
  bool workgroup_id_x = false, workgroup_id_y = false, workgroup_id_z = false,
       workgroup_info = false, scratch_wave_offset = false;
  int work_item_ids = 1;  // 1: x, 2: x and y, 3: all
  int wave_width = 64;
  uint32_t mode = 0;                                // initial MODE register
  uint32_t preload_dwords = 0, preload_offset = 0;  // kernel arguments put into user SGPRs
};

class Code {
 public:
  // Errors: kFailed for a damaged object; kUnsupported for what no simulated machine runs; and what
  // `list` says, which is asked for the instructions.
  using Lister = std::function<Result<Listing>(std::string_view object)>;
  static Result<std::shared_ptr<const Code>> load(std::string_view object,
                                                  const Lister& list = disassemble);

  // No instructions; for tests that execute single ones.
  static std::shared_ptr<const Code> empty(const Machine& machine);

  const Machine& machine() const { return *machine_; }
  const std::vector<Instruction>& instructions() const { return instructions_; }
  const std::vector<KernelEntry>& kernels() const { return kernels_; }
  const KernelEntry* find(std::string_view name) const;

  // Where address `a` of the object is in memory, and back.
  uint64_t to_memory(uint64_t a) const { return base_ + a; }
  // Index of the instruction at a memory address; false when none begins there.
  bool index_at(uint64_t memory_address, uint32_t& index) const;
  // The range an address of the object lies in, for launches.
  std::vector<MemoryRange> ranges() const;
  // The name of the kernel or function that holds an instruction.
  std::string function_of(const Instruction& i) const;

 private:
  const Machine* machine_ = nullptr;
  std::unique_ptr<uint8_t[]> memory_;
  uint64_t base_ = 0, bytes_ = 0;
  std::vector<Instruction> instructions_;
  std::unordered_map<uint64_t, uint32_t> index_of_;
  std::vector<KernelEntry> kernels_;
  struct Function {
    std::string name;
    uint64_t begin, end;
  };
  std::vector<Function> functions_;
};

}  // namespace hstu::jit::sim
