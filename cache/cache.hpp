// SPDX-License-Identifier: Apache-2.0
// The kernel cache as a program sees it: bundles (read-only) › local store › remote, in this order.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "cache/store.hpp"

namespace hstu::cache {

class Bundle;
class Remote;

// Who answered. In the words of the JSON output: "none", "bundle", "local", "remote".
enum class Layer { none, bundle, local, remote };
inline constexpr size_t kLayers = 4;
const char* layer_name(Layer layer);

// A miss's reason is that of the first layer that had more to say than "absent" or "disabled"; its
// explanation is one line with a part for every layer that was asked.
struct CacheLookup : Lookup {
  Layer layer = Layer::none;
  std::string
      note;  // of a hit: what a person may want to know (another toolchain, not kept); or ""
};

struct CacheOptions {
  Store::Options local;
  // "k.hjb" or "k.hjb@sha256:HEX", asked in this order. One that cannot be used fails open().
  std::vector<std::string> bundles;
  // Also those of HSTU_JIT_BUNDLES, after the ones above; one that cannot be used is a warning.
  bool environment_bundles = true;
  // The remote that HSTU_JIT_REMOTE names; one that cannot be used is a warning.
  bool environment_remote = true;
  std::shared_ptr<Remote> remote;  // in place of that one
  bool wait_for_remote = false;    // publish to the remote before going on
};

// Since open(). `misses` counts the layers asked in vain: one lookup may miss in three of them.
struct CacheStatistics {
  static constexpr size_t kReasons = 16;  // more than there are values of MissReason
  using Reasons = std::array<uint64_t, kReasons>;
  std::array<uint64_t, kLayers> hits{};          // by Layer; none: missed everywhere
  std::array<Reasons, kLayers> misses{};         // by Layer and MissReason
  uint64_t publishes = 0, publish_failures = 0;  // to the local store
  uint64_t remote_publishes = 0, remote_publish_failures = 0;
  uint64_t kept = 0;  // of the remote's hits, in the local store
};

// Thread-safe. No lock is held over a file operation or a request to the remote.
class Cache {
 public:
  // Mode off: no layer answers and nothing is kept. Modes read_only and sealed: nothing is written,
  // neither here nor to the remote. Errors: kCache for an explicit root or a named bundle that
  // cannot be used.
  static hstu::jit::Result<std::unique_ptr<Cache>> open(const CacheOptions& options);
  ~Cache();

  // The bundles alone. Those named with their digest answer with an entry of any toolchain (that of
  // `key` first): who pinned the bytes has chosen. Others only with the toolchain of `key`, unless
  // `any_toolchain`. `key.toolchain` may be "". Asks no network and no folder, so that a host whose
  // bundles have everything need not know its compiler. A miss is not counted.
  CacheLookup lookup_bundles(const Key& key, bool any_toolchain = false) const;

  // Every layer. What the remote has is kept in the local store (mode read_write). Never fails.
  // Where `wanted` is given, the explanation of a miss names the nearest entry here.
  CacheLookup lookup(const Key& key, bool any_toolchain = false,
                     const Ingredients* wanted = nullptr) const;

  // The same for a caller who makes what is missing: before the remote is asked, `*lock` is taken
  // (waiting at most so long) and the local store asked again, so that of all processes of this
  // host one asks the remote and makes it. After a miss the caller keeps the lock until it has
  // published; nothing is wrong if it is not held.
  CacheLookup lookup_or_lock(const Key& key, const Ingredients* wanted, int timeout_ms,
                             Store::CompileLock* lock) const;

  // As lookup(), but nothing is counted in the store, moved, stamped or kept: for questions.
  CacheLookup peek(const Key& key, bool any_toolchain = false) const;

  // To the local store; the caller warns and goes on. Nothing in other modes than read_write.
  hstu::jit::Status publish_local(const Artifact& artifact) const;
  // To the remote, where there is one and its mode is read-write. With
  // CacheOptions::wait_for_remote it may take the remote's time-out, else it is sent in the
  // background and never fails here.
  hstu::jit::Status publish_remote(const Artifact& artifact) const;
  // Both; the first error.
  hstu::jit::Status publish(const Artifact& artifact) const;

  const Store& store() const;
  const std::vector<Bundle>& bundles() const;
  const Remote* remote() const;  // null when there is none
  bool has_remote() const { return remote() != nullptr; }
  // What a person should know once: no folder, unusable bundles, unusable remote. One line, "" when
  // all is well.
  const std::string& warning() const;
  CacheStatistics statistics() const;

 private:
  struct State;
  explicit Cache(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hstu::cache
