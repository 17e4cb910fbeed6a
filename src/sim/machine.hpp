// SPDX-License-Identifier: Apache-2.0
// The machines that are simulated, as one table: what their code relies on.
// Issue rates are those of the issue model, object/machine.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace hstu::jit::sim {

enum class Generation : uint8_t { gfx908, gfx90a, gfx942, gfx950, gfx11, gfx12 };

struct Machine {
  std::string_view target;
  std::string_view product;
  Generation generation;
  uint32_t gfx;              // 0x90a
  int lds_bytes;             // a workgroup may use
  int lds_banks;             // of 4 bytes
  int line_bytes;            // of the last cache before memory
  int compute_units, simds;  // SIMDs per compute unit
  double clock_ghz, memory_gb_s;
  bool packed_work_item_ids;      // v0 holds x, y and z in 10 bits each
  bool flat_scratch_by_hardware;  // scratch needs no setup by the kernel
  bool separate_store_counter;    // vscnt
  bool split_counters;            // loadcnt, dscnt, kmcnt instead of vmcnt, lgkmcnt

  bool cdna() const { return generation < Generation::gfx11; }
};

// How many registers of each file a wave of a kernel has.
struct RegisterCounts {
  int vector = 0, accumulation = 0;
  int scalar = 0;  // s0 and on; the named ones are always there
};

std::span<const Machine> machines();
const Machine* machine_of(std::string_view target);

}  // namespace hstu::jit::sim
