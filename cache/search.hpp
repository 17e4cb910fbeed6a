// SPDX-License-Identifier: Apache-2.0
// Finding the entry of a key in a cache folder.
#pragma once

#include <string>

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

// One of the fixed sentences of a miss.
Lookup miss(MissReason reason, std::string explanation);

}  // namespace hstu::cache
