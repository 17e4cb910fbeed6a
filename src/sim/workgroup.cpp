// SPDX-License-Identifier: Apache-2.0
#include "sim/workgroup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace hstu::jit::sim {
namespace {

// Instructions after which another wave has its turn: waves may wait for one another in a loop.
constexpr uint32_t kTurn = 1 << 20;

}  // namespace

Workgroup::Workgroup(const Dispatch& dispatch, Tally& tally) : dispatch_(dispatch), tally_(tally) {
  const KernelEntry& k = *dispatch.kernel;
  const uint32_t items = dispatch.block[0] * dispatch.block[1] * dispatch.block[2];
  const auto width = static_cast<uint32_t>(k.wave_width);
  const uint32_t count = (items + width - 1) / width;
  for (uint32_t w = 0; w < count; ++w) {
    waves_.push_back(std::make_unique<Wave>(*this, static_cast<int>(w), k.wave_width));
  }
  scratch_.resize(size_t{count} * width * ((k.scratch_bytes + 3) / 4 * 4));
  scratch_range_.begin = reinterpret_cast<uint64_t>(scratch_.data());
  scratch_range_.end = scratch_range_.begin + scratch_.size();
  last_range = &scratch_range_;
}

uint64_t Workgroup::scratch_base(const Wave& wave) const {
  const size_t wave_bytes = waves_.empty() ? 0 : scratch_.size() / waves_.size();
  return reinterpret_cast<uint64_t>(scratch_.data()) + wave_bytes * wave.number();
}

const MemoryRange* Workgroup::own_range(uint64_t address) const {
  return address - scratch_range_.begin < scratch_.size() ? &scratch_range_ : nullptr;
}

// The registers that the hardware sets, in the order of "Initial Kernel Execution State".
void Workgroup::start_wave(Wave& wave) {
  const KernelEntry& k = *dispatch_.kernel;
  const auto& block = dispatch_.block;
  const uint32_t items = block[0] * block[1] * block[2];
  const auto width = static_cast<uint32_t>(wave.width());
  const uint32_t first = static_cast<uint32_t>(wave.number()) * width;
  const uint32_t lanes = std::min(width, items - first);
  const uint64_t exec = lanes == 64 ? ~uint64_t{0} : (uint64_t{1} << lanes) - 1;
  wave.reset(exec, k.mode, k.registers);
  wave.program_counter = k.entry;

  int s = 0;
  const auto set = [&](uint32_t value) { wave.preset_scalar(s++, value); };
  const auto set64 = [&](uint64_t value) {
    set(static_cast<uint32_t>(value));
    set(static_cast<uint32_t>(value >> 32));
  };
  const uint64_t scratch = scratch_base(wave);
  if (k.private_segment_buffer) {
    // A buffer over this wave's scratch: swizzled, lane number added, elements of 4 bytes.
    set64((scratch & 0xffffffffffff) | uint64_t{1} << 63);
    set(scratch_bytes() * width);
    set(1u << 23 | (width == 64 ? 3u : 2u) << 21 | 1u << 19 | 0x27000);
  }
  if (k.dispatch_ptr) set64(dispatch_.packet);
  if (k.queue_ptr) set64(dispatch_.queue);
  if (k.kernarg_ptr) set64(dispatch_.kernarg);
  if (k.dispatch_id) set64(0);
  if (k.flat_scratch_init) set64(scratch);
  if (k.private_segment_size) set(scratch_bytes());
  for (uint32_t d = 0; d < k.preload_dwords; ++d) {
    uint32_t value = 0;
    std::memcpy(&value,
                reinterpret_cast<const void*>(dispatch_.kernarg + 4 * (k.preload_offset + d)), 4);
    set(value);
  }
  s = std::max(s, k.user_sgprs);
  if (machine().generation == Generation::gfx12) {
    wave.preset_scalar(kTtmp + 9, id_[0]);
    wave.preset_scalar(kTtmp + 7, id_[1] | id_[2] << 16);
  } else {
    if (k.workgroup_id_x) set(id_[0]);
    if (k.workgroup_id_y) set(id_[1]);
    if (k.workgroup_id_z) set(id_[2]);
    if (k.workgroup_info) set(static_cast<uint32_t>(waves_.size()));
    if (k.scratch_wave_offset) set(0);
  }

  const bool packed = machine().packed_work_item_ids;
  for (int part = 0; part < (packed ? 1 : k.work_item_ids); ++part) {
    Row& row = wave.preset_vector(part);
    for (uint32_t l = 0; l < width; ++l) {
      const uint32_t item = first + l;
      const uint32_t x = item % block[0], y = item / block[0] % block[1],
                     z = item / block[0] / block[1];
      row.lane[l] = packed ? x | y << 10 | z << 20 : part == 0 ? x : part == 1 ? y : z;
    }
  }
}

