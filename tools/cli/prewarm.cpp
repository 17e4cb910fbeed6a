// SPDX-License-Identifier: Apache-2.0
// hstu-jit prewarm: the kernels of a manifest, made ahead of time.
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/env.hpp"
#include "base/processors.hpp"
#include "base/subprocess.hpp"
#include "base/text.hpp"
#include "cache/bundle.hpp"
#include "cache/entry.hpp"
#include "cache/remote.hpp"
#include "cli/commands.hpp"
#include "cli/version.hpp"
#include "prewarm/jobs.hpp"
#include "prewarm/manifest.hpp"
#include "prewarm/progress.hpp"
#include "prewarm/runner.hpp"

namespace hstu::jit::cli {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr const char* kSchema = "hstu-jit/prewarm/1";
constexpr const char* kCheckSchema = "hstu-jit/prewarm-check/1";
constexpr int kMostThreads = 1024;

struct PrewarmOptions {
  std::string manifest, out, shard, progress = "auto";
  std::vector<std::string> targets;
  int jobs = 0;  // 0: the processors of this process
  int nice = 10;
  bool check = false, strict = false, fail_fast = false;
};

// What a signal tells the run. Signal handlers need globals.
std::atomic<bool> stop_asked{false};
std::atomic<int> stop_signal{0};

void stop_running(int signal) {
  stop_signal = signal;
  stop_asked = true;
  end_running_processes();
}

// In place of the handlers of main(): the run ends in order, with its temporary files removed. The
// second signal finds the usual handler and ends the program at once.
void stop_on_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction now {};
    // Who started us may want it ignored (nohup).
    if (::sigaction(signal, nullptr, &now) != 0 || now.sa_handler == SIG_IGN) continue;
    now = {};
    now.sa_handler = stop_running;
    now.sa_flags = SA_RESETHAND | SA_RESTART;
    sigemptyset(&now.sa_mask);
    (void)::sigaction(signal, &now, nullptr);
  }
}

// The compilers inherit it: a build host stays usable.
void be_polite(int nice) {
  errno = 0;
  const int now = ::getpriority(PRIO_PROCESS, 0);
  if (errno == 0 && now < nice) (void)::setpriority(PRIO_PROCESS, 0, nice);
}

// Found out before hours of compiling, not after.
Status check_out(const std::string& out) {
  const size_t slash = out.rfind('/');
  const std::string folder = slash == std::string::npos ? "."
                             : slash == 0               ? "/"
                                                        : out.substr(0, slash);
  if (::access(folder.c_str(), W_OK | X_OK) == 0) return {};
  return Error{ErrorKind::kCache,
               fmt::format("cannot write {}: {}", printable(out, 300), std::strerror(errno)), "",
               ""};
}

struct Work {
  JobList list;
  std::unique_ptr<Engine> engine;
  size_t threads = 1;
};

