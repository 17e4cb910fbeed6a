// SPDX-License-Identifier: Apache-2.0
// The cache stays finite: what goes, what stays, and when.
#include "cache/collect.hpp"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>

#include "base/temp_dir.hpp"
#include "cache/lock.hpp"
#include "cache/names.hpp"
#include "cache/statistics.hpp"
#include "helpers.hpp"

using namespace hstu::cache;
using namespace hstu::cache::test;

namespace {

constexpr int64_t kHour = 3600;

// A store with entries of about 10 kB, used so many seconds ago.
struct Filled {
  hstu::jit::TempDir dir = folder();
  std::string root = dir.path();
  Store store = open_store(root);
  std::vector<Artifact> artifacts;
  uint64_t entry_size = 0;

  explicit Filled(const std::vector<int64_t>& ages) {
    for (size_t i = 0; i < ages.size(); ++i) {
      artifacts.push_back(artifact(fmt::format("kernel {}", i), 'c', std::string(10000, 'p')));
      REQUIRE(store.publish(artifacts.back()).ok());
      set_age(path(i), ages[i]);
    }
    entry_size = fs::file_size(path(0));
  }
  std::string path(size_t i) const { return store.entry_path(artifacts[i].key); }
  std::string present() const {  // "1011"
    std::string text;
    for (size_t i = 0; i < artifacts.size(); ++i) text += fs::exists(path(i)) ? '1' : '0';
    return text;
  }
};

Store open_limited(const std::string& root, uint64_t limit) {
  Store::Options options;
  options.root = root;
  options.explicit_root = true;
  options.size_limit = limit;
  auto store = Store::open(options);
  REQUIRE(store.ok());
  return std::move(*store);
}

void make_due(const std::string& root) { set_age(root + "/v1/last-collection", 2 * kHour); }

}  // namespace

TEST_CASE("sizes as people write them") {
  CHECK(*parse_size("500M") == 500ull << 20);
  CHECK(*parse_size("2G") == 2ull << 30);
  CHECK(*parse_size("64 KiB") == 65536);
  CHECK(*parse_size("3kb") == 3072);
  CHECK(*parse_size("512Mi") == 512ull << 20);
  CHECK(*parse_size("1T") == 1ull << 40);
  CHECK(*parse_size("1048576") == 1048576);
  CHECK(*parse_size("12B") == 12);
  CHECK(*parse_size("0") == kUnlimited);
  CHECK(*parse_size("0G") == kUnlimited);
  for (const char* bad : {"", "G", "-1", "1.5G", "2X", "2GG", "2Gx", "99999999999999999999",
                          "18446744073709551615", "18014398509481984K", "2G ", "0x10", " 2G"}) {
    INFO(bad);
    CHECK_FALSE(parse_size(bad).ok());
  }
  CHECK(size_text(0) == "0 B");
  CHECK(size_text(1536) == "1.5 KiB");
  CHECK(size_text(2ull << 30) == "2.0 GiB");
  CHECK(size_text(1048575) == "1.0 MiB");
}

TEST_CASE("the limit comes from the options, the environment, else it is 2 GiB") {
  const auto dir = folder();
  {
    const Environment none("HSTU_JIT_CACHE_SIZE", nullptr);
    CHECK(open_store(dir.path()).size_limit() == 2ull << 30);
    CHECK(open_limited(dir.path(), 5).size_limit() == 5);
  }
  {
    const Environment size("HSTU_JIT_CACHE_SIZE", "3M");
    CHECK(open_store(dir.path()).size_limit() == 3ull << 20);
    CHECK(open_limited(dir.path(), 5).size_limit() == 5);
  }
  {
    const Environment size("HSTU_JIT_CACHE_SIZE", "0");
    CHECK(open_store(dir.path()).size_limit() == kUnlimited);
  }
  const Environment size("HSTU_JIT_CACHE_SIZE", "lots");
  CHECK(open_store(dir.path()).size_limit() == 2ull << 30);
  CHECK_THAT(open_store(dir.path()).warning(), ContainsSubstring("\"lots\" is not a size"));
}

