// SPDX-License-Identifier: Apache-2.0
#include "cache/collect.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <unordered_set>
#include <vector>

#include "cache/lock.hpp"
#include "cache/names.hpp"
#include "cache/statistics.hpp"
#include "cache/store.hpp"

namespace hstu::cache {
namespace {

// Times are in nanoseconds since 1970: entries of one second have an order too.
constexpr int64_t kSecond = 1000000000;
constexpr int64_t kAbandoned = 3600 * kSecond;  // a temporary file has no writer any more
constexpr int64_t kPeriod = 3600 * kSecond;     // between collections
constexpr int64_t kYoung = 600 * kSecond;       // somebody may be about to ask for it
constexpr int64_t kClockSlack = 60 * kSecond;   // clocks differ a little: not the future
constexpr int64_t kQuarantine = 7 * 24 * 3600 * kSecond;
constexpr size_t kMaxQuarantined = 256;
constexpr uint64_t kMaxQuarantinedBytes = uint64_t{64} << 20;
constexpr size_t kMaxNames = size_t{1} << 22;  // of one folder
constexpr const char* kStamp = "last-collection";

struct Seen {
  int64_t time = 0;  // of the last use
  uint64_t size = 0;
  std::string fan, name;
};

struct Pointer {
  std::string fan, name;
};

int64_t clock_now() {
  timespec now{};
  (void)::clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * kSecond + now.tv_nsec;
}

int64_t modified(const struct stat& info) {
  constexpr int64_t kFar = 9000000000;  // seconds, some 285 years: beyond, the product overflows
  return std::clamp<int64_t>(info.st_mtim.tv_sec, -kFar, kFar) * kSecond + info.st_mtim.tv_nsec;
}

// A time stamp of the future, left by a clock that jumped, would make its entry the last to go for
// ever: it becomes now, or where it cannot be rewritten, the distant past.
int64_t last_use(const Folder& folder, const std::string& name, const struct stat& info,
                 int64_t now) {
  if (modified(info) <= now + kClockSlack) return modified(info);
  const timespec times[2] = {{0, UTIME_OMIT}, {now / kSecond, now % kSecond}};
  if (::utimensat(folder.fd(), name.c_str(), times, AT_SYMLINK_NOFOLLOW) == 0) return now;
  return 0;
}

void scan(const Folder& objects, int64_t now, std::vector<Seen>* entries,
          std::vector<Pointer>* pointers, Collected* result) {
  for (const std::string& fan : objects.names("", kMaxNames)) {
    if (!is_fan_out_name(fan)) continue;
    const Folder folder = objects.below(fan);
    result->temporaries += sweep_temporaries(folder);
    for (std::string& name : folder.names("", kMaxNames)) {
      std::string request, toolchain;
      struct stat info {};
      if (is_pointer_name(name)) {
        pointers->push_back({fan, std::move(name)});
        continue;
      }
      if (!parse_entry_name(name, &request, &toolchain) || !folder.status(name, &info) ||
          !S_ISREG(info.st_mode)) {
        continue;
      }
      const int64_t time = last_use(folder, name, info, now);
      entries->push_back({time, static_cast<uint64_t>(info.st_size), fan, std::move(name)});
    }
  }
}

enum class Removal { done, gone, used, refused };

// Unless somebody used it since it was seen.
Removal remove_entry(const Folder& folder, const Seen& entry, int64_t now) {
  struct stat info {};
  if (!folder.status(entry.name, &info)) return Removal::gone;
  if (modified(info) > entry.time && modified(info) <= now + kClockSlack) return Removal::used;
  if (folder.remove(entry.name)) return Removal::done;
  return errno == ENOENT ? Removal::gone : Removal::refused;
}

// Removes these, folder by folder: in the order of use, each would be a walk to another place of
// the disk.
void remove_entries(const Folder& objects, std::vector<Seen*> victims, int64_t now,
                    std::chrono::steady_clock::time_point deadline, Collected* result) {
  std::stable_sort(victims.begin(), victims.end(),
                   [](const Seen* a, const Seen* b) { return a->fan < b->fan; });
  Folder folder;
  const std::string* open = nullptr;
  for (Seen* entry : victims) {
    if (std::chrono::steady_clock::now() >= deadline) {
      result->unfinished = true;
      return;
    }
    if (open == nullptr || *open != entry->fan) folder = objects.below(entry->fan);
    open = &entry->fan;
    const Removal removal = remove_entry(folder, *entry, now);
    if (removal == Removal::refused) ++result->refused;
    if (removal == Removal::refused || removal == Removal::used) continue;
    if (removal == Removal::done) {
      ++result->evicted;
      result->evicted_bytes += entry->size;
    }
    --result->entries;
    result->bytes -= entry->size;
    entry->name.clear();  // no longer there
  }
}

void evict(const Folder& objects, const CollectOptions& options, int64_t now,
           std::vector<Seen>* entries, Collected* result) {
  for (const Seen& entry : *entries) result->bytes += entry.size;
  result->entries = entries->size();
  if (result->bytes <= options.size_limit) return;
  const auto deadline = std::chrono::steady_clock::now() + options.patience;
  std::sort(entries->begin(), entries->end(),
            [](const Seen& a, const Seen& b) { return a.time < b.time; });
  const uint64_t enough = options.size_limit - (options.asked_for ? 0 : options.size_limit / 10);
  const auto goal = [&](const Seen& entry) {
    const bool young = !options.asked_for && entry.time + kYoung > now;
    return young ? options.size_limit : enough;
  };
  // Some may be in use or refuse to go: then the next ones have to.
  for (size_t next = 0; next < entries->size() && !result->unfinished;) {
    std::vector<Seen*> victims;
    uint64_t bytes = result->bytes;
    for (; next < entries->size() && bytes > goal((*entries)[next]); ++next) {
      victims.push_back(&(*entries)[next]);
      bytes -= (*entries)[next].size;
    }
    if (victims.empty()) return;
    remove_entries(objects, std::move(victims), now, deadline, result);
  }
}

// Pointers to entries that are gone.
void remove_pointers(const Folder& objects, const std::vector<Pointer>& pointers,
                     const std::vector<Seen>& entries, int64_t now) {
  if (pointers.empty()) return;
  std::unordered_set<std::string_view> present;
  for (const Seen& entry : entries) present.insert(std::string_view(entry.name).substr(0, 64));
  for (const Pointer& pointer : pointers) {
    if (present.count(std::string_view(pointer.name).substr(0, 64)) != 0) continue;
    const Folder folder = objects.below(pointer.fan);
    struct stat info {};
    // A pointer may come before its entry.
    if (folder.status(pointer.name, &info) && modified(info) + kYoung < now) {
      folder.remove(pointer.name);
    }
  }
}

// A file, a link or a folder with what is in it; never through a link.
bool remove_tree(const Folder& folder, const std::string& name, int depth) {
  struct stat info {};
  if (!folder.status(name, &info)) return false;
  if (!S_ISDIR(info.st_mode)) return folder.remove(name);
  if (depth == 0) return false;
  const Folder inner = folder.below(name);
  for (const std::string& member : inner.names("", kMaxNames)) {
    if (!remove_tree(inner, member, depth - 1)) return false;
  }
  return ::unlinkat(folder.fd(), name.c_str(), AT_REMOVEDIR) == 0;
}

bool is_due(const Folder& v1, int64_t now) {
  struct stat info {};
  if (!v1.status(kStamp, &info)) return true;
  return modified(info) + kPeriod < now || modified(info) > now + kClockSlack;
}

bool stamp(const Folder& v1) {
  const int fd = ::openat(
      v1.fd(), kStamp, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0644);
  if (fd < 0) return false;
  const bool stamped = ::futimens(fd, nullptr) == 0;
  ::close(fd);
  return stamped;
}

}  // namespace

uint64_t sweep_temporaries(const Folder& folder) {
  const int64_t now = clock_now();
  uint64_t removed = 0;
  for (const std::string& name : folder.names(".tmp-", kMaxNames)) {
    struct stat info {};
    if (!is_temporary_name(name) || !folder.status(name, &info) || !S_ISREG(info.st_mode)) continue;
    const bool abandoned =
        modified(info) + kAbandoned < now || modified(info) > now + kAbandoned;  // a clock jumped
    if (abandoned && folder.remove(name)) ++removed;
  }
  return removed;
}

uint64_t sweep_quarantine(const Folder& v1, bool everything) {
  const Folder folder = v1.below("quarantine");
  const int64_t now = clock_now();
  std::vector<Seen> pieces;
  uint64_t bytes = 0;
  for (std::string& name : folder.names("", kMaxNames)) {
    struct stat info {};
    if (!is_quarantine_name(name) || !folder.status(name, &info)) continue;
    const auto size = S_ISREG(info.st_mode) ? static_cast<uint64_t>(info.st_size) : 0;
    bytes += size;
    pieces.push_back(
        {modified(info) > now + kClockSlack ? 0 : modified(info), size, "", std::move(name)});
  }
  std::sort(pieces.begin(), pieces.end(),
            [](const Seen& a, const Seen& b) { return a.time < b.time; });
  uint64_t removed = 0;
  size_t left = pieces.size();
  for (const Seen& piece : pieces) {
    if (!everything && piece.time + kQuarantine > now && left <= kMaxQuarantined &&
        bytes <= kMaxQuarantinedBytes) {
      break;
    }
    if (remove_tree(folder, piece.name, 16)) ++removed;
    --left;
    bytes -= piece.size;
  }
  return removed;
}

Collected collect(const std::string& root, const CollectOptions& options) {
  Collected result;
  const int64_t now = clock_now();
  const Folder top = Folder::open(root);
  const Folder v1 = top.below("v1");
  const Folder objects = v1.below("objects");
  for (const Folder* folder : {&top, &v1, &objects}) {
    result.temporaries += sweep_temporaries(*folder);
  }
  for (const char* name : {"stats", "quarantine", "toolchains"}) {
    result.temporaries += sweep_temporaries(v1.below(name));
  }
  std::vector<Seen> entries;
  std::vector<Pointer> pointers;
  scan(objects, now, &entries, &pointers, &result);
  evict(objects, options, now, &entries, &result);
  remove_pointers(objects, pointers, entries, now);
  result.quarantined = sweep_quarantine(v1, false);
  fold_counters(root);
  return result;
}

bool collect_when_due(const std::string& root, uint64_t size_limit, bool hurry, Collected* result) {
  const Folder v1 = Folder::open(root).below("v1");
  if (!v1.good() || (!hurry && !is_due(v1, clock_now()))) return false;
  const NodeLock lock = NodeLock::take(folder_lock_name("gc", root), 0);
  if (!lock.held() && lock.possible()) return false;  // another process is at it
  if (!hurry && !is_due(v1, clock_now())) return false;
  if (!stamp(v1)) return false;  // a folder that takes no stamp gives up no entry either
  *result = collect(root, {size_limit, false, std::chrono::seconds(2)});
  if (result->unfinished) v1.remove(kStamp);  // due at once
  return true;
}

}  // namespace hstu::cache
