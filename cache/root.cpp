// SPDX-License-Identifier: Apache-2.0
#include "cache/root.hpp"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <vector>

#include "base/env.hpp"
#include "base/file.hpp"
#include "base/text.hpp"

namespace hstu::cache {
namespace {

using hstu::jit::Error;
using hstu::jit::ErrorKind;
using hstu::jit::get_env;
using hstu::jit::make_private_folder;
using hstu::jit::printable;
using hstu::jit::Result;
using hstu::jit::Status;

constexpr size_t kShownPath = 300;

struct Candidate {
  std::string path;
  std::string why;
  bool wished = false;    // somebody named it: failing to use it is worth a warning
  bool private_ = false;  // under a place everybody may write to
};

bool absolute(const std::optional<std::string>& path) { return path && path->front() == '/'; }

std::string password_home() {
  struct passwd entry {};
  struct passwd* found = nullptr;
  std::vector<char> buffer(1 << 14);
  if (::getpwuid_r(::getuid(), &entry, buffer.data(), buffer.size(), &found) != 0 || !found) {
    return {};
  }
  const std::string home = found->pw_dir ? found->pw_dir : "";
  return !home.empty() && home.front() == '/' && home != "/" ? home : std::string();
}

std::vector<Candidate> candidates(const Store::Options& options) {
  std::vector<Candidate> list;
  if (!options.root.empty()) list.push_back({options.root, "given", true, false});
  if (auto path = get_env("HSTU_JIT_CACHE_DIR")) {
    list.push_back({*path, "HSTU_JIT_CACHE_DIR", true, false});
  }
  if (auto path = get_env("XDG_CACHE_HOME"); absolute(path)) {
    list.push_back({*path + "/hstu-jit", "XDG_CACHE_HOME", false, false});
  }
  if (auto path = get_env("HOME"); absolute(path) && *path != "/") {
    list.push_back({*path + "/.cache/hstu-jit", "HOME", false, false});
  }
  if (const std::string home = password_home(); !home.empty()) {
    list.push_back({home + "/.cache/hstu-jit", "home folder of the password file", false, false});
  }
  const auto temporary = get_env("TMPDIR");
  const std::string name = fmt::format("/hstu-jit-{}", ::getuid());
  if (absolute(temporary)) list.push_back({*temporary + name, "TMPDIR", false, true});
  list.push_back({"/tmp" + name, "no home folder, so /tmp", false, true});
  return list;
}

// "" when the folder serves, else the reason why not.
std::string try_root(const Candidate& candidate, Mode mode) {
  struct stat info {};
  if (mode != Mode::read_write) {
    if (::stat(candidate.path.c_str(), &info) != 0) return std::strerror(errno);
    if (!S_ISDIR(info.st_mode)) return std::strerror(ENOTDIR);
    if (::access(candidate.path.c_str(), R_OK | X_OK) != 0) return std::strerror(errno);
    return {};
  }
  const Status made = candidate.private_ ? make_private_folder(candidate.path)
                                         : hstu::jit::make_directories(candidate.path, 0700);
  if (!made.ok()) return made.error().message;
  const std::string objects = candidate.path + "/v1/objects";
  if (Status status = hstu::jit::make_directories(objects, 0755); !status.ok()) {
    return status.error().message;
  }
  if (::access(objects.c_str(), R_OK | W_OK | X_OK) != 0) return std::strerror(errno);
  return {};
}

}  // namespace

Result<Root> find_root(const Store::Options& options) {
  Root root;
  if (options.mode == Mode::off) {
    root.why = "the cache is off";
    return root;
  }
  for (const Candidate& candidate : candidates(options)) {
    const std::string reason = try_root(candidate, options.mode);
    if (reason.empty()) {
      root.path = candidate.path;
      root.why = candidate.why;
      return root;
    }
    const std::string problem =
        fmt::format("cannot use cache folder {} ({}): {}", printable(candidate.path, kShownPath),
                    candidate.why, printable(reason, 500));
    if (options.explicit_root && candidate.why == "given") {
      return Error{ErrorKind::kCache, problem + "; name a folder you may write to", "", ""};
    }
    if (candidate.wished && root.warning.empty()) root.warning = problem;
  }
  root.why = "no folder serves";
  if (options.mode == Mode::read_write || !root.warning.empty()) {
    root.warning = (root.warning.empty() ? std::string("no writable cache folder") : root.warning) +
                   "; kernels are kept in memory only (set HSTU_JIT_CACHE_DIR)";
  }
  return root;
}

}  // namespace hstu::cache
