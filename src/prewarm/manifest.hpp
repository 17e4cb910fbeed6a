// SPDX-License-Identifier: Apache-2.0
// Prewarm manifests: which specs, for which targets, in which order. Schema hstu-jit/manifest/1:
//
//   {"schema": "hstu-jit/manifest/1", "about": "...", "targets": ["gfx90a", "cpu"],
//    "defaults": {"priority": 5},
//    "specs": [{"file": "specs/small.json"},
//              {"spec": {...}, "targets": ["gfx942"], "priority": 9},
//              {"sweep": {"base": "specs/base.json" or {...},
//                         "set": {"/head_dim_qk": [64, 128], "/mask/causal": [true, false]}}}]}
//
// or the lines that HSTU_JIT_RECORD writes (engine/record.hpp), each one spec and its target.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "spec/problem.hpp"

namespace hstu::jit {

// Bounds of what a manifest may ask for; passing one is an error that names it.
constexpr size_t kMaxManifestBytes = size_t{64} << 20;   // of the manifest itself
constexpr size_t kMaxManifestSpecs = size_t{1} << 16;    // problems after files and sweeps
constexpr size_t kMaxManifestText = size_t{128} << 20;   // spec texts read, each sweep step anew
constexpr int64_t kMaxManifestBatch = int64_t{1} << 24;  // sequences of all problems together
constexpr size_t kMaxManifestTargets = 64;
constexpr int kMaxPriority = 1000;
constexpr int kDefaultPriority = 5;

// One problem that was asked for.
struct ManifestSpec {
  Problem problem;
  std::string label;                 // for people: its name, file or place, and the sweep's values
  std::string pointer;               // of the entry it comes from, "/specs/3"
  std::vector<std::string> targets;  // its own; empty: those of the manifest
  int priority = kDefaultPriority;   // higher ones first
};

struct Manifest {
  std::vector<std::string> targets;
  std::vector<ManifestSpec> specs;  // in the order of the text, sweeps with the last value fastest
  std::vector<std::string> warnings;  // lines of a record that were torn, one line each
};

// Gives the bytes of a file a manifest names.
using ReadFile = std::function<Result<std::string>(const std::string& path)>;

// `folder` resolves relative paths. Errors: kSpec, one line with the JSON pointer into the manifest
// (of a record: the line); nothing in the text makes it slow or large beyond the bounds above.
Result<Manifest> parse_manifest(std::string_view text, const std::string& folder,
                                const ReadFile& read);

// The same from a file. Errors: kSpec also when it cannot be read.
Result<Manifest> load_manifest(const std::string& path);

}  // namespace hstu::jit
