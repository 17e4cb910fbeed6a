// SPDX-License-Identifier: Apache-2.0
#include "prewarm/jobs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/env.hpp"
#include "base/text.hpp"
#include "engine/engine.hpp"
#include "plan/plan.hpp"
#include "source/source.hpp"
#include "spec/geometry.hpp"

namespace hstu::jit {
namespace {

// Names of targets, each looked up once: "cpu" asks the processor.
class Targets {
 public:
  Result<Target> find(const std::string& name) {
    const auto known = known_.find(name);
    if (known != known_.end()) return known->second;
    Result<Target> target = find_target(name);
    if (target) known_.emplace(name, *target);
    return target;
  }

 private:
  std::map<std::string, Target> known_;
};

bool contains(const std::vector<Target>& list, const Target& target) {
  return std::any_of(list.begin(), list.end(),
                     [&](const Target& t) { return t.name == target.name; });
}

Result<std::vector<Target>> resolve(Targets& targets, const std::vector<std::string>& names,
                                    const std::string& pointer) {
  std::vector<Target> list;
  for (const std::string& name : names) {
    Result<Target> target = targets.find(name);
    if (!target) {
      Error error = std::move(target).error();
      if (pointer.empty()) return error;
      error.pointer = pointer;
      return std::move(error).with_context(pointer);
    }
    if (!contains(list, *target)) list.push_back(std::move(*target));
  }
  return list;
}

// What one entry is made for.
Result<std::vector<Target>> targets_of(Targets& targets, const ManifestSpec& spec,
                                       const std::vector<Target>& usual, bool chosen) {
  std::vector<std::string> own = spec.targets;
  std::string pointer = spec.pointer + "/targets";
  if (own.empty() && usual.empty() && spec.problem.target != "auto") {
    own = {spec.problem.target};
    pointer = spec.pointer;
  }
  if (own.empty()) {
    if (!usual.empty()) return usual;
    return Error{ErrorKind::kSpec,
                 fmt::format("{}: no target is named for it; give --targets, or \"targets\" in the "
                             "manifest",
                             spec.pointer),
                 spec.pointer, ""};
  }
  if (!chosen) return resolve(targets, own, pointer);
  // Names that this program does not know cannot be among the chosen ones.
  std::vector<Target> both;
  for (const Target& target : usual)
    for (const std::string& name : own)
      if (Result<Target> t = targets.find(name); t && t->name == target.name) {
        both.push_back(target);
        break;
      }
  return both;
}

struct Planned {
  std::string request, entry;
};

// Plans and keys of problems. What many specs share is written and digested once.
class Planner {
 public:
  explicit Planner(const CompileOptions& options) : options_(options) {}

  Result<Planned> plan(const Problem& problem, const Geometry& geometry, const Target& target) {
    Result<Plan> plan = make_plan(problem, geometry, target, PlanDetail::launch);
    if (!plan) return std::move(plan).error();
    std::string seed = fmt::format("{}\n{}\n{}", target.name, plan->entry, source_seed(*plan));
    const auto known = known_.find(seed);
    if (known != known_.end()) return known->second;
    Result<Source> source = write_body(*plan);
    if (!source) return std::move(source).error();
    Planned planned{cache::request_digest(Engine::ingredients(*source, target, options_)),
                    plan->entry};
    known_.emplace(std::move(seed), planned);
    return planned;
  }

