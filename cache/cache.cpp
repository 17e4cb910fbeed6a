// SPDX-License-Identifier: Apache-2.0
#include "cache/cache.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "base/env.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "cache/bundle.hpp"
#include "cache/remote.hpp"
#include "cache/statistics.hpp"

namespace hstu::cache {
namespace {

using hstu::jit::Error;
using hstu::jit::Result;
using hstu::jit::Status;

constexpr size_t kShown = 300;

struct OpenBundles {
  std::vector<Bundle> bundles;
  std::vector<bool> pinned;
  std::string unusable;  // one line about those that could not be opened
};

bool names_digest(const std::string& path_and_pin) {
  return path_and_pin.find("@sha256:") != std::string::npos;
}

void append(std::string* line, const std::string& text) {
  if (!text.empty()) *line += (line->empty() ? "" : "; ") + text;
}

// Named ones must open; those of the environment are done without.
Result<OpenBundles> open_bundles(const CacheOptions& options) {
  OpenBundles opened;
  for (const std::string& name : options.bundles) {
    Result<Bundle> bundle = open_trusted_bundle(name);
    if (!bundle.ok()) return std::move(bundle).error();
    opened.bundles.push_back(std::move(*bundle));
    opened.pinned.push_back(names_digest(name));
  }
  if (!options.environment_bundles) return opened;
  for (const std::string& name :
       split_bundle_list(hstu::jit::get_env("HSTU_JIT_BUNDLES").value_or(""))) {
    Result<Bundle> bundle = open_trusted_bundle(name);
    if (!bundle.ok()) {
      append(&opened.unusable, "HSTU_JIT_BUNDLES: " + bundle.error().message);
      continue;
    }
    opened.bundles.push_back(std::move(*bundle));
    opened.pinned.push_back(names_digest(name));
  }
  return opened;
}

// What the layers said, for the miss that comes of it when none has an answer.
class Answers {
 public:
  void add(Layer layer, const Lookup& lookup) {
    append(&line_, fmt::format("{}: {}", layer_name(layer), lookup.explanation));
    const bool says_more =
        lookup.reason != MissReason::absent && lookup.reason != MissReason::disabled;
    if (reason_ == MissReason::none || (!settled_ && says_more)) reason_ = lookup.reason;
    if (reason_ == MissReason::disabled && lookup.reason == MissReason::absent) {
      reason_ = MissReason::absent;  // one layer that works is worth more than one that is off
    }
    settled_ = settled_ || says_more;
  }
  void note(const std::string& text) { append(&line_, text); }

  CacheLookup miss() && {
    CacheLookup lookup;
    lookup.reason = reason_ == MissReason::none ? MissReason::disabled : reason_;
    lookup.explanation = std::move(line_);
    return lookup;
  }

 private:
  std::string line_;
  MissReason reason_ = MissReason::none;
  bool settled_ = false;
};

CacheLookup hit(Layer layer, Lookup&& lookup, std::string note = {}) {
  CacheLookup result;
  static_cast<Lookup&>(result) = std::move(lookup);
  result.layer = layer;
  result.note = std::move(note);
  return result;
}

}  // namespace

const char* layer_name(Layer layer) {
  switch (layer) {
    case Layer::none:
      return "none";
    case Layer::bundle:
      return "bundle";
    case Layer::local:
      return "local";
    case Layer::remote:
      return "remote";
  }
  return "?";
}

struct Cache::State {
  struct Counts {
    std::atomic<uint64_t> hits{0};
    std::array<std::atomic<uint64_t>, CacheStatistics::kReasons> misses{};
  };

  bool wait_for_remote = false;
  Mode mode = Mode::read_write;
  Store store;
  OpenBundles opened;
  std::shared_ptr<Remote> remote;
  std::string warning;
  std::array<Counts, kLayers> counts;
  std::atomic<uint64_t> publishes{0}, publish_failures{0}, kept{0};

  void count_hit(Layer layer) {
    ++counts[static_cast<size_t>(layer)].hits;
    // The store counts its own; "none" is no layer.
    if (layer == Layer::bundle || layer == Layer::remote) {
      store.statistics().add(std::string(layer_name(layer)) + ".hit");
    }
  }
  void count_miss(Layer layer, MissReason reason) {
    const auto index = std::min(static_cast<size_t>(reason), CacheStatistics::kReasons - 1);
    ++counts[static_cast<size_t>(layer)].misses[index];
    if (layer != Layer::local) store.statistics().add(miss_counter(layer_name(layer), reason));
  }

