// SPDX-License-Identifier: Apache-2.0
// Probes: a few instructions with known operands in every lane and the values they must leave.
// Many probes share one kernel.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "assembler.hpp"

namespace hstu::test {

constexpr uint32_t kUntouched = 0xdeadbeef;  // output registers before the probe's code
constexpr int kWorkgroups = 8;               // of one wave each

using Lanes = std::array<uint32_t, 64>;

// One wave's inputs and the outputs that are right. `out` starts as kUntouched.
struct Wave {
  int width = 64;
  int workgroup = 0;
  std::vector<Lanes> in, out;
  // The number of this tuple of operands among those of all workgroups.
  int tuple(int lane) const { return workgroup * width + lane; }
};

// What an input register holds. f64 and u64 take two registers. The _q kinds have no signalling
// NaN, the _n kinds neither NaN; f32_m has no denormals.
enum class In : uint8_t {
  u32,
  u64,
  f32,
  f32_q,
  f32_n,
  f32_m,
  f16,
  f16_q,
  f16_n,
  f64,
  f64_q,
  unit,
  lane
};

using Same = bool (*)(uint32_t got, uint32_t want);
bool same_bits(uint32_t got, uint32_t want);
bool same_f32(uint32_t got, uint32_t want);    // NaN is NaN
bool same_f16x2(uint32_t got, uint32_t want);  // per half
bool near_f32(uint32_t got, uint32_t want);    // 2 units in the last place; tiny is zero
bool rough_f32(uint32_t got, uint32_t want);   // 2^-12 relative or 1e-5 absolute

// Code reads v8, v9, ... (inputs, in order; up to 48) and writes v64, v65, ... (outputs, up to
// 32). Free: v2-v7, v96-v127, a0-a31, s12-s99, vcc, m0, LDS of 8 KB. v0 is the lane, v1 is
// 4 * lane, s[10:11] the workgroup's own 64 KB of memory, all zero before the first probe.
// $vcc, $exec and $m20 ($m22, ...) are lane masks of the wave's width, $wait waits for everything.
struct Probe {
  std::string code;
  std::vector<In> in;
  int out = 1;
  std::function<void(Wave&)> expect;
  Same same = same_bits;
  std::string name = {};  // the code, unless given
};

// Runs all probes on the simulated target; a failed CHECK per wrong probe, naming lane, operands
// and results.
// One kernel holds them all; when that is a fault, halves of them run, so that each fault blames
// one.
void run_probes(const std::string& target, const std::vector<Probe>& probes,
                KernelForm form = KernelForm());

// The same without the CHECKs: one text per probe that is wrong.
std::vector<std::string> wrong_probes(const std::string& target, const std::vector<Probe>& probes,
                                      KernelForm form = KernelForm());

// Skips with a reason where there is no assembler or disassembler for the target.
bool can_probe(const std::string& target, const std::string& test);

// ---- Ways to say what is right.
// Per lane, from input registers to output registers.
std::function<void(Wave&)> lanewise(std::function<void(const uint32_t* in, uint32_t* out)> f);
// The same for one output.
std::function<void(Wave&)> each(std::function<uint32_t(const uint32_t* in)> f);

// Rows of a table: the inputs and outputs of successive tuples, repeated.
struct Row {
  std::vector<uint32_t> in, out;
};
Probe table(const std::string& code, std::vector<Row> rows, Same same = same_bits);

}  // namespace hstu::test