TEST_CASE("what was not used for longest goes first; the access time does not matter") {
  Filled f({2 * kHour, 5 * kHour, 3 * kHour, 4 * kHour});
  for (size_t i = 0; i < 4; ++i) {  // the access times say the opposite
    const time_t now = ::time(nullptr);
    const timespec times[2] = {{now - 10 * kHour, 0}, {0, UTIME_OMIT}};
    REQUIRE(::utimensat(AT_FDCWD, f.path(i).c_str(), times, 0) == 0);
  }
  CHECK(f.store.lookup(f.artifacts[1].key).hit);  // the oldest is used, and so the youngest
  const Collected result = collect(f.root, {2 * f.entry_size + 100, true});
  CHECK(f.present() == "1100");
  CHECK(result.evicted == 2);
  CHECK(result.evicted_bytes == 2 * f.entry_size);
  CHECK(result.entries == 2);
  CHECK(result.bytes == 2 * f.entry_size);
  CHECK(f.store.lookup(f.artifacts[3].key).reason == MissReason::absent);
}

TEST_CASE("a hit renews a time stamp at most once an hour, and never without leave") {
  Filled f({30 * 60, 2 * kHour, -2 * kHour, 2 * kHour});
  for (const Artifact& a : f.artifacts)
    CHECK(open_store(f.root, Mode::read_only).lookup(a.key).hit);
  for (const Artifact& a : f.artifacts) CHECK(f.store.peek(a.key).hit);
  CHECK(age_of(f.path(1)) >= 2 * kHour);
  for (size_t i = 0; i < 3; ++i) CHECK(f.store.lookup(f.artifacts[i].key).hit);
  CHECK(age_of(f.path(0)) >= 30 * 60);
  CHECK(age_of(f.path(1)) < 60);
  CHECK(age_of(f.path(2)) >= 0);  // a clock had jumped
  CHECK(age_of(f.path(2)) < 60);
  CHECK(age_of(f.path(3)) >= 2 * kHour);
  CHECK(f.store.lookup_bytes(f.artifacts[3].key).ok());
  CHECK(age_of(f.path(3)) < 60);
}

TEST_CASE("nothing goes while the limit holds, or where there is none") {
  Filled f({5 * kHour, 4 * kHour, 0});
  CHECK(collect(f.root, {3 * f.entry_size, false}).evicted == 0);
  CHECK(collect(f.root, {kUnlimited, true}).evicted == 0);
  CHECK(f.present() == "111");
}

TEST_CASE("a collection of its own accord makes some room, but spares the young if it can") {
  // Limit 9.5 entries; nine tenths of it: 8.55.
  std::vector<int64_t> ages(10, kHour);
  Filled old(ages);
  const CollectOptions options{old.entry_size * 95 / 10, false};
  CHECK(collect(old.root, options).evicted == 2);

  Filled young(std::vector<int64_t>(10, 30));
  CHECK(collect(young.root, options).evicted == 1);  // what the limit demands, no more
  CHECK(collect(young.root, {young.entry_size * 9, true}).evicted == 0);
  CHECK(collect(young.root, {young.entry_size * 4, true}).evicted == 5);
}

TEST_CASE("a collection without patience stops, and says that it is not finished") {
  Filled f({5 * kHour, 4 * kHour});
  const Collected stopped = collect(f.root, {1, true, std::chrono::milliseconds(0)});
  CHECK(stopped.unfinished);
  CHECK(stopped.evicted == 0);
  CHECK(f.present() == "11");
  const Collected whole = collect(f.root, {1, true});
  CHECK_FALSE(whole.unfinished);
  CHECK(whole.evicted == 2);
}

TEST_CASE("time stamps of the future or of 1970 neither save an entry nor hang a collection") {
  const int64_t year = 365 * 24 * kHour;
  Filled f({-2 * year, kHour, 50 * year, -2 * kHour});
  CHECK(collect(f.root, {kUnlimited, true}).entries == 4);
  CHECK(age_of(f.path(0)) >= 0);
  CHECK(age_of(f.path(3)) >= 0);
  CHECK(collect(f.root, {2 * f.entry_size, true}).evicted == 2);
  CHECK(f.present() == "1001");
  set_age(f.path(0), -year);
  set_age(f.path(3), -year);
  CHECK(collect(f.root, {1, false}).evicted == 2);
  CHECK(f.present() == "0000");
}

