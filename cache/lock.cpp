// SPDX-License-Identifier: Apache-2.0
// Store::CompileLock: flock on a node-local file. It dies with its holder, and locks on network
// file systems hang or lie, so it never lies in the cache folder.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
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
  base = fmt::format("/tmp/hstu-jit-{}", ::getuid());
  if (hstu::jit::make_private_folder(base).ok() &&
      hstu::jit::make_private_folder(base + "/locks").ok()) {
    return base + "/locks";
  }
  return {};
}

}  // namespace

Store::CompileLock& Store::CompileLock::operator=(CompileLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Store::CompileLock::~CompileLock() {
  if (fd_ >= 0) ::close(fd_);  // releases the lock; the file stays: removing it would race
}

Store::CompileLock Store::lock(const Key& key, int timeout_ms) const {
  using Clock = std::chrono::steady_clock;
  if (!is_digest(key.request) || !is_digest(key.toolchain)) return {};
  const std::string folder = lock_folder();
  if (folder.empty()) return {};
  const std::string path =
      fmt::format("{}/{}.{}", folder, key.request, key.toolchain.substr(0, 12));
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return {};
  CompileLock lock(fd);
  // flock has no time-out; polling is cheap beside the compile that is awaited.
  const Clock::time_point deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  auto pause = std::chrono::milliseconds(1);
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if ((errno != EWOULDBLOCK && errno != EINTR) || Clock::now() >= deadline) return {};
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(20));
  }
  return lock;
}

}  // namespace hstu::cache
