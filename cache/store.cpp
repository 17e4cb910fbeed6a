// SPDX-License-Identifier: Apache-2.0
#include "cache/store.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>

#include "base/digest.hpp"
#include "base/file.hpp"
#include "base/text.hpp"
#include "cache/entry.hpp"
#include "cache/folder.hpp"
#include "cache/root.hpp"

namespace hstu::cache {
namespace {

using hstu::jit::Error;
using hstu::jit::ErrorKind;
using hstu::jit::printable;
using hstu::jit::Result;
using hstu::jit::Status;

constexpr size_t kShownPath = 300;
constexpr time_t kAbandoned = 3600;  // seconds after which a temporary file has no writer any more

Lookup miss(MissReason reason, std::string explanation) {
  Lookup lookup;
  lookup.reason = reason;
  lookup.explanation = std::move(explanation);
  return lookup;
}

std::string file_name(const Key& key) {
  return fmt::format("{}.{}.hko", key.request, key.toolchain.substr(0, 12));
}

std::string fan_out_folder(const std::string& root, const Key& key) {
  return fmt::format("{}/v1/objects/{}", root, key.request.substr(0, 2));
}

// What a program killed in the middle of a publish left in this folder.
void sweep_temporaries(const std::string& folder) {
  const time_t now = ::time(nullptr);
  for (const std::string& name : names_in(folder, ".tmp-", 4096)) {
    const std::string path = folder + "/" + name;
    struct stat info {};
    if (::lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
        info.st_mtime + kAbandoned < now) {
      ::unlink(path.c_str());
    }
  }
}

}  // namespace

std::string request_digest(const Ingredients& ingredients) {
  // Lengths in front, so that no two lists have one spelling.
  std::string list = fmt::format("hstu-cache/1 {}\n", ingredients.size());
  for (const auto& [name, text] : ingredients) {
    list += fmt::format("{} {}\n", name.size(), text.size());
    list += name;
    list += text;
  }
  return hstu::jit::sha256_hex(list);
}

const char* miss_reason_name(MissReason reason) {
  switch (reason) {
    case MissReason::none:
      return "none";
    case MissReason::absent:
      return "absent";
    case MissReason::toolchain:
      return "toolchain";
    case MissReason::corrupt:
      return "corrupt";
    case MissReason::foreign_owner:
      return "foreign_owner";
    case MissReason::unreadable:
      return "unreadable";
    case MissReason::disabled:
      return "disabled";
  }
  return "?";
}

Result<Mode> parse_mode(std::string_view text) {
  if (text == "rw") return Mode::read_write;
  if (text == "ro") return Mode::read_only;
  if (text == "off") return Mode::off;
  if (text == "sealed") return Mode::sealed;
  return Error{ErrorKind::kUsage,
               fmt::format("cache mode \"{}\" is not one of rw, ro, off, sealed", printable(text)),
               "", ""};
}

Result<Store> Store::open(const Options& options) {
  Result<Root> root = find_root(options);
  if (!root.ok()) return std::move(root).error();
  Store store;
  store.root_ = std::move(root->path);
  store.why_ = std::move(root->why);
  store.warning_ = std::move(root->warning);
  store.mode_ = options.mode;
  return store;
}

std::string Store::entry_path(const Key& key) const {
  if (root_.empty() || !is_digest(key.request) || !is_digest(key.toolchain)) return {};
  return fan_out_folder(root_, key) + "/" + file_name(key);
}

Lookup Store::lookup(const Key& key, bool any_toolchain) const {
  if (mode_ == Mode::off) return miss(MissReason::disabled, "the cache is off");
  if (root_.empty()) return miss(MissReason::disabled, "there is no cache folder");
  // Who takes any toolchain's entry need not have one of his own.
  const bool no_toolchain = any_toolchain && key.toolchain.empty();
  if (!is_digest(key.request) || (!is_digest(key.toolchain) && !no_toolchain)) {
    return miss(MissReason::absent, "the key is not made of two digests");
  }

  Lookup result = miss(MissReason::absent, "no entry has this key");
  if (!no_toolchain) result = lookup_file(entry_path(key), key, any_toolchain);
  if (result.hit || (result.reason != MissReason::absent && !any_toolchain)) return result;

  // Entries of other toolchains, the newest first.
  const std::string folder = fan_out_folder(root_, key);
  const std::string own = no_toolchain ? "" : entry_path(key);
  std::vector<std::pair<int64_t, std::string>> others;
  for (const std::string& name : names_in(folder, key.request + ".", 1024)) {
    const std::string path = folder + "/" + name;
    // Published by another process since it was looked for: an answer after all.
    if (path == own && result.reason == MissReason::absent)
      return lookup_file(own, key, any_toolchain);
    struct stat info {};
    if (::lstat(path.c_str(), &info) == 0) others.emplace_back(info.st_mtime, path);
  }
  if (others.empty()) return result;
  std::sort(others.rbegin(), others.rend());
  if (!any_toolchain) {
    return miss(MissReason::toolchain, "the entry here was made by another toolchain");
  }
  for (const auto& [time, path] : others) {
    Lookup other = lookup_file(path, key, true);
    if (other.hit) return other;
    result = std::move(other);
  }
  return result;
}

Lookup Store::lookup_file(const std::string& path, const Key& key, bool any_toolchain) const {
  const std::string shown = printable(path, kShownPath);
  EntryFile file = read_entry_file(path, kEntryPrefix + kMaxHeader + kMaxPayload);
  switch (file.problem) {
    case EntryFile::Problem::none:
      break;
    case EntryFile::Problem::absent:
      return miss(MissReason::absent, "no entry has this key");
    case EntryFile::Problem::foreign:
      return miss(MissReason::foreign_owner,
                  fmt::format("{} belongs to another user and is not loaded", shown));
    case EntryFile::Problem::unreadable:
      return miss(MissReason::unreadable, fmt::format("cannot read {}: {}", shown, file.reason));
    case EntryFile::Problem::not_a_file:
      quarantine(path);
      return miss(MissReason::corrupt, fmt::format("{} is {}", shown, file.reason));
  }

  DecodedEntry entry = decode_entry(file.bytes);
  if (entry.fault == EntryFault::other_version) {
    // Not damage: another release of the program shares the folder.
    return miss(MissReason::unreadable, fmt::format("{} is not used: {}", shown, entry.problem));
  }
  if (entry.fault != EntryFault::none) {
    quarantine(path);
    return miss(MissReason::corrupt, fmt::format("{} is damaged: {}", shown, entry.problem));
  }
  if (entry.artifact.key.request != key.request) {
    quarantine(path);
    return miss(MissReason::corrupt, fmt::format("{} holds the entry of another key", shown));
  }
  Lookup result;
  if (entry.artifact.key.toolchain != key.toolchain) {
    if (!any_toolchain) {
      return miss(MissReason::toolchain, "the entry here was made by another toolchain");
    }
    result.explanation = "made by another toolchain";
  }
  result.hit = true;
  result.artifact = std::move(entry.artifact);
  return result;
}

// Out of the way, so that the next publish heals the entry, and kept for whoever looks into it. One
// place per name bounds what piles up. Failing to move it is no matter: it stays a miss.
void Store::quarantine(const std::string& path) const {
  if (mode_ != Mode::read_write) return;
  const std::string folder = root_ + "/v1/quarantine";
  if (!hstu::jit::make_directories(folder, 0700).ok()) return;
  const std::string target = folder + path.substr(path.rfind('/'));
  for (int i = 0; i < 8; ++i) {  // a folder cannot replace what is there: take the next name
    const std::string name = i == 0 ? target : fmt::format("{}.{}", target, i);
    if (::rename(path.c_str(), name.c_str()) == 0 || errno == ENOENT) return;
  }
}

Status Store::publish(const Artifact& artifact) const {
  if (mode_ != Mode::read_write || root_.empty()) return {};
  Result<std::string> bytes = encode_entry(artifact);
  if (!bytes.ok()) return std::move(bytes).error();

  const auto failure = [](Error error) {
    error.kind = ErrorKind::kCache;
    return std::move(error).with_context("cannot publish to the kernel cache");
  };
  const std::string folder = fan_out_folder(root_, artifact.key);
  if (Status made = hstu::jit::make_directories(folder, 0755); !made.ok()) {
    return failure(std::move(made).error());
  }
  sweep_temporaries(folder);
  const std::string path = entry_path(artifact.key);
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) quarantine(path);
  if (Status written = hstu::jit::replace_file_atomic(path, *bytes, 0644); !written.ok()) {
    return failure(std::move(written).error());
  }
  return {};
}

}  // namespace hstu::cache
