// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.hpp"

#include <fmt/format.h>

#include <atomic>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "base/digest.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "engine/flight.hpp"
#include "engine/record.hpp"
#include "object/inspect.hpp"

namespace hstu::jit {
namespace {

using Clock = std::chrono::steady_clock;
using Outcome = Flight::Outcome;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// Options that depend on the driver and not on the request belong to the toolchain's side of the
// key: a bundle made by another driver must still be able to answer.
std::string toolchain_key(const Toolchain& toolchain, const Target& target,
                          const CompileOptions& options) {
  std::string text = toolchain.id;
  for (const std::string& option : canonical_options(target, toolchain.driver, options))
    text += "\n" + option;
  return sha256_hex(text);
}

KernelOrigin origin_of(cache::Layer layer) {
  switch (layer) {
    case cache::Layer::bundle:
      return KernelOrigin::bundle;
    case cache::Layer::remote:
      return KernelOrigin::remote;
    default:
      return KernelOrigin::local;
  }
}

void append(std::string* line, const std::string& text) {
  if (!text.empty()) *line += (line->empty() ? "" : "; ") + text;
}

std::shared_ptr<const Kernel> kernel_of(const Plan& plan, cache::Artifact artifact, bool keep,
                                        double compile_ms = 0) {
  auto kernel = std::make_shared<Kernel>();
  kernel->plan = plan;
  kernel->entry = plan.entry;
  kernel->key = std::move(artifact.key);
  kernel->object = std::move(artifact.payload);
  kernel->compile_ms = compile_ms;
  const auto meta = nlohmann::json::parse(artifact.metadata, nullptr, false);
  if (meta.is_object())
    if (const auto at = meta.find("toolchain"); at != meta.end() && at->is_string())
      kernel->toolchain = at->get<std::string>();
  kernel->metadata = std::move(artifact.metadata);
  if (keep) kernel->ingredients = std::move(artifact.ingredients);
  return kernel;
}

// What a compiler gave must be what was asked for before others are served with it.
Status check_object(const Plan& plan, const std::string& object) {
  const auto wrong = [&](const std::string& what) {
    return Error{ErrorKind::kCompile,
                 fmt::format("cannot compile {} for {}: {}", plan.entry, plan.target.name, what),
                 "", ""};
  };
  const Result<ObjectInfo> info = read_object(object);
  if (!info) return wrong("the compiler's object is odd: " + info.error().message);
  const bool host = plan.target.vendor == Vendor::cpu;
  if (host ? info->format != "host" : info->target != plan.target.name)
    return wrong(fmt::format("the compiler's object is for {}", printable(info->target)));
  for (const KernelInfo& kernel : info->kernels)
    if (kernel.name == plan.entry) return {};
  return wrong("the compiler's object has no such kernel");
}

}  // namespace

const char* kernel_origin_name(KernelOrigin origin) {
  switch (origin) {
    case KernelOrigin::memory:
      return "memory";
    case KernelOrigin::bundle:
      return "bundle";
    case KernelOrigin::local:
      return "local";
    case KernelOrigin::remote:
      return "remote";
    case KernelOrigin::compiled:
      return "compiled";
  }
  return "compiled";
}

cache::Artifact Kernel::artifact() const { return {key, ingredients, metadata, object}; }

struct Engine::State {
  EngineOptions options;
  std::unique_ptr<cache::Cache> cache;
  std::unique_ptr<Recorder> recorder;
  Flights flights;
  struct {
    std::atomic<uint64_t> requests{0}, memory_hits{0}, waits{0}, wait_timeouts{0}, bundle_hits{0},
        local_hits{0}, remote_hits{0}, compiles{0}, compile_failures{0}, repeated_failures{0},
        sealed_misses{0}, compile_us{0};
  } counts;

  // Which compiler this machine has is remembered beside the kernels, so that a warm start spawns
  // nothing.
  std::string state_dir() const { return cache->store().root(); }
  int timeout_ms() const { return static_cast<int>(options.compile.timeout.count()); }
  // The longest a caller waits for another thread: for another process, then for the compile.
  std::chrono::milliseconds longest_wait() const {
    return 2 * options.compile.timeout + std::chrono::seconds(5);
  }

  ForkMutex asked_mutex;
  std::set<std::string> asked;  // targets whose compiler ask_compiler() looked for

