// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "check/check.hpp"
#include "check/parallel.hpp"

namespace hstu::jit {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Limits {
  double rtol, floor, frobenius;
  double uncounted;  // part of a difference that the Frobenius norm leaves out
  double lse_rtol, lse_atol;
  bool row_scale;  // atol grows with the rms of the row
};

Limits limits_of(Dtype dtype, const ToleranceSpec& tolerance) {
  if (tolerance.ck) return {1.6e-2, 1e-5, kInfinity, 0, 1.6e-2, 1e-5, false};
  // Kernels accumulate in fp32: SiLU of a logit below about -88 underflows to 0 there, while the
  // double reference still sees it. 2^-120 is some steps above fp32's smallest normal number.
  if (dtype == Dtype::bf16) return {2e-2, 0x1p-120, 5e-3, 0, 1e-4, 1e-4, true};
  return {4e-3, 0x1p-24, 1e-3, 0x1p-25, 1e-4, 1e-4, true};
}

// What one task found. Merged in the order of the tasks, so that the report of a run does not
// depend on the threads.
struct Partial {
  int64_t checked = 0, mismatches = 0;
  double max_abs = 0, max_rel = 0, error_squares = 0, reference_squares = 0;
  double worst = -1;  // error / tolerance
  std::array<int64_t, 4> index{};
  double got = 0, want = 0;

  void note_worst(double ratio, const std::array<int64_t, 4>& at, double is, double should_be) {
    if (ratio < worst || (ratio == worst && at >= index)) return;
    worst = ratio;
    index = at;
    got = is;
    want = should_be;
  }

  // One element against its tolerance; an infinite reference allows nothing but itself. Returns the
  // difference.
  double add(double is, double should_be, double allowed, const std::array<int64_t, 4>& at) {
    // Equal infinities (LSE of a fully masked row) differ by nothing, though their difference is
    // NaN.
    const double difference = is == should_be ? 0 : std::fabs(is - should_be);
    if (!std::isfinite(should_be)) allowed = 0;
    ++checked;
    if (!(difference <= allowed)) ++mismatches;
    const double ratio = difference == 0 ? 0 : difference / allowed;
    note_worst(std::isnan(ratio) ? kInfinity : ratio, at, is, should_be);
    return std::isnan(difference) ? kInfinity : difference;
  }
};

void compare_row(const Problem& problem, const Limits& limits, const ReferenceRow& want,
                 bool masked, const uint16_t* got, std::array<int64_t, 4> at, Partial& out) {
  double squares = 0;
  for (double r : want.o)
    if (std::isfinite(r)) squares += r * r;
  const double rms = std::sqrt(squares / static_cast<double>(want.o.size()));
  double atol = limits.floor + (limits.row_scale ? limits.rtol * rms : 0);
  if (masked) atol = 0;
  for (size_t d = 0; d < want.o.size(); ++d) {
    at[3] = static_cast<int64_t>(d);
    const double r = want.o[d];
    const double difference =
        out.add(to_double(got[d], problem.dtype), r, atol + limits.rtol * std::fabs(r), at);
    const double scale = std::max(std::fabs(r), rms);
    out.max_abs = std::max(out.max_abs, difference);
    if (difference > 0) out.max_rel = std::max(out.max_rel, difference / scale);
    const double counted = std::max(difference - limits.uncounted, 0.0);
    out.error_squares += counted * counted;
  }
  out.reference_squares += squares;
}

Comparison report(const std::vector<Partial>& parts, const Limits& limits) {
  Comparison c;
  Partial all;
  for (const Partial& part : parts) {
    c.checked += part.checked;
    c.mismatches += part.mismatches;
    c.max_abs = std::max(c.max_abs, part.max_abs);
    c.max_rel = std::max(c.max_rel, part.max_rel);
    all.error_squares += part.error_squares;
    all.reference_squares += part.reference_squares;
    if (part.checked > 0) all.note_worst(part.worst, part.index, part.got, part.want);
  }
  c.frobenius_limit = limits.frobenius;
  if (all.error_squares != 0)
    c.rel_frobenius = std::sqrt(all.error_squares) / std::sqrt(all.reference_squares);
  if (std::isnan(c.rel_frobenius)) c.rel_frobenius = kInfinity;
  const bool frobenius_passes =
      c.rel_frobenius <= limits.frobenius && std::isfinite(c.rel_frobenius);
  c.pass = c.mismatches == 0 && frobenius_passes;
  c.has_worst = c.checked > 0;
  c.worst_index = all.index;
  c.worst_got = all.got;
  c.worst_want = all.want;

  const auto& [b, i, h, d] = c.worst_index;
  std::string text = c.pass ? "PASS: " : "FAIL: ";
  text += c.mismatches == 0
              ? fmt::format("{} elements within tolerance", c.checked)
              : fmt::format("{} of {} elements outside tolerance", c.mismatches, c.checked);
  if (c.has_worst)
    text += fmt::format("; worst {} got {:.6g}, want {:.6g} ({:.3g} of its tolerance)",
                        d < 0 ? fmt::format("lse[b {}, i {}, h {}]", b, i, h)
                              : fmt::format("o[b {}, i {}, h {}, d {}]", b, i, h, d),
                        c.worst_got, c.worst_want, all.worst);
  text += fmt::format("; relative Frobenius error {:.2e}", c.rel_frobenius);
  if (std::isfinite(limits.frobenius))
    text += fmt::format(" ({} {:.0e})", frobenius_passes ? "limit" : "ABOVE the limit",
                        limits.frobenius);
  c.summary = std::move(text);
  return c;
}

Comparison refused(std::string why) {
  Comparison c;
  c.summary = "FAIL: " + std::move(why);
  return c;
}

}  // namespace

