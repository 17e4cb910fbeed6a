// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.hpp"

#include <fmt/format.h>

#include <chrono>
#include <future>
#include <mutex>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/digest.hpp"
#include "base/log.hpp"
#include "spec/parse.hpp"

namespace hstu::jit {
namespace {

using Clock = std::chrono::steady_clock;

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

}  // namespace

const char* kernel_origin_name(KernelOrigin origin) {
  switch (origin) {
    case KernelOrigin::memory:
      return "memory";
    case KernelOrigin::local:
      return "local";
    case KernelOrigin::compiled:
      return "compiled";
  }
  return "compiled";
}

struct Engine::State {
  struct Made {
    std::shared_ptr<const Kernel> kernel;
    KernelOrigin origin = KernelOrigin::compiled;
    double compile_ms = 0;
    std::string note;
  };
  using Outcome = Result<Made>;

  EngineOptions options;
  cache::Store store;
  std::mutex mutex;  // guards `kernels` only; never held across I/O or a compile
  std::unordered_map<std::string, std::shared_future<std::shared_ptr<Outcome>>> kernels;

  Outcome make(const Plan& plan, const Source& source, const cache::Ingredients& ingredients,
               const std::string& request);
  Outcome compile_and_publish(const Plan& plan, const Source& source,
                              const cache::Ingredients& ingredients, const cache::Key& key,
                              const Toolchain& toolchain, std::string note);
};

namespace {

std::shared_ptr<const Kernel> kernel_of(const Plan& plan, cache::Artifact artifact) {
  auto kernel = std::make_shared<Kernel>();
  kernel->plan = plan;
  kernel->entry = plan.entry;
  kernel->key = artifact.key;
  kernel->object = std::move(artifact.payload);
  const auto meta = nlohmann::json::parse(artifact.metadata, nullptr, false);
  if (meta.is_object()) {
    kernel->toolchain = meta.value("toolchain", "");
    kernel->compile_ms = meta.value("compile_ms", 0.0);
  }
  return kernel;
}

}  // namespace

Engine::State::Outcome Engine::State::compile_and_publish(const Plan& plan, const Source& source,
                                                          const cache::Ingredients& ingredients,
                                                          const cache::Key& key,
                                                          const Toolchain& toolchain,
                                                          std::string note) {
  Result<CodeObject> object = compile(source, plan.target, toolchain, options.compile);
  if (!object) return std::move(object).error();
  cache::Artifact artifact;
  artifact.key = key;
  artifact.ingredients = ingredients;
  artifact.metadata = nlohmann::json{{"entry", plan.entry},
                                     {"target", plan.target.name},
                                     {"toolchain", toolchain.version},
                                     {"driver", driver_name(toolchain.driver)},
                                     {"compile_ms", object->milliseconds}}
                          .dump();
  artifact.payload = std::move(object->bytes);
  if (options.cache_mode == cache::Mode::read_write && !store.root().empty()) {
    // The caller has its kernel whether or not it can be kept.
    if (Status s = store.publish(artifact); !s) {
      log_warn("kernel not cached: " + s.error().message);
      note += (note.empty() ? "" : "; ") + ("not cached: " + s.error().message);
    }
  }
  const double ms = object->milliseconds;
  return Made{kernel_of(plan, std::move(artifact)), KernelOrigin::compiled, ms, std::move(note)};
}

Engine::State::Outcome Engine::State::make(const Plan& plan, const Source& source,
                                           const cache::Ingredients& ingredients,
                                           const std::string& request) {
  // Which compiler this machine has is remembered beside the kernels, so that a warm start spawns
  // nothing.
  const std::string state_dir = options.cache_mode == cache::Mode::off ? "" : store.root();
  Result<Toolchain> toolchain = find_toolchain(plan.target, state_dir);
  cache::Key key{request, toolchain ? toolchain_key(*toolchain, plan.target, options.compile) : ""};

  // Without a compiler of our own any verified entry is better than none.
  cache::Lookup found = store.lookup(key, !toolchain.ok());
  std::string note = store.warning();
  if (found.hit) {
    if (!toolchain)
      note =
          "served from the cache without a compiler on this machine: " + toolchain.error().message;
    return Made{kernel_of(plan, std::move(found.artifact)), KernelOrigin::local, 0, note};
  }
  if (found.reason == cache::MissReason::absent)
    found.explanation = store.explain_absence(ingredients);
  if (note.empty()) note = found.explanation;
  if (options.cache_mode == cache::Mode::sealed)
    return Error{ErrorKind::kCache,
                 fmt::format("the cache is sealed and has no kernel for {} on {}: {}", plan.entry,
                             plan.target.name, found.explanation),
                 "", ""};
  if (!toolchain) return std::move(toolchain).error();

  const cache::Store::CompileLock lock =
      store.lock(key, static_cast<int>(options.compile.timeout.count()));
  if (lock.held() && options.cache_mode == cache::Mode::read_write) {
    // Another process may have made it while this one waited.
    cache::Lookup again = store.lookup(key);
    if (again.hit)
      return Made{kernel_of(plan, std::move(again.artifact)), KernelOrigin::local, 0,
                  "made by another process meanwhile"};
  }
  return compile_and_publish(plan, source, ingredients, key, *toolchain, std::move(note));
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
  cache::Store::Options store_options;
  store_options.root = options.cache_dir;
  store_options.explicit_root = !options.cache_dir.empty();
  store_options.mode = options.cache_mode;
  Result<cache::Store> store = cache::Store::open(store_options);
  if (!store) return std::move(store).error();
  auto state = std::unique_ptr<State>(new State{options, std::move(*store), {}, {}});
  return std::unique_ptr<Engine>(new Engine(std::move(state)));
}

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}
Engine::~Engine() = default;

