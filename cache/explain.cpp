// SPDX-License-Identifier: Apache-2.0
// Why a key is absent: the nearest entry and what it has different.
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>

#include "base/text.hpp"
#include "cache/entry.hpp"
#include "cache/folder.hpp"
#include "cache/store.hpp"

namespace hstu::cache {
namespace {

constexpr size_t kMaxStat = 4096;                   // entries looked at for their time
constexpr size_t kMaxRead = 200;                    // entries read
constexpr uint64_t kMaxBytes = uint64_t{32} << 20;  // bytes read in all
constexpr uint64_t kMaxPrefix = uint64_t{1} << 20;  // of one entry

std::vector<std::string> newest_entries(const std::string& objects) {
  std::vector<std::pair<int64_t, std::string>> entries;
  for (const std::string& fan : names_in(objects, "", 256)) {
    const std::string folder = objects + "/" + fan;
    for (const std::string& name : names_in(folder, "", kMaxStat - entries.size())) {
      if (name.front() == '.') continue;
      const std::string path = folder + "/" + name;
      struct stat info {};
      if (::lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode)) {
        entries.emplace_back(info.st_mtime, path);
      }
    }
    if (entries.size() >= kMaxStat) break;
  }
  std::sort(entries.rbegin(), entries.rend());
  std::vector<std::string> paths;
  for (size_t i = 0; i < entries.size() && i < kMaxRead; ++i) paths.push_back(entries[i].second);
  return paths;
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
  std::string best_path;
  uint64_t bytes_read = 0;
  for (const std::string& path : newest_entries(root_ + "/v1/objects")) {
    if (bytes_read > kMaxBytes) break;
    const EntryFile file = read_entry_file(path, kMaxPrefix, true);
    bytes_read += file.bytes.size();
    const Ingredients ingredients = peek_ingredients(file.bytes);
    if (ingredients.empty()) continue;
    std::vector<std::string> list = differences(wanted, ingredients);
    if (best_path.empty() || list.size() < best.size()) {
      best = std::move(list);
      best_path = path;
    }
    if (best.size() <= 1) break;  // cannot be nearer
  }
  if (best_path.empty()) return {};
  const std::string name = best_path.substr(best_path.rfind('/') + 1, 12);
  if (best.empty()) return fmt::format("entry {} has the same ingredients", name);
  std::string line = fmt::format("the nearest entry {} differs in {}", name, best.front());
  if (best.size() > 1) line += fmt::format("; and in {} more", best.size() - 1);
  return line;
}

}  // namespace hstu::cache
