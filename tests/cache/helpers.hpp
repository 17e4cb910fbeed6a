// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of the cache.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <functional>
#include <string>

#include "base/file.hpp"
#include "base/temp_dir.hpp"
#include "cache/store.hpp"
#include "catch.hpp"

namespace hstu::cache::test {

namespace fs = std::filesystem;

inline hstu::jit::TempDir folder() {
  hstu::jit::Result<hstu::jit::TempDir> dir = hstu::jit::TempDir::create("hstu-cache-test-");
  REQUIRE(dir.ok());
  return std::move(*dir);
}

inline Store open_store(const std::string& root, Mode mode = Mode::read_write) {
  Store::Options options;
  options.root = root;
  options.explicit_root = true;
  options.mode = mode;
  hstu::jit::Result<Store> store = Store::open(options);
  REQUIRE(store.ok());
  return std::move(*store);
}

inline Artifact artifact(const std::string& source = "kernel\nbody\n", char toolchain = 'c',
                         const std::string& payload = "payload") {
  Artifact made;
  made.ingredients = {{"target", "gfx90a"}, {"options", "-O3"}, {"source", source}};
  made.key = {request_digest(made.ingredients), std::string(64, toolchain)};
  made.metadata = R"({"entry":"f"})";
  made.payload = payload;
  return made;
}

// Files under a folder whose names start so.
inline size_t count_files(const std::string& path, const std::string& prefix = "") {
  size_t count = 0;
  if (!fs::exists(path)) return 0;
  std::error_code gone;  // another process may rename files while this one walks
  for (fs::recursive_directory_iterator at(path, gone), end; !gone && at != end;
       at.increment(gone)) {
    std::error_code ignored;
    if (fs::is_directory(at->symlink_status(ignored))) continue;
    if (at->path().filename().string().rfind(prefix, 0) == 0) ++count;
  }
  return count;
}

// Runs `work` in a process of its own, which ends with what it returns.
inline pid_t child(const std::function<int()>& work) {
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid == 0) ::_exit(work());
  return pid;
}

inline int wait_for(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

// The exit code of `work` in a process of its own, as an ordinary user when this is root; -1 when a
// signal ended it.
inline int run_unprivileged(const std::function<int()>& work) {
  const int status = wait_for(child([&] {
    if (::geteuid() == 0 && (::setgid(65534) != 0 || ::setuid(65534) != 0)) return 99;
    return work();
  }));
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Both time stamps of a file, in seconds from now.
inline void set_age(const std::string& path, int64_t seconds_ago) {
  const time_t then = ::time(nullptr) - seconds_ago;
  const timespec times[2] = {{then, 0}, {then, 0}};
  REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW) == 0);
}

inline int64_t age_of(const std::string& path) {
  struct stat info {};
  REQUIRE(::lstat(path.c_str(), &info) == 0);
  return ::time(nullptr) - info.st_mtime;
}

// Sets or, without a value, unsets a variable for as long as it lives.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) {
      old_ = old;
      had_ = true;
    }
    value ? ::setenv(name, value, 1) : ::unsetenv(name);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() { had_ ? ::setenv(name_, old_.c_str(), 1) : ::unsetenv(name_); }

 private:
  const char* name_;
  std::string old_;
  bool had_ = false;
};

}  // namespace hstu::cache::test