Result<Work> begin(const PrewarmOptions& o, const Common& common) {
  if (!common.device.empty())
    return Error{ErrorKind::kUsage, "prewarm needs no device: name --targets", "", ""};
  if (!common.target.empty() && !o.targets.empty())
    return Error{ErrorKind::kUsage, "--target and --targets say the same: give one of them", "",
                 ""};
  if (!o.out.empty())
    if (Status s = check_out(o.out); !s) return std::move(s).error();
  std::vector<std::string> targets = o.targets;
  if (!common.target.empty()) targets = {common.target};
  Shard shard;
  if (!o.shard.empty()) {
    Result<Shard> parsed = parse_shard(o.shard);
    if (!parsed) return std::move(parsed).error();
    shard = *parsed;
  }
  Result<EngineOptions> options = engine_options(common);
  if (!options) return std::move(options).error();
  options->keep_artifacts = !o.out.empty() || get_env("HSTU_JIT_REMOTE").has_value();
  options->wait_for_remote = true;  // what it does not take is told at the end
  Result<Manifest> manifest = load_manifest(o.manifest);
  if (!manifest) return std::move(manifest).error();
  for (const std::string& warning : manifest->warnings)
    fmt::print(stderr, "hstu-jit: {}: {}\n", printable(o.manifest, 200), warning);
  Work work;
  Result<JobList> list = expand(*manifest, targets, options->compile);
  if (!list) return std::move(list).error().with_context(printable(o.manifest, 200));
  work.list = std::move(*list);
  keep_shard(work.list, shard);
  Result<std::unique_ptr<Engine>> engine = Engine::create(*options);
  if (!engine) return std::move(engine).error();
  work.engine = std::move(*engine);
  if (const std::string& warning = work.engine->cache().warning(); !warning.empty())
    fmt::print(stderr, "hstu-jit: {}\n", warning);
  // Who names a remote wants it filled: found out before the compiling, not by the nodes.
  if (!o.check && options->cache_mode == cache::Mode::read_write && get_env("HSTU_JIT_REMOTE") &&
      !work.engine->cache().has_remote())
    return Error{ErrorKind::kCache, "the remote cache of HSTU_JIT_REMOTE cannot be used", "", ""};
  work.threads =
      static_cast<size_t>(std::clamp(o.jobs > 0 ? o.jobs : usable_processors(), 1, kMostThreads));
  return work;
}

Json askers_json(const KernelJob& job) {
  Json list = Json::array();
  for (const Asker& asker : job.askers)
    list.push_back({{"spec", asker.label}, {"pointer", asker.pointer}});
  return list;
}

std::string text_of(const Json& j, int indent) {
  return j.dump(indent, ' ', false, Json::error_handler_t::replace);
}

// One entry that has no kernel.
struct Failure {
  Asker asker;
  std::string target;
  ErrorKind kind;
  std::string reason;
};

std::vector<Failure> failures_of(const JobList& list, const std::vector<JobResult>& results) {
  std::vector<Failure> failures;
  for (const RefusedJob& job : list.refused)
    failures.push_back({job.asker, job.target, job.error.kind, job.error.message});
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].error) continue;
    for (const Asker& asker : list.jobs[i].askers)
      failures.push_back(
          {asker, list.jobs[i].target.name, results[i].error->kind, results[i].error->message});
  }
  return failures;
}

// A failed compile says most about the run; then whatever else failed; specs that no kernel is for
// are the mildest.
int code_of(const std::vector<Failure>& failures) {
  int code = 0;
  for (const Failure& f : failures) {
    if (f.kind == ErrorKind::kCompile) return exit_code(f.kind);
    if (code == 0 || code == exit_code(ErrorKind::kUnsupported)) code = exit_code(f.kind);
  }
  return code;
}

struct Written {
  std::string digest;
  size_t entries = 0;
};

Result<Written> write_out(const std::string& path, const Work& work,
                          const std::vector<JobResult>& results,
                          const std::vector<Failure>& failures) {
  cache::BundleNotes notes;
  notes.producer = producer_text();
  const auto request = [&](const Asker& asker, const std::string& target, const std::string& key) {
    Json j{{"spec", asker.label}, {"pointer", asker.pointer}, {"target", target}};
    if (!key.empty()) j["key"] = key;
    notes.requested.push_back(text_of(j, -1));
  };
  for (const KernelJob& job : work.list.jobs)
    for (const Asker& asker : job.askers) request(asker, job.target.name, job.request);
  for (const RefusedJob& job : work.list.refused) request(job.asker, job.target, "");
  for (const Failure& f : failures)
    notes.failed.push_back(
        {fmt::format("{} ({})", f.asker.label, f.asker.pointer), f.target, f.reason});
  cache::BundleWriter writer(std::move(notes));
  for (const JobResult& result : results) {
    if (!result.kernel) continue;
    Result<std::string> bytes = cache::encode_entry(result.kernel->artifact());
    if (!bytes) return std::move(bytes).error();
    if (Status s = writer.add(std::move(*bytes)); !s) return std::move(s).error();
  }
  Result<std::string> digest = writer.write(path);
  if (!digest) return std::move(digest).error();
  return Written{std::move(*digest), writer.size()};
}

