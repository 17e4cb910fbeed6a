// SPDX-License-Identifier: Apache-2.0
#include "engine/record.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "base/env.hpp"
#include "base/log.hpp"
#include "base/signal_guard.hpp"
#include "base/text.hpp"
#include "spec/parse.hpp"

namespace hstu::jit {
namespace {

constexpr std::string_view kLineStart = R"({"schema":"hstu-jit/record/1","key":")";
constexpr size_t kMaxLine = size_t{1} << 20;
constexpr off_t kMaxFile = off_t{64} << 20;  // what a manifest may have
constexpr auto kLongestWait = std::chrono::milliseconds(1000);

class Open {
 public:
  explicit Open(int fd) : fd_(fd) {}
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;
  ~Open() {
    if (fd_ < 0) return;
    // A child that another thread forks meanwhile has the file too: closing ours would not release.
    (void)::flock(fd_, LOCK_UN);
    ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// What a kernel may depend on, and its name.
std::string spec_text(Problem problem) {
  const Problem fresh;
  problem.data = fresh.data;
  problem.target = fresh.target;
  problem.device = fresh.device;
  problem.validate = fresh.validate;
  problem.benchmark = fresh.benchmark;
  problem.dump_dir.clear();
  problem.mask_path.clear();
  return to_json(problem);
}

// A holder that is stopped must not stop us: after a while the line is written without the lock,
// which appending makes safe enough.
void lock_for_a_while(int fd) {
  const auto deadline = std::chrono::steady_clock::now() + kLongestWait;
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if ((errno != EWOULDBLOCK && errno != EINTR) || std::chrono::steady_clock::now() >= deadline)
      return;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

// One line of the file, as much of it as tells whose it is.
struct LineStart {
  static constexpr size_t kKey = 64;
  std::string text;
  void add(std::string_view piece) {
    const size_t room = kLineStart.size() + kKey - text.size();
    text.append(piece.substr(0, room));
  }
  bool ours() const {  // or the beginning of one of ours
    const size_t common = std::min(text.size(), kLineStart.size());
    return text.compare(0, common, kLineStart, 0, common) == 0;
  }
  std::string key() const {
    return text.size() == kLineStart.size() + kKey ? text.substr(kLineStart.size()) : "";
  }
};

}  // namespace

std::unique_ptr<Recorder> Recorder::from_environment() {
  std::optional<std::string> path = get_env("HSTU_JIT_RECORD");
  return path ? std::make_unique<Recorder>(std::move(*path)) : nullptr;
}

void Recorder::record(const std::string& request, const Problem& problem, const Target& target) {
  {
    const std::lock_guard<ForkMutex> lock(mutex_);
    if (broken_ || !seen_.insert(request).second) return;
  }
  std::string line = fmt::format("{}{}\",\"target\":\"{}\",\"spec\":{}}}\n", kLineStart, request,
                                 target.name, spec_text(problem));
  const Status s = append(request, line);
  if (s) return;
  {
    const std::lock_guard<ForkMutex> lock(mutex_);
    if (std::exchange(broken_, true)) return;
  }
  log_warn("HSTU_JIT_RECORD: " + s.error().message + "; nothing more is recorded");
}

// Learns the requests that were written since the last look, by whomever. Errors: a reason.
std::string Recorder::look(int fd, off_t size, uint64_t file) {
  if (file != file_ || size < looked_) {
    looked_ = 0;
    written_.clear();
  }
  file_ = file;
  LineStart line;
  torn_ = false;
  char buffer[65536];
  for (off_t at = looked_; at < size;) {
    const ssize_t got = ::pread(fd, buffer, sizeof buffer, at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::strerror(errno);
    if (got == 0) break;
    at += got;
    std::string_view block(buffer, static_cast<size_t>(got));
    while (!block.empty()) {
      const size_t end = block.find('\n');
      line.add(block.substr(0, end));
      if (!line.ours()) return "it holds something else";
      torn_ = end == block.npos;
      if (torn_) break;
      written_.insert(line.key());
      line.text.clear();
      block.remove_prefix(end + 1);
    }
  }
  looked_ = torn_ ? 0 : size;
  return {};
}

Status Recorder::append(const std::string& request, const std::string& line) {
  const auto failure = [&](std::string_view reason) {
    return Error{ErrorKind::kFailed,
                 fmt::format("cannot record in {}: {}", printable(path_, 300), reason), "", ""};
  };
  if (line.size() > kMaxLine) {
    log_warn("HSTU_JIT_RECORD: a spec of more than 1 MiB is not recorded");
    return {};
  }
  // A child whose parent forked in the middle of a line finds it locked for ever.
  const std::unique_lock<std::timed_mutex> guard_of_file(file_mutex_, kLongestWait * 3);
  if (!guard_of_file) return failure("another thread does not come to its end");
  // O_NONBLOCK: opening a FIFO must not wait for its reader.
  const Open file(
      ::open(path_.c_str(),
             O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0644));
  if (file.get() < 0) return failure(std::strerror(errno));
  lock_for_a_while(file.get());
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return failure(std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return failure("it is not a regular file");
  if (info.st_size + static_cast<off_t>(line.size()) > kMaxFile)
    return failure("it would pass 64 MiB; prewarm from it and begin another");
  if (const std::string why = look(file.get(), info.st_size, info.st_ino); !why.empty())
    return failure(why);
  if (!written_.insert(request).second) return {};
  const std::string text = (torn_ ? "\n" : "") + line;  // a torn line spoils itself alone
  const SignalGuard guard(SIGXFSZ);
  ssize_t wrote;
  do {
    wrote = ::write(file.get(), text.data(), text.size());
  } while (wrote < 0 && errno == EINTR);
  if (wrote == static_cast<ssize_t>(text.size())) return {};
  const int code = wrote < 0 ? errno : ENOSPC;
  // Readers leave out what stays where this fails too.
  if (wrote > 0 && ::ftruncate(file.get(), info.st_size) != 0)
    return failure(fmt::format("{} (a part of a line stays)", std::strerror(code)));
  return failure(std::strerror(code));
}

}  // namespace hstu::jit
