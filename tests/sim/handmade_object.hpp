// SPDX-License-Identifier: Apache-2.0
// A code object of one kernel made without a compiler; its instructions are what a listing says.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "../object/make_object.hpp"
#include "object/listing.hpp"

namespace hstu::test {

constexpr uint64_t kHandmadeCode = 0x2000;

// Kernel "k" of workgroups up to 256: 16 bytes of arguments by value at s[0:1], the workgroup's
// number in s2, at least 16 vector registers and 16 scalar ones, 1 KB of LDS. `processor` is its
// number in ELF: 0x30 gfx908, 0x3f gfx90a, 0x4c gfx942, 0x4f gfx950, 0x41 gfx1100, 0x4e gfx1201.
inline std::string handmade_object(uint32_t processor) {
  constexpr uint64_t kDescriptor = 0x1000, kData = 0x3000, kRelocations = 0x4000;
  const auto packed = nlohmann::json::to_msgpack(amd_metadata("k", 16));
  std::string descriptor(64, '\0');
  put<uint32_t>(descriptor, 0, 1024);  // LDS
  put<uint32_t>(descriptor, 4, 64);    // scratch
  put<uint32_t>(descriptor, 8, 24);    // arguments
  put<int64_t>(descriptor, 16, static_cast<int64_t>(kHandmadeCode - kDescriptor));
  put<uint32_t>(descriptor, 44, 3);           // 16 architected registers of the unified file
  put<uint32_t>(descriptor, 48, 0x000c0043);  // registers; keep denormals of 16 and 64 bits
  put<uint32_t>(descriptor, 52, 0x00000084);  // two user SGPRs, workgroup number x
  put<uint16_t>(descriptor, 56, 8);           // argument pointer
  const auto symbol = [](uint32_t name, uint8_t type, uint16_t section, uint64_t value,
                         uint64_t size) {
    std::string out(24, '\0');
    put(out, 0, name);
    put<uint8_t>(out, 4, static_cast<uint8_t>(0x10 | type));
    put(out, 6, section);
    put(out, 8, value);
    put(out, 16, size);
    return out;
  };
  const auto relocation = [](uint64_t where, uint64_t what, uint64_t addend) {
    std::string out(24, '\0');
    put(out, 0, where);
    put(out, 8, what);
    put(out, 16, addend);
    return out;
  };
  std::string out = make_elf(
      224, 64, 2, processor,
      {{".note", 7, make_note("AMDGPU", 32, std::string(packed.begin(), packed.end()))},
       {".rodata", 1, descriptor},
       {".text", 1, std::string(512, '\0')},
       {".data", 1, std::string(32, '\0')},
       {".rela.dyn", 4, relocation(kData, uint64_t{1} << 32 | 3, 8) + relocation(kData + 8, 13, 4)},
       {".dynsym", 11,
        std::string(24, '\0') + symbol(1, 1, 2, kDescriptor, 64) +
            symbol(6, 2, 3, kHandmadeCode, 512)},
       {".dynstr", 3, std::string("\0k.kd\0k\0", 8)}});
  uint64_t table = 0;
  std::memcpy(&table, out.data() + 40, 8);
  const auto address = [&](size_t section, uint64_t at) {
    put(out, table + 64 * section + 16, at);
  };
  address(2, kDescriptor), address(3, kHandmadeCode), address(4, kData), address(5, kRelocations);
  put<uint32_t>(out, table + 64 * 6 + 40, 7);  // where .dynsym has its names
  return out;
}

// One instruction a line, 4 bytes each, from the kernel's first on.
inline jit::Listing handmade_listing(std::string text) {
  jit::Listing listing;
  uint64_t address = kHandmadeCode;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string line = text.substr(0, end);
    text.erase(0, end + 1);
    const size_t blank = std::min(line.find(' '), line.size());
    const std::string operands = blank < line.size() ? line.substr(blank + 1) : "";
    listing.instructions.push_back({address, 4, line.substr(0, blank), operands});
    address += 4;
  }
  return listing;
}

}  // namespace hstu::test
