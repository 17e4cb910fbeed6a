// SPDX-License-Identifier: Apache-2.0
// hstu-jit run: the main job.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/job.hpp"
#include "cli/simulation.hpp"

namespace hstu::jit::cli {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char* kSchema = "hstu-jit/run/1";

struct RunOptions {
  std::string spec;
  bool no_validate = false;
  int64_t rows = -1;
  bool ck_tolerance = false;
  bool same_qkv = false;
  bool bench = false;
  bool counters = false;
};

const char* status_of(const JobReport& r) {
  if (!r.failed()) return "pass";
  return r.error->kind == ErrorKind::kMismatch ? "fail" : "error";
}

// JSON has no infinities; a comparison that met one says so with null.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json result_json(const JobReport& r, bool counters) {
  Json j;
  j["name"] = r.name;
  j["status"] = status_of(r);
  if (r.error) j["error"] = Json::parse(error_json(*r.error));
  j["device"] = r.device;
  j["target"] = r.target;
  j["kernel"] = {{"name", r.kernel_name}, {"key", r.key}, {"source", r.origin}};
  if (!r.toolchain.empty()) j["kernel"]["toolchain"] = r.toolchain;
  if (!r.cache_note.empty()) j["kernel"]["note"] = r.cache_note;
  j["compile_ms"] = r.compile_ms;
  j["prepare_ms"] = r.prepare_ms;
  j["simulated"] = r.simulated;
  // What simulating took this host must not be taken for a GPU's time.
  j[r.simulated ? "simulation_ms" : "run_ms"] = {{"median", r.run_ms.median},
                                                 {"p10", r.run_ms.p10},
                                                 {"p90", r.run_ms.p90},
                                                 {"runs", r.run_ms.runs}};
  if (!r.simulated) {
    j["useful_tflops"] = r.useful_tflops;
    j["dense_tflops"] = r.dense_tflops;
  }
  j["visible_pairs"] = r.visible_pairs;
  if (r.validation) {
    const Comparison& c = *r.validation;
    Json v;
    v["checked"] = c.checked;
    v["mismatches"] = c.mismatches;
    v["max_abs"] = number(c.max_abs);
    v["max_rel"] = number(c.max_rel);
    v["rel_frobenius"] = number(c.rel_frobenius);
    if (c.has_worst)
      v["worst"] = {
          {"index", c.worst_index}, {"got", number(c.worst_got)}, {"want", number(c.worst_want)}};
    j["validation"] = v;
  }
  if (counters && !r.counters_json.empty()) j["counters"] = Json::parse(r.counters_json);
  return j;
}

std::string kernel_line(const JobReport& r) {
  if (r.origin == "compiled")
    return fmt::format("compiled in {:.0f} ms by {}", r.compile_ms, r.toolchain);
  if (r.origin == "memory") return "already in memory, nothing compiled";
  if (r.origin == "bundle" || r.origin == "remote")
    return fmt::format("{} hit in {:.1f} ms, nothing compiled", r.origin, r.prepare_ms);
  return fmt::format("cache hit in {:.1f} ms, nothing compiled", r.prepare_ms);
}

void print_table(const JobReport& r) {
  std::string out;
  const auto line = [&](const char* name, const std::string& value) {
    out += fmt::format("{:<9} {}\n", name, value);
  };
  if (!r.name.empty()) line("name", r.name);
  line("problem", r.problem_line);
  line("device", fmt::format("{} ({})", r.device, r.target));
  line("kernel", r.kernel_name);
  line("source", kernel_line(r));
  if (!r.cache_note.empty()) line("cache", r.cache_note);
  if (r.run_ms.runs > 0 && r.simulated)
    line("simulated", fmt::format("in {} of this host, median of {}: not a GPU's time",
                                  r.run_ms.median < 1e4 ? fmt::format("{:.4g} ms", r.run_ms.median)
                                                        : duration_text(r.run_ms.median / 1e3),
                                  r.run_ms.runs));
  else if (r.run_ms.runs > 0)
    line("time", fmt::format("{:.4g} ms median of {} (p10 {:.4g}, p90 {:.4g})", r.run_ms.median,
                             r.run_ms.runs, r.run_ms.p10, r.run_ms.p90));
  else
    line("time", "nothing to launch: the batch is empty");
  if (r.simulated)
    line("work", fmt::format("{} visible pairs", r.visible_pairs));
  else
    line("rate", fmt::format("{:.4g} useful TFLOP/s, {:.4g} dense ({} visible pairs)",
                             r.useful_tflops, r.dense_tflops, r.visible_pairs));
  if (r.validation)
    line("error", fmt::format("max abs {:.3g}, relative Frobenius {:.3g}; {} of {} elements wrong",
                              r.validation->max_abs, r.validation->rel_frobenius,
                              r.validation->mismatches, r.validation->checked));
  // A run that could not be finished is neither a pass nor a wrong result; standard error says why.
  const bool wrong = r.failed() && r.error->kind == ErrorKind::kMismatch;
  out += wrong ? "FAIL\n" : r.failed() ? "ERROR\n" : r.validation ? "PASS\n" : "not validated\n";
  (void)print(out);
}

