// SPDX-License-Identifier: Apache-2.0
// hstu-jit-bench-peers: see its --help.
#include "bench_peers.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/file.hpp"
#include "cli/commands.hpp"

namespace {

using namespace hstu::jit;

struct Arguments {
  bench::Options options;
  std::string device = "cuda:0", rows, json, data;
  cli::Common common;
  bool softmax = false, windowed = false;
};

// A window's row without its causal twin would have no cost.
void add_twins(const std::vector<bench::Row>& rows, std::vector<bool>& chosen) {
  for (size_t n = 0; n < rows.size(); ++n)
    if (chosen[n] && rows[n].causal_row >= 0)
      chosen[static_cast<size_t>(rows[n].causal_row)] = true;
}

void note(const bench::Row& row, const bench::Measured& m) {
  const std::string text =
      m.error   ? m.error->message
      : m.valid ? fmt::format("{:.4f} ms, {:.1f} useful TFLOP/s, error {:.1e} ({}, {} launches)",
                              m.ms.median, tflops(m.useful_flop, m.ms.median), m.check.error,
                              m.origin, m.ms.runs)
                : "INVALID: " + m.check.why;
  fmt::print(stderr, "row {} {}: {}\n", row.number, row.name, text);
}

Status run(Arguments& a) {
  if (a.softmax && a.windowed)
    return Error{ErrorKind::kUsage, "--softmax and --windowed are two tables: choose one", "", ""};
  a.options.set = a.softmax    ? bench::RowSet::softmax
                  : a.windowed ? bench::RowSet::windowed
                               : bench::RowSet::silu;
  std::string data = a.windowed ? bench::kWindowedSets : bench::kForwardPeers;
  if (!a.data.empty()) {
    Result<std::string> text = read_file(a.data, uint64_t{64} << 20);
    if (!text) return std::move(text).error();
    data = std::move(*text);
  }
  Result<bench::Rows> rows = bench::read_rows(data, a.options.set, a.options.scale);
  if (!rows) return std::move(rows).error();
  Result<std::vector<bool>> chosen = bench::select_rows(a.rows, rows->rows.size());
  if (!chosen) return std::move(chosen).error();
  add_twins(rows->rows, *chosen);

  Result<std::unique_ptr<Device>> device = open_device(a.device);
  if (!device) return std::move(device).error();
  Result<EngineOptions> engine_options = cli::engine_options(a.common);
  if (!engine_options) return std::move(engine_options).error();
  Result<std::unique_ptr<Engine>> engine = Engine::create(*engine_options);
  if (!engine) return std::move(engine).error();

  bench::Report report;
  report.device = (*device)->name();
  report.description = (*device)->description();
  report.target = (*device)->target().name;
  report.options = a.options;
  report.rows.source = rows->source;
  report.rows.device = rows->device;
  bench::Bench bench(**device, **engine, a.options);
  const auto measure_ceilings = [&] {
    bench::Ceilings& c = report.ceilings;
    c.matrix.push_back(bench::matrix_ceiling(**device, a.options, bench.block()));
    c.copy.push_back(bench::copy_ceiling(**device, a.options, bench.block()));
  };
  measure_ceilings();
  bool all_valid = true;
  for (size_t n = 0; n < rows->rows.size(); ++n) {
    if (!(*chosen)[n]) continue;
    report.rows.rows.push_back(rows->rows[n]);
    report.measured.push_back(bench.measure(rows->rows[n]));
    note(report.rows.rows.back(), report.measured.back());
    all_valid &= report.measured.back().valid;
  }
  measure_ceilings();
  if (Status s = cli::print(to_text(report)); !s) return s;
  if (!a.json.empty())
    if (Status s = write_file_atomic(a.json, to_json(report)); !s) return s;
  if (all_valid) return {};
  return Error{ErrorKind::kMismatch, "some rows failed or gave wrong results: see above", "", ""};
}

}  // namespace

int main(int argc, char** argv) {
  Arguments a;
  CLI::App app{
      "The forward kernels beside published measurements of others on an NVIDIA H200: one table "
      "from one run, with errors of the timed outputs, this device's own ceilings, and the goals. "
      "A missed goal is no failure; a wrong result is."};
  app.add_flag("--softmax", a.softmax, "Softmax mode against softmax kernels");
  app.add_flag("--windowed", a.windowed, "Windowed sets against their causal twins");
  app.add_option("--device", a.device, "Device (default cuda:0)");
  app.add_option("--rows", a.rows, "Rows by number, such as 0,3,9-11 (default: all)");
  app.add_option("--iterations", a.options.iterations,
                 "Timed launches a row (default: about 60 ms, 7 to 60)")
      ->check(CLI::Range(1, 100000));
  app.add_option("--pause", a.options.pause_ms, "Milliseconds of rest before each row (500)")
      ->check(CLI::Range(0, 60000));
  app.add_option("--scale", a.options.scale, "Divide all lengths by this, to try the program out")
      ->check(CLI::Range(1, 1024));
  app.add_option("--json", a.json, "Also write all numbers to this file");
  app.add_option("--data", a.data, "Rows and peers from this file (default: built in, tools/data)");
  app.add_option("--cublas", a.options.cublas, "The cuBLAS library to use for the matrix product");
  app.add_option("--cache-dir", a.common.cache_dir, "Kernel cache folder");
  CLI11_PARSE(app, argc, argv);
  const Status status = run(a);
  if (status) return 0;
  fmt::print(stderr, "hstu-jit-bench-peers: {}\n", status.error().message);
  if (!status.error().detail.empty()) fmt::print(stderr, "{}\n", status.error().detail);
  return exit_code(status.error().kind);
}
