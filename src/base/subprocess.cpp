// SPDX-License-Identifier: Apache-2.0
#include "base/subprocess.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/env.hpp"
#include "base/signal_guard.hpp"
#include "base/text.hpp"

extern char** environ;

namespace hstu::jit {
namespace {

using Clock = std::chrono::steady_clock;

struct Pipe {
  int read = -1;
  int write = -1;
  Pipe() = default;
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close_read();
    close_write();
  }
  void close_read() {
    if (read >= 0) ::close(std::exchange(read, -1));
  }
  void close_write() {
    if (write >= 0) ::close(std::exchange(write, -1));
  }
  int open() {  // 0 or errno
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return errno;
    read = ends[0];
    write = ends[1];
    // A host that closed its standard descriptors may get their numbers; the child needs those.
    for (int* end : {&read, &write}) {
      if (*end > 2) continue;
      const int above = ::fcntl(*end, F_DUPFD_CLOEXEC, 3);
      const int code = errno;
      ::close(std::exchange(*end, above));
      if (above < 0) return code;
    }
    return 0;
  }
};

void set_nonblocking(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags >= 0) ::fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (const std::string& text : texts) list.push_back(const_cast<char*>(text.c_str()));
  list.push_back(nullptr);
  return list;
}

// The groups to kill when this program is told to end; 0 is a free place, `kTaken` one without a
// group yet. More programs at a time than places are bound to our life by the kernel alone.
constexpr pid_t kTaken = 1;
std::atomic<pid_t> running_groups[256];

class RunningGroup {
 public:
  RunningGroup() {
    for (std::atomic<pid_t>& place : running_groups) {
      pid_t free = 0;
      if (place.compare_exchange_strong(free, kTaken)) {
        place_ = &place;
        return;
      }
    }
  }
  RunningGroup(const RunningGroup&) = delete;
  RunningGroup& operator=(const RunningGroup&) = delete;
  ~RunningGroup() { clear(); }
  void set(pid_t group) {
    if (place_ != nullptr) *place_ = group;
  }
  // Before its leader is reaped: the number may be another group's afterwards.
  void clear() {
    if (place_ != nullptr) *std::exchange(place_, nullptr) = 0;
  }

 private:
  std::atomic<pid_t>* place_ = nullptr;
};

void end_with_children(int signal) {
  kill_running_processes();
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

struct Start {
  const char* program;
  char* const* argv;
  char* const* environment;
  int in, out, err;
  bool own_group;
  pid_t parent;
};

// The child between vfork and exec: it shares this program's memory, so only system calls are made.
// Returns what failed.
int become(const Start& start) {
  if (start.own_group && ::setpgid(0, 0) != 0) return errno;
  // Whatever ends this program, SIGKILL too, ends the child. It may have happened already.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return errno;
  if (::getppid() != start.parent) return ESRCH;
  const int from[] = {start.in, start.out, start.err};
  for (int to = 0; to < 3; ++to) {
    if (::dup2(from[to], to) < 0) return errno;
  }
#ifdef SYS_close_range
  // The host program may hold descriptors without the close-on-exec flag.
  ::syscall(SYS_close_range, 3u, ~0u, 0u);
#endif
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, &usual, nullptr);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve(start.program, start.argv, start.environment);
  return errno;
}

// vfork is safe in a program with threads and device contexts, and quick in one with much memory;
// posix_spawn, which uses it, cannot bind the child's life to ours. 0 or errno.
int spawn(const std::string& program, const ProcessOptions& options, const Pipe& in,
          const Pipe& out, const Pipe& err, RunningGroup& group, pid_t* pid) {
  const std::vector<char*> argv = pointers(options.argv);
  std::vector<char*> environment;
  if (options.environment) environment = pointers(*options.environment);
  const Start start{
      program.c_str(),   argv.data(), options.environment ? environment.data() : environ,
      in.read,           out.write,   err.write,
      options.own_group, ::getpid()};
  // Where the child says what failed; shared also where a sanitizer makes a fork of the vfork.
  void* page =
      ::mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return errno;
  auto* failed = new (page) std::atomic<int>(0);
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // no handler of the host may run in the child
  const pid_t child = ::vfork();
  if (child == 0) {
    *failed = become(start);
    ::_exit(127);
  }
  int code = child < 0 ? errno : 0;
  if (child > 0) {
    if (options.own_group) group.set(child);
    code = *failed;
    if (code != 0) {
      group.clear();
      while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::munmap(page, sizeof(int));
  *pid = child;
  return code;
}

// Moves what is readable into `text`, at most `room` bytes of it in all. False at the end.
bool drain(int fd, std::string* text, size_t room, bool* cut) {
  char buffer[65536];
  for (int rounds = 0; rounds < 64; ++rounds) {  // bounded, so that a flood cannot hide the clock
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got == 0) return false;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    const size_t keep = std::min(static_cast<size_t>(got), room - std::min(room, text->size()));
    text->append(buffer, keep);
    if (keep < static_cast<size_t>(got)) *cut = true;
  }
  return true;
}

// False when nothing more can be written.
bool feed(int fd, std::string_view* input) {
  const SignalGuard guard(SIGPIPE);  // a program that does not read its input is no error of ours
  while (!input->empty()) {
    const ssize_t wrote = ::write(fd, input->data(), input->size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    input->remove_prefix(static_cast<size_t>(wrote));
  }
  return false;
}

enum class State { running, ended, unknown };

// Looks without reaping: while the leader is a zombie its process group cannot be reused.
State look(pid_t pid) {
  siginfo_t info{};
  int rc;
  do {
    rc = ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT);
  } while (rc != 0 && errno == EINTR);
  if (rc != 0) return State::unknown;  // ECHILD: the host ignores SIGCHLD or reaps everything
  return info.si_pid == pid ? State::ended : State::running;
}

}  // namespace

