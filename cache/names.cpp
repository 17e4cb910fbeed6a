// SPDX-License-Identifier: Apache-2.0
#include "cache/names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/text.hpp"
#include "cache/entry.hpp"

namespace hstu::cache {
namespace {

constexpr std::string_view kTemporary = ".tmp-";

bool is_hex(std::string_view text, size_t length) {
  return text.size() == length && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

// The power of two a unit stands for, or -1.
int unit_shift(std::string_view unit) {
  std::string lower(unit);
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
  if (lower.empty() || lower == "b") return 0;
  const size_t at = std::string_view("kmgt").find(lower[0]);
  const std::string rest = lower.substr(1);
  if (at == std::string_view::npos || !(rest.empty() || rest == "b" || rest == "i" || rest == "ib"))
    return -1;
  return 10 * (static_cast<int>(at) + 1);
}

}  // namespace

bool parse_entry_name(std::string_view name, std::string* request, std::string* toolchain) {
  if (name.size() != 64 + 1 + 12 + 4 || name[64] != '.' || name.substr(77) != ".hko" ||
      !is_digest(name.substr(0, 64)) || !is_hex(name.substr(65, 12), 12)) {
    return false;
  }
  *request = name.substr(0, 64);
  *toolchain = name.substr(65, 12);
  return true;
}

bool is_pointer_name(std::string_view name) {
  return name.size() == 74 && is_digest(name.substr(0, 64)) && name.substr(64) == ".toolchain";
}

bool is_fan_out_name(std::string_view name) { return is_hex(name, 2); }

bool is_quarantine_name(std::string_view name) {
  if (name.size() > 2 && name[name.size() - 2] == '.' && name.back() >= '1' && name.back() <= '7') {
    name.remove_suffix(2);  // the second of a name
  }
  std::string request, toolchain;
  return is_fan_out_name(name) || parse_entry_name(name, &request, &toolchain);
}

bool is_temporary_name(std::string_view name) {
  if (name.substr(0, kTemporary.size()) != kTemporary) return false;
  const std::string_view rest = name.substr(kTemporary.size());
  return !rest.empty() && std::all_of(rest.begin(), rest.end(),
                                      [](char c) { return (c >= '0' && c <= '9') || c == '-'; });
}

hstu::jit::Result<uint64_t> parse_size(std::string_view text) {
  uint64_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  const int shift = unit_shift(unit);
  if (problem != std::errc() || shift < 0 || (number << shift >> shift) != number ||
      number << shift == kUnlimited) {
    return hstu::jit::Error{hstu::jit::ErrorKind::kUsage,
                            fmt::format("\"{}\" is not a size such as 500M or 2G (0: no limit)",
                                        hstu::jit::printable(text)),
                            "", ""};
  }
  return number == 0 ? kUnlimited : number << shift;
}

std::string size_text(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1023.95 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace hstu::cache
