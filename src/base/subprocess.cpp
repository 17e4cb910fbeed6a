// SPDX-License-Identifier: Apache-2.0
#include "base/subprocess.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/env.hpp"
#include "base/signal_guard.hpp"
#include "base/spawn.hpp"
#include "base/text.hpp"

namespace hstu::jit {
namespace {

using Clock = std::chrono::steady_clock;

void set_nonblocking(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags >= 0) ::fcntl(fd, F_SETFL, flags | O_NONBLOCK);
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
  if (processes_ended()) return failure("this program is ending");
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
  if (processes_ended()) kill_all();  // the end came between the question above and the start
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
      } else if (options.end_when_cut && result.output_cut) {
        kill_all();
        drain_until = Clock::now();
        state = State::ended;
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
        bool cut = false;
        if (!drain(fd, &result.errors, options.max_errors, &cut)) err.close_read();
        result.output_cut = result.output_cut || (cut && !options.end_when_cut);
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
