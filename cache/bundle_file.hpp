// SPDX-License-Identifier: Apache-2.0
// A large file written piece by piece and published whole or not at all.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.hpp"

namespace hstu::cache {

// Every step of writing a bundle, in order: HSTU_JIT_TEST_CRASH=<name> makes the process kill
// itself when it has reached that step.
inline constexpr std::array<std::string_view, 6> kBundleSteps = {
    "bundle_created",    // nothing in it
    "bundle_begun",      // its manifest is written
    "bundle_synced",     // all of it is on the disk
    "bundle_linked",     // it has a temporary name (only where it replaces a file)
    "bundle_published",  // it has its name
    "bundle_done",       // so has the folder on disk
};

class NewFile {
 public:
  // A file without a name where the file system has such, so that a killed program leaves nothing;
  // else a temporary file ".NAME.tmp-..." in the same folder. Those of killed programs that are an
  // hour old are removed. A link to a file is followed. Errors: kCache, also when something that is
  // not a regular file has this name.
  static hstu::jit::Result<NewFile> create(const std::string& path, bool nameless = true);
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();  // leaves nothing behind unless committed

  hstu::jit::Status write(std::string_view bytes);
  // fsync, the name, fsync of the folder.
  hstu::jit::Status commit();

 private:
  NewFile(std::string path, std::string temporary, int fd, bool named)
      : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd), named_(named) {}
  int publish();  // 0 or errno

  std::string path_, temporary_;
  int fd_ = -1;
  bool named_ = false;  // the temporary name exists
};

}  // namespace hstu::cache