struct Report {
  const Work* work = nullptr;
  const std::vector<JobResult>* results = nullptr;
  std::vector<Failure> failures;
  size_t compiled = 0, failed = 0, skipped = 0;
  uint64_t sent = 0, not_sent = 0;       // to the remote
  std::map<std::string, size_t> cached;  // by where it came from
  double seconds = 0, compile_ms = 0;
  std::string out;  // "" when no bundle was written
  Written written;
  bool interrupted = false;
};

Json report_json(const Report& r) {
  Json j{{"schema", kSchema}, {"targets", r.work->list.targets}};
  j["total"] = r.work->list.jobs.size();
  j["compiled"] = r.compiled;
  j["cached"] = Json::object();
  for (const auto& [origin, count] : r.cached) j["cached"][origin] = count;
  j["failed"] = r.failed;
  j["unsupported"] = r.work->list.refused.size();
  j["skipped"] = r.skipped;
  j["interrupted"] = r.interrupted;
  if (r.work->engine->cache().remote() != nullptr)
    j["remote"] = {{"published", r.sent}, {"failed", r.not_sent}};
  j["jobs"] = r.work->threads;
  j["seconds"] = r.seconds;
  j["compile_ms"] = r.compile_ms;
  if (!r.out.empty())
    j["bundle"] = {{"path", r.out}, {"digest", r.written.digest}, {"entries", r.written.entries}};
  j["failures"] = Json::array();
  for (const Failure& f : r.failures)
    j["failures"].push_back({{"spec", f.asker.label},
                             {"pointer", f.asker.pointer},
                             {"target", f.target},
                             {"kind", error_kind_name(f.kind)},
                             {"reason", f.reason}});
  j["kernels"] = Json::array();
  for (size_t i = 0; i < r.results->size(); ++i) {
    const KernelJob& job = r.work->list.jobs[i];
    const JobResult& result = (*r.results)[i];
    const bool ready = result.state == JobResult::State::ready;
    Json k{{"key", job.request}, {"target", job.target.name}, {"name", job.entry}};
    k["state"] = ready ? "ready" : result.error ? "failed" : "skipped";
    if (ready) {
      k["source"] = kernel_origin_name(result.origin);
      k["compile_ms"] = result.compile_ms;
      k["prepare_ms"] = result.prepare_ms;
    }
    k["specs"] = askers_json(job);
    j["kernels"].push_back(std::move(k));
  }
  return j;
}

std::string report_text(const Report& r) {
  std::string cached;
  size_t count = 0;
  for (const auto& [origin, n] : r.cached) {
    cached += fmt::format("{}{} {}", cached.empty() ? " (" : ", ", origin, n);
    count += n;
  }
  if (!cached.empty()) cached += ")";
  std::string out = fmt::format("{} kernels: {} compiled, {} cached{}", r.work->list.jobs.size(),
                                r.compiled, count, cached);
  if (r.failed > 0) out += fmt::format(", {} failed", r.failed);
  if (r.skipped > 0) out += fmt::format(", {} not made", r.skipped);
  if (!r.work->list.refused.empty())
    out += fmt::format(", {} unsupported", r.work->list.refused.size());
  if (r.sent + r.not_sent > 0)
    out += fmt::format(", {} of {} sent to the remote", r.sent, r.sent + r.not_sent);
  out += fmt::format("; {:.1f} s\n", r.seconds);
  for (const Failure& f : r.failures)
    out += fmt::format("{}: {} for {} ({}): {}\n",
                       f.kind == ErrorKind::kUnsupported ? "unsupported" : "failed",
                       printable(f.asker.label, 120), f.target, printable(f.asker.pointer, 60),
                       printable(f.reason, 600));
  if (!r.out.empty())
    out += fmt::format("{}: {} kernels, sha256:{}\n", printable(r.out, 300), r.written.entries,
                       r.written.digest);
  return out;
}