TEST_CASE("a publish collects once an hour, and after a sixteenth of the limit") {
  Filled f({5 * kHour, 4 * kHour, 3 * kHour, 2 * kHour});
  const uint64_t limit = 3 * f.entry_size;
  const Artifact small = artifact("small", 'c', "p");
  REQUIRE(open_limited(f.root, limit).publish(small).ok());
  CHECK(f.present() == "1111");  // the one at the first publish of all is minutes old

  for (const int64_t age : {2 * kHour, -2 * kHour}) {  // due; or a clock had jumped
    set_age(f.root + "/v1/last-collection", age);
    const Store store = open_limited(f.root, age > 0 ? limit : 2 * f.entry_size);
    REQUIRE(store.publish(small).ok());
    CHECK(f.present() == (age > 0 ? "0011" : "0001"));
    CHECK(store.statistics().counters()["local.evicted"] == (age > 0 ? 2 : 1));
    CHECK(age_of(f.root + "/v1/last-collection") >= 0);
    CHECK(age_of(f.root + "/v1/last-collection") < 60);
  }
  // At once, when one process published much.
  const Store store = open_limited(f.root, 4 * f.entry_size);
  for (int i = 0; i < 6; ++i) {
    REQUIRE(store.publish(artifact(fmt::format("big {}", i), 'c', std::string(9000, 'b'))).ok());
  }
  CHECK(f.present() == "0000");
  uint64_t bytes = 0;
  for (const auto& file : fs::recursive_directory_iterator(f.root + "/v1/objects")) {
    if (file.is_regular_file()) bytes += file.file_size();
  }
  CHECK(bytes <= 4 * f.entry_size);
  CHECK(store.lookup(artifact("big 5").key).hit);
}

TEST_CASE("no two collections of one folder at a time, and no publish waits for one") {
  const auto runtime = folder();
  const Environment environment("XDG_RUNTIME_DIR", runtime.path().c_str());
  Filled f({5 * kHour, 4 * kHour});
  make_due(f.root);
  {
    const NodeLock busy = NodeLock::take(folder_lock_name("gc", f.root), 0);
    REQUIRE(busy.held());
    REQUIRE(open_limited(f.root, 1).publish(artifact("small")).ok());
    CHECK(f.present() == "11");
  }
  REQUIRE(open_limited(f.root, 1).publish(artifact("small")).ok());
  CHECK(f.present() == "00");
}

TEST_CASE("without any place for locks compiles and collections go on") {
  if (::geteuid() != 0) {
    std::printf("SKIPPED: no place for locks: needs root\n");
    return;
  }
  // A user of whom somebody took the name in /tmp.
  constexpr uid_t kUser = 54321;
  const std::string trap = fmt::format("/tmp/hstu-jit-{}", kUser);
  REQUIRE(hstu::jit::write_file_atomic(trap, "not a folder").ok());
  const auto dir = folder();
  REQUIRE(::chmod(dir.path().c_str(), 0777) == 0);
  const int status = wait_for(child([&] {
    ::unsetenv("XDG_RUNTIME_DIR");
    if (::setgid(kUser) != 0 || ::setuid(kUser) != 0) return 1;
    const Store store = open_limited(dir.path() + "/root", 1);
    if (store.lock(artifact().key, 1000).held()) return 2;
    if (!store.publish(artifact()).ok()) return 3;
    return store.statistics().counters()["local.evicted"] == 1 ? 0 : 4;
  }));
  fs::remove(trap);
  CHECK(status == 0);
}

