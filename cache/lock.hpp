// SPDX-License-Identifier: Apache-2.0
// Locks on this node: flock on a file outside the cache folder. They save work; nothing depends on
// them.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <utility>

namespace hstu::cache {

class NodeLock {
 public:
  NodeLock() = default;
  // Not held when it could not be had within the time, or when there is no place for locks.
  static NodeLock take(std::string_view name, int timeout_ms);
  NodeLock(NodeLock&& other) noexcept
      : path_(std::move(other.path_)),
        fd_(std::exchange(other.fd_, -1)),
        owner_(other.owner_),
        possible_(other.possible_) {}
  NodeLock& operator=(NodeLock&& other) noexcept;
  ~NodeLock();
  bool held() const { return fd_ >= 0; }
  // False: this node has no place for locks, so that nobody could hold it.
  bool possible() const { return possible_; }

 private:
  std::string path_;
  int fd_ = -1;
  pid_t owner_ = 0;  // a child made by fork does not release its parent's lock
  bool possible_ = true;
};

// A lock name for a folder of this node, the same whatever path leads to it.
std::string folder_lock_name(std::string_view purpose, const std::string& folder);

}  // namespace hstu::cache
