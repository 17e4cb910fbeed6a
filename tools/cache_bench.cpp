// SPDX-License-Identifier: Apache-2.0
// hstu-jit-cache-bench: what the kernel cache costs, and whether it meets its goals, from one run.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/file.hpp"
#include "base/subprocess.hpp"
#include "base/temp_dir.hpp"
#include "cache/bundle.hpp"
#include "cache/entry.hpp"
#include "engine/engine.hpp"
#include "prewarm/runner.hpp"
#include "spec/parse.hpp"

namespace {

using namespace hstu::jit;
namespace cache = hstu::cache;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

struct Options {
  std::string target;
  int kernels = 64, jobs = 2, entries = 1000, hits = 20000, starts = 15;
  double scale_goals = 1;
  bool json = false;
  std::string child;  // a cache folder: be the fresh process of a warm-disk hit
};

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// The element at a share of the sorted list.
double at_share(std::vector<double> list, double share) {
  if (list.empty()) return 0;
  std::sort(list.begin(), list.end());
  return list[std::min(list.size() - 1,
                       static_cast<size_t>(share * static_cast<double>(list.size())))];
}

struct Row {
  std::string what, unit;
  std::vector<double> samples;
  double goal = 0;  // of the median, in the unit; 0: none
  std::string note;
  double median() const { return at_share(samples, 0.5); }
  double p90() const { return at_share(samples, 0.9); }
  bool met() const { return goal == 0 || (!samples.empty() && median() <= goal); }
};

// Problems with a kernel each: head dims and mask features differ, sizes are small.
struct Case {
  Problem problem;
  Geometry geometry;
};

Result<std::vector<Case>> make_cases(int count, const Target& target) {
  std::vector<Case> cases;
  for (int number = 0; static_cast<int>(cases.size()) < count && number < 4096; ++number) {
    const int dims = number / 16;
    const std::string text = fmt::format(
        R"({{"op": "hstu_attention", "heads": 4, "head_dim_qk": {}, "head_dim_v": {},
            "uih_lengths": [150, 130, 133], "num_targets": [{}], "activation": "{}",
            "mask": {{"causal": true, "local_len": {}, "context_len": {}}}}})",
        64 + 8 * (dims % 9), 64 + 8 * (dims / 9), number & 1 ? 5 : 0,
        number & 2 ? "softmax" : "silu", number & 4 ? 16 : 0, number & 8 ? 6 : 0);
    Result<ParsedSpec> spec = parse_spec(text, ".");
    if (!spec) return std::move(spec).error();
    Result<Geometry> geometry = make_geometry(spec->problems.front());
    if (!geometry) return std::move(geometry).error();
    // Dims that this target has no kernel for are passed over.
    if (!make_plan(spec->problems.front(), *geometry, target, PlanDetail::launch)) continue;
    cases.push_back({spec->problems.front(), std::move(*geometry)});
  }
  if (static_cast<int>(cases.size()) < count)
    return Error{ErrorKind::kUsage, "so many kernels are not known here", "", ""};
  return cases;
}

Result<std::unique_ptr<Engine>> engine_in(const std::string& folder, bool keep = false) {
  EngineOptions options;
  options.cache_dir = folder;
  options.keep_artifacts = keep;
  Result<CompileOptions> compile = compile_options_from_environment();
  if (!compile) return std::move(compile).error();
  options.compile = std::move(*compile);
  return Engine::create(options);
}

// The fresh process: a line "create_ms prepare_ms" for the first kernel.
int be_child(const Options& o) {
  const Result<Target> target = find_target(o.target);
  const Result<std::vector<Case>> cases = target ? make_cases(1, *target) : target.error();
  if (!cases) return 1;
  const Clock::time_point start = Clock::now();
  Result<std::unique_ptr<Engine>> engine = engine_in(o.child);
  if (!engine) return 1;
  const double create_ms = ms_since(start);
  const Case& c = cases->front();
  Result<Prepared> prepared =
      (*engine)->prepare(c.problem, c.geometry, *target, PlanDetail::launch);
  if (!prepared || prepared->origin != KernelOrigin::local) return 1;
  std::printf("%.6f %.6f\n", create_ms, prepared->prepare_ms);
  return 0;
}

class Silent : public RunWatcher {
 public:
  void finished(const KernelJob&, const JobResult&, const RunCount&) override {}
  void tick(const RunCount&) override {}
};