TEST_CASE("abandoned temporary files go in every folder, live ones and other names stay") {
  Filled f({kHour});
  f.store.statistics().save(f.root);
  fs::create_directories(f.root + "/v1/quarantine");
  fs::create_directories(f.root + "/v1/toolchains");
  const std::string fan = fs::path(f.path(0)).parent_path();
  const std::vector<std::string> folders = {f.root,
                                            f.root + "/v1",
                                            f.root + "/v1/objects",
                                            fan,
                                            f.root + "/v1/stats",
                                            f.root + "/v1/quarantine",
                                            f.root + "/v1/toolchains"};
  for (const std::string& place : folders) {
    for (const char* name : {"/.tmp-1-2", "/.tmp-1-3", "/.tmp-notes", "/notes"}) {
      REQUIRE(hstu::jit::write_file_atomic(place + name, "x").ok());
      set_age(place + name, std::string(name) == "/.tmp-1-3" ? 60 : 2 * kHour);
    }
    REQUIRE(hstu::jit::write_file_atomic(place + "/.tmp-4-5", "x").ok());
    set_age(place + "/.tmp-4-5", -24 * kHour);  // written before a clock was set right
  }
  CHECK(collect(f.root, {kUnlimited, true}).temporaries == 2 * folders.size());
  for (const std::string& place : folders) {
    INFO(place);
    CHECK_FALSE(fs::exists(place + "/.tmp-1-2"));
    CHECK_FALSE(fs::exists(place + "/.tmp-4-5"));
    CHECK(fs::exists(place + "/.tmp-1-3"));
    CHECK(fs::exists(place + "/.tmp-notes"));
    CHECK(fs::exists(place + "/notes"));
  }
}

TEST_CASE("the quarantine keeps its pieces for a week, and not too many") {
  Filled f(std::vector<int64_t>(3, 0));
  const std::string quarantine = f.root + "/v1/quarantine";
  for (size_t i = 0; i < 2; ++i) {
    REQUIRE(hstu::jit::replace_file_atomic(f.path(i), "damage").ok());
    set_age(f.path(i), 30 * 24 * kHour);  // its stay is counted from when it came
    CHECK(f.store.lookup(f.artifacts[i].key).reason == MissReason::corrupt);
  }
  fs::remove(f.path(2));
  fs::create_directories(f.path(2) + "/deep/er");
  REQUIRE(hstu::jit::write_file_atomic(f.path(2) + "/deep/file", "x").ok());
  CHECK(f.store.lookup(f.artifacts[2].key).reason == MissReason::corrupt);
  REQUIRE(hstu::jit::write_file_atomic(quarantine + "/notes", "not ours").ok());
  set_age(quarantine + "/notes", 30 * 24 * kHour);
  CHECK(collect(f.root, {kUnlimited, true}).quarantined == 0);
  const auto piece = [&](size_t i) {
    return quarantine + "/" + fs::path(f.path(i)).filename().string();
  };
  set_age(piece(0), 8 * 24 * kHour);
  set_age(piece(2), 8 * 24 * kHour);
  CHECK(collect(f.root, {kUnlimited, true}).quarantined == 2);
  CHECK_FALSE(fs::exists(piece(0)));
  CHECK(fs::exists(piece(1)));
  CHECK_FALSE(fs::exists(piece(2)));
  CHECK(fs::exists(quarantine + "/notes"));

  for (int i = 0; i < 300; ++i) {
    const std::string name = artifact(fmt::format("q{}", i)).key.request + ".cccccccccccc.hko";
    std::FILE* file = std::fopen((quarantine + "/" + name).c_str(), "w");
    REQUIRE(file != nullptr);
    std::fclose(file);
    set_age(quarantine + "/" + name, 1000 - i);
  }
  CHECK(collect(f.root, {kUnlimited, true}).quarantined == 45);  // 301 - 256
  CHECK(fs::exists(piece(1)));                                   // the youngest stay
}

TEST_CASE("pointers of a web server's folder go with the last entry they point to") {
  Filled f({5 * kHour, kHour});
  for (size_t i = 0; i < 2; ++i) {
    const std::string pointer =
        fs::path(f.path(i)).parent_path() / (f.artifacts[i].key.request + ".toolchain");
    REQUIRE(hstu::jit::write_file_atomic(pointer, std::string(64, 'c')).ok());
    set_age(pointer, kHour);
    CHECK(f.store.lookup({f.artifacts[i].key.request, ""}, true).hit);  // and is no entry itself
  }
  set_age(f.path(0), 5 * kHour);
  CHECK(collect(f.root, {f.entry_size, true}).evicted == 1);
  CHECK(count_files(f.root + "/v1/objects") == 2);
  CHECK(f.store.lookup(f.artifacts[1].key).hit);
}

