// SPDX-License-Identifier: Apache-2.0
#include "base/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/env.hpp"
#include "base/signal_guard.hpp"
#include "base/text.hpp"
#include "base/trust.hpp"

namespace hstu::jit {
namespace {

constexpr size_t kShownPath = 300;

Error file_error(std::string_view verb, const std::string& path, std::string_view reason) {
  return Error{ErrorKind::kFailed,
               fmt::format("cannot {} {}: {}", verb, printable(path, kShownPath), reason), "", ""};
}

Error system_error(std::string_view verb, const std::string& path, int code) {
  return file_error(verb, path, std::strerror(code));
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// 0 or errno.
int write_all(int fd, std::string_view bytes) {
  const SignalGuard guard(SIGXFSZ);  // a file size limit is an error here, not the end
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(fd, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return errno;
    bytes.remove_prefix(static_cast<size_t>(wrote));
  }
  return 0;
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// 0 or errno. Some file systems cannot sync a folder (EINVAL): nothing more can be done there.
int sync_folder(const std::string& folder) {
  const Descriptor fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0) return errno == EACCES ? 0 : errno;  // writable, not readable: still published
  if (::fsync(fd.get()) != 0 && errno != EINVAL && errno != EROFS) return errno;
  return 0;
}

Status write_in_place(const std::string& path, std::string_view bytes) {
  const Descriptor fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
  if (fd.get() < 0) return system_error("write", path, errno);
  if (const int code = write_all(fd.get(), bytes)) return system_error("write", path, code);
  return {};
}

Result<std::string> read_whole(const std::string& path, uint64_t limit, bool distrustful) {
  // O_NONBLOCK: opening a FIFO must not wait for its writer.
  const Descriptor fd(::open(
      path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (distrustful ? O_NOFOLLOW : 0)));
  if (fd.get() < 0) return system_error("read", path, errno);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return system_error("read", path, errno);
  if (S_ISDIR(info.st_mode)) return system_error("read", path, EISDIR);
  if (!S_ISREG(info.st_mode)) return file_error("read", path, "not a regular file");
  if (distrustful && !trusted_owner(info.st_uid)) {
    return file_error("read", path, fmt::format("it belongs to user {}", info.st_uid));
  }
  if (distrustful && (info.st_mode & 022) != 0) {
    return file_error("read", path, "others may write to it");
  }
  const std::string too_long = fmt::format("more than the {} bytes allowed here", limit);
  if (static_cast<uint64_t>(info.st_size) > limit) return file_error("read", path, too_long);

  // The size is a hint only: files of /proc say 0, and a file may grow while it is read.
  std::string bytes;
  bytes.resize(static_cast<size_t>(info.st_size) + 1);
  size_t used = 0;
  while (true) {
    if (used == bytes.size()) bytes.resize(bytes.size() + (size_t{1} << 16));
    const ssize_t got = ::read(fd.get(), bytes.data() + used, bytes.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("read", path, errno);
    if (got == 0) break;
    used += static_cast<size_t>(got);
    if (used > limit) return file_error("read", path, too_long);
  }
  bytes.resize(used);
  return bytes;
}

}  // namespace

Result<std::string> read_file(const std::string& path, uint64_t limit) {
  return read_whole(path, limit, false);
}

Result<std::string> read_trusted_file(const std::string& path, uint64_t limit) {
  return read_whole(path, limit, true);
}

Status write_file_atomic(const std::string& path, std::string_view bytes, unsigned mode) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return replace_file_atomic(path, bytes, mode);
  if (S_ISDIR(info.st_mode)) return system_error("write", path, EISDIR);
  // Renaming over /dev/null or a pipe would destroy it.
  if (!S_ISREG(info.st_mode)) return write_in_place(path, bytes);
  std::string target = path;
  if (char* real = ::realpath(path.c_str(), nullptr)) {
    target = real;
    std::free(real);
  }
  return replace_file_atomic(target, bytes, mode);
}

Status replace_file_atomic(const std::string& path, std::string_view bytes, unsigned mode) {
  static std::atomic<unsigned> counter{0};
  const std::string folder = folder_of(path);
  std::string temporary;
  int opened = -1;
  for (int attempt = 0; attempt < 100 && opened < 0; ++attempt) {
    temporary = fmt::format("{}/.tmp-{}-{}", folder, ::getpid(), counter++);
    opened = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (opened < 0 && errno != EEXIST) return system_error("write", path, errno);
  }
  if (opened < 0) return system_error("write", path, EEXIST);

  Descriptor fd(opened);
  int code = write_all(fd.get(), bytes);
  if (code == 0 && ::fsync(fd.get()) != 0) code = errno;
  if (::close(fd.release()) != 0 && code == 0) code = errno;  // NFS reports a full disk here
  if (code == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) code = errno;
  if (code != 0) {
    ::unlink(temporary.c_str());
    return system_error("write", path, code);
  }
  if (const int sync_code = sync_folder(folder)) return system_error("sync", folder, sync_code);
  return {};
}

Status make_directories(const std::string& path, unsigned mode) {
  if (path.empty()) return file_error("make folder", path, "empty path");
  for (size_t end = 1; end <= path.size(); ++end) {
    if (end < path.size() && path[end] != '/') continue;
    const std::string part = path.substr(0, end);
    if (::mkdir(part.c_str(), mode) == 0) continue;
    const int code = errno;
    struct stat info {};
    if (::stat(part.c_str(), &info) == 0) {  // EROFS, EACCES: still fine when it exists
      if (S_ISDIR(info.st_mode)) continue;
      return file_error("make folder", path, fmt::format("{} is not a folder", printable(part)));
    }
    return system_error("make folder", path, code);
  }
  return {};
}

Status make_private_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return system_error("make folder", path, errno);
  }
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return system_error("use folder", path, errno);
  if (!S_ISDIR(info.st_mode)) return file_error("use folder", path, "not a folder");
  if (info.st_uid != ::geteuid())
    return file_error("use folder", path, "it belongs to another user");
  if ((info.st_mode & 022) != 0) return file_error("use folder", path, "others may write to it");
  return {};
}

}  // namespace hstu::jit
