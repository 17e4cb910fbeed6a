// SPDX-License-Identifier: Apache-2.0
#include "base/spawn.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <vector>

extern char** environ;

namespace hstu::jit {
namespace {

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
// Whose they are: a child made by fork has a copy of its parent's, which it must not kill.
std::atomic<pid_t> running_owner{0};
std::atomic<bool> ended{false};

void end_with_children(int signal) {
  kill_running_processes();
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

struct Start {
  const char* program;
  char* const* argv;
  char* const* environment;
  int in, out, err, failed;
  bool own_group;
  int priority;
  pid_t parent;
};

// The child between vfork and exec: it shares this program's memory, so only system calls are made.
// Returns what failed.
int become(const Start& start) {
  if (start.own_group && ::setpgid(0, 0) != 0) return errno;
  // Whatever ends this program, SIGKILL too, ends the child. It may have happened already.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return errno;
  if (::getppid() != start.parent) return ESRCH;
  // Politeness that is refused is no reason not to start.
  if (start.priority != 0) ::setpriority(PRIO_PROCESS, 0, start.priority);
  const int from[] = {start.in, start.out, start.err};
  for (int to = 0; to < 3; ++to) {
    if (::dup2(from[to], to) < 0) return errno;
  }
#ifdef SYS_close_range
  // The host program may hold descriptors without the close-on-exec flag.
  const auto kept = static_cast<unsigned>(start.failed);
  if (kept > 3) ::syscall(SYS_close_range, 3u, kept - 1, 0u);
  ::syscall(SYS_close_range, kept + 1, ~0u, 0u);
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

// What the child told, 0 when it has begun its program. After a vfork that is settled; sanitizers
// make a fork of it, hence the wait, which is bounded as forks of other threads may hold the pipe.
int read_failure(int fd) {
  pollfd readable{fd, POLLIN, 0};
  constexpr int kLongest = 1000;  // milliseconds
  if (::poll(&readable, 1, kLongest) <= 0) return 0;
  int code = 0;
  return ::read(fd, &code, sizeof code) == sizeof code ? code : 0;
}

}  // namespace

int Pipe::open() {
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

RunningGroup::RunningGroup() {
  const pid_t self = ::getpid();
  pid_t owner = running_owner;
  if (owner != self && running_owner.compare_exchange_strong(owner, self)) {
    for (std::atomic<pid_t>& place : running_groups) place = 0;
  }
  for (std::atomic<pid_t>& place : running_groups) {
    pid_t free = 0;
    if (place.compare_exchange_strong(free, kTaken)) {
      place_ = &place;
      return;
    }
  }
}

// vfork is safe in a program with threads and device contexts, and quick in one with much memory;
// posix_spawn, which uses it, cannot bind the child's life to ours. 0 or errno.
int spawn(const std::string& program, const ProcessOptions& options, const Pipe& in,
          const Pipe& out, const Pipe& err, RunningGroup& group, pid_t* pid) {
  const std::vector<char*> argv = pointers(options.argv);
  std::vector<char*> environment;
  if (options.environment) environment = pointers(*options.environment);
  Pipe failed;  // the child says what failed; an exec closes it
  if (const int code = failed.open()) return code;
  Start start{};
  start.program = program.c_str();
  start.argv = argv.data();
  start.environment = options.environment ? environment.data() : environ;
  start.in = in.read, start.out = out.write, start.err = err.write, start.failed = failed.write;
  start.own_group = options.own_group;
  start.priority = options.nice == 0 ? 0 : ::getpriority(PRIO_PROCESS, 0) + options.nice;
  start.parent = ::getpid();
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // no handler of the host may run in the child
  const pid_t child = ::vfork();
  if (child == 0) {
    const int why = become(start);
    (void)!::write(start.failed, &why, sizeof why);
    ::_exit(127);
  }
  int code = child < 0 ? errno : 0;
  if (child > 0) {
    if (options.own_group) group.set(child);
    failed.close_write();
    code = read_failure(failed.read);
    if (code != 0) {
      group.clear();
      while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  *pid = child;
  return code;
}

void kill_running_processes() {
  if (running_owner != ::getpid()) return;
  for (const std::atomic<pid_t>& place : running_groups) {
    const pid_t group = place;
    if (group > kTaken) ::kill(-group, SIGKILL);
  }
}

void end_running_processes() {
  ended = true;  // first: a program that starts right now is seen either here or by its starter
  kill_running_processes();
}

bool processes_ended() { return ended; }

void end_children_on_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction now {};
    // Who started us may want it ignored (nohup).
    if (::sigaction(signal, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) continue;
    now.sa_handler = end_with_children;
    ::sigaction(signal, &now, nullptr);
  }
}

}  // namespace hstu::jit
