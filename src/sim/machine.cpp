// SPDX-License-Identifier: Apache-2.0
#include "sim/machine.hpp"

namespace hstu::jit::sim {
namespace {

// target, product, generation, number, LDS, banks, line, CUs, SIMDs, GHz, GB/s, packed ids, flat
// scratch, vscnt, split counters
constexpr Machine kMachines[] = {
    {"gfx908", "Simulated MI100", Generation::gfx908, 0x908, 65536, 32, 64, 120, 4, 1.502, 1228,
     false, false, false, false},
    {"gfx90a", "Simulated MI210", Generation::gfx90a, 0x90a, 65536, 32, 128, 104, 4, 1.7, 1638,
     true, false, false, false},
    {"gfx942", "Simulated MI300X", Generation::gfx942, 0x942, 65536, 32, 128, 304, 4, 2.1, 5300,
     true, true, false, false},
    {"gfx950", "Simulated MI350X", Generation::gfx950, 0x950, 163840, 64, 128, 256, 4, 2.4, 8000,
     true, true, false, false},
    {"gfx1100", "Simulated RX 7900 XTX", Generation::gfx11, 0x1100, 65536, 32, 128, 96, 2, 2.5, 960,
     true, true, true, false},
    {"gfx1201", "Simulated RX 9070 XT", Generation::gfx12, 0x1201, 65536, 32, 128, 64, 2, 2.97, 640,
     true, true, true, true},
};

}  // namespace

std::span<const Machine> machines() { return kMachines; }

const Machine* machine_of(std::string_view target) {
  for (const Machine& machine : kMachines) {
    if (machine.target == target) return &machine;
  }
  return nullptr;
}

}  // namespace hstu::jit::sim
