// SPDX-License-Identifier: Apache-2.0
// Finding the entry of a key in a cache folder.
#pragma once

#include <string>

#include "cache/folder.hpp"
#include "cache/store.hpp"

namespace hstu::cache {

std::string entry_file_name(const Key& key);  // "<request>.<toolchain 12>.hko"
std::string fan_out_name(const Key& key);     // "ab"

struct Wanted {
  const std::string& root;
  const Key& key;  // checked: digests, or with `any_toolchain` no toolchain
  bool any_toolchain = false;
  bool writes = false;  // time stamps are renewed, damage is quarantined
};

// Contract of Store::lookup. The bytes of a hit go to `bytes` unless that is null.
Lookup search_entry(const Wanted& wanted, std::string* bytes);

// What a file with the name of an entry is worth.
struct CheckedEntry {
  MissReason reason = MissReason::none;  // none: every byte is as it has to be
  std::string problem;                   // goes on after the name: "is damaged: ..."
  Artifact artifact;
  EntryFile file;
};
CheckedEntry check_entry(const Folder& folder, const std::string& name, bool touch);

Lookup miss(MissReason reason, std::string explanation);

}  // namespace hstu::cache
