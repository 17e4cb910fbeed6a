// SPDX-License-Identifier: Apache-2.0
// Small text helpers shared by messages.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace hstu::jit {

// The candidate nearest to `word` in edit distance, or "" when none is near enough to suggest.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

// One line: control characters and newlines escaped, cut to `limit` characters with "...".
std::string printable(std::string_view text, size_t limit = 60);

}  // namespace hstu::jit
