// SPDX-License-Identifier: Apache-2.0
// AMDGPU code objects version 3 to 6. Layout: "User Guide for AMDGPU Backend" of LLVM, sections
// "ELF Code Object" and "Code Object Metadata".
#include <fmt/format.h>

#include <limits>

#include "object/formats.hpp"
#include "object/msgpack.hpp"

namespace hstu::jit::object {
namespace {

constexpr AmdProcessor kProcessors[] = {
    {0x2c, "gfx900", 5},           {0x2d, "gfx902", 5},           {0x2e, "gfx904", 7},
    {0x2f, "gfx906", 7},           {0x30, "gfx908", 9},           {0x31, "gfx909", 7},
    {0x32, "gfx90c", 12},          {0x33, "gfx1010", 9},          {0x34, "gfx1011", 9},
    {0x35, "gfx1012", 9},          {0x36, "gfx1030", 11},         {0x37, "gfx1031", 11},
    {0x38, "gfx1032", 11},         {0x39, "gfx1033", 12},         {0x3d, "gfx1035", 13},
    {0x3e, "gfx1034", 13},         {0x3f, "gfx90a", 12},          {0x40, "gfx940", 15},
    {0x41, "gfx1100", 15},         {0x42, "gfx1013", 13},         {0x43, "gfx1150", 17},
    {0x44, "gfx1103", 15},         {0x45, "gfx1036", 15},         {0x46, "gfx1101", 15},
    {0x47, "gfx1102", 15},         {0x48, "gfx1200", 18},         {0x49, "gfx1250", 21},
    {0x4a, "gfx1151", 17},         {0x4b, "gfx941", 17},          {0x4c, "gfx942", 17},
    {0x4e, "gfx1201", 18},         {0x4f, "gfx950", 20},          {0x51, "gfx9-generic", 19},
    {0x52, "gfx10-1-generic", 19}, {0x53, "gfx10-3-generic", 19}, {0x54, "gfx11-generic", 19},
    {0x55, "gfx1152", 19},         {0x58, "gfx1153", 20},         {0x59, "gfx12-generic", 19},
    {0x5f, "gfx9-4-generic", 20},
};

constexpr uint8_t kOsAmdHsa = 64;
constexpr uint32_t kMetadataNote = 32;  // NT_AMDGPU_METADATA

std::string feature_text(const char* name, uint32_t mode) {
  constexpr const char* kModes[] = {"", "any", "off", "on"};
  return mode == 0 ? std::string() : fmt::format("{} {}", name, kModes[mode]);
}

std::string features(uint32_t flags, int version) {
  std::string xnack, sramecc;
  if (version == 3) {
    xnack = flags & 0x100 ? "xnack on" : "";
    sramecc = flags & 0x200 ? "sramecc on" : "";
  } else {
    xnack = feature_text("xnack", flags >> 8 & 3);
    sramecc = feature_text("sramecc", flags >> 10 & 3);
  }
  return xnack + (xnack.empty() || sramecc.empty() ? "" : ", ") + sramecc;
}

template <typename T>
bool read_count(MsgpackCursor& in, std::optional<T>& out) {
  const auto value = in.integer();
  if (!value || *value < 0 || *value > std::numeric_limits<T>::max()) return false;
  out = static_cast<T>(*value);
  return true;
}

bool read_arguments(MsgpackCursor& in, std::vector<KernelArgument>& out) {
  const auto count = in.array();
  if (!count) return false;
  for (uint32_t i = 0; i < *count; ++i) {
    const auto pairs = in.map();
    if (!pairs) return false;
    KernelArgument argument;
    std::optional<uint32_t> offset, size;
    for (uint32_t pair = 0; pair < *pairs; ++pair) {
      const auto key = in.text();
      if (!key) return false;
      bool good = true;
      if (*key == ".offset") {
        good = read_count(in, offset);
      } else if (*key == ".size") {
        good = read_count(in, size);
      } else if (*key == ".name" || *key == ".value_kind") {
        const auto text = in.text();
        good = text.has_value();
        if (good) (*key == ".name" ? argument.name : argument.kind) = std::string(*text);
      } else {
        good = in.skip();
      }
      if (!good) return false;
    }
    argument.offset = offset.value_or(0);
    argument.size = size.value_or(0);
    out.push_back(std::move(argument));
  }
  return true;
}

bool read_kernel(MsgpackCursor& in, KernelInfo& kernel) {
  const auto pairs = in.map();
  if (!pairs) return false;
  for (uint32_t pair = 0; pair < *pairs; ++pair) {
    const auto key = in.text();
    if (!key) return false;
    bool good = true;
    if (*key == ".name") {
      const auto text = in.text();
      good = text.has_value();
      if (good) kernel.name = std::string(*text);
    } else if (*key == ".args") {
      good = read_arguments(in, kernel.arguments);
    } else if (*key == ".vgpr_count") {
      good = read_count(in, kernel.vgprs);
    } else if (*key == ".agpr_count") {
      good = read_count(in, kernel.agprs);
    } else if (*key == ".sgpr_count") {
      good = read_count(in, kernel.sgprs);
    } else if (*key == ".vgpr_spill_count") {
      good = read_count(in, kernel.vgpr_spills);
    } else if (*key == ".sgpr_spill_count") {
      good = read_count(in, kernel.sgpr_spills);
    } else if (*key == ".private_segment_fixed_size") {
      good = read_count(in, kernel.scratch_bytes);
    } else if (*key == ".group_segment_fixed_size") {
      good = read_count(in, kernel.lds_bytes);
    } else if (*key == ".wavefront_size") {
      good = read_count(in, kernel.wave_width);
    } else if (*key == ".max_flat_workgroup_size") {
      good = read_count(in, kernel.max_workgroup);
    } else {
      good = in.skip();
    }
    if (!good) return false;
  }
  return true;
}

Status read_metadata(std::string_view bytes, ObjectInfo& info) {
  MsgpackCursor in(bytes);
  const auto malformed = [&]() -> Status {
    return odd_object(fmt::format("its AMDGPU metadata is malformed near byte {} of {}",
                                  in.position(), bytes.size()));
  };
  const auto pairs = in.map();
  if (!pairs) return malformed();
  for (uint32_t pair = 0; pair < *pairs; ++pair) {
    const auto key = in.text();
    if (!key) return malformed();
    if (*key != "amdhsa.kernels") {
      if (!in.skip()) return malformed();
      continue;
    }
    const auto kernels = in.array();
    if (!kernels) return malformed();
    for (uint32_t i = 0; i < *kernels; ++i) {
      if (info.kernels.size() >= kMaxKernels) return odd_object("it names too many kernels");
      KernelInfo kernel;
      if (!read_kernel(in, kernel)) return malformed();
      if (kernel.name.empty()) return odd_object("a kernel in its AMDGPU metadata has no name");
      info.kernels.push_back(std::move(kernel));
    }
  }
  return {};
}

}  // namespace

std::span<const AmdProcessor> amd_processors() { return kProcessors; }

const AmdProcessor* find_amd_processor(uint32_t machine) {
  for (const AmdProcessor& processor : kProcessors) {
    if (processor.machine == machine) return &processor;
  }
  return nullptr;
}

Result<ObjectInfo> read_amdgpu(const Elf& elf) {
  ObjectInfo info;
  info.format = "amdgpu";
  if (elf.os_abi != kOsAmdHsa || elf.abi_version < 1 || elf.abi_version > 4) {
    return odd_object(
        fmt::format("AMDGPU file of OS ABI {}, ABI version {}: want code object "
                    "version 3 to 6 for HSA",
                    elf.os_abi, elf.abi_version));
  }
  info.code_object_version = elf.abi_version + 2;
  const AmdProcessor* processor = find_amd_processor(elf.flags & 0xff);
  if (processor == nullptr) {
    return odd_object(
        fmt::format("unknown AMD processor number {:#x} in its header", elf.flags & 0xff));
  }
  info.target = processor->name;
  info.target_features = features(elf.flags, info.code_object_version);

  std::string_view metadata;
  for (const Section& section : elf.sections) {
    if (section.type != kNote || !metadata.empty()) continue;
    const Status notes = for_each_note(section, [&](const Note& note) {
      if (note.type == kMetadataNote && note.owner == "AMDGPU") metadata = note.data;
      return metadata.empty();
    });
    if (!notes) return notes.error();
  }
  if (metadata.empty()) return odd_object("it has no AMDGPU metadata note");
  if (Status status = read_metadata(metadata, info); !status) return std::move(status).error();
  return info;
}

}  // namespace hstu::jit::object
