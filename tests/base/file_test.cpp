// SPDX-License-Identifier: Apache-2.0
// Files: whole reads, atomic writes, private folders.
#include "base/file.hpp"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/temp_dir.hpp"
#include "catch.hpp"

using namespace hstu::jit;
namespace fs = std::filesystem;

namespace {

TempDir folder() {
  Result<TempDir> dir = TempDir::create("hstu-jit-test-");
  REQUIRE(dir.ok());
  return std::move(*dir);
}

size_t count_files(const std::string& path) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(path)) ++count;
  return count;
}

}  // namespace

TEST_CASE("what is written is read, and replaces what was there") {
  const TempDir dir = folder();
  const std::string path = dir.path() + "/naïve name";
  const std::string bytes("a\0b", 3);
  REQUIRE(write_file_atomic(path, "older and longer").ok());
  REQUIRE(write_file_atomic(path, bytes, 0600).ok());
  Result<std::string> read = read_file(path);
  REQUIRE(read.ok());
  CHECK(*read == bytes);
  CHECK(count_files(dir.path()) == 1);
  CHECK_FALSE(read_file(path, 2).ok());
  CHECK(read_file(path, 3).ok());
}

TEST_CASE("reading something else than a regular file is an error with a reason") {
  const TempDir dir = folder();
  REQUIRE(::mkfifo((dir.path() + "/fifo").c_str(), 0600) == 0);
  CHECK_THAT(read_file(dir.path() + "/fifo").error().message,
             ContainsSubstring("not a regular file"));  // and does not wait for a writer
  CHECK_THAT(read_file(dir.path()).error().message, ContainsSubstring("Is a directory"));
  CHECK_THAT(read_file(dir.path() + "/none").error().message,
             ContainsSubstring("No such file or directory"));
  CHECK_THAT(read_file("/dev/zero").error().message, ContainsSubstring("not a regular file"));
  CHECK(read_file("/proc/self/status").ok());  // says size 0
}

TEST_CASE("a failed write leaves the old file and no temporary") {
  const TempDir dir = folder();
  const std::string path = dir.path() + "/file";
  REQUIRE(write_file_atomic(path, "old").ok());
  const pid_t child = ::fork();
  if (child == 0) {  // a full disk, without one
    const rlimit limit{1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const Status status = write_file_atomic(path, std::string(100000, 'x'));
    ::_exit(status.ok() ? 1 : 0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));  // SIGXFSZ did not end it
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(*read_file(path) == "old");
  CHECK(count_files(dir.path()) == 1);
  CHECK_FALSE(write_file_atomic(dir.path() + "/none/file", "x").ok());
  CHECK_FALSE(write_file_atomic(dir.path(), "x").ok());
}

TEST_CASE("a device is written to, not replaced; a link is followed or replaced as asked") {
  REQUIRE(write_file_atomic("/dev/null", "x").ok());
  struct stat info {};
  REQUIRE(::stat("/dev/null", &info) == 0);
  CHECK(S_ISCHR(info.st_mode));

  const TempDir dir = folder();
  const std::string file = dir.path() + "/file", link = dir.path() + "/link";
  REQUIRE(write_file_atomic(file, "old").ok());
  REQUIRE(::symlink("file", link.c_str()) == 0);
  REQUIRE(write_file_atomic(link, "new").ok());
  CHECK(*read_file(file) == "new");
  CHECK(fs::is_symlink(link));
  REQUIRE(replace_file_atomic(link, "own").ok());
  CHECK(*read_file(file) == "new");
  CHECK_FALSE(fs::is_symlink(link));
}

TEST_CASE("folders are made with their parents") {
  const TempDir dir = folder();
  CHECK(make_directories(dir.path() + "/a/b c/d/").ok());
  CHECK(make_directories(dir.path() + "/a/b c/d").ok());
  REQUIRE(write_file_atomic(dir.path() + "/file", "x").ok());
  CHECK_THAT(make_directories(dir.path() + "/file/below").error().message,
             ContainsSubstring("not a folder"));
  CHECK_FALSE(make_directories("").ok());
}

TEST_CASE("a private folder is refused when others may write to it or it is a link") {
  const TempDir dir = folder();
  const std::string path = dir.path() + "/own";
  REQUIRE(make_private_folder(path).ok());
  struct stat info {};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0700);
  REQUIRE(::symlink("own", (dir.path() + "/link").c_str()) == 0);
  CHECK_FALSE(make_private_folder(dir.path() + "/link").ok());
  REQUIRE(::chmod(path.c_str(), 0777) == 0);
  CHECK_FALSE(make_private_folder(path).ok());
  if (::geteuid() == 0) {
    REQUIRE(::chmod(path.c_str(), 0700) == 0);
    REQUIRE(::chown(path.c_str(), 12345, 12345) == 0);
    CHECK_FALSE(make_private_folder(path).ok());
  } else {
    std::printf("SKIPPED: private folder of another owner: needs root\n");
  }
}

TEST_CASE("a temporary folder goes with everything in it") {
  std::string path;
  {
    const TempDir dir = folder();
    path = dir.path();
    REQUIRE(make_directories(path + "/a/b").ok());
    REQUIRE(::symlink("/etc", (path + "/link").c_str()) == 0);
    CHECK(fs::is_directory(path));
  }
  CHECK_FALSE(fs::exists(path));
  CHECK(fs::exists("/etc"));

  ::setenv("TMPDIR", "/nowhere/at/all", 1);
  Result<TempDir> other = TempDir::create("hstu-jit-test-");
  ::unsetenv("TMPDIR");
  CHECK(other.ok());  // a missing TMPDIR is no reason to fail
}
