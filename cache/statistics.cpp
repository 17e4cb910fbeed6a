// SPDX-License-Identifier: Apache-2.0
#include "cache/statistics.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <limits>
#include <mutex>
#include <vector>

#include "cache/folder.hpp"
#include "cache/lock.hpp"

namespace hstu::cache {
namespace {

using Guard = std::lock_guard<hstu::jit::ForkMutex>;

constexpr std::string_view kFirstLine = "hstu-cache-stats/1\n";
constexpr size_t kMaxCounters = 512;
constexpr size_t kMaxName = 64;
constexpr size_t kMaxHosts = 1 << 16;
constexpr size_t kKeptHosts = 256;
constexpr const char* kOtherHosts = "hosts-of-the-past";
constexpr uint64_t kMaxFile = 1 << 16;

bool plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '-';
}

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxName && std::all_of(name.begin(), name.end(), plain);
}

void add_to(Counters* counters, std::string_view name, uint64_t count) {
  auto at = counters->find(name);
  if (at == counters->end()) {
    if (counters->size() >= kMaxCounters) return;
    at = counters->emplace(std::string(name), 0).first;
  }
  const uint64_t room = std::numeric_limits<uint64_t>::max() - at->second;
  at->second += std::min(count, room);
}

void add_all(Counters* sum, const Counters& more) {
  for (const auto& [name, count] : more) add_to(sum, name, count);
}

// A host name is the administrator's text: only what makes a plain file name is taken.
std::string host_file() {
  struct utsname names {};
  std::string host = ::uname(&names) == 0 ? names.nodename : "";
  host.resize(std::min(host.size(), kMaxName));
  for (char& c : host) {
    if (!plain(c)) c = '_';
  }
  return "host-" + host;
}

// The number at the front of `text`, which is moved behind it and the newline that must follow.
bool take_number(std::string_view* text, uint64_t* value) {
  const auto [end, problem] = std::from_chars(text->data(), text->data() + text->size(), *value);
  if (problem != std::errc() || end == text->data() + text->size() || *end != '\n') return false;
  text->remove_prefix(static_cast<size_t>(end - text->data()) + 1);
  return true;
}

}  // namespace

std::string miss_counter(std::string_view layer, MissReason reason) {
  return fmt::format("{}.miss.{}", layer, miss_reason_name(reason));
}

std::string failure_counter(std::string_view layer, int code) {
  struct Named {
    int code;
    const char* name;
  };
  static constexpr Named kNames[] = {
      {ENOSPC, "ENOSPC"}, {EDQUOT, "EDQUOT"},   {EROFS, "EROFS"},   {EACCES, "EACCES"},
      {EPERM, "EPERM"},   {EIO, "EIO"},         {EFBIG, "EFBIG"},   {ENOENT, "ENOENT"},
      {ESTALE, "ESTALE"}, {EMFILE, "EMFILE"},   {ENFILE, "ENFILE"}, {ENAMETOOLONG, "ENAMETOOLONG"},
      {EISDIR, "EISDIR"}, {ENOTDIR, "ENOTDIR"}, {ELOOP, "ELOOP"},   {EINVAL, "EINVAL"},
      {ENOMEM, "ENOMEM"}};
  for (const Named& named : kNames) {
    if (named.code == code) return fmt::format("{}.publish_failed.{}", layer, named.name);
  }
  return fmt::format("{}.publish_failed.errno_{}", layer, code);
}

std::string write_counters(const Counters& counters) {
  std::string text(kFirstLine);
  size_t count = 0;
  for (const auto& [name, value] : counters) {
    if (!is_name(name) || count == kMaxCounters) continue;
    text += fmt::format("{} {}\n", name, value);
    ++count;
  }
  return text + fmt::format("end {}\n", count);  // a cut file has no such line
}

