// SPDX-License-Identifier: Apache-2.0
// A table of the AMD attention kernels: what the compiler made of each, how well its main loop is
// scheduled in the issue model, and what a simulated GPU counted while it executed it. No device is
// needed. Exit code 1 when a kernel spills, uses scratch, meets avoidable LDS bank conflicts, gives
// wrong results, or executes other instructions than the model has.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "base/subprocess.hpp"
#include "cli/commands.hpp"
#include "compile/compile.hpp"
#include "kernel_table_print.hpp"
#include "kernel_table_row.hpp"
#include "object/listing.hpp"
#include "sim/sim.hpp"

namespace hstu::jit::table {
namespace {

struct Options {
  std::vector<std::string> targets;
  std::vector<int> head_dims{64, 96, 128, 256};
  std::vector<std::string> dtypes{"bf16", "fp16"}, activations{"silu", "softmax"};
  bool json = false, markdown = false, goals = false;
  std::string cache_dir;
};

int fail(const Error& error) {
  fmt::print(stderr, "hstu-jit-kernel-table: {}\n", error.message);
  return exit_code(error.kind);
}

// Why rows of a target cannot be made here; empty when they can. `toolchain`: who compiles.
std::string missing(const Target& target, std::string& toolchain) {
  const auto known = sim::simulated_targets();
  if (std::find(known.begin(), known.end(), target.name) == known.end())
    return "it is not simulated";
  const Result<Toolchain> found = find_toolchain(target, "");
  if (!found) return found.error().message;
  toolchain = found->version;
  const Result<std::string> disassembler = find_amd_disassembler(target.name);
  return disassembler ? "" : disassembler.error().message;
}

void count(const Row& row, Tally& tally) {
  ++tally.rows;
  tally.failed += !row.failures().empty();
  tally.goals += goal_of(row.key).has_value();
  tally.missed += row.missed_by() > 0;
  constexpr int kWide = 16;  // bytes
  tally.narrow += std::any_of(row.accesses.begin(), row.accesses.end(),
                              [&](const auto& access) { return access.second < kWide; });
}

int run(const Options& o) {
  EngineOptions engine_options;
  if (o.cache_dir.empty()) {
    engine_options.cache_mode = cache::Mode::off;
  } else {
    engine_options.cache_dir = o.cache_dir;
  }
  Result<CompileOptions> compile = compile_options_from_environment();
  if (!compile) return fail(compile.error());
  engine_options.compile = std::move(*compile);
  Result<std::unique_ptr<Engine>> engine = Engine::create(engine_options);
  if (!engine) return fail(engine.error());

  std::vector<std::string> targets = o.targets;
  if (targets.empty()) {
    for (const std::string_view name : sim::simulated_targets()) targets.emplace_back(name);
  }
  Tally tally;
  std::vector<Row> rows;
  std::vector<Skip> skips;
  const auto say = [&](const std::string& text) {
    if (!o.json) (void)cli::print(text);
  };
  for (const std::string& name : targets) {
    const Result<Target> target = find_target(name);
    if (!target) return fail(target.error());
    std::string toolchain;
    if (const std::string reason = missing(*target, toolchain); !reason.empty()) {
      say(fmt::format("SKIPPED: kernel table for {}: {}\n", name, reason));
      skips.push_back({name, reason});
      ++tally.skipped;
      continue;
    }
    say(heading(*target, toolchain, o.markdown));
    std::string list = o.markdown ? "\n" : "";  // below the table
    for (const int head_dim : o.head_dims) {
      for (const std::string& dtype : o.dtypes) {
        for (const std::string& activation : o.activations) {
          const RowKey key{target->name, head_dim, dtype == "fp16" ? Dtype::fp16 : Dtype::bf16,
                           activation == "silu" ? Activation::silu : Activation::softmax};
          rows.push_back(make_row(**engine, *target, key));
          count(rows.back(), tally);
          say(line(rows.back(), o.markdown));
          const std::string text = notes(rows.back(), o.markdown);
          o.markdown ? void(list += text) : say(text);
        }
      }
    }
    if (o.markdown) say(list);
  }
  if (o.json) {
    if (Status s = cli::print(to_json(rows, skips, tally)); !s) return fail(s.error());
  } else {
    if (tally.rows > 0) say(legend(o.markdown));
    if (o.markdown) say("\n");
    if (Status s = cli::print(summary(tally)); !s) return fail(s.error());
  }
  return tally.failed > 0 || (o.goals && tally.missed > 0) ? 1 : 0;
}

}  // namespace
}  // namespace hstu::jit::table

int main(int argc, char** argv) {
  hstu::jit::end_children_on_signals();
  hstu::jit::table::Options options;
  CLI::App app{
      "Compile the forward kernels of AMD targets, model their main loops, execute them in "
      "simulation, and print a row for each."};
  app.add_option("--targets", options.targets,
                 "Targets; default: all that are simulated and that a compiler here serves")
      ->delimiter(',');
  app.add_option("--head-dims", options.head_dims, "Head dims, multiples of 32")
      ->delimiter(',')
      ->check([](const std::string& text) -> std::string {
        int value = 0;
        const bool good = CLI::detail::lexical_cast(text, value) && value >= 32 && value <= 256 &&
                          value % 32 == 0;
        return good ? "" : "found " + text + ", allowed are multiples of 32 from 32 to 256";
      });
  app.add_option("--dtypes", options.dtypes, "bf16, fp16")
      ->delimiter(',')
      ->check(CLI::IsMember({"bf16", "fp16"}));
  app.add_option("--activations", options.activations, "silu, softmax")
      ->delimiter(',')
      ->check(CLI::IsMember({"silu", "softmax"}));
  app.add_flag("--goals", options.goals, "Fail when a goal for the matrix share is missed");
  app.add_option("--cache-dir", options.cache_dir, "Keep compiled kernels here; default: nowhere");
  auto* json = app.add_flag("--json", options.json, "One JSON object, hstu-jit/kernel-table/1");
  app.add_flag("--markdown", options.markdown, "Markdown tables")->excludes(json);
  app.footer(
      "Example: build/hstu-jit-kernel-table --targets gfx90a,gfx942 --dtypes bf16\n"
      "HSTU_JIT_HIPRTC and HSTU_JIT_CLANG choose the compiler, HSTU_JIT_OBJDUMP the disassembler.");
  CLI11_PARSE(app, argc, argv);
  return hstu::jit::table::run(options);
}
