// SPDX-License-Identifier: Apache-2.0
#include "cache/folder.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <memory>

#include "base/signal_guard.hpp"

namespace hstu::cache {
namespace {

constexpr std::string_view kTemporary = ".tmp-";
constexpr time_t kFresh = 3600;     // seconds for which a time stamp is not rewritten
constexpr time_t kClockSlack = 60;  // clocks of a fleet differ a little: this is not the future

struct Closer {
  int fd;
  ~Closer() {
    if (fd >= 0) ::close(fd);
  }
};

EntryFile failed(EntryFile::Problem problem, std::string reason) {
  EntryFile file;
  file.problem = problem;
  file.reason = std::move(reason);
  return file;
}

}  // namespace

std::string reason_of(int code) { return std::strerror(code); }

Folder Folder::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  return Folder(fd, errno);
}

Folder Folder::below(const std::string& name) const {
  if (!good()) return Folder(-1, code_);
  const int fd = ::openat(fd_, name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  return Folder(fd, errno);
}

Folder& Folder::operator=(Folder&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(code_, other.code_);
  return *this;
}

Folder::~Folder() {
  if (fd_ >= 0) ::close(fd_);
}

int Folder::make(const std::string& name, unsigned mode) const {
  if (!good()) return code_;
  if (::mkdirat(fd_, name.c_str(), mode) == 0) return 0;
  const int code = errno;
  struct stat info {};
  if (!status(name, &info)) return code;  // EROFS, EACCES: still fine when it exists
  return S_ISDIR(info.st_mode) ? 0 : ENOTDIR;
}

std::vector<std::string> Folder::names(std::string_view prefix, size_t limit) const {
  std::vector<std::string> names;
  if (!good()) return names;
  const int fd = ::openat(fd_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return names;
  struct DirCloser {
    void operator()(DIR* dir) const { ::closedir(dir); }
  };
  const std::unique_ptr<DIR, DirCloser> dir(::fdopendir(fd));
  if (!dir) {
    ::close(fd);
    return names;
  }
  while (names.size() < limit) {
    const dirent* entry = ::readdir(dir.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != ".." && name.substr(0, prefix.size()) == prefix) {
      names.emplace_back(name);
    }
  }
  return names;
}

bool Folder::status(const std::string& name, struct stat* info) const {
  return good() && ::fstatat(fd_, name.c_str(), info, AT_SYMLINK_NOFOLLOW) == 0;
}

bool Folder::remove(const std::string& name) const {
  return good() && ::unlinkat(fd_, name.c_str(), 0) == 0;
}

bool Folder::sync() const {
  if (!good()) return false;
  const Closer fd{::openat(fd_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (fd.fd < 0) return errno == EACCES;  // writable, not readable: still published
  // Some file systems cannot sync a folder: nothing more can be done there.
  return ::fsync(fd.fd) == 0 || errno == EINVAL || errno == EROFS;
}

bool Folder::replace_unsynced(const std::string& name, std::string_view bytes) const {
  if (!good()) return false;
  const std::string temporary = temporary_name();
  const int fd =
      ::openat(fd_, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return false;
  const bool written = write_whole(fd, bytes) == 0;
  const bool closed = ::close(fd) == 0;
  if (written && closed && ::renameat(fd_, temporary.c_str(), fd_, name.c_str()) == 0) return true;
  remove(temporary);
  return false;
}

std::string temporary_name() {
  // Time, since in containers that share a folder every program may be process 1.
  static std::atomic<uint64_t> counter{0};
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  return fmt::format("{}{}-{}", kTemporary, ::getpid(), static_cast<uint64_t>(now) + counter++);
}

int write_whole(int fd, std::string_view bytes) {
  const hstu::jit::SignalGuard guard(SIGXFSZ);  // a file size limit is an error, not the end
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(fd, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return errno;
    bytes.remove_prefix(static_cast<size_t>(wrote));
  }
  return 0;
}

EntryFile read_entry_file(const Folder& folder, const std::string& name, uint64_t limit,
                          bool prefix_only, bool touch) {
  using Problem = EntryFile::Problem;
  if (!folder.good()) return failed(Problem::absent, {});
  // O_NONBLOCK: a FIFO must not make us wait.
  const Closer fd{::openat(folder.fd(), name.c_str(),
                           O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
  if (fd.fd < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return failed(Problem::absent, {});
    if (errno == ELOOP) return failed(Problem::not_a_file, "a symbolic link");
    if (errno == ENXIO) return failed(Problem::not_a_file, "not a regular file");
    return failed(Problem::unreadable, reason_of(errno));
  }
  EntryFile file;
  if (::fstat(fd.fd, &file.info) != 0) return failed(Problem::unreadable, reason_of(errno));
  if (!trusted_owner(file.info.st_uid)) {
    return failed(Problem::foreign, fmt::format("it belongs to user {}", file.info.st_uid));
  }
  if (S_ISDIR(file.info.st_mode)) return failed(Problem::not_a_file, "a folder");
  if (!S_ISREG(file.info.st_mode)) return failed(Problem::not_a_file, "not a regular file");
  if ((file.info.st_mode & 022) != 0) {
    return failed(Problem::foreign,
                  fmt::format("others may write to it (mode {:o})", file.info.st_mode & 07777));
  }
  const auto size = static_cast<uint64_t>(file.info.st_size);
  if (size > limit && !prefix_only) return failed(Problem::not_a_file, "too long for an entry");

  file.bytes.resize(static_cast<size_t>(std::min(size, limit)));
  size_t used = 0;
  while (used < file.bytes.size()) {
    const ssize_t got = ::read(fd.fd, file.bytes.data() + used, file.bytes.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed(Problem::unreadable, reason_of(errno));
    if (got == 0) break;  // somebody cut it: the checks of the content will tell
    used += static_cast<size_t>(got);
  }
  file.bytes.resize(used);
  const time_t now = ::time(nullptr);
  if (touch && (file.info.st_mtime + kFresh < now || file.info.st_mtime > now + kClockSlack)) {
    const timespec times[2] = {{0, UTIME_OMIT}, {now, 0}};
    (void)::futimens(fd.fd, times);  // a folder that may only be read: it stays as old as it looks
  }
  return file;
}

}  // namespace hstu::cache
