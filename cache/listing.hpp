// SPDX-License-Identifier: Apache-2.0
// The whole local store at once: for people and their scripts, not for the fast path.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cache/store.hpp"

namespace hstu::cache {

struct ListedEntry {
  std::string request;    // 64 digits
  std::string toolchain;  // the first 12
  uint64_t size = 0;      // bytes
  int64_t time = 0;       // of the last use that was noted, seconds since 1970
};

// Every entry of a cache folder, by name. The content is not looked at.
std::vector<ListedEntry> list_entries(const std::string& root);
// "ROOT/v1/objects/ab/NAME"
std::string listed_path(const std::string& root, const ListedEntry& entry);

// Ingredients and metadata of an entry, for showing only: their digest is not checked and those of
// an entry nobody may load are not read. Empty when they cannot be had.
struct EntryNotes {
  Ingredients ingredients;
  std::string metadata;
};
EntryNotes read_notes(const std::string& root, const ListedEntry& entry);

// What verify_entries() does with what is damaged.
enum class Damage { leave, quarantine, remove };

struct BadEntry {
  std::string path;
  MissReason reason = MissReason::corrupt;  // only `corrupt` is damage
  std::string problem;
  bool put_away = false;  // quarantined or removed
};

struct Verification {
  uint64_t good = 0, damaged = 0;
  uint64_t not_ours = 0;  // of owners who are not trusted, other versions, unreadable
  std::vector<BadEntry> bad;
};

// Checks every byte of everything that has the name of an entry.
Verification verify_entries(const std::string& root, Damage damage);

struct Cleared {
  uint64_t entries = 0, bytes = 0, temporaries = 0, quarantined = 0, refused = 0;
};

// Removes all entries, the quarantine and temporary files, those of live writers included. What has
// another name stays, and so do the statistics.
Cleared clear_entries(const std::string& root);

}  // namespace hstu::cache
