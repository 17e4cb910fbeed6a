// SPDX-License-Identifier: Apache-2.0
#include "cache/search.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/text.hpp"
#include "cache/entry.hpp"
#include "cache/folder.hpp"
#include "cache/names.hpp"
#include "cache/publish.hpp"

namespace hstu::cache {
namespace {

using hstu::jit::printable;

constexpr size_t kShownPath = 300;
constexpr uint64_t kMaxEntry = kEntryPrefix + kMaxHeader + kMaxPayload;

// One search in one fan-out folder.
class Search {
 public:
  explicit Search(const Wanted& wanted)
      : root_(wanted.root), key_(wanted.key), any_(wanted.any_toolchain), writes_(wanted.writes) {
    const Folder objects = Folder::open(root_).below("v1").below("objects");
    folder_ = objects.below(fan_out_name(key_));
    struct stat info {};
    // Not there when it was opened is not there, also when somebody makes it now.
    if (folder_.good() || folder_.code() == ENOENT || !objects.status(fan_out_name(key_), &info)) {
      return;
    }
    if (S_ISDIR(info.st_mode)) {
      fault_ = miss(MissReason::unreadable,
                    fmt::format("cannot open {}: {}", shown_folder(), reason_of(folder_.code())));
    } else {
      if (writes_) quarantine(root_, objects, fan_out_name(key_));
      fault_ = miss(MissReason::corrupt, shown_folder() + " is not a folder");
    }
  }

  Lookup run(std::string* bytes) {
    if (fault_.reason != MissReason::none) return fault_;
    const std::string own = key_.toolchain.empty() ? std::string() : entry_file_name(key_);
    Lookup result = miss(MissReason::absent, "no entry has this key");
    if (!own.empty()) result = read(own, bytes);
    if (result.hit || (result.reason != MissReason::absent && !any_)) return result;

    // Entries of other toolchains, the newest first.
    std::vector<std::pair<int64_t, std::string>> others;
    for (const std::string& name : folder_.names(key_.request + ".", 1024)) {
      std::string request, toolchain;
      if (!parse_entry_name(name, &request, &toolchain)) continue;
      // Published by another process since it was looked for: an answer after all.
      if (name == own && result.reason == MissReason::absent) return read(own, bytes);
      struct stat info {};
      if (name != own && folder_.status(name, &info)) others.emplace_back(info.st_mtime, name);
    }
    if (others.empty()) return result;
    std::sort(others.rbegin(), others.rend());
    if (!any_) return miss(MissReason::toolchain, kOtherToolchain);
    for (const auto& [time, name] : others) {
      Lookup other = read(name, bytes);
      if (other.hit) return other;
      // The fault of the own entry tells more than that of a stranger's.
      if (result.reason == MissReason::absent) result = std::move(other);
    }
    return result;
  }

 private:
  static constexpr const char* kOtherToolchain = "the entry here was made by another toolchain";

  std::string shown_folder() const {
    return printable(fmt::format("{}/v1/objects/{}", root_, fan_out_name(key_)), kShownPath);
  }
  Lookup read(const std::string& name, std::string* bytes) const {
    CheckedEntry entry = check_entry(folder_, name, writes_);
    if (entry.reason == MissReason::absent) {
      return miss(MissReason::absent, "no entry has this key");
    }
    if (entry.reason != MissReason::none) {
      if (entry.reason == MissReason::corrupt && writes_) quarantine(root_, folder_, name);
      return miss(entry.reason, fmt::format("{}/{} {}", shown_folder(), name, entry.problem));
    }
    Lookup result;
    if (entry.artifact.key.toolchain != key_.toolchain) {
      if (!any_) return miss(MissReason::toolchain, kOtherToolchain);
      result.explanation = "made by another toolchain";
    }
    result.hit = true;
    result.artifact = std::move(entry.artifact);
    if (bytes != nullptr) *bytes = std::move(entry.file.bytes);
    return result;
  }

  const std::string& root_;
  const Key& key_;
  bool any_, writes_;
  Folder folder_;
  Lookup fault_;
};

}  // namespace

std::string entry_file_name(const Key& key) {
  return fmt::format("{}.{}.hko", key.request, key.toolchain.substr(0, 12));
}

std::string fan_out_name(const Key& key) { return key.request.substr(0, 2); }

Lookup miss(MissReason reason, std::string explanation) {
  Lookup lookup;
  lookup.reason = reason;
  lookup.explanation = std::move(explanation);
  return lookup;
}

CheckedEntry check_entry(const Folder& folder, const std::string& name, bool touch) {
  CheckedEntry checked;
  const auto fail = [&checked](MissReason reason, std::string problem) {
    checked.reason = reason;
    checked.problem = std::move(problem);
  };
  checked.file = read_entry_file(folder, name, kMaxEntry, false, touch);
  switch (checked.file.problem) {
    case EntryFile::Problem::none:
      break;
    case EntryFile::Problem::absent:
      fail(MissReason::absent, "is not there");
      return checked;
    case EntryFile::Problem::foreign:
      fail(MissReason::foreign_owner, "is not loaded: " + checked.file.reason);
      return checked;
    case EntryFile::Problem::unreadable:
      fail(MissReason::unreadable, "cannot be read: " + checked.file.reason);
      return checked;
    case EntryFile::Problem::not_a_file:
      fail(MissReason::corrupt, "is " + checked.file.reason);
      return checked;
  }
  DecodedEntry entry = decode_entry(checked.file.bytes);
  if (entry.fault == EntryFault::other_version) {
    // Not damage: another release of the program shares the folder.
    fail(MissReason::unreadable, "is not used: " + entry.problem);
  } else if (entry.fault != EntryFault::none) {
    fail(MissReason::corrupt, "is damaged: " + entry.problem);
  } else if (entry_file_name(entry.artifact.key) != name) {
    fail(MissReason::corrupt, "holds the entry of another key");
  } else {
    checked.artifact = std::move(entry.artifact);
  }
  return checked;
}

Lookup search_entry(const Wanted& wanted, std::string* bytes) { return Search(wanted).run(bytes); }

}  // namespace hstu::cache
