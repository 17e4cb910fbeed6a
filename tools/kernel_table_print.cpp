// SPDX-License-Identifier: Apache-2.0
#include "kernel_table_print.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace hstu::jit::table {
namespace {

using Json = nlohmann::ordered_json;

struct Column {
  const char* name;
  int width;
};
constexpr Column kColumns[] = {
    {"D", 4},      {"type", 5},    {"function", 8}, {"VGPR", 5},
    {"AGPR", 5},   {"spills", 6},  {"scratch", 7},  {"LDS", 6},
    {"waves", 5},  {"1 wave", 11}, {"2 waves", 11}, {"reached", 13},
    {"bound", 14}, {"waits", 31},  {"bytes", 12},   {"LDS conflicts", 13},
    {"turns", 13}, {"result", 9},  {"goal", 16}};

std::string percent(double share) { return fmt::format("{:.1f}", share * 100); }

// "82.1-90.4": over the policies in which waves take turns or matrix instructions go first.
std::string range(const MatrixShare* share) {
  if (share == nullptr) return "-";
  const std::string low = percent(share->low), high = percent(share->high);
  return low == high ? low : low + "-" + high;
}

template <typename T>
std::string known(const std::optional<T>& value) {
  return value ? fmt::format("{}", *value) : "?";
}

std::string reached(const Row& row) {
  const MatrixShare* best = nullptr;
  for (const MatrixShare& share : row.schedule->shares) {
    if (share.reached && (best == nullptr || share.waves > best->waves)) best = &share;
  }
  return best == nullptr ? "-" : fmt::format("{}: {}", best->waves, range(best));
}

// The two longest waits of a wave at the judged occupancy.
std::string waits(const Row& row) {
  const MatrixShare* share = row.judged();
  if (share == nullptr) return "-";
  std::vector<std::pair<double, std::string>> sorted;
  for (const auto& [reason, part] : share->stalls) {
    if (reason != "issuing" && part >= 0.005) sorted.emplace_back(part, reason);
  }
  std::sort(sorted.rbegin(), sorted.rend());
  std::string out;
  for (size_t i = 0; i < std::min<size_t>(2, sorted.size()); ++i) {
    out += fmt::format("{}{} {:.0f}", i == 0 ? "" : ", ", sorted[i].second, sorted[i].first * 100);
  }
  return out.empty() ? "-" : out;
}

// "16 16/8": narrowest global access, LDS read and write.
std::string widths(const Row& row) {
  const auto shown = [&](const char* direction) {
    const int bytes = row.narrowest(direction);
    return bytes == 0 ? std::string("-") : std::to_string(bytes);
  };
  return fmt::format("{} {}/{}", shown("global_read"), shown("lds_read"), shown("lds_write"));
}

double factor(const Conflicts& c) {
  return c.minimum == 0 ? 0 : static_cast<double>(c.phases) / static_cast<double>(c.minimum);
}

// "1.00", or each kind above the minimum.
std::string conflicts(const Row& row) {
  if (row.conflicts.empty()) return "-";
  std::string out;
  for (const Conflicts& c : row.conflicts) {
    if (c.phases > c.minimum)
      out += fmt::format("{}{} {:.2f}", out.empty() ? "" : ", ", c.kind, factor(c));
  }
  return out.empty() ? "1.00" : out;
}

std::string goal_text(const Row& row) {
  const std::optional<double> goal = goal_of(row.key);
  if (!goal) return "-";
  const double missed = row.missed_by();
  return missed > 0 ? fmt::format("{:.0f} missed: -{}", *goal * 100, percent(missed))
                    : fmt::format("{:.0f} met", *goal * 100);
}

std::string turns_text(const Row& row) {
  if (row.error) return "-";
  if (!row.count_differences.empty()) return "DIFFER";
  std::string out;
  for (const PathShare& path : row.paths) {
    out += fmt::format("{}{}", out.empty() ? "" : "+", path.turns);
  }
  return out + " exact";
}

std::vector<std::string> cells(const Row& row) {
  std::vector<std::string> out = {std::to_string(row.key.head_dim), dtype_name(row.key.dtype),
                                  activation_name(row.key.activation)};
  if (!row.schedule) {
    out.resize(std::size(kColumns), "-");
  } else {
    const KernelInfo& k = row.schedule->kernel;
    out.insert(out.end(),
               {known(k.vgprs), std::to_string(k.agprs.value_or(0)), std::to_string(row.spills()),
                known(k.scratch_bytes), std::to_string(row.lds_bytes),
                fmt::format("{:g}", row.schedule->occupancy.waves_per_simd), range(row.share_at(1)),
                range(row.share_at(2)), reached(row),
                fmt::format("{} {}", row.schedule->limited_by, percent(row.schedule->bound_low)),
                waits(row), widths(row), conflicts(row), turns_text(row), "", goal_text(row)});
  }
  out[std::size(kColumns) - 2] = row.failures().empty() ? "ok" : "FAILED";
  return out;
}

std::string joined(const std::vector<std::string>& texts, bool markdown) {
  std::string out = markdown ? "|" : "";
  for (size_t i = 0; i < texts.size(); ++i) {
    out += markdown ? fmt::format(" {} |", texts[i])
                    : fmt::format("{}{:<{}}", i == 0 ? "  " : " ", texts[i], kColumns[i].width);
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out + "\n";
}

Json share_json(const MatrixShare& share) {
  const auto rounded = [](double value) { return std::round(value * 10000) / 10000; };
  Json stalls = Json::object();
  for (const auto& [reason, part] : share.stalls) stalls[reason] = rounded(part);
  return {{"waves", share.waves},
          {"reached", share.reached},
          {"low", rounded(share.low)},
          {"high", rounded(share.high)},
          {"oldest_low", rounded(share.oldest_low)},
          {"oldest_high", rounded(share.oldest_high)},
          {"stalls", stalls}};
}

Json row_json(const Row& row) {
  Json j = {{"target", row.key.target},
            {"head_dim", row.key.head_dim},
            {"dtype", dtype_name(row.key.dtype)},
            {"activation", activation_name(row.key.activation)},
            {"kernel", row.entry},
            {"toolchain", row.toolchain}};
  if (row.schedule) {
    const KernelInfo& k = row.schedule->kernel;
    j["vgprs"] = k.vgprs ? Json(*k.vgprs) : Json();
    j["agprs"] = k.agprs.value_or(0);
    j["spills"] = row.spills();
    j["scratch_bytes"] = k.scratch_bytes ? Json(*k.scratch_bytes) : Json();
    j["lds_bytes"] = row.lds_bytes;
    j["waves_per_simd"] = row.schedule->occupancy.waves_per_simd;
    j["bound"] = {{"low", row.schedule->bound_low},
                  {"high", row.schedule->bound_high},
                  {"limited_by", row.schedule->limited_by}};
    j["shares"] = Json::array();
    for (const MatrixShare& share : row.schedule->shares) j["shares"].push_back(share_json(share));
    j["narrowest_bytes"] = row.accesses;
  }
  j["lds_conflicts"] = Json::array();
  for (const Conflicts& c : row.conflicts) {
    j["lds_conflicts"].push_back({{"kind", c.kind}, {"phases", c.phases}, {"minimum", c.minimum}});
  }
  j["turns"] = row.turns;
  j["key_tiles_a_turn"] = row.tiles_a_turn;
  j["paths"] = Json::array();
  for (const PathShare& path : row.paths) {
    j["paths"].push_back({{"turns", path.turns},
                          {"instructions", path.instructions},
                          {"low", path.low},
                          {"high", path.high}});
  }
  j["counts_agree"] = !row.error && row.count_differences.empty();
  j["relative_error"] =
      row.relative_error && std::isfinite(*row.relative_error) ? Json(*row.relative_error) : Json();
  if (const std::optional<double> goal = goal_of(row.key)) {
    j["goal"] = {{"share", *goal}, {"missed_by", row.missed_by()}};
  }
  j["failures"] = row.failures();
  return j;
}

}  // namespace

std::string heading(const Target& target, const std::string& toolchain, bool markdown) {
  std::string out =
      fmt::format("{}{}{}, by {}\n", markdown ? "\n### " : "", target.name,
                  *target.product ? fmt::format(" ({})", target.product) : "", toolchain);
  std::vector<std::string> names;
  for (const Column& column : kColumns) names.push_back(column.name);
  if (markdown) out += "\n";
  out += joined(names, markdown);
  if (markdown) out += joined(std::vector<std::string>(names.size(), "---"), true);
  return out;
}

std::string line(const Row& row, bool markdown) { return joined(cells(row), markdown); }

std::string notes(const Row& row, bool markdown) {
  std::vector<std::string> texts;
  if (row.paths.size() > 1) {
    std::string text = "paths:";
    for (size_t i = 0; i < row.paths.size(); ++i) {
      const PathShare& path = row.paths[i];
      text += fmt::format("{} {} turns of {} instructions {}-{} %", i == 0 ? "" : ";", path.turns,
                          path.instructions, percent(path.low), percent(path.high));
    }
    texts.push_back(std::move(text));
  }
  constexpr size_t kMost = 8;
  const std::vector<std::string> failures = row.failures();
  texts.insert(texts.end(), failures.begin(),
               failures.begin() + static_cast<std::ptrdiff_t>(std::min(kMost, failures.size())));
  if (failures.size() > kMost) texts.push_back(fmt::format("and {} more", failures.size() - kMost));
  std::string out;
  for (const std::string& text : texts) {
    out += markdown ? fmt::format("- D {} {} {}: {}\n", row.key.head_dim, dtype_name(row.key.dtype),
                                  activation_name(row.key.activation), text)
                    : fmt::format("      {}\n", text);
  }
  return out;
}

std::string legend(bool markdown) {
  const char* bullet = markdown ? "- " : "  ";
  std::string out = markdown ? "\n" : "";
  for (const char* text :
       {"1 wave, 2 waves, reached: modelled percent of clocks in which the matrix unit works, over "
        "the arbitration policies; a model to compare schedules by, not a measurement",
        "waves: that a SIMD holds; bound: the unit that limits any schedule of these instructions, "
        "and the share it leaves; waits: percent of a wave's time",
        "bytes a lane in the main loop, narrowest: global reads, LDS reads/LDS writes; LDS "
        "conflicts: phases over the least the hardware needs, whole kernel, simulated",
        "turns: of the main loop, that the simulator executed exactly as the model has them; the "
        "model's path + others that waves with another part took; result: ok when both simulated "
        "launches agree with the reference and no check "
        "fails",
        "goal: for the low end, of every path, at two waves, or at the occupancy reached where two "
        "do not fit"}) {
    out += fmt::format("{}{}\n", bullet, text);
  }
  return out;
}

std::string summary(const Tally& t) {
  return fmt::format(
      "{} kernels, {} failed; {} of {} goals missed; {} with accesses below 16 bytes in the main "
      "loop; {} targets skipped\n",
      t.rows, t.failed, t.missed, t.goals, t.narrow, t.skipped);
}

std::string to_json(const std::vector<Row>& rows, const std::vector<Skip>& skips,
                    const Tally& tally) {
  Json j;
  j["schema"] = "hstu-jit/kernel-table/1";
  j["rows"] = Json::array();
  for (const Row& row : rows) j["rows"].push_back(row_json(row));
  j["skipped"] = Json::array();
  for (const Skip& skip : skips) {
    j["skipped"].push_back({{"target", skip.target}, {"reason", skip.reason}});
  }
  j["failed"] = tally.failed;
  j["goals"] = {{"known", tally.goals}, {"missed", tally.missed}};
  return j.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace hstu::jit::table
