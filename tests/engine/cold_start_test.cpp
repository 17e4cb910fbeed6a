// SPDX-License-Identifier: Apache-2.0
// Many processes start at once on an empty cache.
#include <sys/wait.h>

#include <cerrno>
#include <cstdio>
#include <map>

#include "base/digest.hpp"
#include "base/temp_dir.hpp"
#include "forbid_locks.hpp"
#include "support.hpp"

using namespace hstu::jit;
using namespace hstu::jit::test;

namespace {

constexpr int kCannotForbid = 77;

// What one process does: all keys, in an order of its own. Its objects' digests go to a file.
int ask_for_all(const std::string& dir, const std::string& report, int self, int keys, bool locks) {
  if (!locks && !hstu::test::forbid_locks()) return kCannotForbid;
  Result<std::unique_ptr<Engine>> engine = Engine::create(options_in(dir));
  if (!engine) return 1;
  std::map<int, std::string> digests;
  for (int i = 0; i < keys; ++i) {
    const int number = (i + 5 * self) % keys;
    Result<Prepared> prepared = prepare(**engine, numbered_spec(number));
    if (!prepared) {
      std::fprintf(stderr, "%s\n", prepared.error().message.c_str());
      return 2;
    }
    digests[number] = sha256_hex(prepared->kernel->object);
  }
  std::string lines;
  for (const auto& [number, digest] : digests) lines += digest + "\n";
  return write_file_atomic(report, lines).ok() ? 0 : 3;
}

// Starts the processes at one moment; true when every one gave every key.
bool cold_start(int processes, int keys, bool locks, const std::string& dir,
                const std::string& reports) {
  int gate[2];
  REQUIRE(::pipe(gate) == 0);
  std::fflush(nullptr);
  std::vector<pid_t> pids;
  for (int i = 0; i < processes; ++i) {
    const pid_t pid = ::fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      char go;
      ::close(gate[1]);
      (void)!::read(gate[0], &go, 1);  // until the parent closes it
      ::_exit(ask_for_all(dir, reports + "/" + std::to_string(i), i, keys, locks));
    }
    pids.push_back(pid);
  }
  ::close(gate[0]);
  ::close(gate[1]);
  bool possible = true;
  for (const pid_t pid : pids) {
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    REQUIRE(WIFEXITED(status));
    if (WEXITSTATUS(status) == kCannotForbid) {
      possible = false;
      continue;
    }
    CHECK(WEXITSTATUS(status) == 0);
  }
  if (!possible) return false;
  const std::string first = *read_file(reports + "/0");
  for (int i = 1; i < processes; ++i) {
    CHECK(*read_file(reports + "/" + std::to_string(i)) == first);
  }
  return true;
}

}  // namespace

TEST_CASE("32 processes ask for 16 keys on an empty cache: each is compiled once") {
  const TempDir dir = folder(), reports = folder(), runtime = folder();
  const ScopedEnv locks("XDG_RUNTIME_DIR", runtime.path());
  const FakeWorker worker("tiny");
  REQUIRE(cold_start(32, 16, true, dir.path(), reports.path()));
  std::map<std::string, int> times;
  for (const std::string& name : worker.compiled()) ++times[name];
  CHECK(times.size() == 16);
  for (const auto& [name, count] : times) {
    INFO(name);
    CHECK(count == 1);
  }
  CHECK(entries(dir.path()).size() == 16);
}

TEST_CASE("the same where nothing can be locked: more work, and the same results") {
  const TempDir dir = folder(), reports = folder();
  const FakeWorker worker("tiny");
  if (!cold_start(8, 4, false, dir.path(), reports.path())) {
    std::printf("SKIPPED: cold start without locks: system calls cannot be filtered here\n");
    return;
  }
  CHECK(worker.compiled().size() > 4);  // else the locks were there
  CHECK(entries(dir.path()).size() == 4);
}
