// SPDX-License-Identifier: Apache-2.0
// flock on a node-local file: it dies with its holder. Locks on network file systems hang or lie,
// so they never lie in the cache folder.
#include "cache/lock.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include "base/env.hpp"
#include "base/file.hpp"
#include "cache/entry.hpp"
#include "cache/store.hpp"

namespace hstu::cache {
namespace {

// "" when there is no place for locks.
std::string lock_folder() {
  std::string base;
  if (auto runtime = hstu::jit::get_env("XDG_RUNTIME_DIR"); runtime && runtime->front() == '/') {
    base = *runtime + "/hstu-jit";
    if (hstu::jit::make_private_folder(base).ok() &&
        hstu::jit::make_private_folder(base + "/locks").ok()) {
      return base + "/locks";
    }
  }
  base = fmt::format("/tmp/hstu-jit-{}", ::geteuid());
  if (hstu::jit::make_private_folder(base).ok() &&
      hstu::jit::make_private_folder(base + "/locks").ok()) {
    return base + "/locks";
  }
  return {};
}

// A holder removes its file in the end: what was locked then has no name any more, or another file
// has it.
bool still_named(const std::string& path, int fd) {
  struct stat named {
  }, locked{};
  return ::lstat(path.c_str(), &named) == 0 && ::fstat(fd, &locked) == 0 &&
         named.st_dev == locked.st_dev && named.st_ino == locked.st_ino;
}

}  // namespace

NodeLock NodeLock::take(std::string_view name, int timeout_ms) {
  using Clock = std::chrono::steady_clock;
  NodeLock lock;
  const std::string folder = lock_folder();
  std::string path = fmt::format("{}/{}", folder, name);
  // flock has no time-out; polling is cheap beside the work that is awaited.
  const Clock::time_point deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  auto pause = std::chrono::milliseconds(1);
  constexpr int kMostFiles = 1000;  // each was held by somebody while we waited
  for (int files = 0; files < kMostFiles; ++files) {
    const int fd =
        folder.empty() ? -1 : ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
      lock.possible_ = false;
      return lock;
    }
    while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
      const int code = errno;
      if ((code != EWOULDBLOCK && code != EINTR) || Clock::now() >= deadline) {
        lock.possible_ = code == EWOULDBLOCK || code == EINTR;
        ::close(fd);
        return lock;
      }
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, std::chrono::milliseconds(20));
    }
    if (still_named(path, fd)) {
      lock.path_ = std::move(path);
      lock.fd_ = fd;
      lock.owner_ = ::getpid();
      return lock;
    }
    ::close(fd);
  }
  return lock;
}

NodeLock& NodeLock::operator=(NodeLock&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(owner_, other.owner_);
  std::swap(possible_, other.possible_);
  return *this;
}

NodeLock::~NodeLock() {
  if (fd_ < 0) return;
  // A child that this process forked has the descriptor too: closing ours would not release it.
  if (owner_ == ::getpid()) {
    ::unlink(path_.c_str());  // while it is held: nobody else's file has this name
    ::flock(fd_, LOCK_UN);
  }
  ::close(fd_);
}

std::string folder_lock_name(std::string_view purpose, const std::string& folder) {
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0) return std::string(purpose);
  return fmt::format("{}.{:x}.{:x}", purpose, info.st_dev, info.st_ino);
}

Store::CompileLock Store::lock(const Key& key, int timeout_ms) const {
  if (!is_digest(key.request) || !is_digest(key.toolchain)) return {};
  return NodeLock::take(fmt::format("{}.{}", key.request, key.toolchain.substr(0, 12)), timeout_ms);
}

}  // namespace hstu::cache
