// SPDX-License-Identifier: Apache-2.0
#include "target/target.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/text.hpp"
#include "target/cpu_level.hpp"

namespace hstu::jit {
namespace {

// Peak figures are datasheet values of the usual part; they only feed estimates.
// name, vendor, matrix unit, wave, LDS bytes, registers per lane of a SIMD, addressable registers,
// compute units, GHz, bf16 FLOP per clock and unit, GB/s, oldest disassembler, product
const std::array<Target, 10> kTargets = {{
    {"gfx908", Vendor::amd, MatrixUnit::mfma_gfx908, 64, 65536, 512, 256, 120, 1.502, 512, 1228,
     "llvm-14", "MI100"},
    {"gfx90a", Vendor::amd, MatrixUnit::mfma_gfx90a, 64, 65536, 512, 512, 104, 1.7, 1024, 1638,
     "llvm-14", "MI210"},
    {"gfx942", Vendor::amd, MatrixUnit::mfma_gfx90a, 64, 65536, 512, 512, 304, 2.1, 2048, 5300,
     "llvm-17", "MI300X"},
    {"gfx950", Vendor::amd, MatrixUnit::mfma_gfx950, 64, 163840, 512, 512, 256, 2.4, 4096, 8000,
     "llvm-20", "MI350X"},
    {"gfx1100", Vendor::amd, MatrixUnit::wmma_gfx11, 32, 65536, 1536, 256, 96, 2.5, 512, 960,
     "llvm-15", "RX 7900 XTX"},
    {"gfx1201", Vendor::amd, MatrixUnit::wmma_gfx12, 32, 65536, 1536, 256, 64, 2.97, 1024, 640,
     "llvm-18", "RX 9070 XT"},
    {"sm_80", Vendor::nvidia, MatrixUnit::mma_sync, 32, 166912, 512, 255, 108, 1.41, 2048, 2039, "",
     "A100"},
    {"sm_90a", Vendor::nvidia, MatrixUnit::mma_sync, 32, 232448, 512, 255, 132, 1.755, 4096, 4800,
     "", "H100 / H200"},
    {"sm_100a", Vendor::nvidia, MatrixUnit::mma_sync, 32, 232448, 512, 255, 148, 1.85, 8192, 8000,
     "", "B200"},
    {"sm_120", Vendor::nvidia, MatrixUnit::mma_sync, 32, 101376, 512, 255, 170, 2.407, 512, 1792,
     "", "RTX 5090"},
}};

struct FamilyMember {
  const char* name;
  const char* row;
  int lds_bytes;  // 0: as the row
};

// Members share what a kernel is planned by with their row, the LDS size aside.
constexpr std::array<FamilyMember, 11> kFamily = {{
    {"gfx1101", "gfx1100", 0},
    {"gfx1102", "gfx1100", 0},
    {"gfx1103", "gfx1100", 0},
    {"gfx1150", "gfx1100", 0},
    {"gfx1151", "gfx1100", 0},
    {"gfx1200", "gfx1201", 0},
    {"sm_86", "sm_80", 101376},
    {"sm_87", "sm_80", 0},
    {"sm_89", "sm_80", 101376},
    {"sm_103a", "sm_100a", 0},
    {"sm_121", "sm_120", 0},
}};

Target cpu_target(std::string name) {
  Target t;
  t.matrix = name.find("+amx") != std::string::npos ? MatrixUnit::amx : MatrixUnit::none;
  t.name = std::move(name);
  t.vendor = Vendor::cpu;
  t.product = "this host's processor";
  return t;
}

}  // namespace

std::span<const Target> all_targets() { return kTargets; }

Result<Target> find_target(std::string_view name) {
  for (const Target& t : kTargets)
    if (t.name == name) return t;
  for (const FamilyMember& m : kFamily) {
    if (m.name != name) continue;
    Target t = *std::find_if(kTargets.begin(), kTargets.end(),
                             [&](const Target& row) { return row.name == m.row; });
    t.name = m.name;
    t.product = "";
    if (m.lds_bytes > 0) t.lds_bytes = m.lds_bytes;
    return t;
  }
  if (name == "cpu") return cpu_target("cpu:" + detect_cpu_level());
  std::vector<std::string> names;
  for (const std::string& level : cpu_levels()) {
    if (name == "cpu:" + level) return cpu_target(std::string(name));
    names.push_back("cpu:" + level);
  }
  for (const Target& t : kTargets) names.push_back(t.name);
  for (const FamilyMember& m : kFamily) names.emplace_back(m.name);
  const std::string suggestion = nearest(name, names);
  std::string known;
  for (const Target& t : kTargets) known += t.name + ", ";
  return Error{
      ErrorKind::kUnsupported,
      fmt::format("unknown target \"{}\"; known: {}cpu, cpu:LEVEL{}", printable(name), known,
                  suggestion.empty() ? "" : "; did you mean \"" + suggestion + "\"?"),
      "/target", ""};
}

}  // namespace hstu::jit
