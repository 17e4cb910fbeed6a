// SPDX-License-Identifier: Apache-2.0
// Shared objects of the host: which functions they export.
#include <fmt/format.h>

#include "object/formats.hpp"

namespace hstu::jit::object {

Result<ObjectInfo> read_host(const Elf& elf) {
  ObjectInfo info;
  info.format = "host";
  info.target = elf.machine == kMachineX86 ? "x86-64" : "aarch64";
  if (elf.type != 3)
    return odd_object(fmt::format("host ELF file of type {}: want a shared object", elf.type));
  const Section* table = elf.find_type(kDynamicSymbols);
  if (table == nullptr) return odd_object("the shared object exports nothing");
  const Result<std::vector<Symbol>> symbols = elf_symbols(elf, *table);
  if (!symbols) return symbols.error();
  for (const Symbol& symbol : *symbols) {
    const bool function = symbol.type == 2, defined = symbol.section != 0;
    const bool exported =
        symbol.binding != 0 && ((symbol.other & 3) == 0 || (symbol.other & 3) == 3);
    if (!function || !defined || !exported || symbol.name.empty()) continue;
    if (symbol.name == "_init" || symbol.name == "_fini") continue;  // the linker's
    if (info.kernels.size() >= kMaxKernels) return odd_object("it exports too many functions");
    KernelInfo kernel;
    kernel.name = std::string(symbol.name);
    info.kernels.push_back(std::move(kernel));
  }
  return info;
}

}  // namespace hstu::jit::object
