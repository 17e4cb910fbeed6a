// SPDX-License-Identifier: Apache-2.0
// hstu-jit: the command line.
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <exception>

#include "base/env.hpp"
#include "base/log.hpp"
#include "base/subprocess.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/version.hpp"

int main(int argc, char** argv) {
  using namespace hstu::jit;
  using namespace hstu::jit::cli;
  // A reader that closes our pipe early is an error we report, not a death.
  std::signal(SIGPIPE, SIG_IGN);
  end_children_on_signals();

  Common common;
  Action action;
  CLI::App app{
      "hstu-jit: specialised attention kernels for recommender models (HSTU), planned, written, "
      "compiled, cached, launched and checked from one JSON spec."};
  app.name("hstu-jit");
  app.require_subcommand(1);
  app.fallthrough();
  app.set_version_flag("--version", version_text());
  app.add_flag("--json", common.json, "Print one JSON object instead of text");
  app.add_option("--cache-dir", common.cache_dir, "Kernel cache folder (see \"environment\")");
  app.add_option("--bundle", common.bundles,
                 "Read kernels from this bundle first: FILE or FILE@sha256:DIGEST; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--target", common.target,
                 "Compile for this target: cpu, gfx90a, gfx942, sm_90a ...; overrides the spec");
  app.add_option(
      "--device", common.device,
      "Run on this device: cpu, hip:0, cuda:0, sim:gfx942 (a simulated GPU); overrides the spec");
  app.footer("First steps: hstu-jit run tests/data/specs/quickstart.json; hstu-jit doctor");
  add_run(app, common, action);
  add_plan(app, common, action);
  add_emit(app, common, action);
  add_compile(app, common, action);
  add_inspect(app, common, action);
  add_mask(app, common, action);
  add_bundle(app, common, action);
  add_prewarm(app, common, action);
  add_cache(app, common, action);
  add_devices(app, common, action);
  add_doctor(app, common, action);
  add_schema(app, common, action);
  add_environment(app, common, action);

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    std::string line = error.what();
    for (char& c : line)
      if (c == '\n') c = ' ';
    fmt::print(stderr, "hstu-jit: {}; see hstu-jit --help\n", line);
    return exit_code(ErrorKind::kUsage);
  }
  for (const std::string& warning : unknown_environment_warnings()) log_warn(warning);
  if (const auto level = get_env("HSTU_JIT_LOG");
      level && *level != "error" && *level != "warn" && *level != "info" && *level != "debug")
    log_warn("HSTU_JIT_LOG is \"" + printable(*level) + "\": want error, warn, info or debug");
  try {
    return action();
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "hstu-jit: out of memory; use a smaller problem\n");
    return exit_code(ErrorKind::kFailed);
  } catch (const std::exception& error) {
    fmt::print(stderr, "hstu-jit: internal error: {}\n", error.what());
    return exit_code(ErrorKind::kInternal);
  }
}
