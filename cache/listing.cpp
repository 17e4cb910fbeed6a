// SPDX-License-Identifier: Apache-2.0
#include "cache/listing.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>

#include "base/text.hpp"
#include "cache/collect.hpp"
#include "cache/entry.hpp"
#include "cache/folder.hpp"
#include "cache/names.hpp"
#include "cache/publish.hpp"
#include "cache/search.hpp"

namespace hstu::cache {
namespace {

constexpr size_t kMaxNames = size_t{1} << 22;

Folder objects_of(const std::string& root) {
  return Folder::open(root).below("v1").below("objects");
}

std::vector<std::string> fan_outs(const Folder& objects) {
  std::vector<std::string> fans;
  for (std::string& name : objects.names("", 4096)) {
    if (is_fan_out_name(name)) fans.push_back(std::move(name));
  }
  std::sort(fans.begin(), fans.end());
  return fans;
}

std::string name_of(const ListedEntry& entry) {
  return fmt::format("{}.{}.hko", entry.request, entry.toolchain);
}

void clear_folder(const Folder& objects, const std::string& fan, Cleared* cleared) {
  const Folder folder = objects.below(fan);
  for (const std::string& name : folder.names("", kMaxNames)) {
    std::string request, toolchain;
    const bool entry = parse_entry_name(name, &request, &toolchain);
    const bool temporary = is_temporary_name(name);
    struct stat info {};
    if ((!entry && !temporary && !is_pointer_name(name)) || !folder.status(name, &info) ||
        S_ISDIR(info.st_mode)) {
      continue;
    }
    if (!folder.remove(name)) {
      cleared->refused += errno != ENOENT;
    } else if (entry) {
      ++cleared->entries;
      cleared->bytes += static_cast<uint64_t>(info.st_size);
    } else if (temporary) {
      ++cleared->temporaries;
    }
  }
  (void)::unlinkat(objects.fd(), fan.c_str(), AT_REMOVEDIR);  // only when nothing is left in it
}

}  // namespace

std::string listed_path(const std::string& root, const ListedEntry& entry) {
  return fmt::format("{}/v1/objects/{}/{}", root, entry.request.substr(0, 2), name_of(entry));
}

std::vector<ListedEntry> list_entries(const std::string& root) {
  std::vector<ListedEntry> entries;
  const Folder objects = objects_of(root);
  for (const std::string& fan : fan_outs(objects)) {
    const Folder folder = objects.below(fan);
    for (const std::string& name : folder.names("", kMaxNames)) {
      ListedEntry entry;
      struct stat info {};
      if (!parse_entry_name(name, &entry.request, &entry.toolchain) || name.substr(0, 2) != fan ||
          !folder.status(name, &info) || !S_ISREG(info.st_mode)) {
        continue;
      }
      entry.size = static_cast<uint64_t>(info.st_size);
      entry.time = info.st_mtime;
      entries.push_back(std::move(entry));
    }
  }
  return entries;
}

EntryNotes read_notes(const std::string& root, const ListedEntry& entry) {
  const Folder folder = objects_of(root).below(entry.request.substr(0, 2));
  const EntryFile file = read_entry_file(folder, name_of(entry), uint64_t{4} << 20, true);
  EntryNotes notes;
  peek_header(file.bytes, &notes.ingredients, &notes.metadata);
  return notes;
}

Verification verify_entries(const std::string& root, Damage damage) {
  Verification result;
  const Folder objects = objects_of(root);
  for (const std::string& fan : fan_outs(objects)) {
    const Folder folder = objects.below(fan);
    std::vector<std::string> names = folder.names("", kMaxNames);
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) {
      std::string request, toolchain;
      if (!parse_entry_name(name, &request, &toolchain)) continue;
      CheckedEntry checked = check_entry(folder, name, false);
      if (checked.reason == MissReason::none && name.substr(0, 2) != fan) {
        checked.reason = MissReason::corrupt;
        checked.problem = "lies in the wrong folder";
      }
      if (checked.reason == MissReason::absent) continue;  // gone meanwhile
      if (checked.reason == MissReason::none) {
        ++result.good;
        continue;
      }
      BadEntry bad{fmt::format("{}/v1/objects/{}/{}", root, fan, name), checked.reason,
                   std::move(checked.problem), false};
      if (checked.reason != MissReason::corrupt) {
        ++result.not_ours;
      } else {
        ++result.damaged;
        struct stat info {};
        // A folder in the place of an entry is never emptied here, but it can be moved.
        if (damage == Damage::remove && !folder.remove(name)) quarantine(root, folder, name);
        if (damage == Damage::quarantine) quarantine(root, folder, name);
        bad.put_away = damage != Damage::leave && !folder.status(name, &info);
      }
      result.bad.push_back(std::move(bad));
    }
  }
  return result;
}

Cleared clear_entries(const std::string& root) {
  Cleared cleared;
  const Folder v1 = Folder::open(root).below("v1");
  const Folder objects = v1.below("objects");
  for (const std::string& fan : fan_outs(objects)) clear_folder(objects, fan, &cleared);
  cleared.quarantined = sweep_quarantine(v1, true);
  return cleared;
}

}  // namespace hstu::cache
