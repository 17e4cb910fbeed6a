// SPDX-License-Identifier: Apache-2.0
// The commands of hstu-jit. Each registers its options with CLI11 and returns an exit code: results
// go to standard output, everything else to standard error.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "cache/store.hpp"
#include "engine/engine.hpp"
#include "spec/parse.hpp"

namespace hstu::jit::cli {

// Options every command shares.
struct Common {
  bool json = false;
  std::string cache_dir;
  std::vector<std::string> bundles;  // read before the cache folder
  std::string target;                // overrides the spec
  std::string device;                // overrides the spec
};

// What main() runs after parsing; returns the exit code.
using Action = std::function<int()>;

// Refuses numbers below `least`, in words people can read (CLI11's own range check prints the
// largest double).
inline CLI::Validator at_least(int64_t least) {
  const auto check = [least](std::string& text) -> std::string {
    int64_t value = 0;
    const bool good = CLI::detail::lexical_cast(text, value) && value >= least;
    return good ? "" : "found " + text + ", allowed " + std::to_string(least) + " or more";
  };
  return CLI::Validator(check, "N>=" + std::to_string(least));
}

void add_run(CLI::App& app, Common& common, Action& action);
void add_plan(CLI::App& app, Common& common, Action& action);
void add_emit(CLI::App& app, Common& common, Action& action);
void add_compile(CLI::App& app, Common& common, Action& action);
void add_inspect(CLI::App& app, Common& common, Action& action);
void add_mask(CLI::App& app, Common& common, Action& action);
void add_bundle(CLI::App& app, Common& common, Action& action);
void add_prewarm(CLI::App& app, Common& common, Action& action);
void add_cache(CLI::App& app, Common& common, Action& action);
void add_devices(CLI::App& app, Common& common, Action& action);
void add_doctor(CLI::App& app, Common& common, Action& action);
void add_schema(CLI::App& app, Common& common, Action& action);
void add_environment(CLI::App& app, Common& common, Action& action);

// Prints to standard output. Errors: kFailed when the stream is closed or full.
Status print(std::string_view text);

// Reports an error: one line on standard error (and the detail below it); with --json also
// {"schema": schema, "error": {...}} on standard output. Returns the exit code.
int report(const Error& error, const Common& common, const char* schema);
// The members of the JSON error object.
std::string error_json(const Error& error);

// Reads and parses a spec file, or standard input for "-".
Result<ParsedSpec> load_spec(const std::string& path);

// Applies --target and --device to a problem.
void apply_overrides(Problem& problem, const Common& common);

// The target for a device that runs `runs`, when `wanted` is asked for ("auto": what it runs).
// Errors: kUnsupported when the device does not run that, or for names that are no targets.
Result<Target> target_of_device(const std::string& device, const Target& runs,
                                const std::string& wanted);

// The target a problem is planned for without running it: its own, that of its device, or for
// device "auto" this host's processor. Errors: those of find_target and open_device; kUsage when
// --target and --device contradict each other.
Result<Target> plan_target(const Problem& problem, const Common& common);

// One problem of a spec, planned.
struct Planned {
  Problem problem;
  Geometry geometry;
  Plan plan;
};
// Every problem of a spec file, with --target and --device applied.
Result<std::vector<Planned>> plan_all(const std::string& path, const Common& common);

// Engine options from the command line and the environment. Errors: kUsage for bad values.
Result<EngineOptions> engine_options(const Common& common);

}  // namespace hstu::jit::cli