void print_suite_line(const JobReport& r) {
  const char* word = !r.failed()                             ? (r.validation ? "PASS" : "ran ")
                     : r.error->kind == ErrorKind::kMismatch ? "FAIL"
                                                             : "ERROR";
  std::string line = fmt::format("{:<5} {:<44}", word, r.name.empty() ? r.kernel_name : r.name);
  if (!r.failed() || r.validation)
    line += fmt::format(
        " {:>9.4g} ms {}  error {:.2g}  {}", r.run_ms.median,
        r.simulated ? "to simulate     " : fmt::format("{:>8.4g} TFLOP/s", r.useful_tflops),
        r.validation ? r.validation->rel_frobenius : 0.0,
        r.origin == "compiled" ? fmt::format("compiled {:.0f} ms", r.compile_ms)
        : r.origin == "memory" ? "in memory"
        : r.origin == "local"  ? "cache hit"
                               : r.origin + " hit");
  (void)print(line + "\n");
}

int finish_json(const std::vector<Json>& results) {
  Json j;
  j["schema"] = kSchema;
  j["results"] = results;
  Status s = print(j.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  return s ? 0 : exit_code(s.error().kind);
}

int fail_early(const Error& error, const Common& common) {
  if (!common.json) return report(error, common, kSchema);
  Common text_only = common;
  text_only.json = false;
  report(error, text_only, kSchema);
  Json result;
  result["name"] = "";
  result["status"] = "error";
  result["error"] = Json::parse(error_json(error));
  finish_json({result});
  return exit_code(error.kind);
}

int run_command(const RunOptions& o, const Common& common) {
  Result<ParsedSpec> spec = load_spec(o.spec);
  if (!spec) return fail_early(spec.error(), common);
  Result<EngineOptions> options = engine_options(common);
  if (!options) return fail_early(options.error(), common);
  Result<std::unique_ptr<Engine>> engine = Engine::create(*options);
  if (!engine) return fail_early(engine.error(), common);
  if (const std::string& warning = (*engine)->cache().warning(); !warning.empty())
    fmt::print(stderr, "hstu-jit: {}\n", warning);

  JobRunner runner(**engine, {{o.ck_tolerance}, true, true});
  std::vector<Json> results;
  int code = 0, passed = 0, failed = 0;
  for (Problem& problem : spec->problems) {
    apply_overrides(problem, common);
    if (o.no_validate) problem.validate.enabled = false;
    if (o.rows >= 0) problem.validate = {true, o.rows};
    if (o.same_qkv) problem.data.same_qkv = true;
    if (o.bench && !problem.benchmark) problem.benchmark.emplace();
    const JobReport r = runner.run(problem);
    if (r.failed()) {
      ++failed;
      if (code == 0) code = exit_code(r.error->kind);
    } else {
      ++passed;
    }
    if (common.json)
      results.push_back(result_json(r, o.counters));
    else if (spec->suite)
      print_suite_line(r);
    else if (!r.failed() || r.validation)
      print_table(r);
    if (o.counters && !common.json && !r.counters_text.empty()) (void)print(r.counters_text);
    if (o.counters && !r.failed() && r.counters_text.empty()) {
      fmt::print(stderr,
                 "hstu-jit: --counters: {} executed nothing in simulation; name a device such as "
                 "sim:gfx942\n",
                 r.device);
    }
    if (r.failed()) {
      fmt::print(stderr, "hstu-jit: {}{}\n", r.name.empty() ? "" : r.name + ": ", r.error->message);
      if (!r.error->detail.empty()) fmt::print(stderr, "{}\n", r.error->detail);
    }
  }
  if (common.json) {
    if (const int print_code = finish_json(results); print_code != 0) return print_code;
  } else if (spec->suite) {
    if (Status s = print(fmt::format("{} problems: {} passed, {} failed\n", spec->problems.size(),
                                     passed, failed));
        !s)
      return report(s.error(), common, kSchema);
  }
  return code;
}

}  // namespace

void add_run(CLI::App& app, Common& common, Action& action) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* c = app.add_subcommand(
      "run", "Plan, compile (or find in the cache), launch and validate a problem");
  c->add_option("spec", options->spec, "Spec file, or - for standard input")->required();
  c->add_flag("--no-validate", options->no_validate, "Do not compare with the reference");
  c->add_option("--rows", options->rows,
                "Validate this many sampled query rows per head, and all boundary rows")
      ->check(at_least(0));
  c->add_flag("--ck-tolerance", options->ck_tolerance,
              "Composable Kernel's tolerance: 1e-5 + 1.6e-2 * |reference|");
  c->add_flag("--same-qkv", options->same_qkv, "Fill q, k and v from the same random stream");
  c->add_flag("--bench", options->bench, "Time more launches, caches flushed between them");
  c->add_flag("--counters", options->counters,
              "Print what the first launch executed (simulated devices, --device sim:gfx942)");
  c->footer(
      "Example: hstu-jit run tests/data/specs/quickstart.json\n"
      "A spec that holds an array runs as a suite: a line each and a summary.\n"
      "Exit codes: 0 pass, 3 bad spec, 4 unsupported, 5 compile failed, 6 wrong result, 7 no "
      "device.");
  c->callback([options, &common, &action] {
    action = [options, &common] { return run_command(*options, common); };
  });
}

}  // namespace hstu::jit::cli
