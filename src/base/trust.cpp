// SPDX-License-Identifier: Apache-2.0
#include "base/trust.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <vector>

#include "base/env.hpp"
#include "base/text.hpp"

namespace hstu::jit {
namespace {

constexpr const char* kTrustedUids = "HSTU_JIT_TRUSTED_UIDS";

// False when the list has anything but numbers in it; `numbers` are those of a good list.
bool parse_uids(std::string_view list, std::vector<uid_t>* numbers) {
  while (true) {
    const size_t comma = list.find(',');
    const std::string_view item = list.substr(0, comma);
    uid_t number = 0;
    const auto [end, problem] = std::from_chars(item.data(), item.data() + item.size(), number);
    if (problem != std::errc() || end != item.data() + item.size()) return false;
    numbers->push_back(number);
    if (comma == std::string_view::npos) return true;
    list.remove_prefix(comma + 1);
  }
}

}  // namespace

bool trusted_owner(uid_t owner) {
  if (owner == ::geteuid() || owner == 0) return true;
  const auto list = get_env(kTrustedUids);
  std::vector<uid_t> numbers;
  if (!list || !parse_uids(*list, &numbers)) return false;
  return std::find(numbers.begin(), numbers.end(), owner) != numbers.end();
}

std::string trusted_uids_problem() {
  const auto list = get_env(kTrustedUids);
  std::vector<uid_t> numbers;
  if (!list || parse_uids(*list, &numbers)) return {};
  return fmt::format("{}=\"{}\" is not a list of user numbers such as 1000,1001 and is ignored",
                     kTrustedUids, printable(*list));
}

}  // namespace hstu::jit
