// SPDX-License-Identifier: Apache-2.0
#include "object/elf.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace hstu::jit::object {
namespace {

constexpr uint64_t kHeaderBytes = 64, kSectionHeaderBytes = 64, kSymbolBytes = 24;
// Longer names are not made by any compiler here; the cap keeps a file in which thousands of
// headers share one long string from costing their product.
constexpr size_t kMaxName = 1024;

std::string_view string_at(std::string_view table, uint64_t offset) {
  if (offset >= table.size()) return {};
  const std::string_view rest = table.substr(offset, kMaxName);
  return rest.substr(0, rest.find('\0'));
}

}  // namespace

Error odd_object(std::string what) {
  return Error{ErrorKind::kFailed, "code object: " + std::move(what), {}, {}};
}

const Section* Elf::find(std::string_view name) const {
  for (const Section& section : sections) {
    if (section.name == name) return &section;
  }
  return nullptr;
}

const Section* Elf::find_type(uint32_t wanted) const {
  for (const Section& section : sections) {
    if (section.type == wanted) return &section;
  }
  return nullptr;
}

Result<Elf> parse_elf(std::string_view bytes) {
  if (bytes.empty()) return odd_object("the file is empty");
  if (bytes.substr(0, 24) == "__CLANG_OFFLOAD_BUNDLE__") {
    return odd_object(
        "this is a clang offload bundle, not a code object (compile with --no-gpu-bundle-output)");
  }
  if (bytes.substr(0, 4) !=
      "\x7f"
      "ELF")
    return odd_object("not an ELF file");
  if (bytes.size() < kHeaderBytes) {
    return odd_object(fmt::format("{} bytes cannot hold an ELF header", bytes.size()));
  }
  if (bytes[4] != 2 || bytes[5] != 1) return odd_object("not a 64-bit little-endian ELF file");

  Elf elf;
  elf.os_abi = static_cast<uint8_t>(bytes[7]);
  elf.abi_version = static_cast<uint8_t>(bytes[8]);
  uint64_t table = 0;
  uint16_t entry_size = 0, count16 = 0, names16 = 0;
  load(bytes, 16, elf.type);
  load(bytes, 18, elf.machine);
  load(bytes, 40, table);
  load(bytes, 48, elf.flags);
  load(bytes, 58, entry_size);
  load(bytes, 60, count16);
  load(bytes, 62, names16);
  if (table == 0) return odd_object("the file has no section headers");
  if (entry_size != kSectionHeaderBytes) {
    return odd_object(
        fmt::format("section headers of {} bytes, want {}", entry_size, kSectionHeaderBytes));
  }
  uint64_t count = count16;
  uint32_t names_index = names16;
  if (count == 0 && !load(bytes, table + 32, count)) count = 0;  // extended numbering
  if (names16 == 0xffff && !load(bytes, table + 40, names_index)) names_index = 0;
  if (table > bytes.size() || count > (bytes.size() - table) / kSectionHeaderBytes) {
    return odd_object(fmt::format("{} section headers at {} lie outside the file of {} bytes",
                                  count, table, bytes.size()));
  }

  std::vector<uint32_t> name_offsets;
  uint64_t total = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t at = table + i * kSectionHeaderBytes;
    Section section;
    uint32_t name = 0;
    uint64_t offset = 0;
    load(bytes, at, name);
    load(bytes, at + 4, section.type);
    load(bytes, at + 16, section.address);
    load(bytes, at + 24, offset);
    load(bytes, at + 32, section.size);
    load(bytes, at + 40, section.link);
    load(bytes, at + 44, section.info);
    if (section.type != kNoBits && section.type != 0) {
      if (offset > bytes.size() || section.size > bytes.size() - offset) {
        return odd_object(
            fmt::format("section {} (offset {}, {} bytes) lies outside the file of "
                        "{} bytes",
                        i, offset, section.size, bytes.size()));
      }
      section.data = bytes.substr(offset, section.size);
      total += section.size;
      if (total > bytes.size()) return odd_object("its sections overlap");
    }
    name_offsets.push_back(name);
    elf.sections.push_back(section);
  }
  if (names_index >= elf.sections.size()) {
    return odd_object(fmt::format("section names are in section {} of {}", names_index, count));
  }
  const std::string_view names = elf.sections[names_index].data;
  for (size_t i = 0; i < elf.sections.size(); ++i) {
    elf.sections[i].name = string_at(names, name_offsets[i]);
  }
  return elf;
}

Result<std::vector<Symbol>> elf_symbols(const Elf& elf, const Section& table) {
  if (table.link >= elf.sections.size()) {
    return odd_object(
        fmt::format("symbol names are in section {} of {}", table.link, elf.sections.size()));
  }
  const std::string_view names = elf.sections[table.link].data;
  std::vector<Symbol> symbols;
  symbols.reserve(table.data.size() / kSymbolBytes);
  for (uint64_t at = 0; at + kSymbolBytes <= table.data.size(); at += kSymbolBytes) {
    Symbol symbol;
    uint32_t name = 0;
    uint8_t info = 0;
    load(table.data, at, name);
    load(table.data, at + 4, info);
    load(table.data, at + 5, symbol.other);
    load(table.data, at + 6, symbol.section);
    load(table.data, at + 8, symbol.value);
    load(table.data, at + 16, symbol.size);
    symbol.type = info & 0xf;
    symbol.binding = info >> 4;
    symbol.name = string_at(names, name);
    symbols.push_back(symbol);
  }
  return symbols;
}

std::unordered_map<std::string, Range> function_ranges(std::string_view bytes) {
  constexpr uint8_t kFunction = 2;
  std::unordered_map<std::string, Range> ranges;
  const Result<Elf> elf = parse_elf(bytes);
  if (!elf) return ranges;
  const Section* table = elf->find_type(kSymbolTable);
  if (table == nullptr) table = elf->find_type(kDynamicSymbols);
  if (table == nullptr) return ranges;
  const auto symbols = elf_symbols(*elf, *table);
  if (!symbols) return ranges;
  for (const Symbol& symbol : *symbols) {
    if (symbol.type == kFunction) {
      ranges[std::string(symbol.name)] = {symbol.value, symbol.value + symbol.size};
    }
  }
  return ranges;
}

Status for_each_note(const Section& section, const std::function<bool(const Note&)>& visit) {
  const std::string_view data = section.data;
  const auto padded = [](uint64_t size) { return (size + 3) & ~uint64_t{3}; };
  uint64_t at = 0;
  while (at + 12 <= data.size()) {
    uint32_t owner_size = 0, data_size = 0;
    Note note;
    load(data, at, owner_size);
    load(data, at + 4, data_size);
    load(data, at + 8, note.type);
    const uint64_t owner_at = at + 12, data_at = owner_at + padded(owner_size);
    if (data_at > data.size() || data_size > data.size() - data_at) {
      return odd_object(fmt::format("a note of {} bytes at {} runs past its section of {} bytes",
                                    data_size, at, data.size()));
    }
    note.owner = data.substr(owner_at, owner_size);
    note.owner = note.owner.substr(0, note.owner.find('\0'));
    note.data = data.substr(data_at, data_size);
    if (!visit(note)) break;
    at = data_at + padded(data_size);
  }
  return {};
}

}  // namespace hstu::jit::object
