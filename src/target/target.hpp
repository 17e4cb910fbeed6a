// SPDX-License-Identifier: Apache-2.0
// Target: what code is compiled for. One static table of architectures; no device is needed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace hstu::jit {

enum class Vendor { amd, nvidia, cpu };

// The matrix instruction family the tile layer has for a target.
enum class MatrixUnit {
  none,
  mfma_gfx908,
  mfma_gfx90a,
  mfma_gfx950,
  wmma_gfx11,
  wmma_gfx12,
  mma_sync,
  amx
};

struct Target {
  std::string name;  // "gfx942", "sm_90a", "cpu:x86-64-v4+amx": canonical, part of every key
  Vendor vendor = Vendor::cpu;
  MatrixUnit matrix = MatrixUnit::none;
  int wave_width = 1;  // lanes of a wave (warp); 1 on cpu
  int lds_bytes = 0;   // LDS (shared memory) a workgroup may use
  int registers_per_lane =
      0;  // of one SIMD at one wave (512: VGPR and AGPR together), per thread on NVIDIA
  int max_registers = 0;  // addressable by one lane
  int compute_units = 0;  // of the usual part, for estimates only
  double clock_ghz = 0;
  double matrix_flops_per_clock = 0;  // bf16 FLOP per clock and compute unit
  double memory_gb_s = 0;
  const char* oldest_disassembler = "";  // oldest LLVM that knows it: "llvm-19", "llvm-21", ""
  const char* product = "";              // "MI300X", for people
};

// Every row of the table.
std::span<const Target> all_targets();

// "auto" is not a target: callers resolve it first. "cpu" resolves to this host's level.
// Family members ("gfx1101", "sm_89") resolve to their row with their own name kept.
// Errors: kUnsupported with the list of names and a did-you-mean.
Result<Target> find_target(std::string_view name);

}  // namespace hstu::jit
