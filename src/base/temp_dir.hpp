// SPDX-License-Identifier: Apache-2.0
// Private temporary folders. The process that made one holds a lock on it, so that what a killed
// process left is known as such, and removed by the next one that makes a folder.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/result.hpp"

namespace hstu::jit {

// A folder of mode 0700, removed with everything in it on destruction.
class TempDir {
 public:
  // Under TMPDIR, else /tmp; the name begins with `prefix`. The first of a process also sweeps
  // there. Errors: kFailed.
  static Result<TempDir> create(std::string_view prefix);
  TempDir(TempDir&& other) noexcept
      : path_(std::exchange(other.path_, {})), lock_(std::exchange(other.lock_, -1)) {}
  TempDir& operator=(TempDir&& other) noexcept;
  ~TempDir();
  const std::string& path() const { return path_; }

 private:
  TempDir(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}
  std::string path_;
  int lock_;  // the folder, locked; -1 where folders cannot be locked
};

// Removes the product's folders of this user below `base` whose processes are gone. Returns their
// number.
int sweep_temp_dirs(const std::string& base);

}  // namespace hstu::jit
