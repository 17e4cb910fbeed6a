// SPDX-License-Identifier: Apache-2.0
// Programs run to their end: bounded time and output, nothing left behind.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include "base/subprocess.hpp"
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
