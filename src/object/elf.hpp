// SPDX-License-Identifier: Apache-2.0
// The part of ELF64 (little endian) that code objects use. Views point into the bytes given; every
// offset is checked, so hostile files give an error and never an out-of-bounds read.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.hpp"

namespace hstu::jit::object {

static_assert(std::endian::native == std::endian::little,
              "loads below assume a little-endian host");

// Reads a little-endian number at `offset`; false when it does not lie inside `bytes`.
template <typename T>
bool load(std::string_view bytes, uint64_t offset, T& out) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return false;
  std::memcpy(&out, bytes.data() + offset, sizeof(T));
  return true;
}

// "code object: <what>", kFailed.
Error odd_object(std::string what);

enum : uint16_t { kMachineX86 = 62, kMachineArm = 183, kMachineCuda = 190, kMachineAmdgpu = 224 };
enum : uint32_t { kSymbolTable = 2, kNote = 7, kNoBits = 8, kDynamicSymbols = 11 };

struct Section {
  std::string_view name;
  uint32_t type = 0, link = 0, info = 0;
  uint64_t address = 0, size = 0;
  std::string_view data;  // empty for NOBITS
};

struct Symbol {
  std::string_view name;
  uint8_t type = 0, binding = 0, other = 0;
  uint16_t section = 0;
  uint64_t value = 0, size = 0;
};

struct Elf {
  uint16_t type = 0, machine = 0;
  uint8_t os_abi = 0, abi_version = 0;
  uint32_t flags = 0;
  std::vector<Section> sections;

  const Section* find(std::string_view name) const;
  const Section* find_type(uint32_t type) const;
};

// Sections that overlap are refused: the sum of all section sizes is then at most the file's size,
// which bounds the work of everything that walks them.
Result<Elf> parse_elf(std::string_view bytes);

// The symbols of one table, in order (their index is what .nv.info refers to).
Result<std::vector<Symbol>> elf_symbols(const Elf& elf, const Section& table);

// The addresses [begin, end) of each function an object names; empty for bytes that are no ELF
// file.
struct Range {
  uint64_t begin = 0, end = 0;
};
std::unordered_map<std::string, Range> function_ranges(std::string_view bytes);

struct Note {
  uint32_t type = 0;
  std::string_view owner, data;
};
// Calls `visit` for each note of a section until it returns false.
Status for_each_note(const Section& section, const std::function<bool(const Note&)>& visit);

}  // namespace hstu::jit::object
