// SPDX-License-Identifier: Apache-2.0
#include "compile/locate.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/env.hpp"
#include "base/file.hpp"
#include "base/subprocess.hpp"
#include "base/text.hpp"

namespace hstu::jit {
namespace {

bool is_file(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// Folders a library is looked for in: the product's own first, as its users expect.
std::vector<std::string> library_folders(std::initializer_list<const char*> home_variables,
                                         std::initializer_list<const char*> below,
                                         std::initializer_list<const char*> usual) {
  std::vector<std::string> folders;
  for (const char* variable : home_variables) {
    const auto home = get_env(variable);
    if (!home || home->front() != '/') continue;
    for (const char* folder : below) folders.push_back(*home + folder);
  }
  for (const std::string& folder : split(get_env("LD_LIBRARY_PATH").value_or(""), ':')) {
    if (folder.front() == '/') folders.push_back(folder);
  }
  for (const char* folder : usual) folders.emplace_back(folder);
  for (std::string& folder : system_library_folders()) folders.push_back(std::move(folder));
  return folders;
}

void add(const std::string& path, std::vector<std::string>* list, bool program) {
  if (!is_file(path) || (program && ::access(path.c_str(), X_OK) != 0)) return;
  struct stat info {
  }, other{};
  if (::stat(path.c_str(), &info) != 0) return;
  for (const std::string& have : *list) {  // the same file under another name
    if (::stat(have.c_str(), &other) == 0 && other.st_dev == info.st_dev &&
        other.st_ino == info.st_ino) {
      return;
    }
  }
  list->push_back(path);
}

std::vector<std::string> libraries(std::initializer_list<const char*> names,
                                   const std::vector<std::string>& folders) {
  std::vector<std::string> list;
  for (const char* name : names) {
    for (const std::string& folder : folders) add(folder + "/" + name, &list, false);
  }
  return list;
}

std::vector<std::string> clang_programs() {
  std::vector<std::string> list;
  if (auto rocm = get_env("ROCM_PATH")) add(*rocm + "/llvm/bin/clang++", &list, true);
  for (int version = 40; version >= 17; --version) {  // 16 and older pick a wrong linker
    if (auto path = find_program(fmt::format("clang++-{}", version))) add(*path, &list, true);
    add(fmt::format("/usr/lib/llvm-{}/bin/clang++", version), &list, true);
  }
  add("/opt/rocm/llvm/bin/clang++", &list, true);
  if (auto path = find_program("clang++")) add(*path, &list, true);
  return list;
}

const char* variable_of(Driver driver) {
  switch (driver) {
    case Driver::hiprtc:
      return "HSTU_JIT_HIPRTC";
    case Driver::nvrtc:
      return "HSTU_JIT_NVRTC";
    case Driver::clang:
      return "HSTU_JIT_CLANG";
    case Driver::host:
      return "HSTU_JIT_CXX";
  }
  return "";
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string(".") : path.substr(0, slash);
}

}  // namespace

// The linker's configuration first, followed by the built-in ones.
std::vector<std::string> system_library_folders(const std::string& root) {
  std::vector<std::string> folders;
  glob_t found{};
  if (::glob((root + "/etc/ld.so.conf.d/*.conf").c_str(), 0, nullptr, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc; ++i) {
      const Result<std::string> text = read_file(found.gl_pathv[i], 1 << 16);
      if (!text.ok()) continue;
      for (const std::string& line : split(*text, '\n')) {
        if (line.front() == '/') folders.push_back(root + line);
      }
    }
  }
  ::globfree(&found);
  for (const char* folder : {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
                             "/usr/lib64", "/usr/lib", "/usr/local/lib"}) {
    folders.push_back(root + folder);
  }
  return folders;
}

std::vector<std::string> compiler_candidates(Driver driver) {
  std::vector<std::string> list;
  if (auto named = get_env(variable_of(driver))) {
    const bool program = driver == Driver::clang || driver == Driver::host;
    const auto path = program ? find_program(*named) : named;
    if (path) add(*path, &list, program);
    return list;
  }
  switch (driver) {
    case Driver::hiprtc:
      return libraries({"libhiprtc.so.7", "libhiprtc.so.6", "libamdhip64.so.6", "libamdhip64.so.5"},
                       library_folders({"ROCM_PATH"}, {"/lib"}, {"/opt/rocm/lib"}));
    case Driver::nvrtc:
      return libraries({"libnvrtc.so.13", "libnvrtc.so.12"},
                       library_folders({"CUDA_HOME", "CUDA_PATH"}, {"/lib64", "/lib"},
                                       {"/usr/local/cuda/lib64"}));
    case Driver::clang:
      return clang_programs();
    case Driver::host:
      for (const char* name : {"g++", "c++", "clang++"}) {
        if (auto path = find_program(name)) add(*path, &list, true);
      }
      return list;
  }
  return list;
}

std::string how_to_get(Driver driver) {
  const std::string variable = variable_of(driver);
  if (auto named = get_env(variable.c_str()); named && compiler_candidates(driver).empty()) {
    return fmt::format("{} names {}, which is not there", variable, printable(*named, 300));
  }
  switch (driver) {
    case Driver::hiprtc:
      return "install hipRTC (Debian: libamdhip64-dev; ROCm: hip-runtime-amd) or set "
             "HSTU_JIT_HIPRTC";
    case Driver::nvrtc:
      return "install NVRTC of CUDA 12 or 13 or set CUDA_HOME or HSTU_JIT_NVRTC";
    case Driver::clang:
      return "install clang and lld of one version, 17 or newer (Debian: clang-19 lld-19), or set "
             "HSTU_JIT_CLANG";
    case Driver::host:
      return "install a C++ compiler (Debian: g++) or set HSTU_JIT_CXX";
  }
  return {};
}

Result<std::string> find_worker() {
  static constexpr const char* kName = "hstu-jit-worker";
  if (auto named = get_env("HSTU_JIT_WORKER")) {
    if (auto path = find_program(*named)) return *path;
    return Error{
        ErrorKind::kCompile,
        fmt::format("HSTU_JIT_WORKER names {}, which is not a program", printable(*named, 300)), "",
        ""};
  }
  std::vector<std::string> folders;
  char buffer[4096];
  const ssize_t length = ::readlink("/proc/self/exe", buffer, sizeof buffer);
  if (length > 0 && length < static_cast<ssize_t>(sizeof buffer)) {
    folders.push_back(folder_of(std::string(buffer, static_cast<size_t>(length))));
  }
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&find_worker), &info) != 0 && info.dli_fname) {
    folders.push_back(folder_of(info.dli_fname));
  }
  for (const std::string& folder : folders) {
    for (const char* below : {"/", "/../libexec/hstu-jit/", "/../../libexec/hstu-jit/", "/../"}) {
      if (auto path = find_program(folder + below + kName)) return *path;
    }
  }
  return Error{ErrorKind::kCompile,
               fmt::format("the compile worker {} is not beside this program ({}) nor in "
                           "../libexec/hstu-jit; set HSTU_JIT_WORKER to its path",
                           kName, printable(folders.empty() ? "?" : folders.front(), 300)),
               "", ""};
}

}  // namespace hstu::jit
