// SPDX-License-Identifier: Apache-2.0
// Distrustful access to the cache folder: by descriptor, link by link, so that nobody who may write
// to a shared cache can lead a reader, a writer or a sweep elsewhere.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/trust.hpp"

namespace hstu::cache {

using hstu::jit::trusted_owner;

// "Permission denied"
std::string reason_of(int code);

class Folder {
 public:
  Folder() = default;
  // Links on the way are followed: the path is the user's own choice.
  static Folder open(const std::string& path);
  // A folder in this one; a link of that name is not followed.
  Folder below(const std::string& name) const;

  Folder(Folder&& other) noexcept : fd_(std::exchange(other.fd_, -1)), code_(other.code_) {}
  Folder& operator=(Folder&& other) noexcept;
  ~Folder();

  bool good() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  int code() const { return code_; }  // errno of what was not good

  // Makes a folder here, or finds one. 0 or errno; ENOTDIR when something else has the name.
  int make(const std::string& name, unsigned mode) const;
  // Names that start with `prefix`, at most `limit`; none when the folder cannot be read.
  std::vector<std::string> names(std::string_view prefix, size_t limit) const;
  // Of the name itself, a link not followed. False when there is nothing, or nothing can be known.
  bool status(const std::string& name, struct stat* info) const;
  bool remove(const std::string& name) const;  // a file or a link
  bool sync() const;
  // A small file put in place whole, but not forced to the disk: for what may be lost.
  bool replace_unsynced(const std::string& name, std::string_view bytes) const;

 private:
  Folder(int fd, int code) : fd_(fd), code_(fd < 0 ? code : 0) {}
  int fd_ = -1;
  int code_ = 0;
};

// A name for a temporary file that no other live process takes: ".tmp-PID-NUMBER".
std::string temporary_name();

// 0 or errno.
int write_whole(int fd, std::string_view bytes);

struct EntryFile {
  enum class Problem { none, absent, foreign, unreadable, not_a_file };
  Problem problem = Problem::none;
  std::string reason;
  std::string bytes;
  struct stat info {};  // when it could be opened
};

// A regular file of a trusted owner that others may not write to, reached without following a link;
// its first `limit` bytes (longer files are no entries unless `prefix_only`). With `touch`, a time
// stamp that is over an hour old, or in the future, becomes now.
EntryFile read_entry_file(const Folder& folder, const std::string& name, uint64_t limit,
                          bool prefix_only = false, bool touch = false);

}  // namespace hstu::cache
