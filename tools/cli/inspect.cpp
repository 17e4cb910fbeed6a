// SPDX-License-Identifier: Apache-2.0
// hstu-jit inspect: what a code object holds, and how well its main loop is scheduled.
#include "object/inspect.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "base/file.hpp"
#include "cli/commands.hpp"
#include "object/schedule.hpp"

namespace hstu::jit::cli {
namespace {

constexpr const char* kInspectSchema = "hstu-jit/inspect/1";
constexpr const char* kScheduleSchema = "hstu-jit/schedule/1";
constexpr uint64_t kMostBytes = uint64_t{1} << 30;

struct InspectOptions {
  std::vector<std::string> inputs;
  int64_t max_spills = -1;
  int64_t max_scratch = -1;
  bool schedule = false;
  std::vector<std::string> assume;
};

// --max-spills and --max-scratch make inspect a gate for scripts.
Status check_limits(const ObjectInfo& info, const InspectOptions& o) {
  for (const KernelInfo& k : info.kernels) {
    const int64_t spills = k.vgpr_spills.value_or(0) + k.sgpr_spills.value_or(0);
    if (o.max_spills >= 0 && spills > o.max_spills)
      return Error{
          ErrorKind::kFailed,
          fmt::format("{}: {} spilled registers, at most {} allowed", k.name, spills, o.max_spills),
          "", ""};
    if (o.max_scratch >= 0 && k.scratch_bytes.value_or(0) > o.max_scratch)
      return Error{ErrorKind::kFailed,
                   fmt::format("{}: {} bytes of scratch a lane, at most {} allowed", k.name,
                               *k.scratch_bytes, o.max_scratch),
                   "", ""};
  }
  return {};
}

int fail(const Error& error) {
  fmt::print(stderr, "hstu-jit: {}\n", error.message);
  return exit_code(error.kind);
}

// An object says itself what it is for: naming another target or simulated device beside it is a
// mistake, for instance of a script that went through the wrong folder.
Status check_target(const std::string& path, const ObjectInfo& info, const Common& common) {
  std::vector<std::pair<std::string, std::string>> asked;  // option, target
  if (!common.target.empty() && common.target != "auto") asked = {{"--target", common.target}};
  if (common.device.rfind("sim:", 0) == 0) asked.push_back({"--device", common.device.substr(4)});
  for (const auto& [option, wanted] : asked) {
    Result<Target> target = find_target(wanted);
    if (!target) return std::move(target).error();
    if (target->vendor == Vendor::cpu ? info.format == "host" : info.target == target->name) {
      continue;
    }
    return Error{ErrorKind::kUsage,
                 fmt::format("{} is for {}, which contradicts {}; leave that option out, or name "
                             "the object of that target",
                             path, info.target, option),
                 "", ""};
  }
  return {};
}

int inspect_object(const InspectOptions& o, const Common& common) {
  const std::string& path = o.inputs.front();
  Result<std::string> bytes = read_file(path, kMostBytes);
  if (!bytes) return report(bytes.error(), common, kInspectSchema);
  Result<ObjectInfo> info = read_object(*bytes);
  if (!info) return report(std::move(info).error().with_context(path), common, kInspectSchema);
  if (Status same = check_target(path, *info, common); !same) {
    return report(same.error(), common, kInspectSchema);
  }
  count_instructions(*info, *bytes);
  Status s = print(common.json ? to_json(*info, 2) + "\n" : to_text(*info));
  if (s) s = check_limits(*info, o);
  return s ? 0 : fail(s.error());
}

// A code object by the name of its file or of the problem it was compiled for.
struct Subject {
  std::string name, bytes;
};

// The kernels of a spec, each once; they come from the cache where it has them.
Status compile_spec(const std::string& path, const Common& common, std::vector<Subject>& out) {
  Result<std::vector<Planned>> all = plan_all(path, common);
  if (!all) return std::move(all).error();
  Result<EngineOptions> options = engine_options(common);
  if (!options) return std::move(options).error();
  Result<std::unique_ptr<Engine>> engine = Engine::create(*options);
  if (!engine) return std::move(engine).error();
  std::set<std::string> seen;
  for (const Planned& planned : *all) {
    if (planned.plan.target.vendor != Vendor::amd) {
      return Error{ErrorKind::kUnsupported,
                   fmt::format("{}: {} is no AMD target; name one with --target", path,
                               planned.plan.target.name),
                   "", ""};
    }
    Result<Prepared> prepared =
        (*engine)->prepare(planned.problem, planned.geometry, planned.plan.target);
    if (!prepared) return std::move(prepared).error();
    if (seen.insert(prepared->kernel->key.request).second) {
      out.push_back({path, prepared->kernel->object});
    }
  }
  return {};
}

Result<std::vector<Subject>> subjects_of(const InspectOptions& o, const Common& common) {
  std::vector<Subject> out;
  for (const std::string& path : o.inputs) {
    // Anything that is no spec by its first letters is read as an object, to be refused as one.
    if (path != "-") {
      Result<std::string> bytes = read_file(path, kMostBytes);
      if (!bytes) return std::move(bytes).error();
      const size_t first = bytes->find_first_not_of(" \t\r\n");
      const bool spec =
          first != std::string::npos && ((*bytes)[first] == '{' || (*bytes)[first] == '[');
      if (!spec) {
        if (Result<ObjectInfo> info = read_object(*bytes)) {
          if (Status same = check_target(path, *info, common); !same) {
            return std::move(same).error();
          }
        }
        out.push_back({path, std::move(*bytes)});
        continue;
      }
    }
    if (Status compiled = compile_spec(path, common, out); !compiled) {
      return std::move(compiled).error();
    }
  }
  return out;
}

int inspect_schedules(const InspectOptions& o, const Common& common) {
  Result<std::vector<Subject>> subjects = subjects_of(o, common);
  if (!subjects) return report(subjects.error(), common, kScheduleSchema);
  nlohmann::ordered_json reports = nlohmann::ordered_json::array();
  std::string text;
  Status limits;
  for (const Subject& subject : *subjects) {
    std::vector<std::string> notes;
    Result<std::vector<Schedule>> schedules = model_schedules(subject.bytes, o.assume, notes);
    if (!schedules) {
      return report(std::move(schedules).error().with_context(subject.name), common,
                    kScheduleSchema);
    }
    ObjectInfo info;
    for (const Schedule& schedule : *schedules) {
      info.kernels.push_back(schedule.kernel);
      text += (text.empty() ? "" : "\n") + to_text(schedule);
      nlohmann::ordered_json one = nlohmann::ordered_json::parse(to_json(schedule));
      one["input"] = subject.name;
      reports.push_back(std::move(one));
    }
    for (const std::string& note : notes) fmt::print(stderr, "hstu-jit: left out: {}\n", note);
    if (limits) limits = check_limits(info, o);
  }
  if (common.json) {
    text = nlohmann::ordered_json{{"schema", kScheduleSchema}, {"reports", reports}}.dump(
               2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
           "\n";
  }
  Status s = print(text);
  if (s) s = limits;
  return s ? 0 : fail(s.error());
}

int inspect_command(const InspectOptions& o, const Common& common) {
  if (o.schedule) return inspect_schedules(o, common);
  std::string wrong;
  if (o.inputs.size() != 1) wrong = "inspect takes one code object, or several with --schedule";
  if (!o.assume.empty()) wrong = "--assume goes with --schedule";
  if (!wrong.empty()) {
    return report(Error{ErrorKind::kUsage, wrong, "", ""}, common, kInspectSchema);
  }
  return inspect_object(o, common);
}

}  // namespace

void add_inspect(CLI::App& app, Common& common, Action& action) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* c = app.add_subcommand(
      "inspect", "Read target, registers, spills, scratch, LDS and instructions of a code object");
  c->add_option("object", options->inputs,
                "Code object: AMDGPU ELF, cubin or host object; with --schedule any number of "
                "AMDGPU objects and specs")
      ->required();
  c->add_option("--max-spills", options->max_spills, "Fail (exit 1) above this many spills")
      ->check(at_least(0));
  c->add_option("--max-scratch", options->max_scratch,
                "Fail (exit 1) above this many bytes of scratch a lane")
      ->check(at_least(0));
  c->add_flag(
      "--schedule", options->schedule,
      "Model the main loop of AMD kernels: its instructions, and the share of time in which "
      "the matrix unit works");
  c->add_option("--assume", options->assume,
                "NAME=CLOCKS: replace a number the model assumes; its report lists them")
      ->type_size(1)
      ->allow_extra_args(false);
  c->footer(
      "Example: hstu-jit inspect k.hsaco --max-spills 0\n"
      "Example: hstu-jit inspect --schedule spec.json --target gfx942 --assume lds-latency=256");
  c->callback([options, &common, &action] {
    action = [options, &common] { return inspect_command(*options, common); };
  });
}

}  // namespace hstu::jit::cli
