// SPDX-License-Identifier: Apache-2.0
// What is counted, and what of it is still there tomorrow.
#include "cache/statistics.hpp"

#include <fmt/format.h>

#include <thread>

#include "cache/collect.hpp"
#include "cache/lock.hpp"
#include "helpers.hpp"

using namespace hstu::cache;
using namespace hstu::cache::test;

namespace {

std::string counter_file(const std::string& root) {
  for (const auto& file : fs::directory_iterator(root + "/v1/stats")) return file.path();
  return {};
}

}  // namespace

TEST_CASE("a store counts hits, misses by reason and publishes, and saves them when it goes") {
  const auto dir = folder();
  const Artifact in = artifact();
  {
    const Store store = open_store(dir.path());
    CHECK_FALSE(store.lookup(in.key).hit);
    CHECK_FALSE(store.lookup_again(in.key).hit);  // the same miss
    CHECK_FALSE(store.peek(in.key).hit);          // leaves no trace
    REQUIRE(store.publish(in).ok());
    CHECK(store.lookup(in.key).hit);
    CHECK(store.lookup_again(in.key).hit);
    CHECK(store.lookup_bytes(in.key).ok());
    CHECK(store.peek(in.key).hit);
    CHECK_FALSE(store.lookup({in.key.request, std::string(64, 'd')}).hit);
    REQUIRE(hstu::jit::replace_file_atomic(store.entry_path(in.key), "x").ok());
    CHECK_FALSE(store.lookup(in.key).hit);
    const Counters now = store.statistics().counters();
    CHECK(now == Counters{{"local.hit", 3},
                          {"local.miss.absent", 1},
                          {"local.miss.corrupt", 1},
                          {"local.miss.toolchain", 1},
                          {"local.publish", 1}});
    CHECK(saved_counters(dir.path()).empty());
  }
  CHECK(saved_counters(dir.path())["local.hit"] == 3);
  {
    const Store first = open_store(dir.path());
    const Store copy = first;  // counts together
    (void)first.lookup(in.key);
    (void)copy.lookup(in.key);
    copy.statistics().add("bundle.hit", 40);
  }
  const Counters sum = saved_counters(dir.path());
  CHECK(sum.at("local.miss.absent") == 3);
  CHECK(sum.at("bundle.hit") == 40);
  CHECK(count_files(dir.path(), ".tmp-") == 0);
  zero_counters(dir.path());
  CHECK(saved_counters(dir.path()).empty());
}

TEST_CASE("readers of a cache that is not theirs save nothing") {
  const auto dir = folder();
  for (const Mode mode : {Mode::read_only, Mode::sealed, Mode::off}) {
    const Store store = open_store(dir.path(), mode);
    CHECK_FALSE(store.lookup(artifact().key).hit);
    CHECK(store.statistics().counters().size() == 1);
  }
  CHECK(count_files(dir.path()) == 0);
}

TEST_CASE("counter files of several hosts are summed, damaged ones count nothing") {
  const auto dir = folder();
  Statistics().save(dir.path());  // nothing to save
  CHECK_FALSE(fs::exists(dir.path() + "/v1"));
  { (void)open_store(dir.path()).lookup(artifact().key); }
  const std::string file = counter_file(dir.path());
  const std::string good = *hstu::jit::read_file(file);
  CHECK(good == "hstu-cache-stats/1\nlocal.miss.absent 1\nend 1\n");
  const std::string other = dir.path() + "/v1/stats/host-other";
  REQUIRE(hstu::jit::write_file_atomic(
              other, "hstu-cache-stats/1\nlocal.hit 7\nlocal.miss.absent 4\nend 2\n")
              .ok());
  CHECK(saved_counters(dir.path()) == Counters{{"local.hit", 7}, {"local.miss.absent", 5}});
  for (const std::string& bad :
       {std::string(), good.substr(0, good.size() - 1), good.substr(0, 20), good + "x",
        std::string("hstu-cache-stats/2\nend 0\n"), std::string(100000, 'a'),
        std::string("hstu-cache-stats/1\nlocal.hit -1\nend 1\n"),
        std::string("hstu-cache-stats/1\nlocal.hit 1\nlocal.hit 1\nend 1\n"),
        std::string("hstu-cache-stats/1\nlocal hit 1\nend 1\n"),
        std::string("hstu-cache-stats/1\nlocal.hit 99999999999999999999999\nend 1\n"),
        std::string("hstu-cache-stats/1\n\x1b[31m 1\nend 1\n"),
        std::string("hstu-cache-stats/1\nlocal.hit 1\nend 2\n")}) {
    INFO(bad.substr(0, 80));
    CHECK(read_counters(bad).empty());
    REQUIRE(hstu::jit::write_file_atomic(file, bad).ok());
    CHECK(saved_counters(dir.path()).size() == 2);
    { (void)open_store(dir.path()).lookup(artifact().key); }  // starts at zero
    CHECK(*hstu::jit::read_file(file) == good);
  }
  // A link or a folder in its place is not followed, read or removed, and harms nobody.
  fs::remove(file);
  fs::create_directories(file);
  { (void)open_store(dir.path()).lookup(artifact().key); }
  CHECK(fs::is_directory(file));
  CHECK(saved_counters(dir.path()).size() == 2);
  fs::remove_all(dir.path() + "/v1/stats");
  REQUIRE(::symlink("/tmp", (dir.path() + "/v1/stats").c_str()) == 0);
  { (void)open_store(dir.path()).lookup(artifact().key); }
  CHECK(saved_counters(dir.path()).empty());
  CHECK(count_files(dir.path(), ".tmp-") == 0);
}