  Lookup ask_bundles(const Key& key, bool any_toolchain) const;
  bool ask_remote(const Key& key, bool any_toolchain, Answers* answers, CacheLookup* result);
  CacheLookup missed(Answers answers, const Ingredients* wanted, MissReason local);
};

Result<std::unique_ptr<Cache>> Cache::open(const CacheOptions& options) {
  Result<Store> store = Store::open(options.local);
  if (!store.ok()) return std::move(store).error();
  auto state = std::make_unique<State>();
  state->wait_for_remote = options.wait_for_remote;
  state->mode = options.local.mode;
  state->warning = store->warning();
  state->store = std::move(*store);
  if (options.local.mode != Mode::off) {
    Result<OpenBundles> opened = open_bundles(options);
    if (!opened.ok()) return std::move(opened).error();
    state->opened = std::move(*opened);
    append(&state->warning, state->opened.unusable);
    state->remote = options.remote;
    if (!state->remote && options.environment_remote) {
      Result<RemoteOptions> remote_options = remote_options_from_environment();
      Result<std::unique_ptr<Remote>> remote =
          remote_options.ok() ? Remote::open(*remote_options)
                              : Result<std::unique_ptr<Remote>>(remote_options.error());
      if (remote.ok()) {
        state->remote = std::move(*remote);
      } else {
        append(&state->warning, remote.error().message);
      }
    }
  }
  return std::unique_ptr<Cache>(new Cache(std::move(state)));
}

Cache::Cache(std::unique_ptr<State> state) : state_(std::move(state)) {}
Cache::~Cache() = default;

Lookup Cache::State::ask_bundles(const Key& key, bool any_toolchain) const {
  Lookup worst;
  worst.reason = MissReason::absent;
  worst.explanation = fmt::format("no entry has this key in {}",
                                  opened.bundles.size() == 1
                                      ? hstu::jit::printable(opened.bundles.front().path(), kShown)
                                      : fmt::format("{} bundles", opened.bundles.size()));
  const auto remember = [&](size_t i, Lookup&& lookup) {
    if (lookup.reason == MissReason::absent || worst.reason != MissReason::absent) return;
    worst.reason = lookup.reason;
    worst.explanation = fmt::format(
        "{}: {}", hstu::jit::printable(opened.bundles[i].path(), kShown), lookup.explanation);
  };
  // The exact entry of a later bundle is better than the first one's of another toolchain.
  for (size_t i = 0; i < opened.bundles.size() && !key.toolchain.empty(); ++i) {
    Lookup lookup = opened.bundles[i].lookup(key, false);
    if (lookup.hit) return lookup;
    remember(i, std::move(lookup));
  }
  for (size_t i = 0; i < opened.bundles.size(); ++i) {
    if (!any_toolchain && !opened.pinned[i]) continue;
    Lookup lookup = opened.bundles[i].lookup(key, true);
    if (lookup.hit) return lookup;
    remember(i, std::move(lookup));
  }
  return worst;
}

CacheLookup Cache::lookup_bundles(const Key& key, bool any_toolchain) const {
  if (state_->opened.bundles.empty()) return {};
  Lookup found = state_->ask_bundles(key, any_toolchain);
  if (found.hit) {
    state_->count_hit(Layer::bundle);
    return hit(Layer::bundle, std::move(found));
  }
  CacheLookup miss;
  static_cast<Lookup&>(miss) = std::move(found);
  return miss;
}

// True: `result` is the remote's hit.
bool Cache::State::ask_remote(const Key& key, bool any_toolchain, Answers* answers,
                              CacheLookup* result) {
  if (!remote) return false;
  Lookup found = remote->lookup(key, any_toolchain);
  if (!found.hit) {
    count_miss(Layer::remote, found.reason);
    answers->add(Layer::remote, found);
    return false;
  }
  count_hit(Layer::remote);
  std::string note;
  if (mode == Mode::read_write && !store.root().empty()) {
    // Whoever asked has it whether or not it can be kept.
    if (const Status status = store.publish(found.artifact); status.ok()) {
      ++kept;
    } else {
      note = "not kept: " + status.error().message;
      hstu::jit::log_warn("kernel of the remote cache " + note);
    }
  }
  *result = hit(Layer::remote, std::move(found), std::move(note));
  return true;
}

CacheLookup Cache::State::missed(Answers answers, const Ingredients* wanted, MissReason local) {
  count_hit(Layer::none);
  // Not for a miss of another kind: that has its reason already.
  if (wanted != nullptr && local == MissReason::absent) {
    answers.note(store.explain_absence(*wanted));
  }
  answers.note(opened.unusable);
  return std::move(answers).miss();
}

CacheLookup Cache::lookup(const Key& key, bool any_toolchain, const Ingredients* wanted) const {
  Answers answers;
  if (!state_->opened.bundles.empty()) {
    Lookup found = state_->ask_bundles(key, any_toolchain);
    if (found.hit) {
      state_->count_hit(Layer::bundle);
      return hit(Layer::bundle, std::move(found));
    }
    state_->count_miss(Layer::bundle, found.reason);
    answers.add(Layer::bundle, found);
  }
  Lookup local = state_->store.lookup(key, any_toolchain);
  if (local.hit) {
    state_->count_hit(Layer::local);
    return hit(Layer::local, std::move(local));
  }
  state_->count_miss(Layer::local, local.reason);
  answers.add(Layer::local, local);
  CacheLookup result;
  if (state_->ask_remote(key, any_toolchain, &answers, &result)) return result;
  return state_->missed(std::move(answers), wanted, local.reason);
}

CacheLookup Cache::lookup_or_lock(const Key& key, const Ingredients* wanted, int timeout_ms,
                                  Store::CompileLock* lock) const {
  Answers answers;
  if (!state_->opened.bundles.empty()) {
    Lookup found = state_->ask_bundles(key, false);
    if (found.hit) {
      state_->count_hit(Layer::bundle);
      return hit(Layer::bundle, std::move(found));
    }
    state_->count_miss(Layer::bundle, found.reason);
    answers.add(Layer::bundle, found);
  }
  Lookup local = state_->store.lookup(key);
  if (local.hit) {
    state_->count_hit(Layer::local);
    return hit(Layer::local, std::move(local));
  }
  // Where nothing can be published, nobody gains by waiting for another's work.
  if (state_->mode == Mode::read_write && !state_->store.root().empty()) {
    *lock = state_->store.lock(key, timeout_ms);
    if (lock->possible()) {
      Lookup again = state_->store.lookup_again(key);
      if (again.hit) {
        *lock = {};
        state_->count_hit(Layer::local);
        return hit(Layer::local, std::move(again), "made by another process meanwhile");
      }
    }
  }
  state_->count_miss(Layer::local, local.reason);
  answers.add(Layer::local, local);
  CacheLookup result;
  if (state_->ask_remote(key, false, &answers, &result)) {
    *lock = {};
    return result;
  }
  return state_->missed(std::move(answers), wanted, local.reason);
}

CacheLookup Cache::peek(const Key& key, bool any_toolchain) const {
  Answers answers;
  if (!state_->opened.bundles.empty()) {
    Lookup found = state_->ask_bundles(key, any_toolchain);
    if (found.hit) return hit(Layer::bundle, std::move(found));
    answers.add(Layer::bundle, found);
  }
  Lookup local = state_->store.peek(key, any_toolchain);
  if (local.hit) return hit(Layer::local, std::move(local));
  answers.add(Layer::local, local);
  if (state_->remote) {
    Lookup found = state_->remote->lookup(key, any_toolchain);
    if (found.hit) return hit(Layer::remote, std::move(found));
    answers.add(Layer::remote, found);
  }
  answers.note(state_->opened.unusable);
  return std::move(answers).miss();
}

Status Cache::publish_local(const Artifact& artifact) const {
  if (state_->mode != Mode::read_write || state_->store.root().empty()) return {};
  Status status = state_->store.publish(artifact);
  ++(status.ok() ? state_->publishes : state_->publish_failures);
  return status;
}

Status Cache::publish_remote(const Artifact& artifact) const {
  if (state_->mode != Mode::read_write || !state_->remote || !state_->remote->read_write()) {
    return {};
  }
  if (state_->wait_for_remote) return state_->remote->publish(artifact);
  state_->remote->publish_later(artifact);
  return {};
}

Status Cache::publish(const Artifact& artifact) const {
  Status local = publish_local(artifact);
  Status remote = publish_remote(artifact);
  return local.ok() ? std::move(remote) : std::move(local);
}

const Store& Cache::store() const { return state_->store; }
const std::vector<Bundle>& Cache::bundles() const { return state_->opened.bundles; }
const Remote* Cache::remote() const { return state_->remote.get(); }
const std::string& Cache::warning() const { return state_->warning; }

CacheStatistics Cache::statistics() const {
  CacheStatistics statistics;
  for (size_t layer = 0; layer < kLayers; ++layer) {
    statistics.hits[layer] = state_->counts[layer].hits;
    for (size_t reason = 0; reason < CacheStatistics::kReasons; ++reason) {
      statistics.misses[layer][reason] = state_->counts[layer].misses[reason];
    }
  }
  statistics.publishes = state_->publishes;
  statistics.publish_failures = state_->publish_failures;
  statistics.kept = state_->kept;
  if (state_->remote) {
    const RemoteStatistics remote = state_->remote->statistics();
    statistics.remote_publishes = remote.publishes;
    statistics.remote_publish_failures = remote.publish_failures;
  }
  return statistics;
}

}  // namespace hstu::cache