const cache::Store& Engine::store() const { return state_->store; }

Result<Prepared> Engine::prepare(const Problem& problem, const Geometry& geometry,
                                 const Target& target) {
  const Clock::time_point start = Clock::now();
  Result<Plan> plan = make_plan(problem, geometry, target);
  if (!plan) return std::move(plan).error();
  Result<Source> source = write_source(*plan, to_json(problem, 2));
  if (!source) return std::move(source).error();
  const cache::Ingredients parts = ingredients(*source, target, state_->options.compile);
  const std::string request = cache::request_digest(parts);

  std::promise<std::shared_ptr<State::Outcome>> promise;
  std::shared_future<std::shared_ptr<State::Outcome>> future;
  bool mine = false;
  {
    std::lock_guard<std::mutex> guard(state_->mutex);
    auto [at, inserted] = state_->kernels.try_emplace(request);
    if (inserted) at->second = promise.get_future().share();
    future = at->second;
    mine = inserted;
  }
  if (mine) {
    // Others wait on the promise: it is kept even when memory runs out.
    std::shared_ptr<State::Outcome> outcome;
    try {
      outcome = std::make_shared<State::Outcome>(state_->make(*plan, *source, parts, request));
    } catch (const std::exception& e) {
      outcome = std::make_shared<State::Outcome>(Error{
          ErrorKind::kInternal, std::string("preparing a kernel failed: ") + e.what(), "", ""});
    }
    promise.set_value(outcome);
    if (!outcome->ok()) {
      // A failure is not remembered: the next caller may find a compiler, or space.
      std::lock_guard<std::mutex> guard(state_->mutex);
      state_->kernels.erase(request);
    }
  }
  const std::shared_ptr<State::Outcome> outcome = future.get();
  if (!outcome->ok()) return outcome->error();

  Prepared prepared;
  prepared.kernel = (*outcome)->kernel;
  prepared.plan = std::move(*plan);
  prepared.origin = mine ? (*outcome)->origin : KernelOrigin::memory;
  prepared.compile_ms = mine ? (*outcome)->compile_ms : 0;
  prepared.cache_note = mine ? (*outcome)->note : "";
  prepared.prepare_ms = milliseconds_since(start);
  return prepared;
}

}  // namespace hstu::jit
