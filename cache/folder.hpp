// SPDX-License-Identifier: Apache-2.0
// Distrustful reading of the cache folder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hstu::cache {

// Names in `folder` that start with `prefix`, at most `limit`; none when it cannot be read.
std::vector<std::string> names_in(const std::string& folder, std::string_view prefix, size_t limit);

struct EntryFile {
  enum class Problem { none, absent, foreign, unreadable, not_a_file };
  Problem problem = Problem::none;
  std::string reason;
  std::string bytes;
};

// A regular file that belongs to this user or to root, reached without following a last link; its
// first `limit` bytes (whole files longer than `limit` + `prefix_only` false: unreadable).
EntryFile read_entry_file(const std::string& path, uint64_t limit, bool prefix_only = false);

}  // namespace hstu::cache