class Bench {
 public:
  Bench(Options options, Target target) : o_(std::move(options)), target_(std::move(target)) {}

  Status run() {
    Result<std::vector<Case>> cases = make_cases(o_.kernels, target_);
    if (!cases) return std::move(cases).error();
    cases_ = std::move(*cases);
    Result<TempDir> folder = TempDir::create("hstu-jit-cache-bench-");
    if (!folder) return std::move(folder).error();
    folder_ = folder->path();
    // Half of the single compiles before and half after the prewarm, so that a machine that slows
    // down or speeds up meanwhile slows or speeds both.
    const size_t half = cases_.size() / 2;
    if (Status s = warm_up(); !s) return s;
    if (Status s = single_compiles(0, half); !s) return s;
    if (Status s = prewarm(); !s) return s;
    if (Status s = single_compiles(half, cases_.size()); !s) return s;
    report_prewarm();
    if (Status s = disk_hits(); !s) return s;
    if (Status s = fresh_processes(); !s) return s;
    if (Status s = memory_hits(); !s) return s;
    return bundle();
  }

  const std::vector<Row>& rows() const { return rows_; }

 private:
  Result<Prepared> prepare(Engine& engine, size_t i, PlanDetail detail = PlanDetail::launch) {
    return engine.prepare(cases_[i].problem, cases_[i].geometry, target_, detail);
  }

  // Asking the compiler who it is belongs to no kernel.
  Status warm_up() {
    for (const char* name : {"/single", "/warm"}) {
      if (Status s = make_directories(folder_ + name); !s) return s;
      Result<Toolchain> toolchain = find_toolchain(target_, folder_ + name);
      if (!toolchain) return std::move(toolchain).error();
    }
    return {};
  }

  Status single_compiles(size_t from, size_t to) {
    Result<std::unique_ptr<Engine>> engine = engine_in(folder_ + "/single");
    if (!engine) return std::move(engine).error();
    for (size_t i = from; i < to; ++i) {
      Result<Prepared> prepared = prepare(**engine, i);
      if (!prepared) return std::move(prepared).error();
      if (prepared->origin != KernelOrigin::compiled)
        return Error{ErrorKind::kInternal, "a kernel of an empty cache was not compiled", "", ""};
      cold_.push_back(prepared->prepare_ms);
      single_ms_ += prepared->compile_ms;
    }
    return {};
  }

  Status prewarm() {
    Result<std::unique_ptr<Engine>> engine = engine_in(folder_ + "/warm");
    if (!engine) return std::move(engine).error();
    std::vector<KernelJob> jobs;
    for (const Case& c : cases_) {
      Result<Plan> plan = make_plan(c.problem, c.geometry, target_, PlanDetail::launch);
      if (!plan) return std::move(plan).error();
      KernelJob job;
      job.request = source_seed(*plan);
      job.entry = plan->entry;
      job.target = target_;
      job.problem = c.problem;
      jobs.push_back(std::move(job));
    }
    RunOptions options;
    options.threads = static_cast<size_t>(o_.jobs);
    Silent watcher;
    const Clock::time_point start = Clock::now();
    const std::vector<JobResult> results = run_jobs(**engine, jobs, options, watcher);
    prewarm_ms_ = ms_since(start);
    for (const JobResult& result : results) {
      if (result.error) return *result.error;
      if (result.state != JobResult::State::ready || result.origin != KernelOrigin::compiled)
        return Error{ErrorKind::kInternal, "a kernel of the prewarm was not compiled", "", ""};
    }
    return {};
  }

  void report_prewarm() {
    rows_.push_back({"cold compile, published", "ms", cold_, 0, ""});
    const double ideal = single_ms_ / o_.jobs;
    Row row{fmt::format("prewarm of {} kernels, {} jobs, over the ideal", o_.kernels, o_.jobs),
            "x",
            {},
            1.15 * o_.scale_goals,
            ""};
    row.samples = {ideal > 0 ? prewarm_ms_ / ideal : 0};
    row.note = fmt::format("{:.2f} s; single compiles {:.2f} s in all", prewarm_ms_ / 1e3,
                           single_ms_ / 1e3);
    rows_.push_back(std::move(row));
  }