void Workgroup::run_wave(Wave& wave) {
  const std::vector<Instruction>& code = dispatch_.code->instructions();
  uint64_t* executed = tally_.executed.data();
  wave.stop = false;
  const uint64_t before = wave.executed;
  const uint64_t end = before + std::min<uint64_t>(kTurn, dispatch_.instructions_per_wave - before);
  while (!wave.stop) {
    const uint64_t at = wave.program_counter;
    if (at >= code.size()) {
      wave.fail("execution ran past the last instruction of the object");
      break;
    }
    const Instruction& i = code[at];
    wave.set_current(i);
    wave.program_counter = at + 1;
    ++executed[at];
    if (++wave.executed > end) {
      if (wave.executed > dispatch_.instructions_per_wave) {
        wave.fail(
            fmt::format("the wave executed {} instructions, which is the limit: an endless "
                        "loop? (HSTU_JIT_SIM_LIMIT raises it)",
                        dispatch_.instructions_per_wave));
        break;
      }
      wave.stop = true;  // the turn ends after this one
    }
    i.execute(wave, i);
  }
}

// Waves may wait at different instructions: the hardware counts arrivals, and compilers copy a
// barrier into the branches that waves take as a whole.
bool Workgroup::pass_barrier(std::string& fault) {
  Wave* waiting = nullptr;
  const Wave* ended = nullptr;
  bool all_wait = true, apart = false;
  for (const auto& wave : waves_) {
    if (wave->ended) {
      ended = wave.get();
    } else if (wave->at_barrier) {
      apart = apart || (waiting != nullptr && waiting->barrier != wave->barrier);
      waiting = wave.get();
    } else {
      all_wait = false;
    }
  }
  if (waiting == nullptr) return false;
  if (ended != nullptr) {
    waiting->fail(
        fmt::format("divergent barrier: wave {} ended without reaching one", ended->number()));
    fault = waiting->fault();
    return false;
  }
  if (!all_wait) return false;
  tally_.barriers_apart += apart;
  lds_.new_epoch();
  for (const auto& wave : waves_) {
    wave->at_barrier = wave->signalled = false;
    for (const Queue queue : {Queue::lds, Queue::vector}) {
      const OutstandingQueue& q = wave->outstanding(queue);
      for (uint32_t i = 0; i < q.size(); ++i) {
        if (q[i].touch.lanes != 0) lds_.carry_over(q[i].touch, wave->number());
      }
    }
  }
  return true;
}

std::string Workgroup::run(std::array<uint32_t, 3> id) {
  id_ = id;
  lds_.reset(dispatch_.lds_bytes);
  std::fill(scratch_.begin(), scratch_.end(), 0xff);
  for (const auto& wave : waves_) start_wave(*wave);
  tally_.workgroups += 1;
  tally_.waves += waves_.size();
  std::string fault;
  for (bool running = true; running && fault.empty();) {
    running = false;
    for (const auto& wave : waves_) {
      if (wave->ended || wave->at_barrier) continue;
      running = true;
      run_wave(*wave);
      if (wave->failed()) {
        fault = wave->fault();
        break;
      }
    }
    if (fault.empty() && pass_barrier(fault)) running = true;
  }
  for (const auto& wave : waves_) {
    tally_.waits += wave->waits;
    tally_.waits_needed += wave->waits_needed;
    tally_.undefined_reads += wave->undefined_reads;
    if (tally_.first_undefined.empty()) tally_.first_undefined = wave->first_undefined;
  }
  return fault;
}

std::string Workgroup::place(const Instruction* i) {
  if (i == nullptr) return "nothing";
  const std::string& text = i->text;
  return fmt::format("{} at {:#x}", text.substr(0, text.find(' ')), i->address);
}

std::string Workgroup::describe(const Wave& wave, int lane) const {
  const Instruction* i = wave.current();
  std::string out = "kernel " + dispatch_.kernel->info.name;
  if (i != nullptr) out += fmt::format(", {:#x} {}", i->address, i->text);
  out += fmt::format(", workgroup ({}, {}, {}), wave {}", id_[0], id_[1], id_[2], wave.number());
  if (lane >= 0) out += fmt::format(", lane {}", lane);
  return out;
}

}  // namespace hstu::jit::sim
