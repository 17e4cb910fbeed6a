// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "bench/bench.hpp"
#include "plan/tiles.hpp"
#include "tile/hopper_shape.h"  // templates/

namespace hstu::jit {
namespace {

// Tile counts of all heads, and work items (query tiles that exist).
struct TileCounts {
  double full = 0, partial = 0;
};

// Query rows that share steps of keys.
int tile_rows(const ForwardConfig& c) { return c.apart ? 64 : c.tile_m; }

// Whether hopper_apart holds for all rows: no group's may see further than a narrow window.
bool is_narrow(const Geometry& g, bool causal) {
  if (g.features.context || g.features.minfull) return false;
  return std::all_of(g.groups.begin(), g.groups.end(), [&](const GroupArguments& group) {
    return hopper_apart(causal, group.local_len);
  });
}

TileCounts count_tiles(const Geometry& g, const ForwardConfig& c, bool short_first) {
  // Many sequences of a batch are equal: each distinct one is walked once.
  std::map<std::tuple<int, int, int, int>, int64_t> distinct;
  for (const Geometry::Sequence& s : g.sequences)
    ++distinct[{s.seqlen_q, s.seqlen_kv, s.targets, s.group}];
  TileCounts counts;
  for (const auto& [key, times] : distinct) {
    const auto& [q, kv, targets, group] = key;
    const GroupArguments& parameters = g.groups[group];
    const SequenceMask mask = resolve_mask(g.features, q, kv, targets, parameters.local_len,
                                           parameters.context_len, parameters.minfull_len);
    const int rows = tile_rows(c);
    const int missing = short_first && !c.apart
                            ? 64 * hopper_missing_groups(q, parameters.context_len, c.tile_m / 64)
                            : 0;
    for (int64_t row = -missing; row < q; row += rows) {
      const int begin = static_cast<int>(std::max<int64_t>(row, 0));
      const TileKeys t =
          tile_keys(g.features, mask, begin, static_cast<int>(std::min<int64_t>(row + rows, q)));
      if (c.apart) {  // steps begin at the first key seen, all of them with mask code
        const int count = ceil_div(std::max(t.end - t.begin, 0), c.tile_n);
        const int from = std::max(t.diagonal_begin, count > 0 ? t.begin + count * c.tile_n : 0);
        const int own = ceil_div(std::max(t.diagonal_end - from, 0), c.tile_n);
        counts.partial += static_cast<double>(count + own) * static_cast<double>(times);
        continue;
      }
      const int first = t.begin / c.tile_n;
      const int last = ceil_div(t.end, c.tile_n);
      int full = 0;
      if (t.full_begin < t.full_end) {
        const int full_last = t.full_end == kv ? ceil_div(kv, c.tile_n) : t.full_end / c.tile_n;
        full = std::max(0, full_last - ceil_div(t.full_begin, c.tile_n));
      }
      int reached = t.end > t.begin ? last - first : 0;
      if (t.diagonal_begin < t.diagonal_end) {
        const int from = std::max(t.diagonal_begin / c.tile_n, t.end > t.begin ? last : 0);
        reached += std::max(0, ceil_div(t.diagonal_end, c.tile_n) - from);
      }
      counts.full += static_cast<double>(full) * static_cast<double>(times);
      counts.partial += static_cast<double>(reached - full) * static_cast<double>(times);
    }
  }
  return counts;
}

std::string entry_name(const ForwardConfig& c) {
  std::string name =
      fmt::format("hstu_fwd_{}_d{}x{}_{}", c.dtype == Dtype::fp16 ? "fp16" : "bf16", c.head_dim_qk,
                  c.head_dim_v, c.activation == Activation::silu ? "silu" : "softmax");
  if (c.write_lse) name += "_lse";
  name += c.grouped ? "_group" : c.jagged ? "_jagged" : "_batched";
  if (c.mask.cross) name += "_cross";
  name += c.mask.causal ? "_causal" : "_open";
  if (c.mask.local) name += "_local";
  if (c.mask.context) name += "_context";
  if (c.mask.minfull) name += "_minfull";
  if (c.mask.targets) name += "_targets";
  return name + fmt::format("_m{}n{}w{}", c.tile_m, c.tile_n, c.waves);
}

// What GPU kernels ask of strides: 16-byte rows everywhere, and on AMD rows that one buffer
// descriptor with 32-bit offsets reaches.
Status check_strides(const Geometry& g, const Problem& p, const Target& target) {
  if (target.vendor == Vendor::cpu) return {};
  constexpr int64_t kMostSeqStride = int64_t{1} << 23;
  const auto refuse = [&](const char* name, const Strides& s, const std::string& what) {
    return Error{ErrorKind::kUnsupported,
                 fmt::format("/strides/{}: {} needs {}; found [{}, {}, {}]", name, target.name,
                             what, s.batch, s.seq, s.head),
                 fmt::format("/strides/{}", name), ""};
  };
  const struct {
    const char* name;
    const Strides* strides;
    int head_dim;
  } tensors[] = {{"q", &g.q, p.head_dim_qk},
                 {"k", &g.k, p.head_dim_qk},
                 {"v", &g.v, p.head_dim_v},
                 {"o", &g.o, p.head_dim_v}};
  for (const auto& t : tensors) {
    const Strides& s = *t.strides;
    if (s.batch % 8 || s.seq % 8 || s.head % 8)
      return refuse(t.name, s, "element strides that are multiples of 8 (16-byte rows)");
    if (target.vendor == Vendor::amd && (s.seq < t.head_dim || s.seq > kMostSeqStride))
      return refuse(
          t.name, s,
          fmt::format("a sequence stride from {} to {} elements", t.head_dim, kMostSeqStride));
  }
  return {};
}

void estimate(Plan& plan, const Geometry& g, const Problem& p, const TileChoice& tiles) {
  Estimate& e = plan.estimate;
  const double heads = p.heads;
  e.visible_pairs = visible_pairs(g) * p.heads;
  e.dense_pairs = dense_pairs(g) * p.heads;
  e.useful_flop = useful_flops(p, g);
  e.dense_flop = dense_flops(p, g);
  e.bytes = io_bytes(p, g);
  const TileCounts counts = count_tiles(g, plan.config, tiles.short_first);
  e.full_tiles = counts.full * heads;
  e.partial_tiles = counts.partial * heads;
  e.registers = tiles.registers;
  e.lds_bytes = tiles.lds_bytes;
  const Target& t = plan.target;
  if (t.vendor != Vendor::cpu && t.compute_units > 0) {
    if (tiles.lds_bytes > 0) {
      const int by_lds = std::max(1, t.lds_bytes / tiles.lds_bytes);
      const int by_waves = std::max(1, 4 * tiles.waves_per_simd / std::max(1, tiles.waves));
      e.workgroups_per_cu = std::min(by_lds, by_waves);
    }
    const double tile_pairs = (e.full_tiles + e.partial_tiles) * tile_rows(plan.config) *
                              static_cast<double>(plan.config.tile_n);
    const double matrix_flop = 2.0 * (tiles.padded_qk + tiles.padded_v) * tile_pairs;
    e.matrix_ms =
        1e3 * matrix_flop / (t.compute_units * t.clock_ghz * 1e9 * t.matrix_flops_per_clock);
    e.memory_ms = 1e3 * e.bytes / (t.memory_gb_s * 1e9);
    e.bound = e.matrix_ms >= e.memory_ms ? "matrix" : "memory";
  } else {
    // Arithmetic intensity decides; no figures of the host are known.
    e.bound = e.bytes > 0 && e.useful_flop / e.bytes >= 16 ? "matrix" : "memory";
  }
  if (e.visible_pairs == 0) e.bound = "empty";
}

}  // namespace

Result<Plan> make_plan(const Problem& problem, const Geometry& geometry, const Target& target,
                       PlanDetail detail) {
  if (Status s = check_strides(geometry, problem, target); !s) return s.error();
  Plan plan;
  plan.target = target;
  ForwardConfig& c = plan.config;
  c.dtype = problem.dtype;
  c.head_dim_qk = problem.head_dim_qk;
  c.head_dim_v = problem.head_dim_v;
  c.activation = problem.activation;
  c.write_lse = problem.writes_lse();
  c.jagged = problem.layout == Layout::jagged;
  c.grouped = problem.grouped();
  c.mask = geometry.features;
  c.narrow = is_narrow(geometry, problem.causal);
  Result<TileChoice> tiles = choose_tiles(c, target);
  if (!tiles) return std::move(tiles).error();
  c.tile_m = tiles->tile_m;
  c.tile_n = tiles->tile_n;
  c.waves = tiles->waves;
  c.waves_per_simd = tiles->waves_per_simd;
  c.stages = tiles->stages;
  c.q_buffers = tiles->q_buffers;
  c.apart = tiles->apart;
  plan.template_name = tiles->template_name;
  plan.entry = entry_name(c);

  const int64_t query_tiles = (geometry.longest_q + int64_t{c.tile_m} - 1) / c.tile_m;
  if (__builtin_mul_overflow(problem.batch, int64_t{problem.heads}, &plan.launch.grid) ||
      __builtin_mul_overflow(plan.launch.grid, query_tiles, &plan.launch.grid))
    return Error{ErrorKind::kUnsupported, "the grid of batch x heads x query tiles passes 2^63", "",
                 ""};
  plan.launch.block = target.vendor == Vendor::cpu ? 1 : c.waves * target.wave_width;
  plan.launch.dynamic_lds_bytes = tiles->dynamic_lds_bytes;
  const int64_t most = target.vendor == Vendor::amd ? (int64_t{1} << 32) / plan.launch.block - 1
                       : target.vendor == Vendor::nvidia ? (int64_t{1} << 31) - 1
                                                         : INT64_MAX;
  if (plan.launch.grid > most)
    return Error{
        ErrorKind::kUnsupported,
        fmt::format("batch {} x heads {} x {} query tiles makes {} workgroups; {} takes at "
                    "most {} in one launch: split the batch",
                    problem.batch, problem.heads, query_tiles, plan.launch.grid, target.name, most),
        "/batch", ""};

  if (detail == PlanDetail::launch) return plan;
  plan.why = std::move(tiles->why);
  estimate(plan, geometry, problem, *tiles);
  const Estimate& e = plan.estimate;
  plan.why.push_back(fmt::format(
      "grid: {} = batch {} x heads {} x {} tiles of {} query rows (longest query length {}); one "
      "dimension, so no limit of 65,535; last tile first, because causal rows grow",
      plan.launch.grid, problem.batch, problem.heads, query_tiles, c.tile_m, geometry.longest_q));
  plan.why.push_back(fmt::format(
      "mask: {:.0f} full key tiles run no mask code, {:.0f} partial ones test each row's key "
      "interval, all others are skipped; {:.1f} % of the dense pairs are visible",
      e.full_tiles, e.partial_tiles,
      e.dense_pairs > 0
          ? 100.0 * static_cast<double>(e.visible_pairs) / static_cast<double>(e.dense_pairs)
          : 0.0));
  plan.why.push_back(
      fmt::format("baked: dtype, head dims, activation, layout and which mask features exist{}; "
                  "run-time arguments: every length, offset, stride, scale and window, so other "
                  "lengths reuse the kernel",
                  c.apart ? ", and that the window is narrow" : ""));
  return plan;
}

}  // namespace hstu::jit