int prewarm_command(const PrewarmOptions& o, const Common& common) {
  const bool events = o.progress == "ndjson";
  std::FILE* const progress_to = events ? stdout : stderr;
  Result<ProgressStyle> style = progress_style(o.progress, progress_to);
  if (!style) return report(style.error(), common, kSchema);
  be_polite(o.nice);
  const Clock::time_point start = Clock::now();
  Result<Work> work = begin(o, common);
  if (!work) return report(work.error(), common, kSchema);

  const std::unique_ptr<Progress> progress = make_progress(*style, progress_to);
  RunOptions options;
  options.threads = work->threads;
  options.keep_going = !o.fail_fast;
  options.keep_kernels = !o.out.empty();
  options.fill_remote = work->engine->cache().remote() != nullptr;
  options.stop = &stop_asked;
  options.give_up = [&progress] {
    progress->end();
    ::_exit(128 + stop_signal);
  };
  stop_on_signals();
  progress->begin(work->list, work->threads);
  const std::vector<JobResult> results =
      run_jobs(*work->engine, work->list.jobs, options, *progress);
  progress->end();

  Report r;
  r.work = &*work;
  r.results = &results;
  r.failures = failures_of(work->list, results);
  r.interrupted = stop_asked;
  for (const JobResult& result : results) {
    r.compile_ms += result.compile_ms;
    r.failed += result.state == JobResult::State::failed;
    r.skipped += result.state == JobResult::State::skipped;
    if (result.state != JobResult::State::ready) continue;
    if (result.origin == KernelOrigin::compiled)
      ++r.compiled;
    else
      ++r.cached[kernel_origin_name(result.origin)];
  }
  if (const cache::Remote* remote = work->engine->cache().remote()) {
    const cache::RemoteStatistics counted = remote->statistics();
    r.sent = counted.publishes;
    r.not_sent = counted.publish_failures;
  }
  int code = code_of(r.failures);
  // Who lets a prewarm write to the remote wants the kernels there.
  if (code == 0 && r.not_sent > 0) code = exit_code(ErrorKind::kCache);
  if (r.interrupted) code = 128 + stop_signal;
  if (!o.out.empty() && r.skipped == 0 && !r.interrupted && (code == 0 || !o.strict)) {
    Result<Written> written = write_out(o.out, *work, results, r.failures);
    if (!written) return report(written.error(), common, kSchema);
    r.out = o.out;
    r.written = std::move(*written);
  }
  r.seconds = std::chrono::duration<double>(Clock::now() - start).count();

  if (r.interrupted)
    fmt::print(stderr, "hstu-jit: interrupted after {} of {} kernels; the next run goes on there\n",
               results.size() - r.skipped, results.size());
  else if (r.failures.empty() && r.not_sent > 0)
    fmt::print(stderr, "hstu-jit: {} kernels could not be sent to the remote\n", r.not_sent);
  else if (code != 0)
    fmt::print(stderr, "hstu-jit: {} entries have no kernel{}\n", r.failures.size(),
               !o.out.empty() && r.out.empty() ? "; no bundle was written" : "");
  std::string out;
  if (events) {
    Json last{{"schema", "hstu-jit/prewarm-event/1"}, {"event", "end"}};
    last["report"] = report_json(r);
    out = text_of(last, -1) + "\n";
  } else {
    out = common.json ? text_of(report_json(r), 2) + "\n" : report_text(r);
  }
  Status s = print(out);
  return s ? code : report(s.error(), common, kSchema);
}

