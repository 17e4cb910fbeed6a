// SPDX-License-Identifier: Apache-2.0
#include "object/machine.hpp"

#include <fmt/format.h>

#include <charconv>

#include "base/text.hpp"

namespace hstu::jit::object {
namespace {

// Registers, granules and waves: "User Guide for AMDGPU Backend" of LLVM and the CDNA and RDNA
// instruction set documents. LDS: the same documents; gfx950 has 160 KB and twice the port (CDNA4
// white paper). RDNA shares the two 64 KB halves of a workgroup processor between its 4 SIMDs, each
// half with a port of 128 bytes. Transcendentals run at a quarter of the VALU's rate; on gfx950 at
// half (AMD's CDNA4 material; not measured by us). Latencies: see kAssumptions.
constexpr Machine kMachines[] = {
    //          tick regs granule waves apart    LDS bytes, SIMDs, port: SIMDs, bytes
    //          VALU pk_f32 trans its latency quarter apart, matrix, LDS, global, scalar
    {"gfx908", 4, 256, 4, 10, true, 65536, 4, 4, 128, 4, 8, 16, 20, 16, false, 8, 112, 800, 200},
    {"gfx90a", 4, 512, 8, 8, false, 65536, 4, 4, 128, 4, 4, 16, 20, 16, false, 12, 112, 800, 200},
    {"gfx942", 4, 512, 8, 8, false, 65536, 4, 4, 128, 4, 4, 16, 20, 16, false, 12, 112, 800, 200},
    {"gfx950", 4, 512, 8, 8, false, 163840, 4, 4, 256, 4, 4, 8, 12, 16, false, 12, 112, 800, 200},
    {"gfx1100", 1, 1536, 24, 16, false, 131072, 4, 2, 128, 5, 1, 4, 9, 4, true, 8, 80, 500, 150},
    {"gfx1201", 1, 1536, 24, 16, false, 131072, 4, 2, 128, 5, 1, 4, 9, 4, true, 8, 80, 500, 150},
};

struct Member {
  const char* name;
  const char* row;
  int registers, granule;  // 0: as the row
};
// The smaller RDNA3 parts have two thirds of the registers.
constexpr Member kMembers[] = {
    {"gfx1101", "gfx1100", 0, 0},     {"gfx1102", "gfx1100", 1024, 16},
    {"gfx1103", "gfx1100", 1024, 16}, {"gfx1150", "gfx1100", 1024, 16},
    {"gfx1151", "gfx1100", 0, 0},     {"gfx1200", "gfx1201", 0, 0},
};

// Clocks of matrix instructions, by the part of the mnemonic after v_mfma_, v_smfmac_ or v_wmma_.
// The first row that fits wins. MFMA: passes of 4 clocks, as the scheduling model of LLVM
// (SISchedule.td) and the MFMA tables of the instruction set documents give them. WMMA: from peak
// FLOP per clock (512 a compute unit of two SIMDs on gfx1100, 1024 on gfx1201; of 4-bit integers
// two and four times as many).
struct MatrixRow {
  std::string_view machines;  // names it holds for
  std::string_view part;      // found in the mnemonic
  int clocks;
};
constexpr MatrixRow kMatrix[] = {
    {"gfx90a gfx942", "f64_16x16x4", 32},
    {"gfx90a gfx942", "f64_4x4x4", 16},
    // Half the rate of the parts before it (CDNA4 white paper: 78.6 TFLOPS).
    {"gfx950", "f64_16x16x4", 64},
    {"gfx950", "f64_4x4x4", 32},
    {"gfx908 gfx90a gfx942 gfx950", "_4x4x", 8},
    {"gfx908 gfx90a", "_16x16x", 32},
    {"gfx908 gfx90a", "_32x32x", 64},
    // Block and float32 forms run at the rate of the older parts.
    {"gfx942 gfx950", "_32x32x1_", 64},
    {"gfx942 gfx950", "_32x32x2_", 64},
    {"gfx942 gfx950", "_32x32x4_2b_", 64},
    {"gfx942 gfx950", "_16x16x1_", 32},
    {"gfx942 gfx950", "_16x16x4_", 32},
    {"gfx950", "_32x32x64_f8f6f4", 64},
    {"gfx950", "_16x16x128_f8f6f4", 32},
    {"gfx942 gfx950", "_16x16x", 16},
    {"gfx942 gfx950", "_32x32x", 32},
    {"gfx1100", "_16x16x16_iu4", 16},
    {"gfx1100", "_16x16x16_", 32},
    {"gfx1201", "_16x16x32_iu4", 8},
    {"gfx1201", "_16x16x16_iu", 8},
    {"gfx1201", "_16x16x16_fp8", 8},
    {"gfx1201", "_16x16x16_bf8", 8},
    {"gfx1201", "_16x16x", 16},
};

constexpr Assumption kAssumptions[] = {
    {"valu-latency", &Machine::valu_latency,
     "CDNA: the next tick; RDNA: 5 clocks, AMD's RDNA material"},
    {"packed-f32", &Machine::packed_f32,
     "CDNA2 on: two results a lane at full rate; set to 8 to model shared write-back ports"},
    {"transcendental", &Machine::transcendental,
     "quarter rate of exp, rcp and the like; gfx950 half rate, unverified: try 16"},
    {"transcendental-latency", &Machine::transcendental_latency, "issue and one dependent slot"},
    {"quarter-rate", &Machine::quarter_rate, "32-bit integer products"},
    {"matrix-extra", &Machine::matrix_extra,
     "wait states of LLVM's hazard recogniser between a matrix result and its VALU reader"},
    {"lds-latency", &Machine::lds_latency, "CDNA: about 128 clocks with the access; RDNA: assumed"},
    {"global-latency", &Machine::global_latency, "a hit in the last level near the CU, assumed"},
    {"scalar-latency", &Machine::scalar_latency, "scalar cache hit, assumed"},
};

bool names(std::string_view list, std::string_view name) {
  return list.find(name) != list.npos;  // no name is part of another
}

Status apply(Machine& machine, const std::string& text) {
  const size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  std::vector<std::string> known;
  for (const Assumption& assumption : kAssumptions) {
    known.emplace_back(assumption.name);
    if (name != assumption.name || equals == text.npos) continue;
    int clocks = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + equals + 1, end, clocks);
    constexpr int kMost = 4000;  // the replay goes tick by tick
    if (error != std::errc() || stop != end || clocks < 1 || clocks > kMost) break;
    machine.*assumption.clocks = clocks;
    return {};
  }
  std::string list;
  for (const std::string& one : known) list += (list.empty() ? "" : ", ") + one;
  return Error{ErrorKind::kUsage,
               fmt::format("--assume {}: want NAME=CLOCKS, 1 to 4000, NAME one of {}",
                           printable(text), list),
               "", ""};
}

}  // namespace

