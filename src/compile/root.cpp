// SPDX-License-Identifier: Apache-2.0
#include "compile/root.hpp"

#include <elf.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstring>

#include "compile/locate.hpp"

namespace hstu::jit {
namespace {

#if defined(__aarch64__)
constexpr const char* kLoader = "/lib/ld-linux-aarch64.so.1";
#else
constexpr const char* kLoader = "/lib64/ld-linux-x86-64.so.2";
#endif

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

std::string real_path(const std::string& path) {
  char* real = ::realpath(path.c_str(), nullptr);
  std::string result = real ? real : "";
  ::free(real);
  return result;
}

bool is_elf(const std::string& path) {
  char start[SELFMAG] = {};
  FILE* file = std::fopen(path.c_str(), "rbe");
  if (file == nullptr) return false;
  const bool whole = std::fread(start, 1, sizeof start, file) == sizeof start;
  std::fclose(file);
  return whole && std::memcmp(start, ELFMAG, SELFMAG) == 0;
}

}  // namespace

std::string system_root_of(const std::string& library) {
  struct stat ours {
  }, its{}, above{};
  if (::stat(kLoader, &ours) != 0) return {};
  const auto same = [](const struct stat& a, const struct stat& b) {
    return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
  };
  std::string folder = parent_of(real_path(library));
  while (!folder.empty() && ::stat((folder + kLoader).c_str(), &its) != 0) {
    folder = parent_of(folder);
  }
  // Where /lib64 is a link into /usr, both ROOT/usr and ROOT have it.
  while (!folder.empty() && ::stat((parent_of(folder) + kLoader).c_str(), &above) == 0 &&
         same(its, above)) {
    folder = parent_of(folder);
  }
  // A path with these letters cannot stand in the loader's list of folders.
  const bool speakable = folder.find_first_of(":;") == std::string::npos;
  return folder.empty() || same(ours, its) || !speakable ? std::string() : folder;
}

std::vector<std::string> worker_command(const std::string& worker, const Job& job) {
  const bool library = job.driver == Driver::hiprtc || job.driver == Driver::nvrtc;
  const std::string root = library ? system_root_of(job.library) : std::string();
  if (root.empty() || !is_elf(worker)) return {worker, "--serve"};
  std::string folders = parent_of(real_path(job.library));
  for (const std::string& folder : system_library_folders(root)) {
    struct stat info {};
    if (::stat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) folders += ":" + folder;
  }
  return {root + kLoader, "--library-path", folders, worker, "--serve"};
}

}  // namespace hstu::jit
