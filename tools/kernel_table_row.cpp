// SPDX-License-Identifier: Apache-2.0
#include "kernel_table_row.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "cli/job.hpp"
#include "kernel_table_counts.hpp"
#include "object/classify.hpp"
#include "object/issue.hpp"
#include "object/operands.hpp"
#include "sim/sim.hpp"

namespace hstu::jit::table {
namespace {

constexpr Goal kGoals[] = {
    {"gfx90a", 64, 0.82},  {"gfx90a", 128, 0.90}, {"gfx942", 64, 0.58},
    {"gfx942", 128, 0.80}, {"gfx942", 256, 0.85}, {"gfx950", 128, 0.70},
};

constexpr const char* kLdsWidths[sim::LaunchCounters::kLdsWidths] = {"b8",  "b16",  "b32",   "b64",
                                                                     "b96", "b128", "atomic"};

// Causal, one head, jagged sequences of so many whole tiles of query rows, and a ragged one.
Problem problem_of(const RowKey& key, const std::vector<int64_t>& tiles, int64_t tile_rows) {
  Problem p;
  p.dtype = key.dtype;
  p.heads = 1;
  p.head_dim_qk = p.head_dim_v = key.head_dim;
  p.activation = key.activation;
  for (const int64_t count : tiles) p.uih_q.push_back(static_cast<int32_t>(count * tile_rows));
  constexpr int kRagged = 37;
  p.uih_q.push_back(static_cast<int32_t>(tile_rows) + kRagged);
  p.batch = static_cast<int64_t>(p.uih_q.size());
  p.uih_kv = p.uih_q;
  p.num_targets.assign(p.uih_q.size(), 0);
  p.target = key.target;
  p.device = "sim:" + key.target;
  p.benchmark = BenchmarkSpec{0, 0, false};  // one launch
  return p;
}

void add_conflicts(const sim::LaunchCounters& launch, std::vector<Conflicts>& out) {
  for (const auto& [direction, widths] :
       {std::pair("read", &launch.lds_read), std::pair("write", &launch.lds_write)}) {
    for (size_t w = 0; w < widths->size(); ++w) {
      const sim::LdsWidth& width = (*widths)[w];
      if (width.accesses == 0) continue;
      const std::string kind = fmt::format("{} {}", direction, kLdsWidths[w]);
      auto at =
          std::find_if(out.begin(), out.end(), [&](const Conflicts& c) { return c.kind == kind; });
      if (at == out.end()) at = out.insert(out.end(), Conflicts{kind, 0, 0});
      at->phases += width.phases;
      at->minimum += width.minimum;
    }
  }
}

// Runs a problem through the ordinary launch code; its counters.
Result<sim::LaunchCounters> simulate(cli::JobRunner& runner, const Problem& problem, Row& row) {
  const cli::JobReport report = runner.run(problem);
  if (report.validation) {
    row.relative_error = std::max(row.relative_error.value_or(0), report.validation->rel_frobenius);
  }
  if (report.error && report.error->kind != ErrorKind::kMismatch) return *report.error;
  if (report.error) row.wrong_results.push_back(report.error->message);
  sim::LaunchReport launch = sim::last_launch();
  if (launch.kernel != row.entry) {
    return Error{ErrorKind::kInternal,
                 fmt::format("{} was simulated, not {}", launch.kernel, row.entry), "", ""};
  }
  row.simulated_waves += static_cast<int64_t>(launch.counters.instruction_total() / 1000);
  add_conflicts(launch.counters, row.conflicts);
  return std::move(launch.counters);
}

// Tiles of keys that one turn of the loop takes, from the products its path holds.
Result<int64_t> tiles_a_turn(const object::Loop& loop, const Plan& plan) {
  const int64_t rows = plan.config.tile_m / std::max(1, plan.config.waves);
  const int64_t tile =
      rows * plan.config.tile_n * (plan.config.head_dim_qk + plan.config.head_dim_v);
  const int64_t turn = multiply_adds(loop.path);
  if (tile == 0 || turn == 0 || turn % tile != 0) {
    return Error{ErrorKind::kFailed,
                 fmt::format("a turn of the main loop holds {} multiply-adds of a wave, a tile of "
                             "{} keys takes {}: no whole number of tiles",
                             turn, plan.config.tile_n, tile),
                 "", ""};
  }
  return turn / tile;
}

// A path replayed as the whole loop is in model_schedules().
Result<PathShare> share_of(const ExecutedPath& path, const Row& row) {
  PathShare out{path.turns, static_cast<int64_t>(path.path.size()), 1, 0};
  const MatrixShare* judged = row.judged();
  const Result<object::Machine> machine = object::find_machine(row.schedule->target, {});
  if (!machine) return machine.error();
  const auto steps =
      object::make_steps(path.path, *machine, row.schedule->kernel.wave_width.value_or(64));
  if (!steps) return steps.error();
  const int group = std::max(
      1, (row.schedule->occupancy.workgroup_waves + machine->lds_simds - 1) / machine->lds_simds);
  for (const object::Policy& policy : object::issue_policies()) {
    if (judged == nullptr || policy.order == object::Order::oldest_first) continue;
    const Result<object::Replay> replayed =
        object::replay(*steps, *machine, judged->waves, group, policy);
    if (!replayed) return replayed.error();
    out.low = std::min(out.low, replayed->matrix_share);
    out.high = std::max(out.high, replayed->matrix_share);
  }
  return out;
}

void add_accesses(const ExecutedPath& path, std::map<std::string, int>& narrowest) {
  for (const ListedInstruction& i : path.path) {
    const std::string kind = object::instruction_class(object::InstructionSet::amd, i.mnemonic);
    const int bytes = object::bytes_per_lane(i.mnemonic);
    if ((kind.rfind("lds_", 0) != 0 && kind.rfind("global_", 0) != 0) || bytes == 0) continue;
    const auto at = narrowest.emplace(kind, bytes).first;
    at->second = std::min(at->second, bytes);
  }
}

Status fill(Engine& engine, const Target& target, Row& row) {
  // The plan does not depend on the lengths.
  const Problem any = problem_of(row.key, {1}, 128);
  const Result<Geometry> geometry = make_geometry(any);
  if (!geometry) return geometry.error();
  const Result<Prepared> prepared = engine.prepare(any, *geometry, target);
  if (!prepared) return prepared.error();
  const Plan& plan = prepared->plan;
  row.entry = plan.entry;
  row.toolchain = prepared->kernel->toolchain;
  std::vector<std::string> notes;
  Result<std::vector<Schedule>> schedules = model_schedules(prepared->kernel->object, {}, notes);
  if (!schedules) return std::move(schedules).error();
  row.schedule = std::move(schedules->front());
  row.lds_bytes = row.schedule->kernel.lds_bytes.value_or(0) + plan.launch.dynamic_lds_bytes;
  const Result<KernelCode> code = read_kernel_code(prepared->kernel->object, plan.entry);
  if (!code) return code.error();
  const Result<int64_t> tiles = tiles_a_turn(code->loop, plan);
  if (!tiles) return tiles.error();
  row.tiles_a_turn = *tiles;

  // Two launches with as many workgroups, of which `shift` look `shift` tiles of rows further back
  // in the second one. Everything but that many turns in the steady state is equal: before all of
  // them lie two tiles of rows of full keys, and their masked tiles are the same.
  const int64_t rows = plan.config.tile_m, keys = plan.config.tile_n;
  const int64_t step = keys * row.tiles_a_turn;
  const int64_t shift = step / std::gcd(step, rows);
  const int64_t base = shift + 2;
  row.turns = shift * (shift * rows / step) * plan.config.waves;
  cli::JobRunner runner(engine, {});
  const Result<sim::LaunchCounters> fewer =
      simulate(runner, problem_of(row.key, {base, base, base + shift}, rows), row);
  if (!fewer) return fewer.error();
  const Result<sim::LaunchCounters> more =
      simulate(runner, problem_of(row.key, {base - shift, base + shift, base + shift}, rows), row);
  if (!more) return more.error();
  TurnReport report = compare_turns(*code, row.schedule->loop.classes, *fewer, *more, row.turns);
  row.count_differences = std::move(report.differences);
  for (const ExecutedPath& path : report.paths) {
    const Result<PathShare> share = share_of(path, row);
    if (!share) return share.error();
    row.paths.push_back(*share);
    add_accesses(path, row.accesses);
  }
  return {};
}

}  // namespace

const char* dtype_name(Dtype dtype) { return dtype == Dtype::fp16 ? "fp16" : "bf16"; }
const char* activation_name(Activation activation) {
  return activation == Activation::silu ? "silu" : "softmax";
}

std::optional<double> goal_of(const RowKey& key) {
  if (key.dtype != Dtype::bf16 || key.activation != Activation::silu) return std::nullopt;
  for (const Goal& goal : kGoals) {
    if (key.target == goal.target && key.head_dim == goal.head_dim) return goal.share;
  }
  return std::nullopt;
}

int64_t Row::spills() const {
  if (!schedule) return 0;
  return schedule->kernel.vgpr_spills.value_or(0) + schedule->kernel.sgpr_spills.value_or(0);
}

const MatrixShare* Row::share_at(int waves) const {
  if (!schedule) return nullptr;
  for (const MatrixShare& share : schedule->shares) {
    if (share.waves == waves) return &share;
  }
  return nullptr;
}

const MatrixShare* Row::judged() const {
  const MatrixShare* two = share_at(2);
  return two != nullptr && two->reached ? two : share_at(1);
}

int Row::narrowest(const std::string& kind) const {
  const auto found = accesses.find(kind);
  return found == accesses.end() ? 0 : found->second;
}

double Row::missed_by() const {
  const std::optional<double> goal = goal_of(key);
  if (!goal) return 0;
  const MatrixShare* share = judged();
  double low = share == nullptr ? 0 : share->low;
  for (const PathShare& path : paths) low = std::min(low, path.low);
  return std::max(0.0, *goal - low);
}

std::vector<std::string> Row::failures() const {
  std::vector<std::string> out;
  if (error) out.push_back(error->message);
  if (schedule) {
    if (spills() > 0) out.push_back(fmt::format("{} spilled registers", spills()));
    if (const int64_t bytes = schedule->kernel.scratch_bytes.value_or(0); bytes > 0) {
      out.push_back(fmt::format("{} bytes of scratch a lane", bytes));
    }
  }
  for (const Conflicts& c : conflicts) {
    if (c.phases > c.minimum) {
      out.push_back(
          fmt::format("LDS {}: {} phases, {} without bank conflicts", c.kind, c.phases, c.minimum));
    }
  }
  out.insert(out.end(), wrong_results.begin(), wrong_results.end());
  for (const std::string& difference : count_differences) out.push_back(difference);
  return out;
}

Row make_row(Engine& engine, const Target& target, const RowKey& key) {
  Row row;
  row.key = key;
  if (Status filled = fill(engine, target, row); !filled) row.error = std::move(filled).error();
  return row;
}

}  // namespace hstu::jit::table
