// SPDX-License-Identifier: Apache-2.0
// A large cache: what a lookup and a collection cost. HSTU_TEST_CACHE_ENTRIES=200000 for the size
// of a fleet's (tools/test.sh --large).
#include <fmt/format.h>
#include <sys/statvfs.h>

#include "cache/collect.hpp"
#include "cache/entry.hpp"
#include "cache/listing.hpp"
#include "helpers.hpp"

using namespace hstu::cache;
using namespace hstu::cache::test;

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int wanted_entries() {
  const char* text = std::getenv("HSTU_TEST_CACHE_ENTRIES");
  return text == nullptr ? 20000 : std::max(1000, std::atoi(text));
}

// A valid entry without the fsync that a publish pays for.
void put(const Store& store, const Artifact& in, int64_t age) {
  const std::string path = store.entry_path(in.key);
  const std::string bytes = *encode_entry(in);
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  REQUIRE(fd >= 0);
  REQUIRE(::write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  const time_t then = ::time(nullptr) - age;
  const timespec times[2] = {{then, 0}, {then, 0}};
  REQUIRE(::futimens(fd, times) == 0);
  REQUIRE(::close(fd) == 0);
}

}  // namespace

TEST_CASE("a large cache") {
  const int count = wanted_entries();
  // In memory where there is room: beside other tests a disk takes a hundred times as long.
  struct statvfs memory {};
  const bool in_memory = ::statvfs("/dev/shm", &memory) == 0 &&
                         memory.f_bavail * memory.f_frsize > uint64_t{16384} * count;
  const Environment environment("TMPDIR", in_memory ? "/dev/shm" : std::getenv("TMPDIR"));
  const auto dir = folder();
  struct statvfs space {};
  REQUIRE(::statvfs(dir.path().c_str(), &space) == 0);
  if (space.f_favail < static_cast<fsfilcnt_t>(count) + 10000 && space.f_files != 0) {
    std::printf("SKIPPED: a cache of %d entries: no room for so many files\n", count);
    return;
  }
  const Store store = open_store(dir.path());
  for (int i = 0; i < 256; ++i) {
    char name[3];
    std::snprintf(name, sizeof name, "%02x", i);
    fs::create_directories(dir.path() + "/v1/objects/" + name);
  }
  const auto made = [](int i) { return artifact(fmt::format("kernel {}", i), 'c', "p"); };
  Clock::time_point start = Clock::now();
  for (int i = 0; i < count; ++i) put(store, made(i), 7200 + count - i);
  const double filled = seconds_since(start);

  constexpr int kLookups = 1000;
  start = Clock::now();
  int hits = 0;
  for (int i = 0; i < kLookups; ++i) hits += store.lookup(made(i * (count / kLookups)).key).hit;
  const double lookup_us = seconds_since(start) / kLookups * 1e6;
  CHECK(hits == kLookups);
  start = Clock::now();
  for (int i = 0; i < kLookups; ++i) hits -= store.lookup(made(-1 - i).key).hit;
  const double miss_us = seconds_since(start) / kLookups * 1e6;
  CHECK(hits == kLookups);

  start = Clock::now();
  const Collected looked = collect(dir.path(), {kUnlimited, true});
  const double scan = seconds_since(start);
  CHECK(looked.entries == static_cast<uint64_t>(count));
  start = Clock::now();
  const Collected halved = collect(dir.path(), {looked.bytes / 2, true});
  const double evict = seconds_since(start);
  CHECK(halved.bytes <= looked.bytes / 2);
  CHECK(halved.evicted >= static_cast<uint64_t>(count) / 2 - 1);
  CHECK(halved.entries + halved.evicted == static_cast<uint64_t>(count));
  CHECK(list_entries(dir.path()).size() == halved.entries);
  CHECK(store.lookup(made(count - 1).key).hit);  // the youngest is there
  CHECK(store.lookup(made(0).key).hit);          // was used above
  CHECK_FALSE(store.lookup(made(1).key).hit);    // the oldest is not

  // What a publish may have to wait for is bounded on any disk.
  start = Clock::now();
  const Collected hurried =
      collect(dir.path(), {halved.bytes / 4, false, std::chrono::milliseconds(20)});
  CHECK(seconds_since(start) < 20e-6 * count + 2.5);
  CHECK(hurried.entries + hurried.evicted == halved.entries);

  std::printf(
      "cache of %d entries %s: made in %.2f s; hit %.0f us, miss %.0f us; a collection that finds "
      "nothing to do %.2f s, one that removes half %.2f s\n",
      count, in_memory ? "in memory" : "on disk", filled, lookup_us, miss_us, scan, evict);
  // Bounds for slow and busy machines: a wrong order of growth passes them by far.
  CHECK(lookup_us < 2000);
  CHECK(miss_us < 20000);
  CHECK(scan < 20e-6 * count + 2);
  if (in_memory) CHECK(evict < 100e-6 * count + 3);
}
