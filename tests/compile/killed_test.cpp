// SPDX-License-Identifier: Apache-2.0
// Sudden death of the worker and of the program it works for, at every step of a compile.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "base/temp_dir.hpp"
#include "forbid_locks.hpp"
#include "helpers.hpp"

using namespace hstu::jit;
using namespace hstu::jit::test;
using std::chrono::milliseconds;

namespace {

Result<CodeObject> compile_here(milliseconds timeout = milliseconds(20000)) {
  Toolchain toolchain;
  toolchain.driver = Driver::host;
  toolchain.library = "/usr/bin/g++";
  CompileOptions options;
  options.timeout = timeout;
  return compile(source(kHostKernel), target("cpu"), toolchain, options);
}

// compile-once as a child that is killed, not waited for by run_process.
pid_t start_compile_once() {
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    ::execl(HSTU_COMPILE_ONCE, HSTU_COMPILE_ONCE, "60", static_cast<char*>(nullptr));
    ::_exit(127);
  }
  return pid;
}

bool appears(const std::string& path) {
  for (int i = 0; i < 1000 && !fs::exists(path); ++i) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  return fs::exists(path);
}

int exit_code_of(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace

TEST_CASE("a worker killed at any step: an error with the signal, then a right answer") {
  const auto temporary = folder();
  const Environment variable("TMPDIR", temporary.path());
  const Result<CodeObject> whole = compile_here();
  REQUIRE(whole.ok());
  for (const char* step : {"start", "read", "compiled", "answering", "answered"}) {
    INFO(step);
    {
      const FakeWorker worker(std::string("dies-") + step);
      const Result<CodeObject> object = compile_here();
      REQUIRE_FALSE(object.ok());
      CHECK_THAT(one_line(object.error()), ContainsSubstring("signal 9"));
      CHECK(worker.runs() == 2);  // tried again once
    }
    CHECK(count_entries(temporary.path(), "hstu-jit-worker-") == 0);
    const Result<CodeObject> after = compile_here();
    REQUIRE(after.ok());
    CHECK(after->bytes == whole->bytes);
  }
}

TEST_CASE("a program killed at any step of a compile: no orphan, and the next sweeps its folder") {
  const auto temporary = folder();
  const Environment variable("TMPDIR", temporary.path());
  for (const char* step : {"start", "read", "compiled", "answering", "answered"}) {
    INFO(step);
    {
      const FakeWorker worker(std::string("wait-") + step);
      const pid_t program = start_compile_once();
      REQUIRE(appears(worker.path() + ".pid"));
      const pid_t worker_pid = std::stoi(*read_file(worker.path() + ".pid"));
      // In use: nobody else may take it away.
      CHECK(sweep_temp_dirs(temporary.path()) == 0);
      ::kill(program, SIGKILL);
      CHECK(exit_code_of(program) == -SIGKILL);
      CHECK(gone(worker_pid));
      CHECK(count_entries(temporary.path(), "hstu-jit-worker-") == 1);
    }
    CHECK(exit_code_of(start_compile_once()) == 0);
    CHECK(count_entries(temporary.path(), "hstu-jit-worker-") == 0);
  }
}

TEST_CASE("a sweep takes what is left of this user's processes and nothing else") {
  const auto base = folder();
  fs::create_directories(base.path() + "/hstu-jit-worker-dead01/sub");
  REQUIRE(write_file_atomic(base.path() + "/hstu-jit-worker-dead01/sub/file", "x").ok());
  fs::permissions(base.path() + "/hstu-jit-worker-dead01", fs::perms::owner_all);
  fs::create_directory(base.path() + "/somebody-else");
  REQUIRE(write_file_atomic(base.path() + "/hstu-jit-worker-file01", "x").ok());
  const auto elsewhere = folder();
  REQUIRE(write_file_atomic(elsewhere.path() + "/kept", "x").ok());
  fs::create_directory_symlink(elsewhere.path(), base.path() + "/hstu-jit-worker-link01");
  CHECK(sweep_temp_dirs(base.path()) == 1);
  CHECK_FALSE(fs::exists(base.path() + "/hstu-jit-worker-dead01"));
  CHECK(fs::exists(base.path() + "/somebody-else"));
  CHECK(fs::exists(base.path() + "/hstu-jit-worker-file01"));
  CHECK(fs::exists(elsewhere.path() + "/kept"));
  CHECK(sweep_temp_dirs("/nowhere/at-all") == 0);
  for (const char* purpose : {"object", "inspect", "kernel", "verify", "doctor", "cache-bench"}) {
    INFO(purpose);
    const std::string left = base.path() + "/hstu-jit-" + purpose + "-Ab12Cd";
    fs::create_directory(left);
    fs::permissions(left, fs::perms::owner_all);
    CHECK(sweep_temp_dirs(base.path()) == 1);
  }
  // A user's own folder may well be called so.
  for (const char* name : {"hstu-jit-main", "hstu-jit-inspect-results", "hstu-jit-verify-"}) {
    fs::create_directory(base.path() + "/" + name);
    fs::permissions(base.path() + "/" + name, fs::perms::owner_all);
  }
  fs::create_directory(base.path() + "/hstu-jit-verify-report");
  fs::permissions(base.path() + "/hstu-jit-verify-report",
                  fs::perms::owner_all | fs::perms::group_read | fs::perms::group_exec);
  CHECK(sweep_temp_dirs(base.path()) == 0);
  if (::geteuid() != 0) {
    std::printf("SKIPPED: a sweep leaves other users' folders: only root can make such\n");
    return;
  }
  fs::create_directory(base.path() + "/hstu-jit-worker-other1");
  fs::permissions(base.path() + "/hstu-jit-worker-other1", fs::perms::owner_all);
  REQUIRE(::chown((base.path() + "/hstu-jit-worker-other1").c_str(), 12345, 12345) == 0);
  CHECK(sweep_temp_dirs(base.path()) == 0);
  CHECK(fs::exists(base.path() + "/hstu-jit-worker-other1"));
}

TEST_CASE("the folder of a process that cannot lock is left to it by those that can") {
  const auto base = folder();
  const Environment variable("TMPDIR", base.path());
  int ready[2], done[2];
  REQUIRE(::pipe(ready) == 0);
  REQUIRE(::pipe(done) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (!hstu::test::forbid_locks()) ::_exit(77);
    auto scratch = TempDir::create("hstu-jit-worker-");
    const bool made = scratch.ok() && write_file_atomic(scratch->path() + "/in-use", "x").ok();
    char word = made ? 'y' : 'n';
    (void)!::write(ready[1], &word, 1);
    (void)!::read(done[0], &word, 1);
    ::_exit(made && fs::exists(scratch->path() + "/in-use") ? 0 : 1);
  }
  ::close(ready[1]);
  char word = 0;
  if (::read(ready[0], &word, 1) == 1) CHECK(word == 'y');
  CHECK(sweep_temp_dirs(base.path()) == 0);
  CHECK(::write(done[1], "x", 1) == 1);
  for (const int fd : {ready[0], done[0], done[1]}) ::close(fd);
  const int code = exit_code_of(child);
  if (code == 77) {
    std::printf("SKIPPED: folders without locks: system calls cannot be filtered here\n");
    return;
  }
  CHECK(code == 0);
  // A day later nobody is there any more.
  REQUIRE(count_entries(base.path(), "hstu-jit-unlocked-") == 1);
  for (const auto& left : fs::directory_iterator(base.path())) {
    fs::last_write_time(left.path(), fs::file_time_type::clock::now() - std::chrono::hours(25));
  }
  CHECK(sweep_temp_dirs(base.path()) == 1);
  CHECK(count_entries(base.path(), "hstu-jit-unlocked-") == 0);
}

TEST_CASE("a worker that answers and leaves a child behind: the answer, and no child") {
  const FakeWorker worker("children");
  const auto start = std::chrono::steady_clock::now();
  CHECK(compile_here().ok());
  CHECK(std::chrono::steady_clock::now() - start < milliseconds(10000));
  CHECK(gone(std::stoi(*read_file(worker.path() + ".pid"))));
}

TEST_CASE("floods: one without an end is ended at once, chatter is cut; memory is bounded") {
  std::fflush(nullptr);
  const pid_t pid = ::fork();  // its peak memory is its own
  REQUIRE(pid >= 0);
  if (pid == 0) {
    const auto peak_mib = [] {
      rusage usage{};
      ::getrusage(RUSAGE_SELF, &usage);
      return usage.ru_maxrss / 1024;
    };
    const long before = peak_mib();
    bool quick = false, said = false, served = false;
    {
      const FakeWorker flood("flood");
      const auto start = std::chrono::steady_clock::now();
      const Result<CodeObject> flooded = compile_here(milliseconds(60000));
      quick = std::chrono::steady_clock::now() - start < milliseconds(30000);
      said =
          !flooded.ok() && flooded.error().message.find("MiB and was ended") != std::string::npos;
    }
    {
      const FakeWorker chatter("chatter");  // 256 MiB on standard error
      served = compile_here(milliseconds(60000)).ok();
    }
    const bool bounded = peak_mib() - before < 420;
    ::_exit((quick ? 0 : 1) + (said ? 0 : 2) + (served ? 0 : 4) + (bounded ? 0 : 8));
  }
  CHECK(exit_code_of(pid) == 0);
}

TEST_CASE("temporary folders that are missing, or have spaces and other letters") {
  const auto base = folder();
  const Result<CodeObject> whole = compile_here();
  REQUIRE(whole.ok());
  for (const char* name : {"/not there", "/with spaces and \xc3\xbcml\xc3\xa4ut \xe6\xbc\xa2",
                           "/quo'te\"s $HOME; rm -rf *"}) {
    INFO(name);
    const std::string path = base.path() + name;
    if (std::string(name) != "/not there") fs::create_directory(path);
    const auto state = folder();
    const Environment variable("TMPDIR", path);
    const Result<CodeObject> object = compile_here();
    if (!object.ok()) FAIL(object.error().message << object.error().detail);
    CHECK(object->bytes == whole->bytes);
    if (fs::exists(path)) CHECK(fs::is_empty(path));
    // hipRTC's own temporary files too.
    const Result<Toolchain> toolchain = find_toolchain(target("gfx90a"), state.path());
    if (!toolchain.ok()) {
      std::printf("SKIPPED: gfx90a in odd temporary folders: no compiler for it\n");
      continue;
    }
    CHECK(compile(source(kGpuKernel), target("gfx90a"), *toolchain, {}).ok());
    if (fs::exists(path)) CHECK(fs::is_empty(path));
  }
}
