// SPDX-License-Identifier: Apache-2.0
#include "base/temp_dir.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <vector>

#include "base/env.hpp"
#include "base/text.hpp"

namespace hstu::jit {
namespace {

// Names that the product gives; whatever else is called hstu-jit-something is not ours to remove.
constexpr std::string_view kPrefixes[] = {
    "hstu-jit-worker-", "hstu-jit-object-", "hstu-jit-inspect-",    "hstu-jit-kernel-",
    "hstu-jit-verify-", "hstu-jit-doctor-", "hstu-jit-cache-bench-"};
// Of a process that cannot lock. Another that can would take the lock for proof that nobody is
// there: such folders have a name of their own, and age has to do.
constexpr std::string_view kUnlockedPrefix = "hstu-jit-unlocked-";
constexpr time_t kOld = 24 * 3600;  // seconds

enum class Locked { yes, no, impossible };

// A descriptor of the folder, and whether it is locked through it. -1 when it cannot be opened.
std::pair<int, Locked> lock_folder(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return {-1, Locked::no};
  int rc;
  do {
    rc = ::flock(fd, LOCK_EX | LOCK_NB);
  } while (rc != 0 && errno == EINTR);
  if (rc == 0) return {fd, Locked::yes};
  return {fd, errno == EWOULDBLOCK ? Locked::no : Locked::impossible};
}

bool still_there(const std::string& path, int fd) {
  struct stat named {
  }, open{};
  return ::lstat(path.c_str(), &named) == 0 && ::fstat(fd, &open) == 0 &&
         named.st_dev == open.st_dev && named.st_ino == open.st_ino;
}

// Whether create() makes such names: a prefix and six characters. A user's folder may be called
// hstu-jit-inspect-results.
bool is_ours(std::string_view name) {
  const auto made = [&](std::string_view prefix) {
    return name.size() == prefix.size() + 6 && name.starts_with(prefix);
  };
  return made(kUnlockedPrefix) || std::any_of(std::begin(kPrefixes), std::end(kPrefixes), made);
}

void remove_folder(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

}  // namespace

int sweep_temp_dirs(const std::string& base) {
  DIR* dir = ::opendir(base.c_str());
  if (dir == nullptr) return 0;
  std::vector<std::string> names;
  while (names.size() < 4096) {
    const dirent* entry = ::readdir(dir);
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (is_ours(name)) names.emplace_back(entry->d_name);
  }
  ::closedir(dir);
  int removed = 0;
  for (const std::string& name : names) {
    const std::string path = base + "/" + name;
    const auto [fd, locked] = lock_folder(path);
    if (fd < 0) continue;
    struct stat info {};
    const bool ours = ::fstat(fd, &info) == 0 && info.st_uid == ::geteuid() &&
                      (info.st_mode & 07777) == 0700;  // as they are made
    const bool by_age =
        locked == Locked::impossible || std::string_view(name).starts_with(kUnlockedPrefix);
    const bool left = locked != Locked::no && (!by_age || info.st_mtime + kOld < ::time(nullptr));
    // Its maker, should it only now come to locking it, sees that it is gone and takes another.
    if (ours && left && still_there(path, fd)) {
      remove_folder(path);
      ++removed;
    }
    ::close(fd);
  }
  return removed;
}

Result<TempDir> TempDir::create(std::string_view prefix) {
  static std::atomic<bool> swept{false};
  std::vector<std::string> bases;
  if (auto base = get_env("TMPDIR"); base && base->front() == '/') bases.push_back(*base);
  bases.emplace_back("/tmp");
  if (!swept.exchange(true)) {
    for (const std::string& base : bases) sweep_temp_dirs(base);
  }
  int code = 0;
  for (const std::string& base : bases) {
    for (int attempt = 0; attempt < 10; ++attempt) {
      std::string path = fmt::format("{}/{}XXXXXX", base, prefix);
      if (::mkdtemp(path.data()) == nullptr) {
        code = errno;
        break;
      }
      const auto [fd, locked] = lock_folder(path);
      if (fd >= 0 && locked == Locked::yes && still_there(path, fd)) {
        return TempDir(std::move(path), fd);
      }
      if (fd >= 0) ::close(fd);
      if (fd >= 0 && locked == Locked::impossible) {
        ::rmdir(path.c_str());
        path = fmt::format("{}/{}XXXXXX", base, kUnlockedPrefix);
        if (::mkdtemp(path.data()) != nullptr) return TempDir(std::move(path), -1);
        code = errno;
        break;
      }
      code = EAGAIN;  // a sweeper was quicker
    }
  }
  return Error{ErrorKind::kFailed,
               fmt::format("cannot make a temporary folder in {}: {}; set TMPDIR to a folder that "
                           "can be written",
                           printable(bases.front(), 300), std::strerror(code)),
               "", ""};
}

TempDir& TempDir::operator=(TempDir&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(lock_, other.lock_);
  return *this;
}

TempDir::~TempDir() {
  if (path_.empty()) return;
  remove_folder(path_);
  if (lock_ >= 0) ::close(lock_);
}

}  // namespace hstu::jit
