// SPDX-License-Identifier: Apache-2.0
// The private temporary folder of one worker. Its process holds a lock on it, so that what a killed
// process left is known as such, and removed by the next one that compiles.
#pragma once

#include <string>
#include <utility>

#include "base/result.hpp"

namespace hstu::jit {

class Scratch {
 public:
  // Under TMPDIR, else /tmp. The first of a process also sweeps there. Errors: kFailed.
  static Result<Scratch> create();
  Scratch(Scratch&& other) noexcept
      : path_(std::exchange(other.path_, {})), lock_(std::exchange(other.lock_, -1)) {}
  Scratch& operator=(Scratch&&) = delete;
  ~Scratch();
  const std::string& path() const { return path_; }

 private:
  Scratch(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}
  std::string path_;
  int lock_;  // the folder, locked; -1 where folders cannot be locked
};

// Removes the folders of this user below `base` whose processes are gone. Returns their number.
int sweep_scratch(const std::string& base);

}  // namespace hstu::jit
