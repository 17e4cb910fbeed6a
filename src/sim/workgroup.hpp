// SPDX-License-Identifier: Apache-2.0
// One workgroup: its waves, run in turn between barriers, and its LDS.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/code.hpp"
#include "sim/lds.hpp"
#include "sim/memory.hpp"
#include "sim/tally.hpp"
#include "sim/wave.hpp"

namespace hstu::jit::sim {

// What all workgroups of a launch share; fixed while it runs.
struct Dispatch {
  std::shared_ptr<const Code> code;
  const KernelEntry* kernel = nullptr;
  MemoryMap memory{{}};
  std::array<uint32_t, 3> grid{}, block{};  // workgroups, work-items of each
  uint32_t lds_bytes = 0;                   // static and dynamic
  uint64_t kernarg = 0, packet = 0, queue = 0;
  uint64_t instructions_per_wave = 0;  // more are a fault
};

class Workgroup {
 public:
  Workgroup(const Dispatch& dispatch, Tally& tally);

  // Runs workgroup `id` to its end. The fault that stopped it, or nothing.
  std::string run(std::array<uint32_t, 3> id);

  const Machine& machine() const { return dispatch_.code->machine(); }
  const Dispatch& dispatch() const { return dispatch_; }
  const Code& code() const { return *dispatch_.code; }
  Lds& lds() { return lds_; }
  Tally& tally() { return tally_; }

  // ---- Scratch: each wave has one block, its dwords interleaved by lane as buffer addressing of
  // the hardware lays them out.
  uint64_t scratch_base(const Wave& wave) const;
  uint32_t scratch_bytes() const { return dispatch_.kernel->scratch_bytes; }  // of a lane

  // The scratch of this workgroup when it holds `address`, else null.
  const MemoryRange* own_range(uint64_t address) const;
  const MemoryRange* last_range;  // that an access was found in

  // "kernel k, 0x1a40 v_add_f32_e32 v0, v1, v2, workgroup (0, 0, 0), wave 1, lane 5".
  std::string describe(const Wave& wave, int lane) const;
  // "global_load_dword at 0x1a40".
  static std::string place(const Instruction* i);

 private:
  void start_wave(Wave& wave);
  void run_wave(Wave& wave);
  // True when a barrier was passed; sets `fault` when waves can never meet.
  bool pass_barrier(std::string& fault);

  const Dispatch& dispatch_;
  Tally& tally_;
  std::array<uint32_t, 3> id_{};
  Lds lds_;
  std::vector<uint8_t> scratch_;
  MemoryRange scratch_range_{0, 0, true, "scratch"};
  std::vector<std::unique_ptr<Wave>> waves_;
};

}  // namespace hstu::jit::sim
