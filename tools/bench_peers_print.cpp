// SPDX-License-Identifier: Apache-2.0
// The table, and the same as JSON.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "bench_peers.hpp"

namespace hstu::jit::bench {
namespace {

using Json = nlohmann::ordered_json;

std::string number(const std::optional<double>& value, const char* format) {
  return value ? fmt::format(fmt::runtime(format), *value) : "-";
}
std::string rate(const std::optional<double>& value) {
  return number(value, value && *value >= 100 ? "{:.1f}" : "{:.3g}");
}
std::string percent(const std::optional<double>& value) {
  return value ? fmt::format("{:.0f} %", 100 * *value) : "-";
}
std::string milliseconds(const std::optional<double>& value) {
  return number(value, value && *value >= 10 ? "{:.2f}" : "{:.4f}");
}
std::string error_text(const Measured& m, const Figures& f) {
  if (m.error) return "failed";
  return m.valid ? number(f.error, "{:.1e}") : "INVALID";
}

// Why a row has no figures; empty when it has.
std::string trouble(const Measured& m) {
  if (m.error) return m.error->message;
  return m.valid ? "" : m.check.why;
}

// What was timed beside the row, a line each.
std::string beside(const Row& row, const Measured& m, const Figures& f) {
  std::string out;
  if (m.in_turn)
    out += fmt::format(
        "row {} in turn with the matrix product: {}\n", row.number,
        !m.in_turn->why_not.empty() ? "not timed: " + m.in_turn->why_not
        : !f.turn_share
            ? "no valid output"
            : fmt::format("{} TFLOP/s beside {} ({} product{} a launch), {}", rate(f.turn_tflops),
                          rate(f.turn_product), m.in_turn->products,
                          m.in_turn->products == 1 ? "" : "s", percent(f.turn_share)));
  if (m.same_copy)
    out += fmt::format(
        "row {}: a copy of as many bytes {}\n", row.number,
        m.same_copy->why_not.empty()
            ? fmt::format("takes {} ms (p10 {}, p90 {})", milliseconds(m.same_copy->ms.median),
                          milliseconds(m.same_copy->ms.p10), milliseconds(m.same_copy->ms.p90))
            : "was not timed: " + m.same_copy->why_not);
  return out;
}

std::string table(const Report& r, const std::vector<Figures>& all) {
  const bool windowed = r.options.set == RowSet::windowed;
  std::string out = fmt::format("{:>3} {:<27} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}", "row",
                                "problem", "useful", "dense", "ms", "p10", "p90", "error");
  out += fmt::format(" {:<15} {:>8} {:>6} {:>7} {:>8} {:>7}", "best peer", "its ms", "ratio",
                     "/matrix", "floor ms", "/floor");
  if (windowed) out += fmt::format(" {:>8} {:>7}", "ps/pair", "/causal");
  out += "\n";
  for (size_t n = 0; n < all.size(); ++n) {
    const Row& row = r.rows.rows[n];
    const Figures& f = all[n];
    out += fmt::format("{:>3} {:<27} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}", row.number, row.name,
                       rate(f.useful_tflops), rate(f.dense_tflops), milliseconds(f.ms),
                       milliseconds(f.p10), milliseconds(f.p90), error_text(r.measured[n], f));
    out += fmt::format(" {:<15} {:>8} {:>6} {:>7} {:>8} {:>7}", row.peer.empty() ? "-" : row.peer,
                       row.peer_ms > 0 ? milliseconds(row.peer_ms) : "-", number(f.ratio, "{:.2f}"),
                       percent(f.matrix_share), milliseconds(f.floor_ms), percent(f.floor_share));
    if (windowed)
      out += fmt::format(" {:>8} {:>7}", number(f.per_pair, "{:.4g}"), number(f.cost, "{:.2f}"));
    out += "\n";
  }
  for (size_t n = 0; n < all.size(); ++n) out += beside(r.rows.rows[n], r.measured[n], all[n]);
  for (size_t n = 0; n < all.size(); ++n)
    if (const std::string why = trouble(r.measured[n]); !why.empty())
      out += fmt::format("row {}: {}\n", r.rows.rows[n].number, why);
  return out;
}

std::string ceiling_text(const std::string& what, const char* unit,
                         const std::vector<Ceiling>& ceilings) {
  std::string out;
  for (size_t n = 0; n < ceilings.size(); ++n) {
    const Ceiling& c = ceilings[n];
    out += fmt::format("{}{}: ", n == 0 ? "" : "; ", n == 0 ? "at the beginning" : "at the end");
    out += c.rate > 0 ? fmt::format("{:.4g} {} ({:.4f} ms, p10 {:.4f}, p90 {:.4f})", c.rate, unit,
                                    c.ms.median, c.ms.p10, c.ms.p90)
                      : "not measured: " + c.why_not;
  }
  return fmt::format("{}, {}\n", what, out);
}

Json json_of(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

Json json_of(const Summary& ms) {
  return {{"median", ms.median}, {"p10", ms.p10}, {"p90", ms.p90}, {"runs", ms.runs}};
}

Json json_of(const std::vector<Ceiling>& ceilings) {
  Json out = Json::array();
  for (const Ceiling& c : ceilings)
    out.push_back(c.rate > 0 ? Json{{"rate", c.rate}, {"ms", json_of(c.ms)}}
                             : Json{{"rate", nullptr}, {"why_not", c.why_not}});
  return out;
}

Json json_of(const Row& row, const Measured& m, const Figures& f) {
  const Problem& p = row.problem;
  Json j{{"row", row.number}, {"name", row.name},          {"batch", p.batch},
         {"heads", p.heads},  {"head_dim", p.head_dim_qk}, {"max_len", row.max_len},
         {"valid", m.valid}};
  const std::string why = trouble(m);
  if (!why.empty()) j["why"] = why;
  j["kernel"] = m.kernel;
  j["useful_flop"] = m.useful_flop;
  j["dense_flop"] = m.dense_flop;
  j["bytes"] = m.bytes;
  j["visible_pairs"] = m.pairs;
  j["ms"] = m.valid ? json_of(m.ms) : Json(nullptr);
  j["useful_tflops"] = json_of(f.useful_tflops);
  j["dense_tflops"] = json_of(f.dense_tflops);
  j["relative_frobenius_error"] = json_of(f.error);
  j["elements_checked"] = m.check.checked;
  j["best_peer"] = row.peer.empty() ? Json(nullptr) : Json(row.peer);
  j["best_peer_ms"] = row.peer_ms > 0 ? Json(row.peer_ms) : Json(nullptr);
  j["ratio"] = json_of(f.ratio);
  j["matrix_share"] = json_of(f.matrix_share);
  j["floor_ms"] = json_of(f.floor_ms);
  j["floor_share"] = json_of(f.floor_share);
  j["ps_per_pair"] = json_of(f.per_pair);
  if (m.in_turn && m.in_turn->why_not.empty())
    j["in_turn"] = {{"ms", json_of(m.in_turn->row_ms)},
                    {"useful_tflops", json_of(f.turn_tflops)},
                    {"product_ms", json_of(m.in_turn->product_ms)},
                    {"products", m.in_turn->products},
                    {"product_tflops", json_of(f.turn_product)},
                    {"share", json_of(f.turn_share)}};
  else if (m.in_turn)
    j["in_turn"] = {{"why_not", m.in_turn->why_not}};
  if (m.same_copy && m.same_copy->why_not.empty())
    j["same_copy_ms"] = json_of(m.same_copy->ms);
  else if (m.same_copy)
    j["same_copy_ms"] = {{"why_not", m.same_copy->why_not}};
  if (row.causal_row >= 0) {
    j["causal_row"] = row.causal_row;
    j["cost_over_causal"] = json_of(f.cost);
  }
  return j;
}

const char* set_name(RowSet set) {
  return set == RowSet::silu ? "silu" : set == RowSet::softmax ? "softmax" : "windowed";
}

bool same_device(const Report& r) { return r.description.find(r.rows.device) != std::string::npos; }

std::vector<Goal> goals_of(const Report& r, const std::vector<Figures>& all) {
  if (r.options.scale != 1 || !same_device(r)) return {};
  return judge(r.options.set, r.rows.rows, all);
}

}  // namespace

std::string to_text(const Report& r) {
  const std::vector<Figures> all = figures_of(r.rows.rows, r.measured, r.ceilings);
  std::string out = fmt::format("{} ({}, {}), bf16 {}\n", r.description, r.device, r.target,
                                r.options.set == RowSet::softmax ? "softmax" : "SiLU");
  out +=
      "Useful, dense: TFLOP/s, 2 (dqk + dv) per visible pair, per pair. Times: single launches by "
      "device\nevents, cache flushed before each. Inputs: N(0,1) out of a repeated block. Error: "
      "relative Frobenius,\nagainst double precision on sampled rows, of what the last timed "
      "launch wrote over NaN. Floor: q, k, v\nread and o written once at the speed of the copy. In "
      "turn: a launch, then products for as long, and so\non, as a card under load lowers its "
      "clock.\n";
  out += ceiling_text(fmt::format("matrix product {}^3 bf16", matrix_size(r.options)), "TFLOP/s",
                      r.ceilings.matrix);
  out += ceiling_text("copy, read and written", "TB/s", r.ceilings.copy);
  if (r.options.scale != 1)
    out +=
        fmt::format("lengths divided by {}: a trial of this program, not compared with anybody\n",
                    r.options.scale);
  else if (!same_device(r))
    out += fmt::format(
        "The peers ran on {}, not on this device: ratios compare devices, and no "
        "goal is judged.\n",
        r.rows.device);
  out += table(r, all);
  if (const std::optional<double> mean = geometric_mean(all))
    out += fmt::format("geometric mean of the ratios: {:.3f}\n", *mean);
  for (const Goal& goal : goals_of(r, all))
    if (goal.judged)
      out += fmt::format("{:<6} {}: {}\n", goal.met ? "MET" : "missed", goal.text, goal.detail);
  return out;
}

std::string to_json(const Report& r) {
  const std::vector<Figures> all = figures_of(r.rows.rows, r.measured, r.ceilings);
  Json j{{"schema", "hstu-jit/bench-peers/1"}, {"device", r.device},
         {"description", r.description},       {"target", r.target},
         {"set", set_name(r.options.set)},     {"scale", r.options.scale},
         {"pause_ms", r.options.pause_ms},     {"peers", r.rows.source},
         {"peers_device", r.rows.device},      {"same_device", same_device(r)}};
  j["matrix_tflops"] = json_of(r.ceilings.matrix);
  j["copy_tbps"] = json_of(r.ceilings.copy);
  j["rows"] = Json::array();
  for (size_t n = 0; n < all.size(); ++n)
    j["rows"].push_back(json_of(r.rows.rows[n], r.measured[n], all[n]));
  j["geometric_mean"] = json_of(geometric_mean(all));
  j["goals"] = Json::array();
  for (const Goal& goal : goals_of(r, all))
    if (goal.judged)
      j["goals"].push_back({{"goal", goal.text}, {"met", goal.met}, {"detail", goal.detail}});
  return j.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace hstu::jit::bench