  std::optional<Toolchain> remembered(const Target& target);
  bool was_asked(const Target& target);
  Result<Toolchain> toolchain_of(const Target& target);
  Outcome found(const Plan& plan, cache::CacheLookup lookup, std::string note = {});
  Outcome compile_and_publish(const Plan& plan, const Source& source,
                              const cache::Ingredients& ingredients, const cache::Key& key,
                              const Toolchain& toolchain, std::string note,
                              cache::Store::CompileLock lock);
  Outcome make(const Plan& plan, const Problem& problem);
  Error sealed(const Plan& plan, const std::string& why);
};

std::optional<Toolchain> Engine::State::remembered(const Target& target) {
  std::optional<Toolchain> known = remembered_toolchain(target, state_dir());
  // A program that writes its cache leaves there what it found out, for the next.
  const bool writes = options.cache_mode == cache::Mode::read_write && !was_asked(target);
  return known || writes ? known : remembered_toolchain(target, "");
}

bool Engine::State::was_asked(const Target& target) {
  const std::lock_guard guard(asked_mutex);
  return asked.count(target.name) != 0;
}

// Asking costs a compile: one process of this host asks for all.
Result<Toolchain> Engine::State::toolchain_of(const Target& target) {
  if (std::optional<Toolchain> known = remembered(target)) return std::move(*known);
  // A cache that may only be read is left as it is: this process alone remembers the answer.
  if (options.cache_mode != cache::Mode::read_write) return find_toolchain(target, "");
  cache::Store::CompileLock lock;
  if (!state_dir().empty()) {
    const std::string name = sha256_hex("compiler of " + target.name + "\n" + state_dir());
    lock = cache->store().lock({name, name}, timeout_ms());
  }
  return find_toolchain(target, state_dir());
}

Outcome Engine::State::found(const Plan& plan, cache::CacheLookup lookup, std::string note) {
  const KernelOrigin origin = origin_of(lookup.layer);
  ++(origin == KernelOrigin::bundle   ? counts.bundle_hits
     : origin == KernelOrigin::remote ? counts.remote_hits
                                      : counts.local_hits);
  append(&note, lookup.note);
  return Made{kernel_of(plan, std::move(lookup.artifact), options.keep_artifacts), origin, 0,
              std::move(note)};
}

Error Engine::State::sealed(const Plan& plan, const std::string& why) {
  ++counts.sealed_misses;
  return Error{ErrorKind::kCache,
               fmt::format("the cache is sealed and has no kernel for {} on {}: {}", plan.entry,
                           plan.target.name, why),
               "", ""};
}

Outcome Engine::State::compile_and_publish(const Plan& plan, const Source& source,
                                           const cache::Ingredients& ingredients,
                                           const cache::Key& key, const Toolchain& toolchain,
                                           std::string note, cache::Store::CompileLock lock) {
  ++counts.compiles;
  Result<CodeObject> object = compile(source, plan.target, toolchain, options.compile);
  if (object)
    if (Status s = check_object(plan, object->bytes); !s) object = std::move(s).error();
  if (!object) {
    ++counts.compile_failures;
    return std::move(object).error();
  }
  const double ms = object->milliseconds;
  counts.compile_us += static_cast<uint64_t>(1000 * ms);
  cache::Artifact artifact;
  artifact.key = key;
  artifact.ingredients = ingredients;
  // Nothing that two compiles of one key have different: bundles are compared byte by byte.
  artifact.metadata = nlohmann::json{{"entry", plan.entry},
                                     {"target", plan.target.name},
                                     {"toolchain", toolchain.version},
                                     {"driver", driver_name(toolchain.driver)}}
                          .dump();
  artifact.payload = std::move(object->bytes);
  // The caller has its kernel whether or not it can be kept.
  if (Status s = cache->publish_local(artifact); !s) {
    log_warn("kernel not cached: " + s.error().message);
    append(&note, "not cached: " + s.error().message);
  }
  lock = {};
  if (Status s = cache->publish_remote(artifact); !s) {
    append(&note, "not published: " + s.error().message);
  }
  return Made{kernel_of(plan, std::move(artifact), options.keep_artifacts, ms),
              KernelOrigin::compiled, ms, std::move(note)};
}

Outcome Engine::State::make(const Plan& plan, const Problem& problem) {
  Result<Source> source = write_body(plan);
  if (!source) return std::move(source).error();
  const cache::Ingredients parts = ingredients(*source, plan.target, options.compile);
  cache::Key key{cache::request_digest(parts), ""};
  if (recorder) recorder->record(key.request, problem, plan.target);

  // Bundles first: with a pinned one this host need not know its compiler, nor have one.
  if (cache::CacheLookup hit = cache->lookup_bundles(key); hit.hit) {
    return found(plan, std::move(hit));
  }
  Result<Toolchain> toolchain = toolchain_of(plan.target);
  if (!toolchain) {
    // Without a compiler of our own any verified entry is better than none.
    cache::CacheLookup lookup = cache->lookup(key, true, &parts);
    if (lookup.hit)
      return found(
          plan, std::move(lookup),
          "served from the cache without a compiler on this machine: " + toolchain.error().message);
    if (options.cache_mode == cache::Mode::sealed) return sealed(plan, lookup.explanation);
    Error error = std::move(toolchain).error();
    error.detail += "cache: " + lookup.explanation + "\n";
    return error;
  }
  key.toolchain = toolchain_key(*toolchain, plan.target, options.compile);
  cache::Store::CompileLock lock;
  cache::CacheLookup lookup = cache->lookup_or_lock(key, &parts, timeout_ms(), &lock);
  if (lookup.hit) return found(plan, std::move(lookup));
  if (options.cache_mode == cache::Mode::sealed) return sealed(plan, lookup.explanation);
  std::string note = cache->warning();
  append(&note, lookup.explanation);
  return compile_and_publish(plan, *source, parts, key, *toolchain, std::move(note),
                             std::move(lock));
}

cache::Ingredients Engine::ingredients(const Source& source, const Target& target,
                                       const CompileOptions& options) {
  std::string extra;
  for (const std::string& flag : options.extra_flags) extra += flag + "\n";
  return {{"format", "hstu-jit/kernel/1"},
          {"target", target.name},
          {"entry", source.entry},
          {"extra_flags", extra},
          {"source", source.body}};
}

Result<std::unique_ptr<Engine>> Engine::create(const EngineOptions& options) {
  cache::CacheOptions cache_options;
  cache_options.local.root = options.cache_dir;
  cache_options.local.explicit_root = !options.cache_dir.empty();
  cache_options.local.mode = options.cache_mode;
  cache_options.bundles = options.bundles;
  cache_options.wait_for_remote = options.wait_for_remote;
  Result<std::unique_ptr<cache::Cache>> cache = cache::Cache::open(cache_options);
  if (!cache) return std::move(cache).error();
  auto state = std::make_unique<State>();
  state->options = options;
  state->cache = std::move(*cache);
  state->recorder = Recorder::from_environment();
  return std::unique_ptr<Engine>(new Engine(std::move(state)));
}

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}
Engine::~Engine() = default;

