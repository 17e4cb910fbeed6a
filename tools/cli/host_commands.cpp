// SPDX-License-Identifier: Apache-2.0
// hstu-jit devices, doctor, schema, environment: about this machine and this program.
#include <fmt/format.h>
#include <sys/statvfs.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/env.hpp"
#include "base/file.hpp"
#include "base/temp_dir.hpp"
#include "cli/commands.hpp"
#include "device/device.hpp"
#include "object/listing.hpp"

namespace hstu::jit::cli {
namespace {

using Json = nlohmann::ordered_json;

Json backend_json(const BackendReport& r) {
  Json j;
  j["backend"] = r.backend;
  j["status"] = r.status;
  j["devices"] = r.devices;
  j["libraries"] = Json::array();
  for (const LibraryProbe& p : r.libraries)
    j["libraries"].push_back({{"library", p.library}, {"found", p.found}, {"reason", p.reason}});
  return j;
}

std::string backend_text(const BackendReport& r) {
  std::string out = fmt::format("{}: {}\n", r.backend, r.status);
  for (const std::string& device : r.devices) out += fmt::format("  {}\n", device);
  for (const LibraryProbe& p : r.libraries)
    out += fmt::format("  {} {}: {}\n", p.found ? "found " : "tried ", p.library, p.reason);
  return out;
}

int devices_command(const Common& common) {
  const std::vector<BackendReport> reports = probe_backends();
  std::string out;
  if (common.json) {
    Json j;
    j["schema"] = "hstu-jit/devices/1";
    j["backends"] = Json::array();
    for (const BackendReport& r : reports) j["backends"].push_back(backend_json(r));
    out = j.dump(2) + "\n";
  } else {
    for (const BackendReport& r : reports) out += backend_text(r);
  }
  Status s = print(out);
  return s ? 0 : report(s.error(), common, "hstu-jit/devices/1");
}

// One finding of the doctor: what was looked at, how it is, and what to do about it.
struct Finding {
  std::string subject;
  enum class Grade { good, missing, bad } grade = Grade::good;
  std::string state;
  std::string advice;
};

void check_compilers(std::vector<Finding>& findings, const std::string& state_dir) {
  // One target per driver and generation says what the rest of its family can expect.
  for (const char* name : {"cpu", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201",
                           "sm_80", "sm_90a", "sm_100a", "sm_120"}) {
    Result<Target> target = find_target(name);
    if (!target) continue;
    Result<Toolchain> toolchain = find_toolchain(*target, state_dir);
    Finding f;
    f.subject = fmt::format("compiler for {}", target->name);
    if (toolchain) {
      f.state = fmt::format("{} ({})", toolchain->version, toolchain->library);
    } else {
      // Only this host's own compiler is needed to run anything here.
      f.grade = target->vendor == Vendor::cpu ? Finding::Grade::bad : Finding::Grade::missing;
      f.state = "none";
      f.advice = toolchain.error().message;
    }
    findings.push_back(std::move(f));
  }
}

// Inspecting and simulating AMD code objects takes a disassembler that knows their target.
void check_disassemblers(std::vector<Finding>& findings) {
  for (const Target& target : all_targets()) {
    if (target.vendor != Vendor::amd) continue;
    const Result<std::string> program = find_amd_disassembler(target.name);
    Finding f;
    f.subject = fmt::format("disassembler for {}", target.name);
    f.state = program ? *program : "none";
    if (!program) {
      f.grade = Finding::Grade::missing;
      f.advice = program.error().message;
    }
    findings.push_back(std::move(f));
  }
}

std::string check_cache(std::vector<Finding>& findings, const Common& common) {
  Finding f;
  f.subject = "kernel cache";
  Result<EngineOptions> options = engine_options(common);
  Result<std::unique_ptr<Engine>> engine =
      options ? Engine::create(*options) : Result<std::unique_ptr<Engine>>(options.error());
  std::string root;
  if (!engine) {
    f.grade = Finding::Grade::bad;
    f.state = "unusable";
    f.advice = engine.error().message;
  } else {
    const cache::Store& store = (*engine)->store();
    root = store.root();
    f.state = root.empty() ? "memory only" : fmt::format("{} ({})", root, store.root_reason());
    if (!store.warning().empty()) {
      f.grade = Finding::Grade::bad;
      f.advice = store.warning();
    }
    struct statvfs fs {};
    if (!root.empty() && statvfs(root.c_str(), &fs) == 0) {
      const double free = static_cast<double>(fs.f_bavail) * static_cast<double>(fs.f_frsize);
      f.state += fmt::format(", {:.1f} GB free", free / 1e9);
      if (free < 64e6) {
        f.grade = Finding::Grade::bad;
        f.advice = "less than 64 MB free: make room, or point HSTU_JIT_CACHE_DIR elsewhere";
      }
    }
  }
  findings.push_back(std::move(f));
  return root;
}

void check_temporary(std::vector<Finding>& findings) {
  Finding f;
  f.subject = "temporary folder";
  Result<TempDir> folder = TempDir::create("hstu-jit-doctor-");
  const Status written =
      folder ? write_file_atomic(folder->path() + "/probe", "x") : Status(folder.error());
  if (written) {
    f.state = get_env("TMPDIR").value_or("/tmp") + ", writable";
  } else {
    f.grade = Finding::Grade::bad;
    f.state = "not writable";
    f.advice = written.error().message + "; set TMPDIR to a folder that is";
  }
  findings.push_back(std::move(f));
}

void check_devices(std::vector<Finding>& findings) {
  for (const BackendReport& r : probe_backends()) {
    Finding f;
    f.subject = fmt::format("devices ({})", r.backend);
    f.state = r.status;
    for (const std::string& device : r.devices) f.state += "\n    " + device;
    if (r.devices.empty()) {
      f.grade = Finding::Grade::missing;
      for (const LibraryProbe& p : r.libraries)
        f.advice += fmt::format("{}{}: {}", f.advice.empty() ? "" : "; ", p.library, p.reason);
    }
    findings.push_back(std::move(f));
  }
}

int doctor_command(const Common& common) {
  constexpr const char* kSchema = "hstu-jit/doctor/1";
  std::vector<Finding> findings;
  const std::string root = check_cache(findings, common);
  check_temporary(findings);
  check_compilers(findings, root);
  check_disassemblers(findings);
  check_devices(findings);
  for (const std::string& warning : unknown_environment_warnings())
    findings.push_back({"environment", Finding::Grade::bad, warning, "correct or unset it"});

  int bad = 0, missing = 0;
  Json list = Json::array();
  std::string out;
  for (const Finding& f : findings) {
    const char* grade = f.grade == Finding::Grade::good      ? "ok"
                        : f.grade == Finding::Grade::missing ? "none"
                                                             : "BAD";
    bad += f.grade == Finding::Grade::bad;
    missing += f.grade == Finding::Grade::missing;
    list.push_back(
        {{"subject", f.subject}, {"grade", grade}, {"state", f.state}, {"advice", f.advice}});
    out += fmt::format("{:<5} {}: {}\n", grade, f.subject, f.state);
    if (!f.advice.empty()) out += fmt::format("      {}\n", f.advice);
  }
  out += bad > 0 ? fmt::format("{} problem(s) to mend\n", bad)
                 : fmt::format("ready; {} thing(s) this machine does not have\n", missing);
  if (common.json) {
    Json j;
    j["schema"] = kSchema;
    j["ready"] = bad == 0;
    j["findings"] = list;
    out = j.dump(2) + "\n";
  }
  if (Status s = print(out); !s) return report(s.error(), common, kSchema);
  return bad > 0 ? exit_code(ErrorKind::kFailed) : 0;
}

int environment_command(const Common& common) {
  Json list = Json::array();
  std::string out =
      "Every environment variable hstu-jit reads. An empty value counts as unset.\n\n";
  for (const EnvironmentVariable& v : environment_variables()) {
    std::optional<std::string> value = get_env(v.name);
    if (value && v.secret) value = "set, not shown";
    list.push_back({{"name", v.name}, {"meaning", v.meaning}});
    if (value) list.back()["value"] = *value;
    out += fmt::format("{:<28} {}{}\n", v.name, v.meaning,
                       value ? fmt::format(" [now: {}]", *value) : "");
  }
  out +=
      "\nAlso honoured: XDG_CACHE_HOME, XDG_RUNTIME_DIR, TMPDIR, HOME, PATH, ROCM_PATH, "
      "CUDA_HOME, HIP_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES (by the run-time libraries), "
      "NO_COLOR.\n"
      "A command-line option wins over a variable.\n";
  if (common.json)
    out = Json{{"schema", "hstu-jit/environment/1"}, {"variables", list}}.dump(2) + "\n";
  Status s = print(out);
  return s ? 0 : report(s.error(), common, "hstu-jit/environment/1");
}

}  // namespace

void add_devices(CLI::App& app, Common& common, Action& action) {
  CLI::App* c = app.add_subcommand("devices", "List devices, and which libraries were looked for");
  c->footer("Example: hstu-jit devices --json");
  c->callback([&common, &action] { action = [&common] { return devices_command(common); }; });
}

void add_doctor(CLI::App& app, Common& common, Action& action) {
  CLI::App* c = app.add_subcommand(
      "doctor", "Check compilers, disassemblers, cache, folders and devices; say what to do");
  c->footer("Example: hstu-jit doctor\nExit code 1 when something has to be mended.");
  c->callback([&common, &action] { action = [&common] { return doctor_command(common); }; });
}

void add_schema(CLI::App& app, Common& common, Action& action) {
  CLI::App* c = app.add_subcommand("schema", "Print the JSON Schema of spec files, for editors");
  c->footer("Example: hstu-jit schema > hstu-jit-spec.schema.json");
  c->callback([&common, &action] {
    action = [&common] {
      Status s = print(spec_schema());
      return s ? 0 : report(s.error(), common, "hstu-jit/schema/1");
    };
  });
}

void add_environment(CLI::App& app, Common& common, Action& action) {
  CLI::App* c =
      app.add_subcommand("environment", "List all environment variables and their values");
  c->footer("Example: hstu-jit environment");
  c->callback([&common, &action] { action = [&common] { return environment_command(common); }; });
}

}  // namespace hstu::jit::cli
