// SPDX-License-Identifier: Apache-2.0
// hstu-jit plan, emit, compile: what can be done with a problem without running it.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/file.hpp"
#include "cli/commands.hpp"

namespace hstu::jit::cli {

Result<std::vector<Planned>> plan_all(const std::string& path, const Common& common) {
  Result<ParsedSpec> spec = load_spec(path);
  if (!spec) return std::move(spec).error();
  std::vector<Planned> all;
  for (Problem& problem : spec->problems) {
    apply_overrides(problem, common);
    Result<Geometry> geometry = make_geometry(problem);
    if (!geometry) return std::move(geometry).error();
    Result<Target> target = plan_target(problem, common);
    if (!target) return std::move(target).error();
    Result<Plan> plan = make_plan(problem, *geometry, *target);
    if (!plan) return std::move(plan).error();
    all.push_back({problem, std::move(*geometry), std::move(*plan)});
  }
  return all;
}

namespace {

struct BuildOptions {
  std::string spec;
  std::string output;
};

Result<Planned> plan_one(const std::string& path, const Common& common) {
  Result<std::vector<Planned>> all = plan_all(path, common);
  if (!all) return std::move(all).error();
  if (all->size() != 1)
    return Error{ErrorKind::kUsage,
                 fmt::format("{} holds {} problems; this command takes one", path, all->size()), "",
                 ""};
  return std::move(all->front());
}

Status deliver(const std::string& output, std::string_view bytes) {
  if (output.empty() || output == "-") return print(bytes);
  return write_file_atomic(output, bytes);
}

int plan_command(const BuildOptions& o, const Common& common) {
  constexpr const char* kSchema = "hstu-jit/plan/1";
  Result<std::vector<Planned>> all = plan_all(o.spec, common);
  if (!all) return report(all.error(), common, kSchema);
  std::string out;
  if (common.json) {
    if (all->size() == 1) {
      out = to_json(all->front().plan, 2) + "\n";
    } else {
      nlohmann::ordered_json plans = nlohmann::ordered_json::array();
      for (const Planned& p : *all) plans.push_back(nlohmann::ordered_json::parse(to_json(p.plan)));
      out = plans.dump(2) + "\n";
    }
  } else {
    for (const Planned& p : *all) {
      if (!out.empty()) out += "\n";
      if (!p.problem.name.empty()) out += fmt::format("{:<10} {}\n", "name", p.problem.name);
      out += to_text(p.plan);
    }
  }
  Status s = print(out);
  return s ? 0 : report(s.error(), common, kSchema);
}

int emit_command(const BuildOptions& o, const Common& common) {
  constexpr const char* kSchema = "hstu-jit/emit/1";
  Result<Planned> planned = plan_one(o.spec, common);
  if (!planned) return report(planned.error(), common, kSchema);
  Result<Source> source = write_source(planned->plan, to_json(planned->problem, 2));
  if (!source) return report(source.error(), common, kSchema);
  Status s = deliver(o.output, source->text());
  return s ? 0 : report(s.error(), common, kSchema);
}

int compile_command(const BuildOptions& o, const Common& common) {
  constexpr const char* kSchema = "hstu-jit/compile/1";
  Result<Planned> planned = plan_one(o.spec, common);
  if (!planned) return report(planned.error(), common, kSchema);
  Result<EngineOptions> options = engine_options(common);
  if (!options) return report(options.error(), common, kSchema);
  Result<std::unique_ptr<Engine>> engine = Engine::create(*options);
  if (!engine) return report(engine.error(), common, kSchema);
  if (const std::string& warning = (*engine)->cache().warning(); !warning.empty())
    fmt::print(stderr, "hstu-jit: {}\n", warning);
  Result<Prepared> prepared =
      (*engine)->prepare(planned->problem, planned->geometry, planned->plan.target);
  if (!prepared) return report(prepared.error(), common, kSchema);
  const std::string& object = prepared->kernel->object;
  if (Status s = write_file_atomic(o.output, object); !s) return report(s.error(), common, kSchema);
  nlohmann::ordered_json j;
  j["schema"] = kSchema;
  j["target"] = planned->plan.target.name;
  j["kernel"] = {{"name", planned->plan.entry},
                 {"key", prepared->kernel->key.request},
                 {"source", kernel_origin_name(prepared->origin)},
                 {"toolchain", prepared->kernel->toolchain}};
  j["compile_ms"] = prepared->compile_ms;
  j["bytes"] = object.size();
  j["output"] = o.output;
  Status s = print(
      common.json ? j.dump(2) + "\n"
                  : fmt::format("{}\n{} bytes for {} in {} ({})\n", planned->plan.entry,
                                object.size(), planned->plan.target.name, o.output,
                                prepared->origin == KernelOrigin::compiled
                                    ? fmt::format("compiled in {:.0f} ms by {}",
                                                  prepared->compile_ms, prepared->kernel->toolchain)
                                    : "from the cache, nothing compiled"));
  return s ? 0 : report(s.error(), common, kSchema);
}

}  // namespace

void add_plan(CLI::App& app, Common& common, Action& action) {
  auto options = std::make_shared<BuildOptions>();
  CLI::App* c = app.add_subcommand("plan", "Explain how a problem would run on a target");
  c->add_option("spec", options->spec, "Spec file, or - for standard input")->required();
  c->footer("Example: hstu-jit plan tests/data/specs/quickstart.json --target gfx942");
  c->callback([options, &common, &action] {
    action = [options, &common] { return plan_command(*options, common); };
  });
}

void add_emit(CLI::App& app, Common& common, Action& action) {
  auto options = std::make_shared<BuildOptions>();
  CLI::App* c =
      app.add_subcommand("emit", "Print the kernel source of a problem: one readable file");
  c->add_option("spec", options->spec, "Spec file, or - for standard input")->required();
  c->add_option("-o,--output", options->output, "Write to this file instead");
  c->footer(
      "Example: hstu-jit emit tests/data/specs/quickstart.json --target gfx90a -o kernel.hip");
  c->callback([options, &common, &action] {
    action = [options, &common] { return emit_command(*options, common); };
  });
}

void add_compile(CLI::App& app, Common& common, Action& action) {
  auto options = std::make_shared<BuildOptions>();
  CLI::App* c =
      app.add_subcommand("compile", "Compile the kernel of a problem; no device is needed");
  c->add_option("spec", options->spec, "Spec file, or - for standard input")->required();
  c->add_option("-o,--output", options->output, "Code object to write")->required();
  c->footer(
      "Example: hstu-jit compile tests/data/specs/quickstart.json --target gfx90a -o k.hsaco");
  c->callback([options, &common, &action] {
    action = [options, &common] { return compile_command(*options, common); };
  });
}

}  // namespace hstu::jit::cli
