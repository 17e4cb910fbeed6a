// SPDX-License-Identifier: Apache-2.0
#include "cache/folder.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

namespace hstu::cache {

std::vector<std::string> names_in(const std::string& folder, std::string_view prefix,
                                  size_t limit) {
  std::vector<std::string> names;
  struct Closer {
    void operator()(DIR* dir) const { ::closedir(dir); }
  };
  const std::unique_ptr<DIR, Closer> dir(::opendir(folder.c_str()));
  if (!dir) return names;
  while (names.size() < limit) {
    const dirent* entry = ::readdir(dir.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != ".." && name.substr(0, prefix.size()) == prefix) {
      names.emplace_back(name);
    }
  }
  return names;
}

EntryFile read_entry_file(const std::string& path, uint64_t limit, bool prefix_only) {
  using Problem = EntryFile::Problem;
  const auto failed = [](Problem problem, std::string reason) {
    EntryFile file;
    file.problem = problem;
    file.reason = std::move(reason);
    return file;
  };
  // O_NONBLOCK: a FIFO must not make us wait.
  const int fd = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return failed(Problem::absent, {});
    if (errno == ELOOP) return failed(Problem::not_a_file, "a symbolic link");
    if (errno == ENXIO) return failed(Problem::not_a_file, "not a regular file");
    return failed(Problem::unreadable, std::strerror(errno));
  }
  struct Closer {
    int fd;
    ~Closer() { ::close(fd); }
  } const closer{fd};

  struct stat info {};
  if (::fstat(fd, &info) != 0) return failed(Problem::unreadable, std::strerror(errno));
  if (info.st_uid != ::geteuid() && info.st_uid != 0) return failed(Problem::foreign, {});
  if (S_ISDIR(info.st_mode)) return failed(Problem::not_a_file, "a folder");
  if (!S_ISREG(info.st_mode)) return failed(Problem::not_a_file, "not a regular file");
  const auto size = static_cast<uint64_t>(info.st_size);
  if (size > limit && !prefix_only) return failed(Problem::not_a_file, "too long for an entry");

  EntryFile file;
  file.bytes.resize(static_cast<size_t>(std::min(size, limit)));
  size_t used = 0;
  while (used < file.bytes.size()) {
    const ssize_t got = ::read(fd, file.bytes.data() + used, file.bytes.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed(Problem::unreadable, std::strerror(errno));
    if (got == 0) break;  // somebody cut it: the checks of the content will tell
    used += static_cast<size_t>(got);
  }
  file.bytes.resize(used);
  return file;
}

}  // namespace hstu::cache
