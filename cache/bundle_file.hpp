// SPDX-License-Identifier: Apache-2.0
// A large file written piece by piece and published whole or not at all.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/result.hpp"

namespace hstu::cache {

class NewFile {
 public:
  // A file without a name where the file system has such, so that a killed program leaves nothing;
  // else a temporary file ".NAME.tmp-..." in the same folder. Those of killed programs that are an
  // hour old are removed. A link to a file is followed. Errors: kCache, also when something that is
  // not a regular file has this name.
  static hstu::jit::Result<NewFile> create(const std::string& path);
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
