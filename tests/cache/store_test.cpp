// SPDX-License-Identifier: Apache-2.0
// Lookup and publish on a healthy folder, misses and their explanations.
#include <sys/stat.h>

#include <thread>

#include "helpers.hpp"

using namespace hstu::cache;
using namespace hstu::cache::test;

TEST_CASE("what is published is found, by another store too") {
  const auto dir = folder();
  const std::string root = dir.path() + "/with space/Grüße";
  const Store store = open_store(root);
  const Artifact in = artifact();
  CHECK(store.lookup(in.key).reason == MissReason::absent);
  REQUIRE(store.publish(in).ok());
  const Lookup found = open_store(root, Mode::read_only).lookup(in.key);
  REQUIRE(found.hit);
  CHECK(found.reason == MissReason::none);
  CHECK(found.artifact.payload == in.payload);
  CHECK(found.artifact.ingredients == in.ingredients);
  CHECK(found.artifact.metadata == in.metadata);
  CHECK(fs::exists(store.entry_path(in.key)));
  CHECK(count_files(root + "/v1/objects") == 1);

  Artifact again = in;  // the same key replaces
  again.payload = "newer";
  REQUIRE(store.publish(again).ok());
  CHECK(store.lookup(in.key).artifact.payload == "newer");
  CHECK(count_files(root + "/v1/objects") == 1);
}

TEST_CASE("a new root is private") {
  const auto dir = folder();
  const Store store = open_store(dir.path() + "/root");
  struct stat info {};
  REQUIRE(::stat(store.root().c_str(), &info) == 0);
  CHECK((info.st_mode & 077) == 0);
}

TEST_CASE("another toolchain's entry answers only when that is asked for") {
  const auto dir = folder();
  const Store store = open_store(dir.path());
  const Artifact in = artifact("source", 'c');
  REQUIRE(store.publish(in).ok());
  const Key other{in.key.request, std::string(64, 'd')};
  const Lookup missed = store.lookup(other);
  CHECK_FALSE(missed.hit);
  CHECK(missed.reason == MissReason::toolchain);
  CHECK_THAT(missed.explanation, ContainsSubstring("toolchain"));
  const Lookup found = store.lookup(other, true);
  REQUIRE(found.hit);
  CHECK(found.artifact.key.toolchain == in.key.toolchain);
  CHECK(store.lookup({in.key.request, ""}, true).hit);
  CHECK_FALSE(store.lookup({in.key.request, ""}).hit);

  // The file name has 12 digits of the toolchain; the header has all of them.
  Key close = in.key;
  close.toolchain = std::string(12, 'c') + std::string(52, 'e');
  CHECK(store.lookup(close).reason == MissReason::toolchain);
  CHECK(store.lookup(close, true).hit);
  CHECK(store.lookup(in.key).hit);  // and nothing was moved away
}

TEST_CASE("malformed keys are misses, and no paths") {
  const auto dir = folder();
  const Store store = open_store(dir.path());
  for (const std::string& text : {std::string(), std::string("../../etc/passwd"),
                                  std::string(64, 'G'), std::string(63, 'a')}) {
    CHECK_FALSE(store.lookup({text, std::string(64, 'a')}).hit);
    CHECK_FALSE(store.lookup({std::string(64, 'a'), text}).hit);
    CHECK_FALSE(store.lock({text, text}, 0).held());
    CHECK(store.entry_path({text, text}).empty());
  }
}

TEST_CASE("a miss names the ingredient that differs from the nearest entry") {
  const auto dir = folder();
  const Store store = open_store(dir.path());
  CHECK(store.explain_absence(artifact().ingredients).empty());
  REQUIRE(store.publish(artifact("one\ntwo\nthree\n")).ok());
  Ingredients other = artifact("one\ntwo\nthree\n").ingredients;
  other[0].second = "gfx942";
  CHECK_THAT(store.explain_absence(other),
             ContainsSubstring("target: \"gfx942\" here, \"gfx90a\" there"));
  CHECK_THAT(store.explain_absence(artifact("one\nTWO\nthree\n").ingredients),
             ContainsSubstring("source: from line 2 on"));
  other[2].second = "one\n";
  CHECK_THAT(store.explain_absence(other), ContainsSubstring("and in 1 more"));
}

