// SPDX-License-Identifier: Apache-2.0
// Why a key is absent: the nearest entry and what it has different.
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>

#include "base/text.hpp"
#include "cache/entry.hpp"
#include "cache/folder.hpp"
#include "cache/names.hpp"
#include "cache/store.hpp"

namespace hstu::cache {
namespace {

constexpr size_t kMaxStat = 4096;                   // entries looked at for their time
constexpr size_t kMaxRead = 200;                    // entries read
constexpr uint64_t kMaxBytes = uint64_t{32} << 20;  // bytes read in all
constexpr uint64_t kMaxPrefix = uint64_t{1} << 20;  // of one entry

struct Newest {
  int64_t time;
  std::string fan, name;
};

std::vector<Newest> newest_entries(const Folder& objects) {
  std::vector<Newest> entries;
  for (const std::string& fan : objects.names("", 256)) {
    const Folder folder = objects.below(fan);
    for (const std::string& name : folder.names("", kMaxStat - entries.size())) {
      std::string request, toolchain;
      struct stat info {};
      if (parse_entry_name(name, &request, &toolchain) && folder.status(name, &info) &&
          S_ISREG(info.st_mode)) {
        entries.push_back({info.st_mtime, fan, name});
      }
    }
    if (entries.size() >= kMaxStat) break;
  }
  std::sort(entries.begin(), entries.end(),
            [](const Newest& a, const Newest& b) { return a.time > b.time; });
  if (entries.size() > kMaxRead) entries.resize(kMaxRead);
  return entries;
}

// One line about one ingredient: both values when they are short, else where they part.
std::string difference(const std::string& name, const std::string& here, const std::string& there) {
  const bool one_line =
      here.find('\n') == std::string::npos && there.find('\n') == std::string::npos;
  if (one_line) {
    return fmt::format("{}: \"{}\" here, \"{}\" there", name, hstu::jit::printable(here),
                       hstu::jit::printable(there));
  }
  const size_t common = static_cast<size_t>(
      std::mismatch(here.begin(), here.end(), there.begin(), there.end()).first - here.begin());
  const auto end = here.begin() + static_cast<std::ptrdiff_t>(common);
  return fmt::format("{}: from line {} on", name, 1 + std::count(here.begin(), end, '\n'));
}

std::vector<std::string> differences(const Ingredients& here, const Ingredients& there) {
  std::map<std::string, std::string> others(there.begin(), there.end());
  std::vector<std::string> list;
  for (const auto& [name, text] : here) {
    const auto other = others.find(name);
    if (other == others.end()) {
      list.push_back(fmt::format("{}: only here", hstu::jit::printable(name)));
      continue;
    }
    if (other->second != text) {
      list.push_back(difference(hstu::jit::printable(name), text, other->second));
    }
    others.erase(other);
  }
  for (const auto& [name, text] : others) {
    list.push_back(fmt::format("{}: only there", hstu::jit::printable(name)));
  }
  return list;
}

}  // namespace

std::string Store::explain_absence(const Ingredients& wanted) const {
  if (root_.empty() || mode_ == Mode::off) return {};
  std::vector<std::string> best;
  std::string best_name;
  uint64_t bytes_read = 0;
  const Folder objects = Folder::open(root_).below("v1").below("objects");
  for (const Newest& entry : newest_entries(objects)) {
    if (bytes_read > kMaxBytes) break;
    const EntryFile file = read_entry_file(objects.below(entry.fan), entry.name, kMaxPrefix, true);
    bytes_read += file.bytes.size();
    const Ingredients ingredients = peek_ingredients(file.bytes);
    if (ingredients.empty()) continue;
    std::vector<std::string> list = differences(wanted, ingredients);
    if (best_name.empty() || list.size() < best.size()) {
      best = std::move(list);
      best_name = entry.name.substr(0, 12);
    }
    if (best.size() <= 1) break;  // cannot be nearer
  }
  if (best_name.empty()) return {};
  if (best.empty()) return fmt::format("entry {} has the same ingredients", best_name);
  std::string line = fmt::format("the nearest entry {} differs in {}", best_name, best.front());
  if (best.size() > 1) line += fmt::format("; and in {} more", best.size() - 1);
  return line;
}

}  // namespace hstu::cache
