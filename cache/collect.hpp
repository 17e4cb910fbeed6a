// SPDX-License-Identifier: Apache-2.0
// Keeping the cache finite: what was not used for longest goes, and what dead writers left.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "cache/folder.hpp"

namespace hstu::cache {

struct CollectOptions {
  uint64_t size_limit = 0;  // bytes of all entries that may stay; kUnlimited: no entry goes
  // Stops at the limit exactly and takes young entries like old ones. Else a collection that has to
  // remove anything goes on to nine tenths of the limit, so that the next publish does not start
  // the next one, and takes entries younger than ten minutes only as far as the limit demands.
  bool asked_for = false;
  // Where removing takes long (a slow disk, a large cache) it stops after this time.
  std::chrono::milliseconds patience{std::chrono::hours(24)};
};

struct Collected {
  uint64_t entries = 0, bytes = 0;          // that stay
  uint64_t evicted = 0, evicted_bytes = 0;  // entries removed
  uint64_t temporaries = 0;                 // abandoned temporary files removed
  uint64_t quarantined = 0;                 // removed from the quarantine
  uint64_t refused = 0;                     // could not be removed
  bool unfinished = false;                  // patience ran out
};

// One pass over ROOT/v1; never fails: what cannot be read or removed stays. Removes only what has
// the name of an entry, of a pointer to entries that are gone, or of a temporary file.
Collected collect(const std::string& root, const CollectOptions& options);

// collect() when it is due and no other process of this node is at it: an hour after the last one,
// or at once when `hurry`. False when it was not. Takes two seconds at most for removing: the next
// call goes on.
bool collect_when_due(const std::string& root, uint64_t size_limit, bool hurry, Collected* result);

// Removes temporary files in this folder that have had no writer for an hour. How many.
uint64_t sweep_temporaries(const Folder& folder);

// Removes what the quarantine has had for a week, and the oldest beyond 256 pieces or 64 MiB; all
// of it when `everything`.
uint64_t sweep_quarantine(const Folder& v1, bool everything);

}  // namespace hstu::cache