 private:
  const CompileOptions& options_;
  std::unordered_map<std::string, Planned> known_;
};

// Keeps every count-th of the elements, from the index-th in the order of `less`; the kept ones
// stay in the order they are in.
template <typename T, typename Key>
void keep_part(std::vector<T>& list, const Shard& shard, Key key) {
  std::vector<size_t> order(list.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return key(list[a]) < key(list[b]); });
  std::vector<bool> kept(list.size());
  for (size_t i = shard.index; i < order.size(); i += shard.count) kept[order[i]] = true;
  std::vector<T> part;
  for (size_t i = 0; i < list.size(); ++i)
    if (kept[i]) part.push_back(std::move(list[i]));
  list = std::move(part);
}

std::optional<size_t> number(std::string_view text) {
  size_t value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

Error shard_error(std::string message) {
  return Error{ErrorKind::kUsage, "--shard: " + std::move(message), "", ""};
}

Result<size_t> number_of(const char* variable) {
  const std::optional<std::string> text = get_env(variable);
  if (!text) return shard_error(fmt::format("{} is not set: this is no such job", variable));
  const std::optional<size_t> value = number(*text);
  if (!value)
    return shard_error(fmt::format("{} is \"{}\", a number expected", variable, printable(*text)));
  return *value;
}

Result<Shard> checked(size_t index, size_t count) {
  constexpr size_t kMost = 1000000;
  if (count < 1 || count > kMost || index >= count)
    return shard_error(
        fmt::format("{}/{} is no part; the first of n parts is 0/n, the last n-1/n", index, count));
  return Shard{index, count};
}

Result<Shard> slurm_shard() {
  const Result<size_t> id = number_of("SLURM_ARRAY_TASK_ID");
  const Result<size_t> least = number_of("SLURM_ARRAY_TASK_MIN");
  const Result<size_t> count = number_of("SLURM_ARRAY_TASK_COUNT");
  for (const Result<size_t>* value : {&id, &least, &count})
    if (!*value) return value->error();
  // With gaps between the ids some parts would have no job.
  const std::optional<std::string> step = get_env("SLURM_ARRAY_TASK_STEP");
  if ((step && *step != "1") || *id < *least || *id - *least >= *count)
    return shard_error(
        fmt::format("task {} of {} tasks from {} on: the ids of the array must follow each other, "
                    "as in --array=0-7",
                    *id, *count, *least));
  return checked(*id - *least, *count);
}

}  // namespace

Result<JobList> expand(const Manifest& manifest, const std::vector<std::string>& only,
                       const CompileOptions& options) {
  Targets targets;
  const bool chosen = !only.empty();
  Result<std::vector<Target>> usual =
      chosen ? resolve(targets, only, "") : resolve(targets, manifest.targets, "/targets");
  if (!usual) return std::move(usual).error();

  JobList list;
  std::unordered_map<std::string, size_t> known;  // request -> index into list.jobs
  Planner planner(options);
  size_t requests = 0;
  for (const ManifestSpec& spec : manifest.specs) {
    Result<std::vector<Target>> wanted = targets_of(targets, spec, *usual, chosen);
    if (!wanted) return std::move(wanted).error();
    requests += wanted->size();
    if (requests > kMaxRequests)
      return Error{ErrorKind::kSpec,
                   fmt::format("{}: found more than {} specs times targets; allowed fewer: split "
                               "the manifest",
                               spec.pointer, kMaxRequests),
                   spec.pointer, ""};
    if (wanted->empty()) continue;
    Result<Geometry> geometry = make_geometry(spec.problem);
    for (const Target& target : *wanted) {
      if (std::find(list.targets.begin(), list.targets.end(), target.name) == list.targets.end())
        list.targets.push_back(target.name);
      Asker asker{spec.label, spec.pointer};
      Result<Planned> planned = geometry ? planner.plan(spec.problem, *geometry, target)
                                         : Result<Planned>(geometry.error());
      if (!planned) {
        list.refused.push_back({std::move(asker), target.name, std::move(planned).error()});
        continue;
      }
      const auto [at, fresh] = known.try_emplace(planned->request, list.jobs.size());
      if (fresh) {
        list.jobs.push_back(
            {planned->request, planned->entry, target, spec.problem, spec.priority, {}});
      }
      KernelJob& job = list.jobs[at->second];
      job.priority = std::max(job.priority, spec.priority);
      job.askers.push_back(std::move(asker));
    }
  }
  std::stable_sort(list.jobs.begin(), list.jobs.end(),
                   [](const KernelJob& a, const KernelJob& b) { return a.priority > b.priority; });
  return list;
}

void keep_shard(JobList& list, const Shard& shard) {
  if (shard.count <= 1) return;
  keep_part(list.jobs, shard,
            [](const KernelJob& job) { return std::tie(job.target.name, job.request); });
  // Refusals are dealt out too, so that each is told once.
  keep_part(list.refused, shard, [](const RefusedJob& job) {
    return std::tie(job.target, job.asker.pointer, job.asker.label);
  });
}

Result<Shard> parse_shard(std::string_view text) {
  if (text == "slurm") return slurm_shard();
  const size_t slash = text.find('/');
  const std::string_view first = text.substr(0, slash);
  const std::optional<size_t> count =
      slash == text.npos ? std::nullopt : number(text.substr(slash + 1));
  if (count && first == "kubernetes") {
    const Result<size_t> index = number_of("JOB_COMPLETION_INDEX");
    if (!index) return index.error();
    return checked(*index, *count);
  }
  const std::optional<size_t> index = number(first);
  if (!count || !index)
    return shard_error(fmt::format(
        "found \"{}\"; allowed i/n with i from 0, slurm, or kubernetes/n", printable(text)));
  return checked(*index, *count);
}

}  // namespace hstu::jit
