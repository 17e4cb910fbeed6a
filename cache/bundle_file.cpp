// SPDX-License-Identifier: Apache-2.0
#include "cache/bundle_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <system_error>

#include "base/env.hpp"
#include "base/signal_guard.hpp"
#include "base/text.hpp"

namespace hstu::cache {
namespace {

using hstu::jit::Error;
using hstu::jit::ErrorKind;
using hstu::jit::printable;
using hstu::jit::Result;
using hstu::jit::Status;

constexpr time_t kAbandoned = 3600;  // seconds after which a temporary file has no writer any more

Error failure(const std::string& path, std::string_view reason) {
  return Error{ErrorKind::kCache,
               fmt::format("cannot write bundle {}: {}", printable(path, 300), reason), "", ""};
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// For the tests of sudden death.
void reach(std::string_view step) {
  const auto wanted = hstu::jit::get_env("HSTU_JIT_TEST_CRASH");
  if (wanted && *wanted == step) ::kill(::getpid(), SIGKILL);
}

std::string descriptor_path(int fd) { return fmt::format("/proc/self/fd/{}", fd); }

// What programs killed in the middle of a write left, an hour ago or earlier.
void sweep(const std::string& folder, const std::string& prefix) {
  const time_t now = ::time(nullptr);
  std::error_code gone;
  for (std::filesystem::directory_iterator at(folder, gone), end; !gone && at != end;
       at.increment(gone)) {
    if (at->path().filename().string().rfind(prefix, 0) != 0) continue;
    struct stat info {};
    if (::lstat(at->path().c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
        info.st_mtime + kAbandoned < now) {
      ::unlink(at->path().c_str());
    }
  }
}

}  // namespace

Result<NewFile> NewFile::create(const std::string& given, bool nameless) {
  std::string path = given;
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) {
    if (!S_ISREG(info.st_mode)) return failure(path, "something else has this name");
    if (char* real = ::realpath(path.c_str(), nullptr)) {
      path = real;
      std::free(real);
    }
  }
  const std::string folder = folder_of(path);
  const std::string base = path.substr(path.rfind('/') + 1);
  if (base.empty()) return failure(path, "it names a folder");
  // The longest names leave no room for more.
  const std::string prefix = fmt::format(".{}.tmp-", base.substr(0, 200));
  sweep(folder, prefix);

  static std::atomic<unsigned> counter{0};
  const auto next_name = [&] {
    return fmt::format("{}/{}{}-{}", folder, prefix, ::getpid(), counter++);
  };
  const int fd = nameless ? ::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0644) : -1;
  if (fd >= 0) {
    // A name is given through /proc only.
    if (::access(descriptor_path(fd).c_str(), F_OK) == 0) {
      reach("bundle_created");
      return NewFile(std::move(path), next_name(), fd, false);
    }
    ::close(fd);
  }
  for (int attempt = 0; attempt < 100; ++attempt) {
    std::string name = next_name();
    const int fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd >= 0) {
      reach("bundle_created");
      return NewFile(std::move(path), std::move(name), fd, true);
    }
    if (errno != EEXIST) return failure(given, std::strerror(errno));
  }
  return failure(given, std::strerror(EEXIST));
}

NewFile::NewFile(NewFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      fd_(std::exchange(other.fd_, -1)),
      named_(std::exchange(other.named_, false)) {}

NewFile::~NewFile() {
  if (fd_ >= 0) ::close(fd_);
  if (named_) ::unlink(temporary_.c_str());
}

Status NewFile::write(std::string_view bytes) {
  const hstu::jit::SignalGuard guard(SIGXFSZ);  // a file size limit is an error, not the end
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(fd_, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return failure(path_, std::strerror(errno));
    bytes.remove_prefix(static_cast<size_t>(wrote));
  }
  reach("bundle_begun");
  return {};
}

int NewFile::publish() {
  if (!named_) {
    const std::string self = descriptor_path(fd_);
    if (::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, path_.c_str(), AT_SYMLINK_FOLLOW) == 0) return 0;
    if (errno != EEXIST) return errno;
    // A link replaces nothing, a rename does.
    if (::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, temporary_.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      return errno;
    }
    named_ = true;
    reach("bundle_linked");
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return errno;
  named_ = false;
  return 0;
}

Status NewFile::commit() {
  if (::fsync(fd_) != 0) return failure(path_, std::strerror(errno));
  reach("bundle_synced");
  // NFS may report a full disk as late as here, and has no nameless files.
  if (named_ && ::close(std::exchange(fd_, -1)) != 0) return failure(path_, std::strerror(errno));
  if (const int code = publish()) return failure(path_, std::strerror(code));
  reach("bundle_published");
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  const int folder = ::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return errno == EACCES ? Status() : failure(path_, std::strerror(errno));
  // Some file systems cannot sync a folder: nothing more can be done there.
  const int code = ::fsync(folder) != 0 && errno != EINVAL && errno != EROFS ? errno : 0;
  ::close(folder);
  if (code != 0) return failure(path_, std::strerror(code));
  reach("bundle_done");
  return {};
}

}  // namespace hstu::cache
