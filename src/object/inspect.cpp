// SPDX-License-Identifier: Apache-2.0
#include "object/inspect.hpp"

#include <fmt/format.h>

#include "object/formats.hpp"

namespace hstu::jit {

Result<ObjectInfo> read_object(std::string_view bytes) {
  const Result<object::Elf> elf = object::parse_elf(bytes);
  if (!elf) return elf.error();
  Result<ObjectInfo> info = [&]() -> Result<ObjectInfo> {
    switch (elf->machine) {
      case object::kMachineAmdgpu:
        return object::read_amdgpu(*elf);
      case object::kMachineCuda:
        return object::read_cubin(*elf);
      case object::kMachineX86:
      case object::kMachineArm:
        return object::read_host(*elf);
      default:
        break;
    }
    return object::odd_object(
        fmt::format("ELF file of machine {}: not AMDGPU ({}), CUDA ({}), "
                    "x86-64 ({}) or AArch64 ({})",
                    elf->machine, +object::kMachineAmdgpu, +object::kMachineCuda,
                    +object::kMachineX86, +object::kMachineArm));
  }();
  if (info) info->note = "instructions were not counted";
  return info;
}

}  // namespace hstu::jit
