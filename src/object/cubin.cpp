// SPDX-License-Identifier: Apache-2.0
// NVIDIA cubins. The format is not documented; the numbers here were found by comparing files made
// by ptxas and NVRTC of CUDA 12 and 13 with what cuobjdump says of them.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <unordered_map>

#include "base/text.hpp"
#include "object/formats.hpp"

namespace hstu::jit::object {
namespace {

constexpr uint8_t kAbiCuda12 = 7, kAbiCuda13 = 8;
constexpr uint8_t kEntryFunction = 0x10;  // in a symbol's st_other

// Attributes of .nv.info sections.
enum : uint8_t {
  kMaxThreads = 0x05,
  kRequiredThreads = 0x10,
  kFrameSize = 0x11,
  kMinStackSize = 0x12,
  kParameter = 0x17,
  kRegisterCount = 0x2f,
};
constexpr uint8_t kAcceleratorTarget = 0x09;  // in .nv.compat: 1 for "a" targets

struct Attribute {
  uint8_t id = 0;
  uint16_t value = 0;        // formats 1 to 3
  std::string_view payload;  // format 4
};

// Both .nv.info and .nv.compat: a byte for the format, one for the attribute, two for the value or
// for the size of the payload that follows.
Status for_each_attribute(const Section& section,
                          const std::function<void(const Attribute&)>& visit) {
  const std::string_view data = section.data;
  uint64_t at = 0;
  while (at + 4 <= data.size()) {
    const auto format = static_cast<uint8_t>(data[at]);
    Attribute attribute;
    attribute.id = static_cast<uint8_t>(data[at + 1]);
    load(data, at + 2, attribute.value);
    at += 4;
    if (format == 0) continue;  // padding
    if (format > 4) {
      return odd_object(fmt::format("attribute of format {} at {} in {}", format, at - 4,
                                    printable(section.name)));
    }
    if (format == 4) {
      if (attribute.value > data.size() - at) {
        return odd_object(fmt::format("attribute of {} bytes at {} runs past {} ({} bytes)",
                                      attribute.value, at, printable(section.name), data.size()));
      }
      attribute.payload = data.substr(at, attribute.value);
      at += attribute.value;
    }
    visit(attribute);
  }
  return {};
}

Result<std::string> target_name(const Elf& elf) {
  unsigned sm = 0;
  bool accelerated = false;
  if (elf.abi_version == kAbiCuda12) {
    sm = elf.flags & 0xff;
    accelerated = elf.flags & 0x800;
  } else if (elf.abi_version == kAbiCuda13) {
    sm = elf.flags >> 8 & 0xff;
    accelerated = elf.flags & 0x8;
    if (const Section* compat = elf.find(".nv.compat")) {
      const Status read = for_each_attribute(*compat, [&](const Attribute& attribute) {
        if (attribute.id == kAcceleratorTarget && (attribute.value & 0xff) == 1) {
          accelerated = true;
        }
      });
      if (!read) return read.error();
    }
  } else {
    return odd_object(
        fmt::format("cubin of ABI version {}: want 7 (CUDA 12) or 8 (CUDA 13)", elf.abi_version));
  }
  if (sm < 30) return odd_object(fmt::format("cubin for an unknown architecture, sm {}", sm));
  return fmt::format("sm_{}{}", sm, accelerated ? "a" : "");
}

bool has_reserved_memory(const std::string& target) {
  return target.size() > 5 || target >= "sm_90";  // "sm_90", "sm_90a", "sm_100" ...
}

void read_parameter(std::string_view payload, KernelInfo& kernel) {
  uint16_t ordinal = 0, offset = 0;
  uint32_t packed = 0;  // size in bits 18 and up
  if (!load(payload, 4, ordinal) || !load(payload, 6, offset) || !load(payload, 8, packed)) return;
  KernelArgument argument;
  argument.name = fmt::format("arg{}", ordinal);
  argument.kind = "by_value";
  argument.offset = offset;
  argument.size = packed >> 18;
  kernel.arguments.push_back(std::move(argument));
}

// Threads of a block from three 32-bit extents.
std::optional<int> block_size(std::string_view payload) {
  uint64_t product = 1;
  for (uint64_t i = 0; i < 3; ++i) {
    uint32_t extent = 0;
    if (!load(payload, 4 * i, extent) || extent > 1024) return std::nullopt;
    product *= extent;
  }
  return product > 1024 ? std::nullopt : std::optional<int>(static_cast<int>(product));
}

Status read_kernel_attributes(const Section& section, KernelInfo& kernel) {
  Status status = for_each_attribute(section, [&](const Attribute& attribute) {
    if (attribute.id == kParameter) read_parameter(attribute.payload, kernel);
    if (attribute.id == kMaxThreads || attribute.id == kRequiredThreads) {
      kernel.max_workgroup = block_size(attribute.payload);
    }
  });
  std::sort(kernel.arguments.begin(), kernel.arguments.end(),
            [](const KernelArgument& a, const KernelArgument& b) { return a.offset < b.offset; });
  return status;
}

}  // namespace

Result<ObjectInfo> read_cubin(const Elf& elf) {
  ObjectInfo info;
  info.format = "cubin";
  Result<std::string> target = target_name(elf);
  if (!target) return std::move(target).error();
  info.target = *target;

  const Section* table = elf.find_type(kSymbolTable);
  if (table == nullptr) return odd_object("the cubin has no symbol table");
  const Result<std::vector<Symbol>> symbols = elf_symbols(elf, *table);
  if (!symbols) return symbols.error();

  std::unordered_map<std::string_view, const Section*> sections;
  for (const Section& section : elf.sections) sections.emplace(section.name, &section);
  const auto section_of = [&](const char* prefix, std::string_view kernel) -> const Section* {
    const std::string name = std::string(prefix) + std::string(kernel);
    const auto found = sections.find(name);
    return found == sections.end() ? nullptr : found->second;
  };

  std::unordered_map<uint32_t, size_t> kernel_of_symbol;
  std::unordered_map<std::string_view, uint32_t> seen;
  for (uint32_t i = 0; i < symbols->size(); ++i) {
    const Symbol& symbol = (*symbols)[i];
    // One section per kernel, so a name seen twice is a forged table, not another kernel.
    if (symbol.type != 2 || !(symbol.other & kEntryFunction) || symbol.name.empty()) continue;
    if (!seen.emplace(symbol.name, i).second) {
      return odd_object("two kernels of its symbol table have one name");
    }
    if (info.kernels.size() >= kMaxKernels) return odd_object("it names too many kernels");
    KernelInfo kernel;
    kernel.name = std::string(symbol.name);
    kernel.wave_width = 32;
    if (const Section* attributes = section_of(".nv.info.", symbol.name)) {
      if (Status read = read_kernel_attributes(*attributes, kernel); !read) {
        return std::move(read).error();
      }
    }
    const Section* shared = section_of(".nv.shared.", symbol.name);
    // A shared section has no bytes in the file, so nothing but this bounds what it claims.
    if (shared != nullptr && shared->size > (uint64_t{1} << 31)) {
      return odd_object(fmt::format("a kernel claims {} bytes of shared memory", shared->size));
    }
    kernel.lds_bytes = shared == nullptr ? 0 : static_cast<int64_t>(shared->size);
    // From sm_90 on the section begins with the driver's own KiB.
    if (has_reserved_memory(info.target)) {
      kernel.reserved_lds_bytes = std::min<int64_t>(*kernel.lds_bytes, 1024);
    }
    kernel_of_symbol[i] = info.kernels.size();
    info.kernels.push_back(std::move(kernel));
  }

  if (const Section* global = elf.find(".nv.info")) {
    const Status read = for_each_attribute(*global, [&](const Attribute& attribute) {
      uint32_t symbol = 0, value = 0;
      if (!load(attribute.payload, 0, symbol) || !load(attribute.payload, 4, value)) return;
      const auto found = kernel_of_symbol.find(symbol);
      if (found == kernel_of_symbol.end() || value > 0x7fffffff) return;
      KernelInfo& kernel = info.kernels[found->second];
      if (attribute.id == kRegisterCount) kernel.vgprs = static_cast<int>(value);
      // The stack of a kernel counts that of the functions it calls; its own frame does not.
      if (attribute.id == kFrameSize || attribute.id == kMinStackSize) {
        kernel.scratch_bytes = std::max<int64_t>(kernel.scratch_bytes.value_or(0), value);
      }
    });
    if (!read) return read.error();
  }
  return info;
}

}  // namespace hstu::jit::object
