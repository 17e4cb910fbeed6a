// SPDX-License-Identifier: Apache-2.0
#include "base/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

namespace hstu::jit {
namespace {

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

// Insertions, deletions, replacements and swaps of neighbours (each costs 1), letter case aside.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
          lower(a[i - 2]) == lower(b[j - 1])) {
        now[j] = std::min(now[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

struct Character {
  size_t length = 0;  // bytes; 0: not UTF-8
  unsigned code = 0;
};

Character decode(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return {1, first};
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return {};
  unsigned code = first & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3f);
  }
  static constexpr unsigned kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kLeast[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return {};
  return {length, code};
}

// Characters that would change how the line itself is shown: controls and direction marks.
bool steers_the_terminal(unsigned code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029 ||
         (code >= 0x200e && code <= 0x200f) || (code >= 0x202a && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069) || code == 0xfeff;
}

std::string escaped(std::string_view bytes, const Character& character) {
  if (character.length == 0) {
    return fmt::format("\\x{:02x}", static_cast<unsigned char>(bytes[0]));
  }
  switch (character.code) {
    case '\n':
      return "\\n";
    case '\t':
      return "\\t";
    case '\r':
      return "\\r";
    default:
      break;
  }
  if (character.code < 0x80) return fmt::format("\\x{:02x}", character.code);
  return fmt::format("\\u{{{:x}}}", character.code);
}

}  // namespace

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  constexpr size_t kLongest = 200;  // longer words are no typing errors; keeps the cost bounded
  if (word.empty() || word.size() > kLongest) return {};
  std::string best;
  size_t best_distance = word.size();
  for (const std::string& candidate : candidates) {
    if (candidate.empty() || candidate.size() > kLongest) continue;
    const size_t distance = edit_distance(word, candidate);
    const size_t enough = std::max<size_t>(1, std::max(word.size(), candidate.size()) / 3);
    if (distance <= enough && distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string printable(std::string_view text, size_t limit) {
  std::vector<std::string> pieces;
  size_t width = 0;
  bool cut = false;
  while (!text.empty()) {
    const Character character = decode(text);
    const size_t length = std::max<size_t>(1, character.length);
    const bool plain = character.length != 0 && !steers_the_terminal(character.code);
    std::string piece = plain ? std::string(text.substr(0, length)) : escaped(text, character);
    const size_t piece_width = plain ? 1 : piece.size();
    if (width + piece_width > limit) {
      cut = true;
      break;
    }
    width += piece_width;
    pieces.push_back(std::move(piece));
    text.remove_prefix(length);
  }
  if (cut) {
    // Make room for the dots: a short piece is one column wide, so dropping three always does.
    for (int i = 0; i < 3 && !pieces.empty() && width + 3 > limit; ++i) {
      width -= decode(pieces.back()).length == pieces.back().size() ? 1 : pieces.back().size();
      pieces.pop_back();
    }
    pieces.emplace_back("...");
  }
  std::string line;
  for (const std::string& piece : pieces) line += piece;
  return line;
}

}  // namespace hstu::jit
