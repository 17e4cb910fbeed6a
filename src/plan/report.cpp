// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "plan/plan.hpp"

namespace hstu::jit {
namespace {

const char* dtype_name(Dtype d) { return d == Dtype::fp16 ? "fp16" : "bf16"; }
const char* activation_name(Activation a) { return a == Activation::silu ? "silu" : "softmax"; }

}  // namespace

std::string to_json(const Plan& plan, int indent) {
  using Json = nlohmann::ordered_json;
  const ForwardConfig& c = plan.config;
  const Estimate& e = plan.estimate;
  Json j;
  j["schema"] = "hstu-jit/plan/1";
  j["target"] = plan.target.name;
  j["template"] = plan.template_name;
  j["entry"] = plan.entry;
  j["config"] = {{"dtype", dtype_name(c.dtype)},
                 {"head_dim_qk", c.head_dim_qk},
                 {"head_dim_v", c.head_dim_v},
                 {"activation", activation_name(c.activation)},
                 {"write_lse", c.write_lse},
                 {"jagged", c.jagged},
                 {"grouped", c.grouped},
                 {"causal", c.mask.causal},
                 {"cross", c.mask.cross},
                 {"local", c.mask.local},
                 {"context", c.mask.context},
                 {"minfull", c.mask.minfull},
                 {"targets", c.mask.targets},
                 {"tile_m", c.tile_m},
                 {"tile_n", c.tile_n},
                 {"waves", c.waves},
                 {"waves_per_simd", c.waves_per_simd}};
  j["launch"] = {{"grid", plan.launch.grid},
                 {"block", plan.launch.block},
                 {"dynamic_lds_bytes", plan.launch.dynamic_lds_bytes}};
  j["estimate"] = {{"visible_pairs", e.visible_pairs},
                   {"dense_pairs", e.dense_pairs},
                   {"useful_flop", e.useful_flop},
                   {"dense_flop", e.dense_flop},
                   {"bytes", e.bytes},
                   {"full_tiles", e.full_tiles},
                   {"partial_tiles", e.partial_tiles},
                   {"registers", e.registers},
                   {"lds_bytes", e.lds_bytes},
                   {"workgroups_per_cu", e.workgroups_per_cu},
                   {"matrix_ms", e.matrix_ms},
                   {"memory_ms", e.memory_ms},
                   {"bound", e.bound}};
  j["why"] = plan.why;
  return j.dump(indent);
}

std::string to_text(const Plan& plan) {
  const ForwardConfig& c = plan.config;
  const Estimate& e = plan.estimate;
  std::string out;
  const auto line = [&](const char* name, const std::string& value) {
    out += fmt::format("{:<10} {}\n", name, value);
  };
  const Target& t = plan.target;
  line("target", t.vendor == Vendor::cpu
                     ? t.name
                     : fmt::format("{}{}{}, {} compute units at {:.2f} GHz, {} KiB LDS", t.name,
                                   *t.product ? ", " : "", t.product, t.compute_units, t.clock_ghz,
                                   t.lds_bytes / 1024));
  line("template", plan.template_name);
  line("kernel", plan.entry);
  line("tile", fmt::format("{} query rows x {} keys per step, {} wave{}", c.tile_m, c.tile_n,
                           c.waves, c.waves == 1 ? "" : "s"));
  if (t.vendor != Vendor::cpu) {
    line("registers", fmt::format("about {} a lane for fragments; {} wave(s) per SIMD", e.registers,
                                  c.waves_per_simd));
    line("LDS", fmt::format("{} bytes a workgroup, {} workgroup(s) per compute unit", e.lds_bytes,
                            e.workgroups_per_cu));
  }
  line("grid", fmt::format("{} x {} threads", plan.launch.grid, plan.launch.block));
  line("pairs", fmt::format("{} visible of {} dense", e.visible_pairs, e.dense_pairs));
  line("work", fmt::format("{:.4g} useful GFLOP ({:.4g} dense), {:.4g} MB at least",
                           e.useful_flop / 1e9, e.dense_flop / 1e9, e.bytes / 1e6));
  if (e.matrix_ms > 0 || e.memory_ms > 0)
    line("floor", fmt::format("{:.4g} ms matrix unit, {:.4g} ms memory (estimates from datasheet "
                              "peaks, not measurements)",
                              e.matrix_ms, e.memory_ms));
  line("bound", e.bound);
  out += "why\n";
  for (const std::string& why : plan.why) out += "  - " + why + "\n";
  return out;
}

}  // namespace hstu::jit
