// SPDX-License-Identifier: Apache-2.0
// manifest.json of a bundle: text to values and back.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "cache/bundle.hpp"
#include "cache/entry.hpp"

namespace hstu::cache {

inline constexpr std::string_view kBundleSchema = "hstu-jit/bundle/1";
inline constexpr uint64_t kMaxEntry = kEntryPrefix + kMaxHeader + kMaxPayload;

// Anything may be in the text: sizes, digests, order, depth and repeated members are checked, what
// it holds in memory is bounded by its length. Members it does not know are ignored. Errors: kCache
// with the reason alone (no file name).
hstu::jit::Result<BundleManifest> parse_manifest(std::string_view text);

// One spelling for one content: notes sorted, each once. `entries` must be sorted. Errors: kCache.
hstu::jit::Result<std::string> manifest_text(const BundleNotes& notes,
                                             const std::vector<BundleEntry>& entries);

// Bytes of the whole file.
uint64_t bundle_size(uint64_t manifest_size, const std::vector<BundleEntry>& entries);

// What the manifest says of an encoded entry; the digest is not made. Errors: kCache when it does
// not decode.
hstu::jit::Result<BundleEntry> describe_entry(std::string_view encoded);

}  // namespace hstu::cache
