// SPDX-License-Identifier: Apache-2.0
// Makes small ELF files by hand: an AMDGPU code object needs no compiler to be read.
#pragma once

#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace hstu::test {

struct ElfSection {
  std::string name;
  uint32_t type = 1;
  std::string bytes;
  uint32_t link = 0;  // another section's place in the list, counted from 1
};

template <typename T>
void put(std::string& out, size_t at, T value) {
  std::memcpy(out.data() + at, &value, sizeof(T));
}

inline std::string make_elf(uint16_t machine, uint8_t os_abi, uint8_t abi_version, uint32_t flags,
                            std::vector<ElfSection> sections) {
  std::string names(1, '\0');
  std::vector<uint32_t> name_at;
  sections.push_back({".shstrtab", 3, {}, 0});
  for (const ElfSection& section : sections) {
    name_at.push_back(static_cast<uint32_t>(names.size()));
    names += section.name + '\0';
  }
  sections.back().bytes = names;

  std::string out(64, '\0');
  std::memcpy(out.data(),
              "\x7f"
              "ELF\x02\x01\x01",
              7);
  put<uint8_t>(out, 7, os_abi);
  put<uint8_t>(out, 8, abi_version);
  put<uint16_t>(out, 16, 3);
  put<uint16_t>(out, 18, machine);
  put<uint32_t>(out, 20, 1);
  put<uint32_t>(out, 48, flags);
  put<uint16_t>(out, 52, 64);
  put<uint16_t>(out, 58, 64);
  put<uint16_t>(out, 60, static_cast<uint16_t>(sections.size() + 1));
  put<uint16_t>(out, 62, static_cast<uint16_t>(sections.size()));
  std::vector<uint64_t> offsets;
  for (const ElfSection& section : sections) {
    offsets.push_back(out.size());
    out += section.bytes;
    out.resize((out.size() + 7) / 8 * 8);
  }
  const size_t table = out.size();
  put<uint64_t>(out, 40, table);
  out.resize(table + 64 * (sections.size() + 1));
  for (size_t i = 0; i < sections.size(); ++i) {
    const size_t at = table + 64 * (i + 1);
    put<uint32_t>(out, at, name_at[i]);
    put<uint32_t>(out, at + 4, sections[i].type);
    put<uint64_t>(out, at + 24, offsets[i]);
    put<uint64_t>(out, at + 32, sections[i].bytes.size());
    put<uint32_t>(out, at + 40, sections[i].link);
  }
  return out;
}

inline std::string make_note(const std::string& owner, uint32_t type, std::string data) {
  std::string out(12, '\0');
  put<uint32_t>(out, 0, static_cast<uint32_t>(owner.size() + 1));
  put<uint32_t>(out, 4, static_cast<uint32_t>(data.size()));
  put<uint32_t>(out, 8, type);
  out += owner + '\0';
  out.resize((out.size() + 3) / 4 * 4);
  out += data;
  out.resize((out.size() + 3) / 4 * 4);
  return out;
}

// `flags`: processor number and feature modes; `abi_version` 2 is code object version 4.
inline std::string make_amd_object(uint32_t flags, const nlohmann::json& metadata,
                                   uint8_t abi_version = 2) {
  const std::vector<uint8_t> packed = nlohmann::json::to_msgpack(metadata);
  return make_elf(
      224, 64, abi_version, flags,
      {{".note", 7, make_note("AMDGPU", 32, std::string(packed.begin(), packed.end())), 0}});
}

// One kernel that takes `argument_bytes` by value and what the runtime appends.
inline nlohmann::json amd_metadata(const std::string& name, uint32_t argument_bytes) {
  return {{"amdhsa.version", {1, 1}},
          {"amdhsa.kernels",
           {{{".name", name},
             {".symbol", name + ".kd"},
             {".vgpr_count", 96},
             {".agpr_count", 32},
             {".sgpr_count", 40},
             {".vgpr_spill_count", 3},
             {".sgpr_spill_count", 4},
             {".private_segment_fixed_size", 128},
             {".group_segment_fixed_size", 4096},
             {".wavefront_size", 64},
             {".max_flat_workgroup_size", 256},
             {".kernarg_segment_size", argument_bytes + 8},
             {".args",
              {{{".offset", 0},
                {".size", argument_bytes},
                {".value_kind", "by_value"},
                {".name", "args"}},
               {{".offset", argument_bytes},
                {".size", 8},
                {".value_kind", "hidden_global_offset_x"}}}}}}}};
}

// A cubin as CUDA 13 writes it, with one kernel for blocks of 256 threads. Arguments are pairs of
// offset and size; `shared_bytes` is the size of its section.
struct CubinKernel {
  std::string name = "attention";
  std::vector<std::pair<uint16_t, uint32_t>> arguments;
  size_t shared_bytes = 0;
};
inline std::string make_cubin(uint32_t sm, bool accelerated, const CubinKernel& kernel) {
  std::string symbols(48, '\0');  // the first is always empty
  put<uint32_t>(symbols, 24, 1);
  put<uint8_t>(symbols, 28, 2);     // a function
  put<uint8_t>(symbols, 29, 0x10);  // and an entry
  std::string info;
  const auto attribute = [&](uint8_t id, const std::string& payload) {
    std::string head(4, '\0');
    put<uint8_t>(head, 0, 4);
    put<uint8_t>(head, 1, id);
    put<uint16_t>(head, 2, static_cast<uint16_t>(payload.size()));
    info += head + payload;
  };
  for (size_t i = 0; i < kernel.arguments.size(); ++i) {
    std::string payload(12, '\0');
    put<uint16_t>(payload, 4, static_cast<uint16_t>(i));
    put<uint16_t>(payload, 6, kernel.arguments[i].first);
    put<uint32_t>(payload, 8, kernel.arguments[i].second << 18);
    attribute(0x17, payload);
  }
  std::string names(1, '\0');
  names += kernel.name;
  names += '\0';
  std::string block(12, '\0');
  put<uint32_t>(block, 0, 256);
  put<uint32_t>(block, 4, 1);
  put<uint32_t>(block, 8, 1);
  attribute(0x05, block);
  return make_elf(190, 0x41, 8, sm << 8 | (accelerated ? 8 : 0),
                  {{".strtab", 3, names, 0},
                   {".symtab", 2, symbols, 1},
                   {".nv.info." + kernel.name, 0x70000000, info, 0},
                   {".nv.shared." + kernel.name, 1, std::string(kernel.shared_bytes, '\0'), 0}});
}

}  // namespace hstu::test