const cache::Cache& Engine::cache() const { return *state_->cache; }
const cache::Store& Engine::store() const { return state_->cache->store(); }

Result<Prepared> Engine::prepare(const Problem& problem, const Geometry& geometry,
                                 const Target& target, PlanDetail detail) {
  const Clock::time_point start = Clock::now();
  ++state_->counts.requests;
  Result<Plan> plan = make_plan(problem, geometry, target, detail);
  if (!plan) return std::move(plan).error();

  // As fine as the request key, which takes the whole source: see source_seed().
  const auto [flight, mine] = state_->flights.join(target.name + "\n" + source_seed(*plan));
  if (mine) {
    // Others wait: it lands even when memory runs out.
    try {
      flight->land(state_->make(*plan, problem), state_->options.failure_memory);
    } catch (const std::exception& e) {
      flight->land(Error{ErrorKind::kInternal,
                         std::string("preparing a kernel failed: ") + e.what(), "", ""},
                   std::chrono::milliseconds(0));
    }
  } else if (!flight->landed()) {
    ++state_->counts.waits;
    if (!flight->wait(state_->longest_wait())) {
      ++state_->counts.wait_timeouts;
      return Error{ErrorKind::kTimeout,
                   fmt::format("another thread has been making {} for {} for more than {} s; "
                               "HSTU_JIT_COMPILE_TIMEOUT sets half of that",
                               plan->entry, target.name,
                               static_cast<double>(state_->longest_wait().count()) / 1000),
                   "", ""};
    }
  }
  const Outcome& outcome = flight->outcome();
  if (!outcome.ok()) {
    if (!mine) ++state_->counts.repeated_failures;
    return outcome.error();
  }
  if (!mine) ++state_->counts.memory_hits;

  Prepared prepared;
  prepared.kernel = outcome->kernel;
  prepared.plan = std::move(*plan);
  prepared.origin = mine ? outcome->origin : KernelOrigin::memory;
  prepared.compile_ms = mine ? outcome->compile_ms : 0;
  if (mine) prepared.cache_note = outcome->note;
  prepared.prepare_ms = milliseconds_since(start);
  return prepared;
}

