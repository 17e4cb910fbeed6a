// SPDX-License-Identifier: Apache-2.0
// Bundles and the local store: entries from one to the other.
#include <fmt/format.h>

#include "base/digest.hpp"
#include "base/text.hpp"
#include "cache/bundle.hpp"
#include "cache/bundle_manifest.hpp"
#include "cache/names.hpp"

namespace hstu::cache {

using hstu::jit::Error;
using hstu::jit::ErrorKind;
using hstu::jit::printable;
using hstu::jit::Result;
using hstu::jit::Status;

Status BundleWriter::add(const Store& store, const Key& key) {
  const Result<std::string> encoded = store.lookup_bytes(key);
  if (!encoded.ok()) return encoded.error();
  Result<BundleEntry> entry = describe_entry(*encoded);
  if (!entry.ok()) return std::move(entry).error().with_context("an entry of the cache");
  entry->sha256 = hstu::jit::sha256_hex(*encoded);
  return insert(std::move(*entry), [store, key] { return store.lookup_bytes(key); });
}

Result<InstallReport> install_bundle(const Bundle& bundle, const Store& store) {
  const auto unwritable = [&](std::string_view why) {
    return Error{ErrorKind::kCache,
                 fmt::format("cannot install bundle {}: {}", printable(bundle.path(), 300), why),
                 "", ""};
  };
  if (store.root().empty()) {
    return unwritable(store.warning().empty() ? "there is no cache folder (set --cache-dir)"
                                              : store.warning());
  }
  if (store.mode() != Mode::read_write) {
    return unwritable("the cache is not open for writing (HSTU_JIT_CACHE_MODE)");
  }

  uint64_t bytes = 0;
  for (const BundleEntry& entry : bundle.manifest().entries) bytes += entry.size;
  if (bytes > store.size_limit()) {  // what came first would be evicted for what came last
    return unwritable(
        fmt::format("its kernels have {}, the cache may hold {}; raise "
                    "HSTU_JIT_CACHE_SIZE, or read it in place by HSTU_JIT_BUNDLES",
                    size_text(bytes), size_text(store.size_limit())));
  }

  InstallReport report;
  const std::vector<BundleEntry>& entries = bundle.manifest().entries;
  for (size_t i = 0; i < entries.size(); ++i) {
    const Lookup found = bundle.lookup(entries[i].key, false);
    if (!found.hit) {
      report.problems.push_back({i, found.explanation});
      continue;
    }
    const Lookup there = store.peek(entries[i].key);
    if (there.hit && there.artifact.payload == found.artifact.payload &&
        there.artifact.metadata == found.artifact.metadata) {
      ++report.present;
      continue;
    }
    if (const Status published = store.publish(found.artifact); !published.ok()) {
      report.problems.push_back({i, published.error().message});
    } else {
      ++report.installed;
    }
  }
  return report;
}

}  // namespace hstu::cache