int check_command(const PrewarmOptions& o, const Common& common) {
  Result<Work> work = begin(o, common);
  if (!work) return report(work.error(), common, kCheckSchema);
  const std::vector<CheckResult> results =
      check_jobs(*work->engine, work->list.jobs, std::min<size_t>(work->threads, 8));
  Json missing = Json::array();
  std::string out;
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].ready()) continue;
    const KernelJob& job = work->list.jobs[i];
    const std::string reason =
        results[i].error ? "error" : cache::miss_reason_name(results[i].peek.reason);
    const std::string why =
        results[i].error ? results[i].error->message : results[i].peek.explanation;
    missing.push_back({{"key", job.request},
                       {"target", job.target.name},
                       {"name", job.entry},
                       {"reason", reason},
                       {"explanation", why},
                       {"specs", askers_json(job)}});
    out += fmt::format("missing: {} for {} ({}): {}\n", printable(job.entry, 120), job.target.name,
                       job.askers.empty() ? "" : printable(job.askers.front().label, 80),
                       why.empty() ? reason : printable(why, 400));
  }
  for (const RefusedJob& job : work->list.refused)
    fmt::print(stderr, "hstu-jit: unsupported, not counted: {} for {}: {}\n",
               printable(job.asker.label, 80), job.target, printable(job.error.message, 400));
  const size_t total = results.size(), lacking = missing.size();
  out = fmt::format("{}: {} of {} kernels are there\n", lacking == 0 ? "ready" : "not ready",
                    total - lacking, total) +
        out;
  if (common.json) {
    Json j{{"schema", kCheckSchema}, {"ready", lacking == 0}, {"total", total}};
    j["unsupported"] = work->list.refused.size();
    j["missing"] = std::move(missing);
    out = text_of(j, 2) + "\n";
  }
  if (Status s = print(out); !s) return report(s.error(), common, kCheckSchema);
  if (lacking == 0) return 0;
  fmt::print(stderr, "hstu-jit: {} of {} kernels are missing\n", lacking, total);
  return exit_code(ErrorKind::kCache);
}

}  // namespace

void add_prewarm(CLI::App& app, Common& common, Action& action) {
  CLI::App* c = app.add_subcommand(
      "prewarm", "Compile the kernels of a manifest ahead of time, into cache and bundle");
  auto o = std::make_shared<PrewarmOptions>();
  c->add_option("manifest", o->manifest,
                "Manifest (schema hstu-jit/manifest/1), or what HSTU_JIT_RECORD wrote")
      ->required();
  c->add_option("--targets", o->targets,
                "For these targets instead of the manifest's, as gfx90a,gfx942,cpu")
      ->delimiter(',');
  c->add_option("-j,--jobs", o->jobs, "Compiles at a time (default: the processors it may use)")
      ->check(at_least(1));
  c->add_option("-o,--out", o->out, "Also write a bundle of all kernels (same inputs, same bytes)");
  c->add_option("--shard", o->shard,
                "Only part i of n, \"i/n\" from 0; or slurm, kubernetes/n for arrays of jobs");
  c->add_flag("--check", o->check,
              "Compile nothing: tell whether every kernel is there (exit code 8: no)");
  c->add_option("--progress", o->progress, "auto, bar, lines, ndjson (on standard output) or none");
  c->add_flag("--strict", o->strict, "Write no bundle when an entry failed");
  c->add_flag("--fail-fast", o->fail_fast, "Begin no further kernel after a failed one");
  c->add_option("--nice", o->nice, "Give way to others by this much, 0 to 19 (default 10)")
      ->check(CLI::Range(0, 19));
  c->footer(
      "Example: hstu-jit prewarm fleet.json --targets gfx90a,gfx942 --out kernels.hjb\n"
      "         hstu-jit prewarm fleet.json --targets gfx942 --check && start-server\n"
      "Exit code 5 when a kernel failed to compile, 4 when all that failed are specs without a\n"
      "kernel for their target, 8 when --check found some missing or a remote in mode rw did not "
      "take\n"
      "some, 128+n after signal n. What was "
      "made before is kept: the next run goes on there.");
  c->callback([&common, &action, o] {
    action = [&common, o] {
      return o->check ? check_command(*o, common) : prewarm_command(*o, common);
    };
  });
}

}  // namespace hstu::jit::cli
