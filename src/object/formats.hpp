// SPDX-License-Identifier: Apache-2.0
// One reader per kind of code object; each takes a parsed ELF file of its machine.
#pragma once

#include <cstdint>
#include <span>

#include "object/elf.hpp"
#include "object/inspect.hpp"

namespace hstu::jit::object {

// An AMD processor as ELF headers number it.
struct AmdProcessor {
  uint8_t machine;  // low byte of e_flags
  const char* name;
  int llvm;  // first LLVM release whose tools know it
};
std::span<const AmdProcessor> amd_processors();
const AmdProcessor* find_amd_processor(uint32_t machine);

// More kernels than any object of ours has; a bound on what a hostile file can make us copy.
constexpr size_t kMaxKernels = 65536;

Result<ObjectInfo> read_amdgpu(const Elf& elf);
Result<ObjectInfo> read_cubin(const Elf& elf);
Result<ObjectInfo> read_host(const Elf& elf);

}  // namespace hstu::jit::object