Counters read_counters(std::string_view text) {
  if (text.substr(0, kFirstLine.size()) != kFirstLine) return {};
  text.remove_prefix(kFirstLine.size());
  Counters counters;
  while (true) {
    const size_t space = text.find(' ');
    if (space == std::string_view::npos) return {};
    const std::string_view name = text.substr(0, space);
    uint64_t value = 0;
    text.remove_prefix(space + 1);
    if (!is_name(name) || !take_number(&text, &value)) return {};
    if (name == "end") return value == counters.size() && text.empty() ? counters : Counters();
    if (counters.size() >= kMaxCounters || !counters.emplace(name, value).second) return {};
  }
}

Statistics::Statistics() : owner_(::getpid()) {}

void Statistics::add(std::string_view name, uint64_t count) {
  if (!is_name(name) || name == "end") return;
  const Guard guard(mutex_);
  add_to(&total_, name, count);
  add_to(&unsaved_, name, count);
}

Counters Statistics::counters() const {
  const Guard guard(mutex_);
  return total_;
}

void Statistics::save(const std::string& root) {
  constexpr int kPatience = 50;  // milliseconds
  Counters mine;
  {
    const Guard guard(mutex_);
    if (owner_ != ::getpid()) {
      unsaved_.clear();
      owner_ = ::getpid();
    }
    if (unsaved_.empty() || root.empty()) return;
    mine.swap(unsaved_);
  }
  const auto keep_for_later = [&] {
    const Guard guard(mutex_);
    add_all(&unsaved_, mine);
  };
  // Without a lock two processes of this host may lose one another's counts, no more.
  const NodeLock lock = NodeLock::take(folder_lock_name("stats", root), kPatience);
  if (!lock.held() && lock.possible()) return keep_for_later();
  const Folder v1 = Folder::open(root).below("v1");
  if (v1.make("stats", 0755) != 0) return keep_for_later();
  const Folder folder = v1.below("stats");
  const std::string name = host_file();
  const EntryFile file = read_entry_file(folder, name, kMaxFile);
  Counters sum = mine;
  if (file.problem == EntryFile::Problem::none) add_all(&sum, read_counters(file.bytes));
  if (!folder.replace_unsynced(name, write_counters(sum))) keep_for_later();
}

Counters saved_counters(const std::string& root) {
  Counters sum;
  const Folder folder = Folder::open(root).below("v1").below("stats");
  for (const std::string& name : folder.names("host", kMaxHosts)) {
    const EntryFile file = read_entry_file(folder, name, kMaxFile);
    if (file.problem == EntryFile::Problem::none) add_all(&sum, read_counters(file.bytes));
  }
  return sum;
}

void zero_counters(const std::string& root) {
  const Folder folder = Folder::open(root).below("v1").below("stats");
  for (const std::string& name : folder.names("host", kMaxHosts)) folder.remove(name);
}

void fold_counters(const std::string& root) {
  const Folder folder = Folder::open(root).below("v1").below("stats");
  std::vector<std::pair<int64_t, std::string>> hosts;
  for (std::string& name : folder.names("host-", kMaxHosts)) {
    struct stat info {};
    if (folder.status(name, &info)) hosts.emplace_back(info.st_mtime, std::move(name));
  }
  if (hosts.size() <= kKeptHosts) return;
  std::sort(hosts.rbegin(), hosts.rend());
  const auto counters_of = [&folder](const std::string& name) {
    const EntryFile file = read_entry_file(folder, name, kMaxFile);
    return file.problem == EntryFile::Problem::none ? read_counters(file.bytes) : Counters();
  };
  Counters sum = counters_of(kOtherHosts);
  for (size_t i = kKeptHosts; i < hosts.size(); ++i) add_all(&sum, counters_of(hosts[i].second));
  if (!folder.replace_unsynced(kOtherHosts, write_counters(sum))) return;
  for (size_t i = kKeptHosts; i < hosts.size(); ++i) folder.remove(hosts[i].second);
}

}  // namespace hstu::cache