TEST_CASE("the files of hosts that are gone are folded, their counts are kept") {
  const auto dir = folder();
  const std::string stats = dir.path() + "/v1/stats/";
  fs::create_directories(stats);
  for (int i = 0; i < 300; ++i) {
    const std::string name = fmt::format("{}host-{}", stats, i);
    REQUIRE(hstu::jit::write_file_atomic(name, write_counters({{"local.hit", 1}})).ok());
    set_age(name, 1000 - i);
  }
  for (int round = 0; round < 2; ++round) {
    (void)collect(dir.path(), {kUnlimited, true});
    CHECK(count_files(stats) == 257);
    CHECK_FALSE(fs::exists(stats + "host-0"));
    CHECK(fs::exists(stats + "host-299"));
    CHECK(saved_counters(dir.path()) == Counters{{"local.hit", 300}});
  }
}

TEST_CASE("many processes and threads: every count arrives") {
  const auto runtime = folder();
  const Environment environment("XDG_RUNTIME_DIR", runtime.path().c_str());
  const auto dir = folder();
  (void)open_store(dir.path());
  std::vector<pid_t> children;
  for (int i = 0; i < 6; ++i) {
    children.push_back(child([&] {
      const Store store = open_store(dir.path());
      std::vector<std::thread> threads;
      for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
          for (int n = 0; n < 1000; ++n) store.statistics().add("memory.hit");
        });
      }
      for (std::thread& thread : threads) thread.join();
      // A save that had to wait too long keeps its counts for the next.
      for (int n = 0; n < 100; ++n) store.statistics().save(dir.path());
      return 0;
    }));
  }
  for (const pid_t pid : children) CHECK(wait_for(pid) == 0);
  CHECK(saved_counters(dir.path())["memory.hit"] == 24000);
}

TEST_CASE("a child made by fork does not save what its parent counted") {
  const auto dir = folder();
  {
    const Store store = open_store(dir.path());
    (void)store.lookup(artifact().key);
    CHECK(wait_for(child([&] {
            store.statistics().save(dir.path());
            return 0;
          })) == 0);
    CHECK(saved_counters(dir.path()).empty());
  }
  CHECK(saved_counters(dir.path())["local.miss.absent"] == 1);
}

TEST_CASE("counts that would overflow, and names that are no names") {
  Statistics statistics;
  statistics.add("local.hit", UINT64_MAX);
  statistics.add("local.hit", 5);
  for (const char* name : {"", "with space", "new\nline", "end"}) statistics.add(name);
  statistics.add(std::string(65, 'a'));
  CHECK(statistics.counters() == Counters{{"local.hit", UINT64_MAX}});
  for (int i = 0; i < 2000; ++i) statistics.add(fmt::format("n{}", i));
  CHECK(statistics.counters().size() == 512);
  CHECK(read_counters(write_counters(statistics.counters())) == statistics.counters());
  CHECK(miss_counter("remote", MissReason::unreachable) == "remote.miss.unreachable");
  CHECK(failure_counter("local", ENOSPC) == "local.publish_failed.ENOSPC");
  CHECK(failure_counter("local", 9999) == "local.publish_failed.errno_9999");
}
