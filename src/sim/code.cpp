// SPDX-License-Identifier: Apache-2.0
#include "sim/code.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/text.hpp"
#include "object/elf.hpp"
#include "object/listing.hpp"
#include "sim/isa/decode.hpp"

namespace hstu::jit::sim {
namespace {

using object::load;
using object::odd_object;

constexpr uint32_t kRelocationsWithAddend = 4;  // SHT_RELA
constexpr uint64_t kMostMemory = uint64_t{1} << 28;

constexpr uint32_t bits(uint32_t word, int first, int count) {
  return word >> first & ((1u << count) - 1);
}

// The 64 bytes of "<kernel>.kd".
Status read_descriptor(std::string_view d, const Machine& machine, int version, KernelEntry& k) {
  uint32_t rsrc1 = 0, rsrc2 = 0, rsrc3 = 0;
  uint16_t properties = 0, preload = 0;
  if (!load(d, 0, k.lds_bytes) || !load(d, 4, k.scratch_bytes) || !load(d, 8, k.kernarg_bytes) ||
      !load(d, 44, rsrc3) || !load(d, 48, rsrc1) || !load(d, 52, rsrc2) ||
      !load(d, 56, properties) || !load(d, 58, preload)) {
    return odd_object("the descriptor of " + k.info.name + " is cut off");
  }
  const auto property = [&](int bit) { return (properties >> bit & 1) != 0; };
  k.private_segment_buffer = property(0);
  k.dispatch_ptr = property(1);
  k.queue_ptr = property(2);
  k.kernarg_ptr = property(3);
  k.dispatch_id = property(4);
  k.flat_scratch_init = property(5);
  k.private_segment_size = property(6);
  k.wave_width = !machine.cdna() && property(10) ? 32 : 64;
  // A stack whose depth the compiler does not know: as much as the HIP run-time library gives.
  if (version >= 5 && property(11)) k.scratch_bytes = std::max<uint32_t>(k.scratch_bytes, 16384);

  k.scratch_wave_offset = bits(rsrc2, 0, 1) != 0 && !machine.flat_scratch_by_hardware;
  k.user_sgprs = static_cast<int>(bits(rsrc2, 1, machine.split_counters ? 6 : 5));
  k.workgroup_id_x = bits(rsrc2, 7, 1) != 0;
  k.workgroup_id_y = bits(rsrc2, 8, 1) != 0;
  k.workgroup_id_z = bits(rsrc2, 9, 1) != 0;
  k.workgroup_info = bits(rsrc2, 10, 1) != 0;
  k.work_item_ids = static_cast<int>(bits(rsrc2, 11, 2)) + 1;

  // FLOAT_MODE of the descriptor is the low byte of MODE; DX10 clamp and IEEE follow where the
  // machine has them.
  k.mode = bits(rsrc1, 12, 8);
  if (machine.generation != Generation::gfx12) {
    k.mode |= bits(rsrc1, 21, 1) << 8 | bits(rsrc1, 23, 1) << 9;
  }
  const bool unified = machine.cdna() && machine.generation != Generation::gfx908;
  const int granule = unified ? 8 : machine.cdna() ? 4 : k.wave_width == 32 ? 8 : 4;
  const int total = static_cast<int>(bits(rsrc1, 0, 6) + 1) * granule;
  RegisterCounts& registers = k.registers;
  if (unified) {
    // Accumulation registers follow the architected ones in one file.
    registers.vector = std::min({static_cast<int>(bits(rsrc3, 0, 6) + 1) * 4, total, 256});
    registers.accumulation = std::min(total - registers.vector, 256);
  } else {
    registers.vector = std::min(total, 256);
    registers.accumulation = machine.cdna() ? registers.vector : 0;
  }
  // In units of 8, always an even number of them; later machines give every wave all.
  constexpr int kAllScalars = 106;
  registers.scalar =
      machine.cdna() ? (static_cast<int>(bits(rsrc1, 6, 4)) / 2 + 1) * 16 : kAllScalars;
  if (machine.generation == Generation::gfx942 || machine.generation == Generation::gfx950) {
    k.preload_dwords = bits(preload, 0, 7);
    k.preload_offset = bits(preload, 7, 9);
  }
  // Both machines have 16 user SGPRs; 12 may be taken before the preloaded arguments.
  constexpr uint32_t kMostPreloaded = 16;
  if (k.preload_dwords > kMostPreloaded ||
      (k.preload_dwords > 0 &&
       uint64_t{4} * (k.preload_offset + k.preload_dwords) > k.kernarg_bytes)) {
    return odd_object(fmt::format("{} preloads {} dwords from dword {} of {} bytes of arguments",
                                  k.info.name, k.preload_dwords, k.preload_offset,
                                  k.kernarg_bytes));
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const Code>> Code::load(std::string_view object, const Lister& list) {
  const Result<ObjectInfo> info = read_object(object);
  if (!info) return info.error();
  auto code = std::make_shared<Code>();
  code->machine_ = machine_of(info->target);
  if (info->format != "amdgpu" || code->machine_ == nullptr) {
    return Error{ErrorKind::kUnsupported,
                 fmt::format("no simulated machine runs {} code", info->target), "", ""};
  }
  const Result<object::Elf> elf = object::parse_elf(object);
  if (!elf) return elf.error();

  // Sections that live in memory are those with an address.
  for (const object::Section& s : elf->sections) {
    if (s.address == 0) continue;
    if (s.address > kMostMemory || s.size > kMostMemory - s.address) {
      return odd_object(fmt::format("section {} lies at {:#x}, {} bytes", std::string(s.name),
                                    s.address, s.size));
    }
    code->bytes_ = std::max(code->bytes_, s.address + s.size);
  }
  constexpr uint64_t kPage = 4096;
  code->memory_.reset(new uint8_t[code->bytes_ + kPage]());
  code->base_ = (reinterpret_cast<uint64_t>(code->memory_.get()) + kPage - 1) / kPage * kPage;
  auto* base = reinterpret_cast<uint8_t*>(code->base_);
  for (const object::Section& s : elf->sections) {
    if (s.address == 0 || s.data.empty()) continue;
    std::memcpy(base + s.address, s.data.data(), s.data.size());
  }

  std::vector<object::Symbol> symbols;
  for (const uint32_t type : {object::kSymbolTable, object::kDynamicSymbols}) {
    const object::Section* table = elf->find_type(type);
    if (table == nullptr) continue;
    auto read = object::elf_symbols(*elf, *table);
    if (!read) return read.error();
    symbols.insert(symbols.end(), read->begin(), read->end());
  }
  for (const object::Section& s : elf->sections) {
    if (s.type != kRelocationsWithAddend || s.address == 0) continue;
    const object::Section* table = elf->find_type(object::kDynamicSymbols);
    const auto dynamic = table == nullptr
                             ? Result<std::vector<object::Symbol>>(std::vector<object::Symbol>())
                             : object::elf_symbols(*elf, *table);
    if (!dynamic) return dynamic.error();
    for (uint64_t at = 0; at + 24 <= s.data.size(); at += 24) {
      uint64_t where = 0, what = 0, addend = 0;
      object::load(s.data, at, where);
      object::load(s.data, at + 8, what);
      object::load(s.data, at + 16, addend);
      constexpr uint32_t kAbsolute64 = 3, kRelative64 = 13;
      const auto type = static_cast<uint32_t>(what);
      const uint64_t symbol = what >> 32;
      uint64_t value = code->base_ + addend;
      const bool named = type == kAbsolute64 && symbol < dynamic->size();
      if ((!named && type != kRelative64) || where > code->bytes_ || code->bytes_ - where < 8) {
        return odd_object(fmt::format("relocation {} of type {} is not known", at / 24, type));
      }
      if (named && (*dynamic)[symbol].section == 0) {
        return odd_object(
            fmt::format("it uses {}, which it does not hold", printable((*dynamic)[symbol].name)));
      }
      if (named) value += (*dynamic)[symbol].value;
      std::memcpy(base + where, &value, 8);
    }
  }

  const Result<Listing> listing = list(object);
  if (!listing) return listing.error();
  code->instructions_ = decode(*listing, *code->machine_);
  for (const Instruction& i : code->instructions_) code->index_of_[i.address] = i.index;

  constexpr uint8_t kFunctionSymbol = 2;
  for (const object::Symbol& s : symbols) {
    if (s.type == kFunctionSymbol) {
      code->functions_.push_back({std::string(s.name), s.value, s.value + s.size});
    }
  }
  for (const KernelInfo& kernel : info->kernels) {
    KernelEntry k;
    k.info = kernel;
    if (printable(kernel.name, kernel.name.size()) != kernel.name) {
      return odd_object(fmt::format("kernel name \"{}\" is not printable", printable(kernel.name)));
    }
    const std::string wanted = kernel.name + ".kd";
    const auto at = std::find_if(symbols.begin(), symbols.end(),
                                 [&](const object::Symbol& s) { return s.name == wanted; });
    if (at == symbols.end() || at->value > code->bytes_ || code->bytes_ - at->value < 64) {
      return odd_object("it has no descriptor of kernel " + kernel.name);
    }
    const std::string_view d(reinterpret_cast<const char*>(base + at->value), 64);
    if (Status s = read_descriptor(d, *code->machine_, info->code_object_version, k); !s) {
      return std::move(s).error();
    }
    int64_t offset = 0;
    object::load(d, 16, offset);
    uint64_t entry = at->value + static_cast<uint64_t>(offset);
    // Firmware that preloads arguments skips the code that loads them.
    if (k.preload_dwords > 0) entry += 256;
    const auto first = code->index_of_.find(entry);
    if (first == code->index_of_.end()) {
      return odd_object(
          fmt::format("kernel {} begins at {:#x}, where no instruction does", kernel.name, entry));
    }
    k.entry = first->second;
    code->kernels_.push_back(std::move(k));
  }
  return std::shared_ptr<const Code>(std::move(code));
}

std::shared_ptr<const Code> Code::empty(const Machine& machine) {
  auto code = std::make_shared<Code>();
  code->machine_ = &machine;
  return code;
}

const KernelEntry* Code::find(std::string_view name) const {
  for (const KernelEntry& kernel : kernels_) {
    if (kernel.info.name == name) return &kernel;
  }
  return nullptr;
}

bool Code::index_at(uint64_t memory_address, uint32_t& index) const {
  const auto at = index_of_.find(memory_address - base_);
  if (at == index_of_.end()) return false;
  index = at->second;
  return true;
}

std::vector<MemoryRange> Code::ranges() const {
  return {{base_, base_ + bytes_, true, "code object"}};
}

std::string Code::function_of(const Instruction& i) const {
  for (const Function& f : functions_) {
    if (i.address >= f.begin && i.address < f.end) return f.name;
  }
  return "";
}

}  // namespace hstu::jit::sim
