// SPDX-License-Identifier: Apache-2.0
#include "cache/publish.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/env.hpp"
#include "base/text.hpp"
#include "cache/collect.hpp"
#include "cache/folder.hpp"

namespace hstu::cache {
namespace {

using hstu::jit::printable;

constexpr size_t kShownPath = 300;

// The temporary file of a publish: gone with it unless it got its name.
class Temporary {
 public:
  Temporary(const Folder& folder, std::string name) : folder_(folder), name_(std::move(name)) {}
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary() {
    if (fd_ >= 0) ::close(fd_);
    if (!name_.empty()) folder_.remove(name_);
  }
  int make() {
    fd_ = ::openat(folder_.fd(), name_.c_str(),
                   O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd_ >= 0) return 0;
    const int code = errno;
    name_.clear();
    return code;
  }
  int write(std::string_view bytes) { return write_whole(fd_, bytes); }
  int sync() { return ::fsync(fd_) == 0 ? 0 : errno; }
  int close() { return ::close(std::exchange(fd_, -1)) == 0 ? 0 : errno; }  // NFS: a full disk
  int rename_to(const std::string& name) {
    if (::renameat(folder_.fd(), name_.c_str(), folder_.fd(), name.c_str()) != 0) return errno;
    name_.clear();
    return 0;
  }

 private:
  const Folder& folder_;
  std::string name_;
  int fd_ = -1;
};

int write_entry(const Folder& folder, const std::string& name, std::string_view bytes) {
  Temporary file(folder, temporary_name());
  if (const int code = file.make()) return code;
  reach(PublishStep::temporary_made);
  const size_t half = bytes.size() / 2;
  if (const int code = file.write(bytes.substr(0, half))) return code;
  reach(PublishStep::half_written);
  if (const int code = file.write(bytes.substr(half))) return code;
  reach(PublishStep::written);
  if (const int code = file.sync()) return code;
  reach(PublishStep::synced);
  if (const int code = file.close()) return code;
  reach(PublishStep::closed);
  return file.rename_to(name);
}

}  // namespace

void reach(PublishStep step) {
  const auto wanted = hstu::jit::get_env("HSTU_JIT_TEST_CRASH");
  if (wanted && *wanted == kPublishStepNames[static_cast<size_t>(step)]) {
    ::kill(::getpid(), SIGKILL);
  }
}

PublishResult publish_entry(const std::string& root, const std::string& fan,
                            const std::string& name, std::string_view bytes) {
  const std::string shown =
      printable(fmt::format("{}/v1/objects/{}/{}", root, fan, name), kShownPath);
  const auto failure = [&](std::string_view verb, int code) {
    return PublishResult{code, fmt::format("cannot {} {}: {}", verb, shown, reason_of(code))};
  };
  reach(PublishStep::started);
  int code = 0;
  // A "cache clear" elsewhere may take an empty folder away between making and using it.
  for (int attempt = 0; attempt < 3; ++attempt) {
    const Folder top = Folder::open(root);
    if (code = top.make("v1", 0755); code != 0) return failure("make the folder of", code);
    const Folder v1 = top.below("v1");
    if (code = v1.make("objects", 0755); code != 0) return failure("make the folder of", code);
    const Folder objects = v1.below("objects");
    code = objects.make(fan, 0755);
    if (code == ENOTDIR) {  // a file or a link where the folder belongs
      quarantine(root, objects, fan);
      code = objects.make(fan, 0755);
    }
    if (code != 0) return failure("make the folder of", code);
    const Folder folder = objects.below(fan);
    if (!folder.good()) {
      code = folder.code();
      if (code == ENOENT) continue;
      return failure("use the folder of", code);
    }
    reach(PublishStep::folder_made);
    sweep_temporaries(folder);
    code = write_entry(folder, name, bytes);
    if (code == EISDIR || code == ENOTEMPTY || code == EEXIST) {  // a folder has the name
      quarantine(root, folder, name);
      code = write_entry(folder, name, bytes);
    }
    if (code == ENOENT) continue;
    if (code != 0) return failure("write", code);
    reach(PublishStep::renamed);
    if (!folder.sync()) return failure("sync the folder of", errno);
    reach(PublishStep::folder_synced);
    return {};
  }
  return failure("write", code);
}

void quarantine(const std::string& root, const Folder& folder, const std::string& name) {
  const Folder v1 = Folder::open(root).below("v1");
  if (v1.make("quarantine", 0700) != 0) return;
  const Folder target = v1.below("quarantine");
  if (!target.good() || !folder.good()) return;
  for (int i = 0; i < 8; ++i) {  // a folder cannot replace what is there: take the next name
    const std::string place = i == 0 ? name : fmt::format("{}.{}", name, i);
    if (::renameat(folder.fd(), name.c_str(), target.fd(), place.c_str()) == 0) {
      // Its stay is counted from now.
      const timespec times[2] = {{0, UTIME_OMIT}, {0, UTIME_NOW}};
      (void)::utimensat(target.fd(), place.c_str(), times, AT_SYMLINK_NOFOLLOW);
      return;
    }
    if (errno == ENOENT) return;
  }
}

}  // namespace hstu::cache