Comparison compare(const Problem& problem, const Geometry& geometry, const HostTensors& tensors,
                   const std::vector<uint16_t>& o, const std::vector<float>& lse, int tile_m,
                   const ToleranceSpec& tolerance) {
  const auto holds = [](const auto& buffer, int64_t elements) {
    return static_cast<int64_t>(buffer.size()) >= elements;
  };
  if (!holds(tensors.q, geometry.q_elements) || !holds(tensors.k, geometry.k_elements) ||
      !holds(tensors.v, geometry.v_elements))
    return refused("the input buffers are smaller than the problem");
  if (!holds(o, geometry.o_elements) ||
      (problem.writes_lse() && !holds(lse, geometry.lse_elements)))
    return refused("the output buffers are smaller than the problem");
  const Limits limits = limits_of(problem.dtype, tolerance);
  try {
    const std::vector<RowTask> tasks = row_tasks(problem, geometry, [&](int64_t b, int32_t h) {
      return rows_to_check(problem, geometry, b, h, tile_m);
    });
    std::vector<Partial> parts(tasks.size());
    const bool done = parallel_for(tasks.size(), [&](size_t n) {
      const RowTask& task = tasks[n];
      const SequenceMask mask = geometry.mask_of(task.b);
      ReferenceRows reference(problem, geometry, tensors, task.b, task.h, task.rows);
      for (int32_t i : task.rows) {
        const ReferenceRow& want = reference.row(i);
        const RowKeys keys = row_keys(geometry.features, mask, i);
        const bool masked = keys.begin >= keys.end && !keys.diagonal;
        const uint16_t* got = o.data() + query_offset(geometry, geometry.o, task.b, i, task.h);
        compare_row(problem, limits, want, masked, got, {task.b, i, task.h, 0}, parts[n]);
        if (!problem.writes_lse()) continue;
        parts[n].add(lse[query_offset(geometry, geometry.lse, task.b, i, task.h)], want.lse,
                     limits.lse_atol + limits.lse_rtol * std::fabs(want.lse),
                     {task.b, i, task.h, -1});
      }
    });
    if (done) return report(parts, limits);
  } catch (const std::exception&) {
  }
  return refused("not enough memory to compute the reference; set validate.rows");
}

Result<ReferenceOutput> reference_output(const Problem& problem, const Geometry& geometry,
                                         const HostTensors& tensors) {
  const Error no_memory{ErrorKind::kFailed, "not enough memory for the reference output", "", ""};
  ReferenceOutput out;
  try {
    out.o.assign(static_cast<size_t>(geometry.o_elements), 0x7fff);  // NaN in fp16 and bf16
    if (problem.writes_lse())
      out.lse.assign(static_cast<size_t>(geometry.lse_elements),
                     std::numeric_limits<float>::quiet_NaN());
    Problem all_rows = problem;
    all_rows.validate.rows = 0;
    const std::vector<RowTask> tasks = row_tasks(problem, geometry, [&](int64_t b, int32_t h) {
      return rows_to_check(all_rows, geometry, b, h, 0);
    });
    const bool done = parallel_for(tasks.size(), [&](size_t n) {
      const RowTask& task = tasks[n];
      ReferenceRows reference(problem, geometry, tensors, task.b, task.h, task.rows);
      for (int32_t i : task.rows) {
        const ReferenceRow& row = reference.row(i);
        uint16_t* o = out.o.data() + query_offset(geometry, geometry.o, task.b, i, task.h);
        for (size_t d = 0; d < row.o.size(); ++d)
          o[d] = from_float(static_cast<float>(row.o[d]), problem.dtype);
        if (problem.writes_lse())
          out.lse[query_offset(geometry, geometry.lse, task.b, i, task.h)] =
              static_cast<float>(row.lse);
      }
    });
    if (!done) return no_memory;
  } catch (const std::exception&) {
    return no_memory;
  }
  return out;
}

}  // namespace hstu::jit
