// SPDX-License-Identifier: Apache-2.0
#include "cache/remote_module.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "base/env.hpp"
#include "base/text.hpp"

namespace hstu::cache {
namespace {

using hstu::jit::Error;
using hstu::jit::ErrorKind;
using hstu::jit::printable;
using hstu::jit::Result;

constexpr const char* kName = "hstu-jit-remote.so";
constexpr size_t kShownPath = 300;

bool is_file(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string(".") : path.substr(0, slash);
}

Error failure(std::string message) { return Error{ErrorKind::kCache, std::move(message), "", ""}; }

// As the compile worker is looked for.
Result<std::string> find_module() {
  if (auto named = hstu::jit::get_env("HSTU_JIT_REMOTE_MODULE")) {
    // With a slash, or the loader would search its own folders.
    if (named->find('/') != std::string::npos && is_file(*named)) return *named;
    return failure(fmt::format("HSTU_JIT_REMOTE_MODULE names {}, which is not the path of a file",
                               printable(*named, kShownPath)));
  }
  std::vector<std::string> folders;
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&load_remote_module), &info) != 0 && info.dli_fname) {
    folders.push_back(folder_of(info.dli_fname));
  }
  char buffer[4096];
  const ssize_t length = ::readlink("/proc/self/exe", buffer, sizeof buffer);
  if (length > 0 && length < static_cast<ssize_t>(sizeof buffer)) {
    folders.push_back(folder_of(std::string(buffer, static_cast<size_t>(length))));
  }
  for (const std::string& folder : folders) {
    for (const char* below : {"/", "/../libexec/hstu-jit/", "/../../libexec/hstu-jit/", "/../"}) {
      if (std::string path = folder + below + kName; is_file(path)) return path;
    }
  }
  return failure(fmt::format(
      "{} is not beside this program ({}) nor in ../libexec/hstu-jit; install it, or set "
      "HSTU_JIT_REMOTE_MODULE to its path",
      kName, printable(folders.empty() ? "?" : folders.front(), kShownPath)));
}

Result<const RemoteModule*> load() {
  Result<std::string> path = find_module();
  if (!path.ok()) return std::move(path).error();
  const std::string shown = printable(*path, kShownPath);
  void* library = ::dlopen(path->c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = ::dlerror();
    return failure(fmt::format("cannot load {}: {}", shown,
                               printable(reason != nullptr ? reason : "no reason given", 300)));
  }
  // Never closed again: TLS libraries leave exit handlers behind.
  void* symbol = ::dlsym(library, "hstu_jit_remote_module");
  if (symbol == nullptr) return failure(fmt::format("{} is not our module", shown));
  const RemoteModule* module = reinterpret_cast<decltype(&hstu_jit_remote_module)>(symbol)();
  if (module == nullptr || module->abi != kRemoteModuleAbi ||
      std::strcmp(module->version, HSTU_JIT_VERSION) != 0) {
    return failure(
        fmt::format("{} is of another release than this program ({})", shown, HSTU_JIT_VERSION));
  }
  return module;
}

}  // namespace

Result<const RemoteModule*> load_remote_module() {
  static const Result<const RemoteModule*> loaded = load();
  return loaded;
}

}  // namespace hstu::cache