TEST_CASE("names that are no entries are never removed") {
  Filled f({5 * kHour});
  const std::string fan = fs::path(f.path(0)).parent_path();
  const std::string digits = f.artifacts[0].key.request;
  const std::vector<std::string> others = {fan + "/" + digits + ".hko",
                                           fan + "/" + digits + ".cccccccccccc.hko.bak",
                                           fan + "/" + digits.substr(1) + ".cccccccccccc.hko",
                                           fan + "/readme",
                                           f.root + "/v1/objects/" + digits + ".cccccccccccc.hko",
                                           f.root + "/v1/objects/xy/file",
                                           f.root + "/file"};
  fs::create_directories(f.root + "/v1/objects/xy");
  for (const std::string& path : others) {
    REQUIRE(hstu::jit::write_file_atomic(path, "mine").ok());
    set_age(path, 1000 * kHour);
  }
  CHECK(collect(f.root, {1, true}).evicted == 1);
  for (const std::string& path : others) CHECK(fs::exists(path));
}

TEST_CASE("collections beside readers and writers: every hit is whole, nothing else is lost") {
  const auto dir = folder();
  const Store store = open_store(dir.path());
  constexpr int kKeys = 24;
  const auto made = [](int i) {
    return artifact(fmt::format("kernel {}", i), 'c',
                    std::string(3000 + static_cast<size_t>(i), static_cast<char>('a' + i)));
  };
  for (int i = 0; i < kKeys; ++i) REQUIRE(store.publish(made(i)).ok());
  const Artifact kept = artifact("kept");  // outside of what the collections may take
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(1200);
  const auto alive = [&] { return std::chrono::steady_clock::now() < until; };
  std::vector<pid_t> children;
  for (int reader = 0; reader < 2; ++reader) {
    children.push_back(child([&] {
      int hits = 0;
      for (int i = reader; alive(); i = (i + 7) % kKeys) {
        const Artifact want = made(i);
        const Lookup found = store.lookup(want.key);
        if (found.hit && found.artifact.payload != want.payload) return 1;
        if (!found.hit && found.reason != MissReason::absent) return 2;
        hits += found.hit;
      }
      return hits > 0 ? 0 : 3;
    }));
  }
  for (int writer = 0; writer < 2; ++writer) {
    children.push_back(child([&] {
      for (int i = writer; alive(); i = (i + 5) % kKeys) {
        if (!store.publish(made(i)).ok()) return 4;
      }
      return 0;
    }));
  }
  for (int collector = 0; collector < 2; ++collector) {
    children.push_back(child([&] {
      uint64_t evicted = 0;
      while (alive()) evicted += collect(dir.path(), {40000, true}).evicted;
      return evicted > 0 ? 0 : 5;
    }));
  }
  for (const pid_t pid : children) {
    const int status = wait_for(pid);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
  CHECK(count_files(dir.path(), ".tmp-") == 0);
  CHECK(count_files(dir.path() + "/v1/quarantine") == 0);
  REQUIRE(store.publish(kept).ok());
  CHECK(collect(dir.path(), {40000, true}).bytes <= 40000);
  CHECK(store.lookup(kept.key).hit);
}

TEST_CASE("a collector killed in the middle leaves a good cache") {
  Filled f(std::vector<int64_t>(8, 2 * kHour));
  for (int round = 0; round < 4; ++round) {
    const pid_t pid = child([&] {
      while (true) collect(f.root, {f.entry_size * (8 - static_cast<uint64_t>(round)), true});
      return 0;
    });
    ::usleep(static_cast<useconds_t>(500 + 700 * round));
    ::kill(pid, SIGKILL);
    wait_for(pid);
  }
  for (const Artifact& a : f.artifacts) {
    const Lookup found = f.store.lookup(a.key);
    CHECK((found.hit || found.reason == MissReason::absent));
  }
  const std::string present = f.present();
  CHECK(std::count(present.begin(), present.end(), '1') >= 5);
}