Result<Peek> Engine::peek(const Problem& problem, const Geometry& geometry, const Target& target) {
  Result<Plan> plan = make_plan(problem, geometry, target, PlanDetail::launch);
  if (!plan) return std::move(plan).error();
  Peek peek;
  if (const auto kernel = state_->flights.find(target.name + "\n" + source_seed(*plan))) {
    peek.hit = true;
    peek.origin = KernelOrigin::memory;
    peek.key = kernel->key;
    return peek;
  }
  Result<Source> source = write_body(*plan);
  if (!source) return std::move(source).error();
  const cache::Ingredients parts = ingredients(*source, target, state_->options.compile);
  peek.key.request = cache::request_digest(parts);
  const std::optional<Toolchain> toolchain = state_->remembered(target);
  if (toolchain) peek.key.toolchain = toolchain_key(*toolchain, target, state_->options.compile);
  // What prepare() would take: with a compiler whose identity is not known now, only what bundles
  // have whatever the compiler.
  const bool must_ask = !toolchain && has_compiler_candidates(target) && !state_->was_asked(target);
  cache::CacheLookup lookup = must_ask ? state_->cache->lookup_bundles(peek.key)
                                       : state_->cache->peek(peek.key, !toolchain);
  if (must_ask && !lookup.hit) {
    lookup.reason = cache::MissReason::toolchain;
    lookup.explanation = fmt::format(
        "which compiler this machine has for {} is not remembered; a first compile finds out",
        target.name);
  }
  peek.hit = lookup.hit;
  peek.reason = lookup.reason;
  peek.explanation = lookup.hit ? lookup.note : lookup.explanation;
  if (lookup.hit) {
    peek.origin = origin_of(lookup.layer);
    peek.key = lookup.artifact.key;
  }
  return peek;
}

void Engine::ask_compiler(const Target& target) {
  if (state_->remembered(target)) return;
  // Whether it is found or not: peek() looks at what this process remembers.
  (void)find_toolchain(target, "");
  const std::lock_guard guard(state_->asked_mutex);
  state_->asked.insert(target.name);
}

EngineStatistics Engine::statistics() const {
  const auto& c = state_->counts;
  EngineStatistics s;
  s.requests = c.requests;
  s.memory_hits = c.memory_hits;
  s.waits = c.waits;
  s.wait_timeouts = c.wait_timeouts;
  s.bundle_hits = c.bundle_hits;
  s.local_hits = c.local_hits;
  s.remote_hits = c.remote_hits;
  s.compiles = c.compiles;
  s.compile_failures = c.compile_failures;
  s.repeated_failures = c.repeated_failures;
  s.sealed_misses = c.sealed_misses;
  s.compile_ms = static_cast<double>(c.compile_us) / 1000;
  s.kernels = state_->flights.kernels();
  s.cache = state_->cache->statistics();
  return s;
}

std::string Engine::statistics_json() const {
  using Json = nlohmann::ordered_json;
  const EngineStatistics s = statistics();
  Json misses = Json::object(), hits = Json::object();
  for (size_t layer = 1; layer < cache::kLayers; ++layer) {
    const char* name = cache::layer_name(static_cast<cache::Layer>(layer));
    hits[name] = s.cache.hits[layer];
    Json reasons = Json::object();
    for (size_t reason = 0; reason < cache::CacheStatistics::kReasons; ++reason) {
      if (s.cache.misses[layer][reason] == 0) continue;
      reasons[cache::miss_reason_name(static_cast<cache::MissReason>(reason))] =
          s.cache.misses[layer][reason];
    }
    misses[name] = std::move(reasons);
  }
  return Json{{"schema", "hstu-jit/engine-stats/1"},
              {"requests", s.requests},
              {"kernels", s.kernels},
              {"hits",
               {{"memory", s.memory_hits},
                {"bundle", s.bundle_hits},
                {"local", s.local_hits},
                {"remote", s.remote_hits}}},
              {"misses", misses},
              {"compiles", s.compiles},
              {"compile_failures", s.compile_failures},
              {"compile_ms", s.compile_ms},
              {"repeated_failures", s.repeated_failures},
              {"waits", s.waits},
              {"wait_timeouts", s.wait_timeouts},
              {"sealed_misses", s.sealed_misses},
              {"published", s.cache.publishes},
              {"publish_failures", s.cache.publish_failures},
              {"published_to_remote", s.cache.remote_publishes},
              {"remote_publish_failures", s.cache.remote_publish_failures},
              {"kept_from_remote", s.cache.kept}}
      .dump();
}

}  // namespace hstu::jit