  // Every kernel by engines that have nothing in memory.
  Status disk_hits() {
    Row row{"warm-disk hit, warm process", "ms", {}, 2 * o_.scale_goals, ""};
    const int rounds = std::max(1, 200 / o_.kernels);
    for (int round = 0; round < rounds; ++round) {
      Result<std::unique_ptr<Engine>> engine = engine_in(folder_ + "/warm");
      if (!engine) return std::move(engine).error();
      for (size_t i = 0; i < cases_.size(); ++i) {
        const Clock::time_point start = Clock::now();
        Result<Prepared> prepared = prepare(**engine, i);
        row.samples.push_back(ms_since(start));
        if (!prepared) return std::move(prepared).error();
        if (prepared->origin != KernelOrigin::local)
          return Error{ErrorKind::kInternal, "a kernel on disk was not taken from there", "", ""};
      }
    }
    rows_.push_back(std::move(row));
    return {};
  }

  Status fresh_processes() {
    Row create{"engine opened, fresh process", "ms", {}, 0, ""};
    Row hit{"warm-disk hit, fresh process", "ms", {}, 2 * o_.scale_goals, ""};
    for (int i = 0; i < o_.starts; ++i) {
      ProcessOptions options;
      options.argv = {"/proc/self/exe", "--target", target_.name, "--child", folder_ + "/warm"};
      Result<ProcessResult> result = run_process(options);
      if (!result) return std::move(result).error();
      double create_ms = 0, hit_ms = 0;
      if (!result->succeeded() ||
          std::sscanf(result->output.c_str(), "%lf %lf", &create_ms, &hit_ms) != 2)
        return Error{
            ErrorKind::kFailed,
            "a fresh process did not take its kernel from the disk: " + result->how_it_ended(), "",
            result->errors};
      create.samples.push_back(create_ms);
      hit.samples.push_back(hit_ms);
    }
    rows_.push_back(std::move(create));
    rows_.push_back(std::move(hit));
    return {};
  }

  Status memory_hits() {
    Result<std::unique_ptr<Engine>> engine = engine_in(folder_ + "/warm");
    if (!engine) return std::move(engine).error();
    for (size_t i = 0; i < cases_.size(); ++i)
      if (Result<Prepared> first = prepare(**engine, i); !first) return std::move(first).error();
    for (const PlanDetail detail : {PlanDetail::launch, PlanDetail::full}) {
      const bool launch = detail == PlanDetail::launch;
      Row row{launch ? "memory hit" : "memory hit with estimate and reasons",
              "us",
              {},
              launch ? 20 * o_.scale_goals : 0,
              ""};
      for (int i = 0; i < o_.hits; ++i) {
        const Clock::time_point start = Clock::now();
        const Result<Prepared> prepared =
            prepare(**engine, static_cast<size_t>(i) % cases_.size(), detail);
        row.samples.push_back(1000 * ms_since(start));
        if (!prepared) return prepared.error();
        if (prepared->origin != KernelOrigin::memory)
          return Error{ErrorKind::kInternal, "a kernel in memory was not taken from there", "", ""};
      }
      rows_.push_back(std::move(row));
    }
    return {};
  }

  // The kernels of this run under as many keys as there are to be entries.
  Status bundle() {
    Result<std::unique_ptr<Engine>> engine = engine_in(folder_ + "/warm", true);
    if (!engine) return std::move(engine).error();
    cache::BundleWriter writer(cache::BundleNotes{});
    uint64_t bytes = 0;
    for (int i = 0; i < o_.entries; ++i) {
      Result<Prepared> prepared = prepare(**engine, static_cast<size_t>(i) % cases_.size());
      if (!prepared) return std::move(prepared).error();
      cache::Artifact artifact = prepared->kernel->artifact();
      artifact.ingredients.emplace_back("copy", std::to_string(i));
      artifact.key.request = cache::request_digest(artifact.ingredients);
      Result<std::string> encoded = cache::encode_entry(artifact);
      if (!encoded) return std::move(encoded).error();
      bytes += encoded->size();
      if (Status s = writer.add(std::move(*encoded)); !s) return s;
    }
    const std::string path = folder_ + "/kernels.hjb";
    Result<std::string> digest = writer.write(path);
    if (!digest) return std::move(digest).error();
    Row row{fmt::format("bundle of {} kernels opened, every digest verified", o_.entries),
            "ms",
            {},
            100 * o_.scale_goals,
            fmt::format("{:.0f} MB", static_cast<double>(bytes) / 1e6)};
    for (int i = 0; i < 7; ++i) {
      const Clock::time_point start = Clock::now();
      Result<cache::Bundle> opened = cache::Bundle::open(path + "@sha256:" + *digest);
      if (!opened) return std::move(opened).error();
      if (!opened->verify(cache::Bundle::Depth::digests).empty() ||
          opened->manifest().entries.size() != static_cast<size_t>(o_.entries))
        return Error{ErrorKind::kInternal, "the bundle is not what was written", "", ""};
      row.samples.push_back(ms_since(start));
    }
    rows_.push_back(std::move(row));
    return {};
  }

