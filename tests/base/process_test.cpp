// SPDX-License-Identifier: Apache-2.0
// Programs run to their end: bounded time and output, nothing left behind.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include "base/file.hpp"
#include "base/subprocess.hpp"
#include "base/temp_dir.hpp"
#include "catch.hpp"

using namespace hstu::jit;
using std::chrono::milliseconds;

namespace {

Result<ProcessResult> shell(const std::string& script, milliseconds timeout = milliseconds(20000),
                            const std::string& input = "") {
  ProcessOptions options;
  options.argv = {"/bin/sh", "-c", script};
  options.timeout = timeout;
  options.input = input;
  return run_process(options);
}

bool alive(pid_t pid) {
  for (int i = 0; i < 100; ++i) {  // a killed orphan is reaped by init in its own time
    if (::kill(pid, 0) != 0) return false;
    char state = 0;
    const std::string path = "/proc/" + std::to_string(pid) + "/stat";
    if (FILE* file = std::fopen(path.c_str(), "r")) {
      if (std::fscanf(file, "%*d %*s %c", &state) != 1) state = 0;
      std::fclose(file);
    }
    if (state == 'Z') return false;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return true;
}

// A copy of this program that does `work` and ends with what it returns.
template <typename Work>
pid_t copy_that(const Work& work) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(work());
  REQUIRE(pid > 0);
  return pid;
}

// The number a started program writes to a file, once it is there.
pid_t number_in(const std::string& path) {
  for (int i = 0; i < 1000; ++i) {
    const auto text = read_file(path);
    if (text && !text->empty() && text->back() == '\n') return std::stoi(*text);
    std::this_thread::sleep_for(milliseconds(10));
  }
  FAIL("nothing was written to " << path);
  return 0;
}

}  // namespace

TEST_CASE("output, errors and the exit code come back") {
  Result<ProcessResult> result = shell("cat; echo oops >&2; exit 3", milliseconds(20000), "hello");
  REQUIRE(result.ok());
  CHECK(result->output == "hello");
  CHECK(result->errors == "oops\n");
  CHECK(result->exit_code == 3);
  CHECK_FALSE(result->succeeded());
  CHECK(result->how_it_ended() == "exit code 3");
}

TEST_CASE("large input and output pass each other") {
  const std::string big(3 << 20, 'x');
  Result<ProcessResult> result = shell("cat", milliseconds(20000), big);
  REQUIRE(result.ok());
  CHECK(result->output == big);
  CHECK(result->succeeded());
}

TEST_CASE("a program that does not read its input does not raise SIGPIPE here") {
  Result<ProcessResult> result = shell("exit 0", milliseconds(20000), std::string(4 << 20, 'x'));
  REQUIRE(result.ok());
  CHECK(result->succeeded());
}

TEST_CASE("a signal is reported as one") {
  Result<ProcessResult> result = shell("kill -SEGV $$");
  REQUIRE(result.ok());
  CHECK(result->signal == SIGSEGV);
  CHECK_THAT(result->how_it_ended(), ContainsSubstring("signal 11"));
}

TEST_CASE("a hang ends at the time-out, descendants included") {
  const auto start = std::chrono::steady_clock::now();
  Result<ProcessResult> result = shell("sleep 60 & echo $!; wait", milliseconds(300));
  const auto took = std::chrono::steady_clock::now() - start;
  REQUIRE(result.ok());
  CHECK(result->timed_out);
  CHECK(took < std::chrono::seconds(10));
  CHECK(result->how_it_ended() == "no answer within 300 ms");
  CHECK_FALSE(alive(std::stoi(result->output)));
}

TEST_CASE("a descendant that keeps the pipes is neither waited for nor left") {
  const auto start = std::chrono::steady_clock::now();
  Result<ProcessResult> result = shell("sleep 60 & echo $!");
  const auto took = std::chrono::steady_clock::now() - start;
  REQUIRE(result.ok());
  CHECK(result->succeeded());
  CHECK(took < std::chrono::seconds(10));
  CHECK_FALSE(alive(std::stoi(result->output)));
}

TEST_CASE("a flood is cut off") {
  ProcessOptions options;
  options.argv = {"/bin/sh", "-c", "head -c 3000000 /dev/zero"};
  options.max_output = 1000;
  Result<ProcessResult> result = run_process(options);
  REQUIRE(result.ok());
  CHECK(result->output.size() == 1000);
  CHECK(result->output_cut);
}