TEST_CASE("modes: off and read-only write nothing; sealed reads") {
  const auto dir = folder();
  const Artifact in = artifact();
  const Store off = open_store(dir.path() + "/none", Mode::off);
  CHECK(off.publish(in).ok());
  CHECK(off.lookup(in.key).reason == MissReason::disabled);
  CHECK_FALSE(fs::exists(dir.path() + "/none"));

  const Store read_only = open_store(dir.path(), Mode::read_only);
  CHECK(read_only.publish(in).ok());
  CHECK(count_files(dir.path()) == 0);
  REQUIRE(open_store(dir.path()).publish(in).ok());
  CHECK(read_only.lookup(in.key).hit);
  CHECK(open_store(dir.path(), Mode::sealed).lookup(in.key).hit);

  CHECK(*parse_mode("sealed") == Mode::sealed);
  CHECK_THAT(parse_mode("rx").error().message, ContainsSubstring("rw, ro, off, sealed"));
}

TEST_CASE("a compile lock excludes, gives up in time and is free when its holder goes") {
  const auto dir = folder();
  const auto runtime = folder();
  const Environment environment("XDG_RUNTIME_DIR", runtime.path().c_str());
  const Store store = open_store(dir.path());
  const Key key = artifact().key;
  {
    const Store::CompileLock first = store.lock(key, 0);
    CHECK(first.held());
    const auto start = std::chrono::steady_clock::now();
    CHECK_FALSE(store.lock(key, 60).held());
    const auto waited = std::chrono::steady_clock::now() - start;
    CHECK(waited >= std::chrono::milliseconds(60));
    CHECK(waited < std::chrono::seconds(10));
    CHECK(store.lock(artifact("other").key, 0).held());
  }
  CHECK(store.lock(key, 0).held());
  CHECK(count_files(dir.path()) == 0);      // locks lie on the node, not in the cache
  CHECK(count_files(runtime.path()) == 0);  // where none is left that nobody holds
}

TEST_CASE("one at a time holds a lock, though each holder removes its file") {
  const auto dir = folder();
  const auto runtime = folder();
  const Environment environment("XDG_RUNTIME_DIR", runtime.path().c_str());
  const Store store = open_store(dir.path());
  const Key key = artifact().key;
  const std::string inside = dir.path() + "/inside";
  std::vector<pid_t> pids;
  for (int i = 0; i < 6; ++i) {
    pids.push_back(child([&] {
      for (int round = 0; round < 20; ++round) {
        const Store::CompileLock lock = store.lock(key, 60000);
        if (!lock.held()) return 1;
        const int fd = ::open(inside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0) return 2;  // another one is inside
        ::usleep(200);
        if (::close(fd) != 0 || ::unlink(inside.c_str()) != 0) return 3;
      }
      return 0;
    }));
  }
  for (const pid_t pid : pids) CHECK(wait_for(pid) == 0);
  CHECK(count_files(runtime.path()) == 0);
}

TEST_CASE("what a killed publish left is removed when it is old") {
  const auto dir = folder();
  const Store store = open_store(dir.path());
  const Artifact in = artifact();
  REQUIRE(store.publish(in).ok());
  const std::string fan = fs::path(store.entry_path(in.key)).parent_path().string();
  REQUIRE(hstu::jit::write_file_atomic(fan + "/.tmp-1-0", "old").ok());
  REQUIRE(hstu::jit::write_file_atomic(fan + "/.tmp-1-1", "new").ok());
  fs::last_write_time(fan + "/.tmp-1-0", fs::file_time_type::clock::now() - std::chrono::hours(2));
  REQUIRE(store.publish(in).ok());
  CHECK_FALSE(fs::exists(fan + "/.tmp-1-0"));
  CHECK(fs::exists(fan + "/.tmp-1-1"));  // its writer may live
}
