// SPDX-License-Identifier: Apache-2.0
// Several processes, full disks, sudden death.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "helpers.hpp"

using namespace hstu::cache;
using namespace hstu::cache::test;

TEST_CASE("two processes publish one key: readers see one or the other, whole") {
  const auto dir = folder();
  const Store store = open_store(dir.path());
  const std::string a(300000, 'a'), b(200000, 'b');
  const Key key = artifact().key;
  const auto publisher = [&](const std::string& payload) {
    return child([&] {
      for (int i = 0; i < 12; ++i) {
        if (!store.publish(artifact("kernel\nbody\n", 'c', payload)).ok()) return 1;
      }
      return 0;
    });
  };
  const pid_t first = publisher(a), second = publisher(b);
  int hits = 0;
  bool first_done = false, second_done = false;
  int first_status = -1, second_status = -1;
  while (!first_done || !second_done) {
    const Lookup found = store.lookup(key);
    if (found.hit) {
      ++hits;
      CHECK((found.artifact.payload == a || found.artifact.payload == b));
    } else {
      CHECK(found.reason == MissReason::absent);
    }
    first_done = first_done || ::waitpid(first, &first_status, WNOHANG) == first;
    second_done = second_done || ::waitpid(second, &second_status, WNOHANG) == second;
  }
  CHECK(first_status == 0);
  CHECK(second_status == 0);
  CHECK(hits > 0);
  CHECK(store.lookup(key).hit);
  CHECK(count_files(dir.path() + "/v1/objects") == 1);
  CHECK(count_files(dir.path() + "/v1/quarantine") == 0);
}

TEST_CASE("a full disk is an error that leaves the old entry and no temporary") {
  const auto dir = folder();
  const Store store = open_store(dir.path());
  const Artifact old = artifact("kernel\nbody\n", 'c', "old");
  REQUIRE(store.publish(old).ok());
  const int status = wait_for(child([&] {
    const rlimit limit{4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const auto result = store.publish(artifact("kernel\nbody\n", 'c', std::string(100000, 'x')));
    if (result.ok()) return 1;
    return result.error().message.find("File too large") == std::string::npos ? 2 : 0;
  }));
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(store.lookup(old.key).artifact.payload == "old");
  CHECK(count_files(dir.path() + "/v1/objects") == 1);
}

TEST_CASE("a process killed in the middle of a publish leaves the old entry or the new one") {
  const auto dir = folder();
  const Store store = open_store(dir.path());
  const Artifact old = artifact("kernel\nbody\n", 'c', "old");
  REQUIRE(store.publish(old).ok());
  const std::string big(4 << 20, 'n');
  int interrupted = 0;
  for (int round = 0; round < 12; ++round) {
    const pid_t pid = child([&] {
      while (true) (void)store.publish(artifact("kernel\nbody\n", 'c', big));
      return 0;
    });
    // Death comes at some time at first, then as soon as a temporary file is seen.
    const size_t before = count_files(dir.path(), ".tmp-");
    ::usleep(static_cast<useconds_t>(1000 + 2700 * (round % 6)));
    for (int i = 0; round >= 6 && i < 20000 && count_files(dir.path(), ".tmp-") <= before; ++i) {
      ::usleep(100);
    }
    ::kill(pid, SIGKILL);
    wait_for(pid);
    if (count_files(dir.path(), ".tmp-") > before) ++interrupted;
    const Lookup found = store.lookup(old.key);
    REQUIRE(found.hit);
    CHECK((found.artifact.payload == "old" || found.artifact.payload == big));
  }
  CHECK(interrupted > 0);          // else the test did not hit the middle
  CHECK(store.publish(old).ok());  // the name of a dead writer's temporary does not block
  CHECK(store.lookup(old.key).artifact.payload == "old");
}

TEST_CASE("a compile lock dies with its process") {
  const auto runtime = folder();
  const Environment environment("XDG_RUNTIME_DIR", runtime.path().c_str());
  const auto dir = folder();
  const Store store = open_store(dir.path());
  const Key key = artifact().key;
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t pid = child([&] {
    const Store::CompileLock lock = store.lock(key, 1000);
    const char said = lock.held() ? 'y' : 'n';
    (void)!::write(ready[1], &said, 1);
    ::pause();
    return 0;
  });
  char said = 0;
  REQUIRE(::read(ready[0], &said, 1) == 1);
  CHECK(said == 'y');
  CHECK_FALSE(store.lock(key, 30).held());
  ::kill(pid, SIGKILL);
  wait_for(pid);
  CHECK(store.lock(key, 1000).held());
  ::close(ready[0]);
  ::close(ready[1]);
}
