// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "object/schedule.hpp"

namespace hstu::jit {
namespace {

using Json = nlohmann::ordered_json;

double percent(double share) { return share * 100; }

std::string range_text(double low, double high) {
  const std::string a = fmt::format("{:.1f}", percent(low)),
                    b = fmt::format("{:.1f}", percent(high));
  return a == b ? a + " %" : a + " to " + b + " %";
}

// "valu 258, matrix 64": the largest first.
std::string counts_text(const std::map<std::string, int64_t>& counts, size_t most) {
  std::vector<std::pair<std::string, int64_t>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string out;
  for (size_t i = 0; i < sorted.size() && i < most; ++i) {
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", sorted[i].first, sorted[i].second);
  }
  if (sorted.size() > most) out += fmt::format(", and {} more", sorted.size() - most);
  return out;
}

std::string accesses_text(const LoopReport& loop) {
  std::string out;
  for (const ScheduleAccess& access : loop.accesses) {
    out += fmt::format("{}{} {} x {} bytes", out.empty() ? "" : ", ", access.kind, access.count,
                       access.bytes == 0 ? "?" : std::to_string(access.bytes));
  }
  return out.empty() ? "none" : out + " a lane";
}

template <typename T>
std::string or_question(const std::optional<T>& value) {
  return value ? fmt::format("{}", *value) : "?";
}

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

double rounded(double share) { return std::round(share * 10000) / 10000; }

Json rounded_map(const std::map<std::string, double>& shares) {
  Json out = Json::object();
  for (const auto& [name, share] : shares) out[name] = rounded(share);
  return out;
}

std::string share_text(const MatrixShare& share, const Occupancy& occupancy) {
  std::string out = fmt::format(
      "  {:<22} {}", fmt::format("{} wave{} a SIMD", share.waves, share.waves == 1 ? "" : "s"),
      range_text(share.low, share.high));
  if (share.waves > 1) {
    out += "; oldest wave first " + range_text(share.oldest_low, share.oldest_high);
  }
  if (!share.reached) {
    out += fmt::format(" (not reached: {} allow {:g})", occupancy.limited_by,
                       occupancy.waves_per_simd);
  }
  std::string where;
  for (const auto& [reason, part] : share.stalls) {
    if (part >= 0.005) {
      where += fmt::format("{}{} {:.0f} %", where.empty() ? "" : ", ", reason, percent(part));
    }
  }
  return out +
         fmt::format("\n  {:<22} {:.0f} clocks a round: {}\n", "", share.clocks_per_round, where);
}

}  // namespace

std::string to_text(const Schedule& s) {
  std::string out = fmt::format("kernel {} for {}\n", printable(s.kernel.name, 400), s.target);
  const auto row = [&](const char* label, const std::string& text) {
    out += fmt::format("  {:<22} {}\n", label, text);
  };
  row("registers", fmt::format("{} VGPRs, {} AGPRs, {} SGPRs", or_question(s.kernel.vgprs),
                               s.kernel.agprs.value_or(0), or_question(s.kernel.sgprs)));
  row("spills, scratch",
      fmt::format("{} VGPRs, {} SGPRs, {} bytes a lane", or_question(s.kernel.vgpr_spills),
                  or_question(s.kernel.sgpr_spills), or_question(s.kernel.scratch_bytes)));
  row("LDS", fmt::format("{} bytes", or_question(s.kernel.lds_bytes)));
  row("waves per SIMD",
      fmt::format("{:g}, limited by {} (registers allow {}; {} workgroup{} of "
                  "{} waves)",
                  s.occupancy.waves_per_simd, s.occupancy.limited_by, s.occupancy.by_registers,
                  s.occupancy.workgroups, s.occupancy.workgroups == 1 ? "" : "s",
                  s.occupancy.workgroup_waves));
  row("main loop",
      fmt::format("at {:#x}: {} of {} instructions in {} of {} blocks, the steady path; one of {} "
                  "innermost loops with matrix instructions",
                  s.loop.address, s.loop.instructions, s.loop.all_instructions,
                  s.loop.blocks_on_path, s.loop.blocks, s.loop.matrix_loops));
  if (s.loop.inner_loops) row("", "an inner loop without matrix instructions is counted once");
  row("mask code", fmt::format("{} vector compares and selects", s.loop.mask_instructions));
  row("by class", counts_text(s.loop.classes, s.loop.classes.size()));
  constexpr size_t kMnemonics = 24;
  row("by mnemonic", counts_text(s.loop.mnemonics, kMnemonics));
  row("accesses", accesses_text(s.loop));
  row("clocks a round",
      fmt::format("matrix {:.0f}, VALU {:.0f}, transcendental {:.0f}, matrix issue {:.0f}, LDS "
                  "share {:.0f}",
                  s.matrix_clocks, s.valu_clocks, s.transcendental_clocks, s.matrix_issue_clocks,
                  s.lds_clocks));
  row("bound on matrix share",
      fmt::format("{}, set by {}", range_text(s.bound_low, s.bound_high), s.limited_by));
  out += "  modelled matrix share\n";
  for (const MatrixShare& share : s.shares) out += share_text(share, s.occupancy);
  out += "  assumed, in clocks\n";
  for (const Schedule::Assumption& a : s.assumptions) {
    out += fmt::format("    {:<22} {:>4}  {}\n", a.name, a.clocks, a.source);
  }
  for (const std::string& rule : s.rules) out += fmt::format("    {}\n", rule);
  return out;
}

std::string to_json(const Schedule& s, int indent) {
  Json accesses = Json::array(), shares = Json::array(), assumptions = Json::array();
  for (const ScheduleAccess& a : s.loop.accesses) {
    accesses.push_back({{"class", a.kind}, {"bytes_per_lane", a.bytes}, {"count", a.count}});
  }
  for (const MatrixShare& share : s.shares) {
    shares.push_back({{"waves", share.waves},
                      {"reached", share.reached},
                      {"low", rounded(share.low)},
                      {"high", rounded(share.high)},
                      {"oldest_low", rounded(share.oldest_low)},
                      {"oldest_high", rounded(share.oldest_high)},
                      {"policies", rounded_map(share.policies)},
                      {"clocks_per_round", rounded(share.clocks_per_round)},
                      {"stalls", rounded_map(share.stalls)}});
  }
  for (const Schedule::Assumption& a : s.assumptions) {
    assumptions.push_back({{"name", a.name}, {"clocks", a.clocks}, {"source", a.source}});
  }
  const Json out = {{"kernel", s.kernel.name},
                    {"target", s.target},
                    {"vgprs", or_null(s.kernel.vgprs)},
                    {"agprs", s.kernel.agprs.value_or(0)},
                    {"sgprs", or_null(s.kernel.sgprs)},
                    {"vgpr_spills", or_null(s.kernel.vgpr_spills)},
                    {"sgpr_spills", or_null(s.kernel.sgpr_spills)},
                    {"scratch_bytes", or_null(s.kernel.scratch_bytes)},
                    {"lds_bytes", or_null(s.kernel.lds_bytes)},
                    {"occupancy",
                     {{"waves_per_simd", s.occupancy.waves_per_simd},
                      {"limited_by", s.occupancy.limited_by},
                      {"by_registers", s.occupancy.by_registers},
                      {"workgroups", s.occupancy.workgroups},
                      {"workgroup_waves", s.occupancy.workgroup_waves}}},
                    {"loop",
                     {{"address", s.loop.address},
                      {"instructions", s.loop.instructions},
                      {"all_instructions", s.loop.all_instructions},
                      {"blocks", s.loop.blocks},
                      {"blocks_on_path", s.loop.blocks_on_path},
                      {"matrix_loops", s.loop.matrix_loops},
                      {"inner_loops", s.loop.inner_loops},
                      {"mask_instructions", s.loop.mask_instructions},
                      {"classes", s.loop.classes},
                      {"mnemonics", s.loop.mnemonics},
                      {"accesses", accesses}}},
                    {"clocks",
                     {{"matrix", s.matrix_clocks},
                      {"valu", s.valu_clocks},
                      {"transcendental", s.transcendental_clocks},
                      {"matrix_issue", s.matrix_issue_clocks},
                      {"lds", s.lds_clocks}}},
                    {"bound",
                     {{"low", rounded(s.bound_low)},
                      {"high", rounded(s.bound_high)},
                      {"limited_by", s.limited_by}}},
                    {"shares", shares},
                    {"assumptions", assumptions},
                    {"rules", s.rules}};
  return out.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace hstu::jit