TEST_CASE("a program that is not there is an error that names it") {
  ProcessOptions options;
  options.argv = {"/no/such/program"};
  CHECK_THAT(run_process(options).error().message,
             ContainsSubstring("/no/such/program: No such file or directory"));
  options.argv = {"no-such-program-anywhere"};
  CHECK_THAT(run_process(options).error().message, ContainsSubstring("not found on PATH"));
  options.argv = {"/etc/passwd"};
  CHECK_FALSE(run_process(options).ok());
  options.argv = {};
  CHECK_FALSE(run_process(options).ok());
}

TEST_CASE("descriptors and signal masks of this program are not inherited") {
  // Without the close-on-exec flag, and above any descriptor the shell opens for its own pipes.
  const int low = ::open("/dev/null", O_RDONLY);
  const int fd = ::fcntl(low, F_DUPFD, 200);
  ::close(low);
  REQUIRE(fd >= 200);
  sigset_t set, before;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, &before);
  Result<ProcessResult> result =
      shell("ls /proc/$$/fd | tr '\\n' ' '; kill -TERM $$; echo blocked");
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::close(fd);
  REQUIRE(result.ok());
  CHECK(result->output.find("blocked") == std::string::npos);
  CHECK(result->signal == SIGTERM);
  for (const char* own : {"0 ", "1 ", "2 "}) CHECK_THAT(result->output, ContainsSubstring(own));
  CHECK(result->output.find(std::to_string(fd) + " ") == std::string::npos);
}

TEST_CASE("the environment can be given whole") {
  ProcessOptions options;
  options.argv = {"/usr/bin/env"};
  options.environment = {{"A=1", "B=zwei"}};
  Result<ProcessResult> result = run_process(options);
  REQUIRE(result.ok());
  CHECK(result->output == "A=1\nB=zwei\n");
}

TEST_CASE("a program dies with the one that runs it, however that ends") {
  const auto folder = TempDir::create("process-test");
  REQUIRE(folder.ok());
  const std::string file = folder->path() + "/pid";
  for (const int signal : {SIGKILL, SIGSEGV, SIGTERM}) {
    INFO("signal " << signal);
    const pid_t copy = copy_that([&] {
      ::signal(SIGSEGV, SIG_DFL);  // the test program has a handler
      ::signal(SIGTERM, SIG_DFL);
      return shell("echo $$ > " + file + "; exec sleep 60").ok() ? 0 : 1;
    });
    const pid_t started = number_in(file);
    ::unlink(file.c_str());
    CHECK(::kill(started, 0) == 0);
    ::kill(copy, signal);
    int status = 0;
    REQUIRE(::waitpid(copy, &status, 0) == copy);
    CHECK(WIFSIGNALED(status));
    CHECK_FALSE(alive(started));
  }
}

TEST_CASE("programs that ask for it take their descendants along when they are told to end") {
  const auto folder = TempDir::create("process-test");
  REQUIRE(folder.ok());
  const std::string file = folder->path() + "/pid";
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    INFO("signal " << signal);
    const pid_t copy = copy_that([&] {
      for (const int each : {SIGINT, SIGTERM, SIGHUP}) ::signal(each, SIG_DFL);
      end_children_on_signals();
      return shell("sleep 60 & echo $! > " + file + "; wait").ok() ? 0 : 1;
    });
    const pid_t descendant = number_in(file);
    ::unlink(file.c_str());
    CHECK(::kill(descendant, 0) == 0);
    ::kill(copy, signal);
    int status = 0;
    REQUIRE(::waitpid(copy, &status, 0) == copy);
    REQUIRE(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == signal);
    CHECK_FALSE(alive(descendant));
  }
  // What whoever started us wants ignored stays so.
  const pid_t copy = copy_that([&] {
    ::signal(SIGHUP, SIG_IGN);
    end_children_on_signals();
    ::raise(SIGHUP);
    return 5;
  });
  int status = 0;
  REQUIRE(::waitpid(copy, &status, 0) == copy);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 5);
}

TEST_CASE("a host without standard descriptors can run programs") {
  const pid_t copy = copy_that([] {
    for (int fd = 0; fd < 3; ++fd) ::close(fd);
    const auto result = shell("cat; echo oops >&2", milliseconds(20000), "hello");
    return result && result->output == "hello" && result->errors == "oops\n" ? 0 : 1;
  });
  int status = 0;
  REQUIRE(::waitpid(copy, &status, 0) == copy);
  CHECK(status == 0);
}