std::span<const Assumption> machine_assumptions() { return kAssumptions; }

Result<Machine> find_machine(std::string_view target, std::span<const std::string> overrides) {
  Machine machine{};
  std::string_view row = target;
  for (const Member& member : kMembers) {
    if (target == member.name) row = member.row;
  }
  std::string known;
  for (const Machine& one : kMachines) {
    if (row == one.name) machine = one;
    known += (known.empty() ? "" : ", ") + std::string(one.name);
  }
  if (machine.name == nullptr) {
    return Error{
        ErrorKind::kUnsupported,
        fmt::format("no issue model for {}; there is one for {}", printable(target), known), "",
        ""};
  }
  for (const Member& member : kMembers) {
    if (target != member.name || member.registers == 0) continue;
    machine.registers = member.registers;
    machine.register_granule = member.granule;
  }
  for (const std::string& text : overrides) {
    if (Status applied = apply(machine, text); !applied) return std::move(applied).error();
  }
  return machine;
}

std::optional<int> matrix_clocks(const Machine& machine, std::string_view mnemonic) {
  for (const MatrixRow& row : kMatrix) {
    if (names(row.machines, machine.name) && mnemonic.find(row.part) != mnemonic.npos) {
      return row.clocks;
    }
  }
  return std::nullopt;
}

std::vector<std::string> machine_rules(const Machine& machine) {
  std::vector<std::string> rules = {
      "waves issue in order, one instruction a tick each; a tick takes one instruction per port: "
      "vector (VALU and matrix together), scalar, LDS, global",
      fmt::format("all {} SIMDs behind an LDS port ask as much of it as this one; no bank "
                  "conflicts; global memory keeps up",
                  machine.lds_port_simds),
      "matrix instructions that add to one accumulator follow each other without a gap",
      "waits are honoured; a barrier holds the waves of its workgroup",
  };
  if (machine.transcendental_apart) {
    rules.push_back(
        "transcendentals have a unit of their own; the range has WMMA once alone on "
        "the vector ALU and once beside other vector instructions");
  } else {
    rules.push_back(
        "a transcendental keeps the vector ALU; the range has it once hold back matrix "
        "instructions and once not");
  }
  rules.push_back(
      "the range also has waves take turns, matrix instructions go first, the oldest wave go "
      "first");
  return rules;
}

}  // namespace hstu::jit::object