  Options o_;
  Target target_;
  std::string folder_;
  std::vector<Case> cases_;
  std::vector<double> cold_;
  double single_ms_ = 0, prewarm_ms_ = 0;
  std::vector<Row> rows_;
};

void print(const std::vector<Row>& rows, const Options& o, const Target& target, bool met) {
  if (o.json) {
    Json list = Json::array();
    for (const Row& row : rows) {
      Json j{{"what", row.what},       {"unit", row.unit}, {"samples", row.samples.size()},
             {"median", row.median()}, {"p90", row.p90()}, {"met", row.met()}};
      if (row.goal > 0) j["goal"] = row.goal;
      if (!row.note.empty()) j["note"] = row.note;
      list.push_back(std::move(j));
    }
    fmt::print("{}\n", Json{{"schema", "hstu-jit/cache-bench/1"},
                            {"target", target.name},
                            {"met", met},
                            {"rows", list}}
                           .dump(2));
    return;
  }
  fmt::print("target {}\n{:<58} {:>7} {:>10} {:>10} {:>10}\n", target.name, "", "samples", "median",
             "p90", "goal");
  for (const Row& row : rows) {
    fmt::print("{:<58} {:>7} {:>10} {:>10} {:>10}  {}{}\n", row.what, row.samples.size(),
               fmt::format("{:.3g} {}", row.median(), row.unit),
               fmt::format("{:.3g} {}", row.p90(), row.unit),
               row.goal > 0 ? fmt::format("{:.3g} {}", row.goal, row.unit) : "-",
               row.goal == 0 ? ""
               : row.met()   ? "met"
                             : "MISSED",
               row.note.empty() ? "" : "  (" + row.note + ")");
  }
  fmt::print("{}\n", met ? "all goals met" : "goals missed");
}

int fail(const Error& error) {
  fmt::print(stderr, "hstu-jit-cache-bench: {}\n", error.message);
  if (!error.detail.empty()) fmt::print(stderr, "{}\n", error.detail);
  return exit_code(error.kind);
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app{
      "Measures the kernel cache in a folder of its own: cold compile, hits on disk and in memory, "
      "prewarm, bundle; medians are held against goals. Exit code 1 when one is missed."};
  app.add_option("--target", o.target, "Whose kernels (default gfx90a, else cpu)");
  app.add_option("--kernels", o.kernels, "Kernels to compile, twice each")
      ->check(CLI::Range(2, 512));
  app.add_option("--jobs", o.jobs, "Jobs of the prewarm")->check(CLI::Range(1, 256));
  app.add_option("--entries", o.entries, "Entries of the bundle")->check(CLI::Range(1, 20000));
  app.add_option("--hits", o.hits, "Hits in memory")->check(CLI::Range(1, 10000000));
  app.add_option("--starts", o.starts, "Fresh processes")->check(CLI::Range(1, 1000));
  app.add_option("--scale-goals", o.scale_goals, "Multiplies every goal")
      ->check(CLI::PositiveNumber);
  app.add_flag("--json", o.json, "Print one JSON object");
  app.add_option("--child", o.child, "Used by itself")->group("");
  app.footer("Example: hstu-jit-cache-bench --target gfx90a");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : exit_code(ErrorKind::kUsage);
  }
  try {
    if (!o.child.empty()) return be_child(o);
    end_children_on_signals();
    Result<Target> target = find_target(o.target.empty() ? "gfx90a" : o.target);
    if (o.target.empty() && !has_compiler_candidates(*target)) target = find_target("cpu");
    if (!target) return fail(target.error());
    Bench bench(o, *target);
    if (Status s = bench.run(); !s) return fail(s.error());
    const bool met = std::all_of(bench.rows().begin(), bench.rows().end(),
                                 [](const Row& row) { return row.met(); });
    print(bench.rows(), o, *target, met);
    return met ? 0 : 1;
  } catch (const std::exception& error) {
    return fail(Error{ErrorKind::kInternal, error.what(), "", ""});
  }
}
