// SPDX-License-Identifier: Apache-2.0
#include "cache/root.hpp"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <vector>

#include "base/env.hpp"
#include "base/file.hpp"
#include "base/text.hpp"
#include "cache/folder.hpp"

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

// Links in the path are the choice of whoever made them: "" when all of them are trusted.
std::string strange_link(const std::string& path) {
  for (size_t end = 1; end <= path.size(); ++end) {
    if (end < path.size() && path[end] != '/') continue;
    const std::string part = path.substr(0, end);
    struct stat info {};
    if (::lstat(part.c_str(), &info) != 0) return {};  // what is missing, others report
    if (S_ISLNK(info.st_mode) && !trusted_owner(info.st_uid)) {
      return fmt::format("{} is a link made by user {}", printable(part, kShownPath), info.st_uid);
    }
  }
  return {};
}

// "" when the folder serves, else the reason why not.
std::string try_root(const Candidate& candidate, Mode mode) {
  if (std::string reason = strange_link(candidate.path); !reason.empty()) return reason;
  struct stat info {};
  if (mode != Mode::read_write) {
    if (::stat(candidate.path.c_str(), &info) != 0) return reason_of(errno);
    if (!S_ISDIR(info.st_mode)) return reason_of(ENOTDIR);
    if (::access(candidate.path.c_str(), R_OK | X_OK) != 0) return reason_of(errno);
    if (!candidate.private_) return {};
    const Status used = make_private_folder(candidate.path);  // it is there: a check only
    return used.ok() ? std::string() : used.error().message;
  }
  const Status made = candidate.private_ ? make_private_folder(candidate.path)
                                         : hstu::jit::make_directories(candidate.path, 0700);
  if (!made.ok()) return made.error().message;
  const Folder top = Folder::open(candidate.path);
  if (!top.good()) return reason_of(top.code());
  const auto problem = [](const char* name, int code) {
    return fmt::format("{} in it: {}", name,
                       code == ENOTDIR ? "not a folder (links are not followed)" : reason_of(code));
  };
  if (const int code = top.make("v1", 0755)) return problem("v1", code);
  const Folder v1 = top.below("v1");
  if (const int code = v1.make("objects", 0755)) return problem("v1/objects", code);
  const Folder objects = v1.below("objects");
  if (!objects.good()) return problem("v1/objects", objects.code());
  if (::faccessat(objects.fd(), ".", R_OK | W_OK | X_OK, 0) != 0) return reason_of(errno);
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
