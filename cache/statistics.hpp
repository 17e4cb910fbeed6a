// SPDX-License-Identifier: Apache-2.0
// Counters of the cache: in memory while the program runs, in a small file per host afterwards.
//
//   statistics.add("local.hit");
//   statistics.add(miss_counter("bundle", MissReason::absent));
//
// Names are dotted: LAYER.hit, LAYER.miss.REASON, LAYER.publish, LAYER.publish_failed.ERRNO,
// local.evicted, local.evicted_bytes. A new name needs no registration.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/fork_mutex.hpp"
#include "cache/store.hpp"

namespace hstu::cache {

using Counters = std::map<std::string, uint64_t, std::less<>>;

// Thread-safe. Nothing here ever fails towards the caller: a lost count harms nobody.
class Statistics {
 public:
  Statistics();

  // Adds to a counter. Cheap (a lock and a map): no system call, no I/O. Names are 1 to 64 of
  // a-z A-Z 0-9 _ . - and at most 512 in number; others are not counted.
  void add(std::string_view name, uint64_t count = 1);

  // What this process counted so far, saved or not.
  Counters counters() const;

  // Adds what was counted since the last save to ROOT/v1/stats/HOST and forgets it. Costs one small
  // read and one small write; when another process holds the file for longer than a moment, or the
  // folder refuses, the counts stay for the next save. In a child made by fork, the counts of the
  // parent are dropped: the parent saves them.
  void save(const std::string& root);

 private:
  mutable hstu::jit::ForkMutex mutex_;
  Counters total_, unsaved_;
  pid_t owner_;
};

// "bundle.miss.absent"
std::string miss_counter(std::string_view layer, MissReason reason);
// "local.publish_failed.ENOSPC"; numbers without a name here are "errno_123".
std::string failure_counter(std::string_view layer, int code);

// The sum over all hosts of what was saved in this cache folder; damaged files count nothing.
Counters saved_counters(const std::string& root);
// Forgets them all.
void zero_counters(const std::string& root);

// Containers come with a new host name each: beyond 256 files, the counts of those longest
// unchanged go into one.
void fold_counters(const std::string& root);

// The text of a counter file and back; what is not such a text has no counters.
std::string write_counters(const Counters& counters);
Counters read_counters(std::string_view text);

}  // namespace hstu::cache
