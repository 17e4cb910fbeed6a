// SPDX-License-Identifier: Apache-2.0
// What the measurements say: rates, ratios and goals.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench_peers.hpp"

namespace hstu::jit::bench {
namespace {

Figures figures_of_row(const Row& row, const Measured& m, std::optional<double> matrix,
                       std::optional<double> copy) {
  Figures f;
  if (copy && m.bytes > 0) f.floor_ms = m.bytes / *copy / 1e9;
  if (!m.error && m.check.checked > 0) f.error = m.check.error;
  if (!m.valid || m.ms.runs == 0 || m.ms.median <= 0) return f;
  f.ms = m.ms.median;
  f.p10 = m.ms.p10;
  f.p90 = m.ms.p90;
  f.useful_tflops = tflops(m.useful_flop, *f.ms);
  f.dense_tflops = tflops(m.dense_flop, *f.ms);
  if (row.peer_ms > 0) f.ratio = row.peer_ms / *f.ms;
  if (matrix) f.matrix_share = *f.useful_tflops / *matrix;
  if (f.floor_ms) f.floor_share = *f.floor_ms / *f.ms;
  if (m.pairs > 0) f.per_pair = *f.ms * 1e9 / m.pairs;
  if (m.in_turn && m.in_turn->why_not.empty()) {
    f.turn_tflops = tflops(m.useful_flop, m.in_turn->row_ms.median);
    f.turn_product = tflops(m.in_turn->product_flop, m.in_turn->product_ms.median);
    f.turn_share = *f.turn_tflops / *f.turn_product;
  }
  return f;
}

// A goal over rows: the rows that fall short end up in its detail.
class Judge {
 public:
  explicit Judge(std::string text) { goal_.text = std::move(text); }

  // `reached` of a row must be at least `least`.
  void at_least(const Row& row, std::optional<double> reached, double least) {
    add(row, reached, reached && *reached >= least,
        reached ? fmt::format("{:.2f}, {:.0f} % short of {:.2f}", *reached,
                              100 * (1 - *reached / least), least)
                : "");
  }
  void at_most(const Row& row, std::optional<double> reached, double most) {
    add(row, reached, reached && *reached <= most,
        reached ? fmt::format("{:.2f}, {:.0f} % over {:.2f}", *reached, 100 * (*reached / most - 1),
                              most)
                : "");
  }
  Goal take() {
    goal_.met = goal_.judged && short_ == 0;
    if (goal_.judged)
      goal_.detail = fmt::format("{} of {} rows{}", rows_ - short_, rows_, goal_.detail);
    return std::move(goal_);
  }

 private:
  void add(const Row& row, const std::optional<double>& reached, bool met, const std::string& how) {
    goal_.judged = true;
    ++rows_;
    if (met) return;
    ++short_;
    goal_.detail += fmt::format("\n       row {} {}: {}", row.number, row.name,
                                reached ? how : "nothing valid measured");
  }

  Goal goal_;
  int rows_ = 0, short_ = 0;
};

std::vector<Goal> judge_forward(RowSet set, const std::vector<Row>& rows,
                                const std::vector<Figures>& all) {
  Judge ahead("ahead of the best peer on every row (ratio 1.00)");
  Judge matrix(
      "D 128 n 8192, D 256 n 16384 at the matrix product's rate, b 32 n 4096 at 95 % of it; in "
      "turn "
      "with it where that could be timed");
  Judge small("max length to 1024, and b 1: 1.40 times the best peer, or 90 % of the memory floor");
  for (size_t n = 0; n < rows.size(); ++n) {
    const Row& row = rows[n];
    if (row.matrix_goal > 0)
      matrix.at_least(row, all[n].turn_share ? all[n].turn_share : all[n].matrix_share,
                      row.matrix_goal);
    if (row.peer_ms <= 0) continue;
    ahead.at_least(row, all[n].ratio, 1);
    if (row.max_len > 1024 && row.problem.batch > 1) continue;
    // Where the memory floor binds, less than 1.4 is all there is to have.
    double wanted = 1.4;
    if (all[n].floor_ms) wanted = std::min(wanted, row.peer_ms * 0.9 / *all[n].floor_ms);
    small.at_least(row, all[n].ratio, wanted);
  }
  if (set == RowSet::softmax) return {ahead.take()};  // the others are of SiLU
  Goal mean;
  mean.text = "1.25 times the best peer in the geometric mean";
  if (const std::optional<double> reached = geometric_mean(all)) {
    mean.judged = true;
    mean.met = *reached >= 1.25;
    mean.detail = fmt::format("{:.3f}", *reached);
    if (!mean.met) mean.detail += fmt::format(", {:.0f} % short", 100 * (1 - *reached / 1.25));
  }
  return {ahead.take(), std::move(mean), matrix.take(), small.take()};
}

std::vector<Goal> judge_windowed(const std::vector<Row>& rows, const std::vector<Figures>& all) {
  Judge cost("window 256 with wide last rows: a visible pair costs at most 1.70 of a causal one");
  Judge triton("1.40 times Meta's Triton kernel");
  Judge memory("window 5: 80 % of the memory floor");
  for (size_t n = 0; n < rows.size(); ++n) {
    const Row& row = rows[n];
    if (row.causal_row >= 0 && row.problem.mask.minfull_len > 0)
      cost.at_most(row, all[n].cost, 1.7);
    if (row.peer_ms > 0) triton.at_least(row, all[n].ratio, 1.4);
    if (row.memory_goal) memory.at_least(row, all[n].floor_share, 0.8);
  }
  return {cost.take(), triton.take(), memory.take()};
}

}  // namespace

std::vector<Figures> figures_of(const std::vector<Row>& rows, const std::vector<Measured>& measured,
                                const Ceilings& ceilings) {
  const std::optional<double> matrix = best_rate(ceilings.matrix), copy = best_rate(ceilings.copy);
  std::vector<Figures> all;
  for (size_t n = 0; n < rows.size(); ++n)
    all.push_back(figures_of_row(rows[n], measured[n], matrix, copy));
  for (size_t n = 0; n < rows.size(); ++n)
    for (size_t other = 0; other < rows.size(); ++other)
      if (rows[n].causal_row == rows[other].number && all[n].per_pair && all[other].per_pair)
        all[n].cost = *all[n].per_pair / *all[other].per_pair;
  return all;
}

std::optional<double> geometric_mean(const std::vector<Figures>& all) {
  double sum = 0;
  int count = 0;
  for (const Figures& f : all)
    if (f.ratio) sum += std::log(*f.ratio), ++count;
  if (count == 0) return std::nullopt;
  return std::exp(sum / count);
}

std::vector<Goal> judge(RowSet set, const std::vector<Row>& rows, const std::vector<Figures>& all) {
  return set == RowSet::windowed ? judge_windowed(rows, all) : judge_forward(set, rows, all);
}

}  // namespace hstu::jit::bench
