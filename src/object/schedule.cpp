// SPDX-License-Identifier: Apache-2.0
#include "object/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.hpp"
#include "object/classify.hpp"
#include "object/elf.hpp"
#include "object/issue.hpp"
#include "object/listing.hpp"
#include "object/loop.hpp"
#include "object/machine.hpp"
#include "object/operands.hpp"

namespace hstu::jit {
namespace {

using object::Machine;
using object::Step;

int round_up(int value, int granule) { return (value + granule - 1) / granule * granule; }

int wave_width_of(const KernelInfo& kernel) {
  return std::clamp(kernel.wave_width.value_or(64), 1, 64);
}

Occupancy occupancy_of(const KernelInfo& kernel, const Machine& machine) {
  constexpr int kMostRegisters = 4096;  // hostile metadata may say anything
  Occupancy out;
  const auto allocated = [&](std::optional<int> count) {
    const int known = std::clamp(count.value_or(0), 1, kMostRegisters);
    return round_up(known, machine.register_granule);
  };
  // Where the files are one, the count of VGPRs includes the AGPRs.
  const int registers = machine.agprs_apart
                            ? std::max(allocated(kernel.vgprs), allocated(kernel.agprs))
                            : allocated(kernel.vgprs);
  out.by_registers = std::min(machine.max_waves, machine.registers / registers);
  const int lanes = std::clamp(kernel.max_workgroup.value_or(0), 1, 1024);
  const int width = wave_width_of(kernel);
  out.workgroup_waves = round_up(lanes, width) / width;
  const int simds = machine.lds_simds;
  const auto fitting = [&](int waves_per_simd) {
    if (out.workgroup_waves % simds == 0) return waves_per_simd / (out.workgroup_waves / simds);
    return waves_per_simd * simds / out.workgroup_waves;
  };
  const int by_registers = fitting(out.by_registers), by_waves = fitting(machine.max_waves);
  const int64_t lds = std::max<int64_t>(kernel.lds_bytes.value_or(0), 1);
  const int by_lds = static_cast<int>(std::min<int64_t>(machine.lds_bytes / lds, by_waves));
  out.workgroups = std::min(by_registers, by_lds);
  out.waves_per_simd = static_cast<double>(out.workgroups) * out.workgroup_waves / simds;
  out.limited_by = by_lds < by_registers                  ? "LDS"
                   : out.by_registers < machine.max_waves ? "registers"
                                                          : "waves";
  return out;
}

LoopReport report_of(const object::Loop& loop) {
  LoopReport out;
  out.address = loop.address;
  out.blocks = loop.blocks;
  out.blocks_on_path = loop.blocks_on_path;
  out.matrix_loops = loop.matrix_loops;
  out.instructions = static_cast<int64_t>(loop.path.size());
  out.all_instructions = loop.instructions;
  out.mask_instructions = loop.mask;
  out.inner_loops = loop.inner_loops;
  std::map<std::pair<std::string, int>, int64_t> accesses;
  for (const ListedInstruction& i : loop.path) {
    const std::string kind = object::instruction_class(object::InstructionSet::amd, i.mnemonic);
    ++out.classes[kind];
    ++out.mnemonics[i.mnemonic];
    if (kind.substr(0, 4) == "lds_" || kind.substr(0, 7) == "global_") {
      ++accesses[{kind, object::bytes_per_lane(i.mnemonic)}];
    }
  }
  for (const auto& [key, count] : accesses) out.accesses.push_back({key.first, key.second, count});
  return out;
}

void add_bound(Schedule& out, const std::vector<Step>& steps, const Machine& machine) {
  const double tick = machine.tick;
  for (const Step& step : steps) {
    out.lds_clocks += step.lds_ticks * tick;
    if (step.kind == Step::Kind::matrix) {
      out.matrix_clocks += step.busy * tick;
      out.matrix_issue_clocks += tick;
    } else if (step.kind == Step::Kind::valu) {
      out.valu_clocks += step.busy * tick;
    } else if (step.kind == Step::Kind::transcendental) {
      out.transcendental_clocks += step.busy * tick;
    }
  }
  const bool apart = machine.transcendental_apart;
  const double vector =
      out.valu_clocks + out.matrix_issue_clocks + (apart ? 0 : out.transcendental_clocks);
  const double trans = apart ? out.transcendental_clocks : 0;
  const double slowest = std::max({out.matrix_clocks, vector, out.lds_clocks, trans});
  out.bound_high = out.matrix_clocks / slowest;
  // On RDNA the matrix instructions may take the vector ALU for their whole duration.
  out.bound_low = apart ? out.matrix_clocks / std::max(slowest, out.matrix_clocks + out.valu_clocks)
                        : out.bound_high;
  out.limited_by = slowest == out.matrix_clocks ? "matrix"
                   : slowest == vector          ? "VALU"
                   : slowest == out.lds_clocks  ? "LDS"
                                                : "transcendental";
}

Status add_shares(Schedule& out, const std::vector<Step>& steps, const Machine& machine) {
  std::vector<int> waves = {1, 2};
  const int resident = static_cast<int>(out.occupancy.waves_per_simd);
  if (resident >= 4) waves.push_back(4);
  if (resident > 2 && resident != 4) waves.push_back(resident);
  const int group =
      std::max(1, (out.occupancy.workgroup_waves + machine.lds_simds - 1) / machine.lds_simds);
  for (const int count : waves) {
    MatrixShare share;
    share.waves = count;
    share.reached = count <= out.occupancy.waves_per_simd;
    share.low = share.oldest_low = 1;
    for (const object::Policy& policy : object::issue_policies()) {
      const Result<object::Replay> replayed = object::replay(steps, machine, count, group, policy);
      if (!replayed) return replayed.error();
      const bool oldest = policy.order == object::Order::oldest_first;
      double& low = oldest ? share.oldest_low : share.low;
      double& high = oldest ? share.oldest_high : share.high;
      low = std::min(low, replayed->matrix_share);
      high = std::max(high, replayed->matrix_share);
      if (share.policies.empty()) {
        share.clocks_per_round = replayed->ticks_per_round * machine.tick;
        share.stalls = replayed->stalls;
      }
      share.policies[policy.name] = replayed->matrix_share;
    }
    out.shares.push_back(std::move(share));
  }
  return {};
}

Result<Schedule> model_kernel(const KernelInfo& kernel, const std::string& target,
                              std::span<const ListedInstruction> code, const Machine& machine) {
  Schedule out;
  out.kernel = kernel;
  out.target = target;
  const Result<object::Loop> loop = object::find_main_loop(code);
  if (!loop) return loop.error();
  // Far more than any instruction cache holds; the replay goes tick by tick.
  constexpr size_t kMostInstructions = 50000;
  if (loop->path.size() > kMostInstructions) {
    return Error{ErrorKind::kFailed,
                 fmt::format("its main loop has {} instructions; up to {} are modelled",
                             loop->path.size(), kMostInstructions),
                 "", ""};
  }
  const Result<std::vector<Step>> steps =
      object::make_steps(loop->path, machine, wave_width_of(kernel));
  if (!steps) return steps.error();
  out.occupancy = occupancy_of(kernel, machine);
  out.loop = report_of(*loop);
  add_bound(out, *steps, machine);
  if (Status shares = add_shares(out, *steps, machine); !shares) return std::move(shares).error();
  for (const object::Assumption& assumption : object::machine_assumptions()) {
    out.assumptions.push_back({assumption.name, machine.*assumption.clocks, assumption.source});
  }
  out.rules = object::machine_rules(machine);
  return out;
}

}  // namespace

Result<std::vector<Schedule>> model_schedules(std::string_view bytes,
                                              std::span<const std::string> overrides,
                                              std::vector<std::string>& notes) {
  const Result<ObjectInfo> info = read_object(bytes);
  if (!info) return info.error();
  if (info->format != "amdgpu") {
    return object::odd_object(fmt::format(
        "it is a {} object; schedules are modelled for AMD code objects only", info->format));
  }
  const Result<Machine> machine = object::find_machine(info->target, overrides);
  if (!machine) return machine.error();
  if (info->kernels.empty()) return object::odd_object("it holds no kernel");
  const Result<Listing> listing = disassemble(bytes);
  if (!listing) return listing.error();

  const auto ranges = object::function_ranges(bytes);
  const auto by_address = [](const ListedInstruction& i, uint64_t address) {
    return i.address < address;
  };
  std::vector<Schedule> out;
  std::optional<Error> first;
  for (const KernelInfo& kernel : info->kernels) {
    const auto range = ranges.find(kernel.name);
    const auto& all = listing->instructions;
    const auto begin = range == ranges.end() ? all.end()
                                             : std::lower_bound(all.begin(), all.end(),
                                                                range->second.begin, by_address);
    const auto end = range == ranges.end()
                         ? begin
                         : std::lower_bound(begin, all.end(), range->second.end, by_address);
    Result<Schedule> schedule =
        begin == end ? Result<Schedule>(Error{ErrorKind::kFailed, "it has no code", "", ""})
                     : model_kernel(kernel, info->target, {begin, end}, *machine);
    if (schedule) {
      out.push_back(std::move(*schedule));
      continue;
    }
    Error error = std::move(schedule).error().with_context("kernel " + printable(kernel.name, 400));
    notes.push_back(error.message);
    if (!first) first = std::move(error);
  }
  if (out.empty()) {
    notes.clear();
    return *first;
  }
  return out;
}

}  // namespace hstu::jit