void kill_running_processes() {
  for (const std::atomic<pid_t>& place : running_groups) {
    const pid_t group = place;
    if (group > kTaken) ::kill(-group, SIGKILL);
  }
}

void end_children_on_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction now {};
    // Who started us may want it ignored (nohup).
    if (::sigaction(signal, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) continue;
    now.sa_handler = end_with_children;
    ::sigaction(signal, &now, nullptr);
  }
}

std::string ProcessResult::how_it_ended() const {
  if (timed_out) {
    return timeout.count() % 1000 == 0
               ? fmt::format("no answer within {} s", timeout.count() / 1000)
               : fmt::format("no answer within {} ms", timeout.count());
  }
  if (signal != 0) return fmt::format("killed by signal {} ({})", signal, ::strsignal(signal));
  if (exit_code < 0) return "ended, its status was taken by the host program";
  return fmt::format("exit code {}", exit_code);
}

std::optional<std::string> find_program(const std::string& program) {
  const auto runnable = [](const std::string& path) {
    struct stat info {};
    return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
           ::access(path.c_str(), X_OK) == 0;
  };
  if (program.empty()) return std::nullopt;
  if (program.find('/') != std::string::npos) {
    return runnable(program) ? std::optional<std::string>(program) : std::nullopt;
  }
  const std::string path = get_env("PATH").value_or("");
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    // An empty element means the working folder: never run programs from there by accident.
    if (end > begin) {
      const std::string candidate = path.substr(begin, end - begin) + "/" + program;
      if (runnable(candidate)) return candidate;
    }
    begin = end + 1;
  }
  return std::nullopt;
}

Result<ProcessResult> run_process(const ProcessOptions& options) {
  const auto failure = [&](std::string_view reason) {
    return Error{
        ErrorKind::kFailed,
        fmt::format("cannot start {}: {}",
                    options.argv.empty() ? "a program" : printable(options.argv[0], 300), reason),
        "", ""};
  };
  if (options.argv.empty()) return failure("no program named");
  std::string program = options.argv[0];
  if (program.find('/') == std::string::npos) {
    const std::optional<std::string> found = find_program(program);
    if (!found) return failure("not found on PATH");
    program = *found;
  }

  Pipe in, out, err;
  for (Pipe* pipe : {&in, &out, &err}) {
    if (const int code = pipe->open()) return failure(std::strerror(code));
  }
  pid_t pid = -1;
  RunningGroup group;
  if (const int code = spawn(program, options, in, out, err, group, &pid)) {
    return failure(std::strerror(code));
  }
  in.close_read();
  out.close_write();
  err.close_write();
  for (int fd : {in.write, out.read, err.read}) set_nonblocking(fd);

  ProcessResult result;
  result.timeout = options.timeout;
  const auto kill_all = [&] { ::kill(options.own_group ? -pid : pid, SIGKILL); };
  const Clock::time_point deadline = Clock::now() + options.timeout;
  std::string_view input = options.input;
  if (input.empty()) in.close_write();
  State state = State::running;
  // After the program has ended, what it left in the pipes is read; a descendant that still holds
  // them is not waited for (and is killed, being in the program's group).
  Clock::time_point drain_until{};
  while (true) {
    if (state == State::running) {
      state = look(pid);
      if (state != State::running) {
        if (options.own_group && state == State::ended) kill_all();
        drain_until = Clock::now() + std::chrono::milliseconds(500);
      } else if (Clock::now() >= deadline) {
        result.timed_out = true;
        kill_all();
        drain_until = Clock::now() + std::chrono::milliseconds(500);
        state = State::ended;
      }
    }
    if (state != State::running) {
      if (out.read < 0 && err.read < 0) break;
      if (Clock::now() >= drain_until) break;
    }

    pollfd fds[3];
    nfds_t count = 0;
    for (int fd : {out.read, err.read}) {
      if (fd >= 0) fds[count++] = {fd, POLLIN, 0};
    }
    if (in.write >= 0) fds[count++] = {in.write, POLLOUT, 0};
    // With both outputs closed only the end is awaited: look at it often, without spinning.
    const int wait_ms = out.read < 0 && err.read < 0 ? 1 : 10;
    ::poll(fds, count, wait_ms);
    for (nfds_t i = 0; i < count; ++i) {
      if (fds[i].revents == 0) continue;
      const int fd = fds[i].fd;
      if (fd == out.read) {
        if (!drain(fd, &result.output, options.max_output, &result.output_cut)) out.close_read();
      } else if (fd == err.read) {
        if (!drain(fd, &result.errors, options.max_output, &result.output_cut)) err.close_read();
      } else if (!feed(fd, &input)) {
        in.close_write();
      }
    }
  }

  group.clear();
  int status = 0;
  pid_t reaped;
  do {
    reaped = ::waitpid(pid, &status, 0);
  } while (reaped < 0 && errno == EINTR);
  if (reaped != pid) {
    result.exit_code = -1;
  } else if (WIFSIGNALED(status)) {
    result.signal = WTERMSIG(status);
  } else {
    result.exit_code = WEXITSTATUS(status);
  }
  return result;
}

}  // namespace hstu::jit
