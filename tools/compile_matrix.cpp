// SPDX-License-Identifier: Apache-2.0
// Compiles every distinct kernel of the given specs for the given targets, inspects each object,
// and fails on spills, scratch, a missing matrix instruction or too much LDS. No device is needed.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>

#include "base/subprocess.hpp"
#include "cli/commands.hpp"
#include "object/inspect.hpp"

namespace hstu::jit::cli {
namespace {

// One kernel to build: the first problem that asked for it stands for all others.
struct Task {
  Problem problem;
  Geometry geometry;
  Plan plan;
};

struct Outcome {
  std::string entry;
  int head_dim = 0;
  double compile_ms = 0;
  KernelInfo info;
  std::string note;     // why instructions were not counted
  std::string failure;  // empty: as it should be
};

// What an object must show. Beyond head dim 128 spills are reported, not failed.
std::string judge(const Task& task, const KernelInfo& k) {
  const Target& t = task.plan.target;
  const int64_t spills = k.vgpr_spills.value_or(0) + k.sgpr_spills.value_or(0);
  const int head_dim = std::max(task.problem.head_dim_qk, task.problem.head_dim_v);
  if (head_dim <= 128 && spills > 0) return fmt::format("{} spilled registers", spills);
  if (head_dim <= 128 && k.scratch_bytes.value_or(0) > 0)
    return fmt::format("{} bytes of scratch a lane", *k.scratch_bytes);
  if (k.matrix_instructions && *k.matrix_instructions == 0) return "no matrix instruction";
  // The driver's own part of the section is not taken from what a workgroup may have.
  const int64_t lds =
      k.lds_bytes.value_or(0) - k.reserved_lds_bytes + task.plan.launch.dynamic_lds_bytes;
  if (lds > t.lds_bytes) return fmt::format("{} bytes of LDS, {} has {}", lds, t.name, t.lds_bytes);
  return "";
}

Outcome build(Engine& engine, const Task& task) {
  Outcome o;
  o.entry = task.plan.entry;
  o.head_dim = std::max(task.problem.head_dim_qk, task.problem.head_dim_v);
  Result<Prepared> prepared = engine.prepare(task.problem, task.geometry, task.plan.target);
  if (!prepared) {
    o.failure = prepared.error().message;
    return o;
  }
  o.compile_ms = prepared->compile_ms;
  Result<ObjectInfo> info = read_object(prepared->kernel->object);
  if (!info) {
    o.failure = info.error().message;
    return o;
  }
  count_instructions(*info, prepared->kernel->object);
  o.note = info->note;
  if (info->kernels.size() != 1) {
    o.failure = fmt::format("{} kernels in the object, one expected", info->kernels.size());
    return o;
  }
  o.info = info->kernels.front();
  o.failure = judge(task, o.info);
  return o;
}

std::string shown(const std::optional<int>& value) {
  return value ? std::to_string(*value) : std::string("-");
}

void print_row(const Outcome& o) {
  fmt::print("  {:<7} {:<92} {:>4} VGPR {:>3} AGPR {:>6} LDS {:>4} matrix {:>6.0f} ms{}\n",
             o.failure.empty() ? "ok" : "FAILED", o.entry, shown(o.info.vgprs), shown(o.info.agprs),
             o.info.lds_bytes.value_or(0),
             o.info.matrix_instructions ? std::to_string(*o.info.matrix_instructions) : "-",
             o.compile_ms, o.failure.empty() ? "" : ": " + o.failure);
}

// The distinct kernels of all problems for one target, every `stride`-th of them.
Result<std::vector<Task>> tasks_for(const std::vector<Problem>& problems, const Target& target,
                                    size_t stride, int& unsupported) {
  std::map<std::string, Task> distinct;
  for (const Problem& problem : problems) {
    Result<Geometry> geometry = make_geometry(problem);
    if (!geometry) return std::move(geometry).error();
    Result<Plan> plan = make_plan(problem, *geometry, target);
    if (!plan) {
      ++unsupported;
      continue;
    }
    distinct.try_emplace(plan->entry, Task{problem, *geometry, *plan});
  }
  std::vector<Task> tasks;
  size_t index = 0;
  for (auto& [entry, task] : distinct)
    if (index++ % stride == 0) tasks.push_back(std::move(task));
  return tasks;
}

Result<std::vector<Problem>> load_all(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    if (!std::filesystem::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(path))
      if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<Problem> problems;
  for (const std::string& file : files) {
    Result<ParsedSpec> spec = load_spec(file);
    if (!spec) return std::move(spec).error();
    problems.insert(problems.end(), spec->problems.begin(), spec->problems.end());
  }
  return problems;
}

struct MatrixOptions {
  std::vector<std::string> specs;
  std::vector<std::string> targets{"gfx908", "gfx90a", "gfx942", "gfx1100", "sm_80", "sm_90a"};
  size_t stride = 1;
  unsigned jobs = std::max(1u, std::thread::hardware_concurrency());
  bool verbose = false;
};

// Failures of one target; skipped targets are said and counted.
int run_target(const MatrixOptions& o, const std::vector<Problem>& problems, const Target& target,
               int& skipped) {
  if (Result<Toolchain> toolchain = find_toolchain(target, ""); !toolchain) {
    fmt::print("SKIPPED: compile matrix for {}: {}\n", target.name, toolchain.error().message);
    ++skipped;
    return 0;
  }
  int unsupported = 0;
  Result<std::vector<Task>> tasks = tasks_for(problems, target, o.stride, unsupported);
  if (!tasks) {
    fmt::print("{}: {}\n", target.name, tasks.error().message);
    return 1;
  }
  EngineOptions options;
  options.cache_mode = cache::Mode::off;
  Result<std::unique_ptr<Engine>> engine = Engine::create(options);
  if (!engine) {
    fmt::print("{}\n", engine.error().message);
    return 1;
  }
  std::vector<Outcome> outcomes(tasks->size());
  std::atomic<size_t> next{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < o.jobs; ++i)
    threads.emplace_back([&] {
      for (size_t at = next++; at < tasks->size(); at = next++)
        outcomes[at] = build(**engine, (*tasks)[at]);
    });
  for (std::thread& t : threads) t.join();

  int failures = 0, most_vgprs = 0, wide_spilling = 0;
  double total = 0, longest = 0;
  int64_t least_matrix = INT64_MAX;
  std::string note;
  for (const Outcome& outcome : outcomes) {
    failures += !outcome.failure.empty();
    most_vgprs = std::max(most_vgprs, outcome.info.vgprs.value_or(0));
    wide_spilling += outcome.head_dim > 128 && (outcome.info.scratch_bytes.value_or(0) > 0);
    total += outcome.compile_ms;
    longest = std::max(longest, outcome.compile_ms);
    if (outcome.info.matrix_instructions)
      least_matrix = std::min(least_matrix, *outcome.info.matrix_instructions);
    if (!outcome.note.empty()) note = outcome.note;
    if (o.verbose || !outcome.failure.empty()) print_row(outcome);
  }
  fmt::print(
      "{:<8} {} kernels, {} failed; at most {} registers, at least {} matrix instructions, {} with "
      "scratch beyond head dim 128; compile {:.0f} ms on average, {:.0f} at most\n",
      target.name, outcomes.size(), failures, most_vgprs,
      least_matrix == INT64_MAX ? "? (" + note + ")" : std::to_string(least_matrix), wide_spilling,
      outcomes.empty() ? 0.0 : total / static_cast<double>(outcomes.size()), longest);
  if (unsupported > 0)
    fmt::print("{:<8} {} problems are unsupported there\n", target.name, unsupported);
  return failures;
}

int run_matrix(const MatrixOptions& o) {
  Result<std::vector<Problem>> problems = load_all(o.specs);
  if (!problems) {
    fmt::print(stderr, "{}\n", problems.error().message);
    return exit_code(problems.error().kind);
  }
  int failures = 0, skipped = 0;
  for (const std::string& name : o.targets) {
    Result<Target> target = find_target(name);
    if (!target) {
      fmt::print(stderr, "{}\n", target.error().message);
      return exit_code(target.error().kind);
    }
    failures += run_target(o, *problems, *target, skipped);
    std::fflush(stdout);
  }
  fmt::print("{} targets, {} skipped, {} kernels failed\n", o.targets.size(), skipped, failures);
  return failures > 0 ? 1 : 0;
}

}  // namespace
}  // namespace hstu::jit::cli

int main(int argc, char** argv) {
  hstu::jit::end_children_on_signals();
  hstu::jit::cli::MatrixOptions options;
  CLI::App app{"Compile every distinct kernel of the specs for each target and inspect it."};
  app.add_option("specs", options.specs, "Spec files, or folders of them")->required();
  app.add_option("--targets", options.targets, "Targets")->delimiter(',');
  app.add_option("--stride", options.stride, "Every n-th distinct kernel")
      ->check(hstu::jit::cli::at_least(1));
  app.add_option("--jobs", options.jobs, "Compiles at a time")->check(hstu::jit::cli::at_least(1));
  app.add_flag("--verbose", options.verbose, "A row for every kernel");
  app.footer("Example: build/hstu-jit-matrix tests/data/specs --targets gfx90a,gfx942");
  CLI11_PARSE(app, argc, argv);
  return hstu::jit::cli::run_matrix(options);
}
