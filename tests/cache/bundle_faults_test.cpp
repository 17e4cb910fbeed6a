// SPDX-License-Identifier: Apache-2.0
// Damage, foreign files, changes while in use, full disks, sudden death.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/temp_dir.hpp"
#include "bundle_helpers.hpp"
#include "cache/bundle_file.hpp"
#include "cache/bundle_manifest.hpp"

using namespace hstu::cache;
using namespace hstu::cache::test;

namespace {

struct Place {
  hstu::jit::TempDir dir = folder();
  std::string path = dir.path() + "/k.hjb";
  void make(const std::vector<std::string>& entries) const {
    const auto digest = write_bundle(path, entries, notes());
    if (!digest.ok()) FAIL(digest.error().message);
  }
};

}  // namespace

TEST_CASE("a flipped bit is a miss of that entry alone") {
  const Place place;
  place.make(kernels(5));
  const std::string good = get(place.path);
  const Bundle intact = open_bundle(place.path);
  const auto& entries = intact.manifest().entries;
  for (size_t hit = 0; hit < entries.size(); ++hit) {
    const size_t start = good.find(entry_name(entries[hit].key)) + 512;
    for (const size_t at : {size_t{0}, size_t{10}, size_t{40}, size_t{100},
                            static_cast<size_t>(entries[hit].size) - 1}) {
      std::string bad = good;
      bad[start + at] = static_cast<char>(bad[start + at] ^ 4);
      put(place.path, bad);
      const Bundle bundle = open_bundle(place.path + "@sha256:" + intact.digest());
      for (size_t i = 0; i < entries.size(); ++i) {
        const Lookup found = bundle.lookup(entries[i].key, true);
        CHECK(found.hit == (i != hit));
        if (i != hit) continue;
        CHECK(found.reason == MissReason::corrupt);
        CHECK_THAT(found.explanation, ContainsSubstring(entry_name(entries[i].key)));
        CHECK_THAT(found.explanation, ContainsSubstring("k.hjb"));
        CHECK_FALSE(bundle.bytes(entries[i]).ok());
      }
      for (const auto depth : {Bundle::Depth::digests, Bundle::Depth::entries}) {
        const auto problems = bundle.verify(depth);
        REQUIRE(problems.size() == 1);
        CHECK(problems[0].entry == hit);
      }
    }
  }
}

TEST_CASE("a damaged entry does not hide that of another toolchain") {
  const Place place;
  place.make({encoded(kernel(1, 'a')), encoded(kernel(1, 'b'))});
  std::string bytes = get(place.path);
  const Key a = kernel(1, 'a').key;
  bytes[bytes.find(entry_name(a)) + 600] ^= 1;
  put(place.path, bytes);
  const Bundle bundle = open_bundle(place.path);
  CHECK(bundle.lookup(a, false).reason == MissReason::corrupt);
  CHECK(bundle.lookup(a, true).artifact.key.toolchain == std::string(64, 'b'));
  CHECK(bundle.lookup({a.request, ""}, true).hit);
}

TEST_CASE("an entry that is no entry, under a manifest that is right about its bytes") {
  // As a hostile builder would: everything but the content is in order.
  const Place place;
  place.make(kernels(1));
  const std::string good = get(place.path);
  const Bundle intact = open_bundle(place.path);
  const BundleEntry& entry = intact.manifest().entries[0];
  const std::string content(static_cast<size_t>(entry.size), 'x');
  put(place.dir.path() + "/content", content);
  const std::string digest = output_of({"sha256sum", place.dir.path() + "/content"}).substr(0, 64);
  std::string bytes = good;
  bytes.replace(bytes.find(entry.sha256), 64, digest);
  bytes.replace(bytes.find(entry_name(entry.key)) + 512, content.size(), content);
  put(place.path, bytes);
  const Bundle bundle = open_bundle(place.path);
  CHECK(bundle.lookup(entry.key, true).reason == MissReason::corrupt);
  CHECK(bundle.verify(Bundle::Depth::digests).empty());
  CHECK(bundle.verify().size() == 1);
  const auto merged = merge_bundles({&bundle}, place.dir.path() + "/m.hjb", "test");
  REQUIRE_FALSE(merged.ok());
  check_error(merged.error(), place.path, "not the entry", hstu::jit::ErrorKind::kCache);
}

TEST_CASE("replaced by rename while in use: the open one goes on") {
  const Place place;
  place.make(kernels(3));
  const Bundle before = open_bundle(place.path);
  place.make({encoded(kernel(7))});
  CHECK(before.verify().empty());
  CHECK(before.lookup(kernel(2).key, false).hit);
  CHECK(before.manifest_bytes().ok());
  CHECK(open_bundle(place.path).lookup(kernel(7).key, false).hit);
  fs::remove(place.path);
  CHECK(before.lookup(kernel(0).key, false).hit);
}

TEST_CASE("cut or overwritten in place while in use: misses, no crash") {
  const Place place;
  place.make(kernels(4));
  const Bundle bundle = open_bundle(place.path);
  const auto size = static_cast<off_t>(fs::file_size(place.path));
  for (off_t length = size; length >= 0; length -= 700) {
    REQUIRE(::truncate(place.path.c_str(), length) == 0);
    for (const BundleEntry& entry : bundle.manifest().entries) {
      const Lookup found = bundle.lookup(entry.key, true);
      CHECK((found.hit || found.reason == MissReason::corrupt));
    }
  }
  REQUIRE(::truncate(place.path.c_str(), 0) == 0);
  CHECK(bundle.verify().size() == 4);
  CHECK_THAT(bundle.verify()[0].reason, ContainsSubstring("shorter"));
  CHECK_FALSE(bundle.manifest_bytes().ok());
  REQUIRE(::truncate(place.path.c_str(), size) == 0);  // zeros
  CHECK(bundle.lookup(kernel(0).key, true).reason == MissReason::corrupt);
  CHECK_FALSE(bundle.manifest_bytes().ok());
  const auto merged = merge_bundles({&bundle}, place.dir.path() + "/m.hjb", "test");
  CHECK_FALSE(merged.ok());
  CHECK_FALSE(fs::exists(place.dir.path() + "/m.hjb"));
}

TEST_CASE("what is not a file of ours") {
  const Place place;
  check_unusable(place.path, "No such file");
  check_unusable(place.path + "/below", "No such file");
  check_unusable(place.dir.path(), "not a regular file");
  check_unusable("/dev/null", "not a regular file");
  put(place.path, "");
  check_unusable(place.path, "too short");
  put(place.path, std::string(5000, 'x'));
  check_unusable(place.path, "not a bundle");
  const std::string pipe = place.dir.path() + "/pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  check_unusable(pipe, "not a regular file");
  // A sparse file claims more than it has.
  REQUIRE(::truncate(place.path.c_str(), (off_t{8} << 30) + 512) == 0);
  check_unusable(place.path, "8 GiB");
  // A link is the operator's own choice.
  place.make(kernels(1));
  const std::string link = place.dir.path() + "/current.hjb";
  REQUIRE(::symlink(place.path.c_str(), link.c_str()) == 0);
  CHECK(open_bundle(link).verify().empty());
}

TEST_CASE("names with spaces, UTF-8 and control characters") {
  const auto dir = folder();
  for (const char* name : {"with space.hjb", "Grüße ☃.hjb", "'quotes\".hjb", "-dash.hjb"}) {
    const std::string path = dir.path() + "/" + name;
    REQUIRE(write_bundle(path, kernels(1), notes()).ok());
    CHECK(open_bundle(path).verify().empty());
  }
  const auto bad = Bundle::open(dir.path() + "/line\nbreak\x1b[31m.hjb");
  CHECK(bad.error().message.find('\n') == std::string::npos);
  CHECK(bad.error().message.find('\x1b') == std::string::npos);
}

TEST_CASE("a bundle that others may write to needs a pin") {
  const Place place;
  place.make(kernels(2));
  const std::string pin = place.path + "@sha256:" + open_bundle(place.path).digest();
  for (const mode_t mode : {0664, 0646, 0666, 0622}) {
    REQUIRE(::chmod(place.path.c_str(), mode) == 0);
    check_unusable(place.path, "pin its digest");
    CHECK(open_bundle(pin).verify().empty());
    CHECK(Bundle::open(place.path, Bundle::Trust::any).ok());
  }
  REQUIRE(::chmod(place.path.c_str(), 0444) == 0);
  CHECK(open_bundle(place.path).verify().empty());
  if (::geteuid() != 0) {
    std::printf("SKIPPED: a bundle of another owner: needs root\n");
    return;
  }
  REQUIRE(::chown(place.path.c_str(), 12345, 12345) == 0);
  check_unusable(place.path, "belongs to user 12345");
  CHECK(open_bundle(pin).verify().empty());
}

TEST_CASE("no permission to read") {
  const Place place;
  place.make(kernels(1));
  REQUIRE(::chmod(place.dir.path().c_str(), 0755) == 0);
  REQUIRE(::chmod(place.path.c_str(), 0) == 0);
  CHECK(run_unprivileged([&] {
          const auto bundle = Bundle::open(place.path);
          if (bundle.ok()) return 1;
          return bundle.error().message.find("Permission denied") == std::string::npos ? 2 : 0;
        }) == 0);
}

TEST_CASE("a full disk leaves the old bundle and nothing else") {
  const Place place;
  place.make(kernels(1));
  const std::string old = get(place.path);
  const int status = wait_for(child([&] {
    const rlimit limit{4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const auto result = write_bundle(place.path, kernels(20), notes());
    if (result.ok()) return 1;
    const std::string& message = result.error().message;
    if (message.find("File too large") == std::string::npos) return 2;
    return message.find(place.path) == std::string::npos ? 3 : 0;
  }));
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(get(place.path) == old);
  CHECK(count_files(place.dir.path()) == 1);
}

TEST_CASE("places that cannot be written to") {
  const auto dir = folder();
  put(dir.path() + "/file", "x");
  for (const std::string& path :
       {dir.path() + "/none/k.hjb", dir.path() + "/file/k.hjb", dir.path(), dir.path() + "/",
        std::string("/proc/k.hjb"), std::string("/dev/null"), std::string()}) {
    const auto result = write_bundle(path, kernels(1), notes());
    INFO(path);
    REQUIRE_FALSE(result.ok());
    check_error(result.error(), path, "cannot write bundle", hstu::jit::ErrorKind::kCache);
  }
  CHECK(count_files(dir.path()) == 1);
  struct stat info {};
  CHECK((::stat("/dev/null", &info) == 0 && S_ISCHR(info.st_mode)));
}

TEST_CASE("how large a bundle gets is known before it is written") {
  const Place place;
  place.make(kernels(7));
  const Bundle bundle = open_bundle(place.path);
  CHECK(bundle_size(bundle.manifest_bytes()->size(), bundle.manifest().entries) ==
        fs::file_size(place.path));
  // Nine entries of 1 GiB, which nobody writes in a test, would pass the limit.
  std::vector<BundleEntry> large(9);
  for (BundleEntry& entry : large) entry.size = uint64_t{1} << 30;
  CHECK(bundle_size(5000, large) == 512 + 5120 + 9 * (512 + (uint64_t{1} << 30)) + 1024);
  CHECK(bundle_size(5000, large) > kMaxBundle);
}

TEST_CASE("kill -9 at every step of writing a bundle") {
  for (const std::string_view step : kBundleSteps) {
    for (const bool had_one : {false, true}) {
      INFO(step << (had_one ? " over an old one" : ""));
      const Place place;
      std::string old;
      if (had_one) {
        place.make(kernels(1));
        old = get(place.path);
      }
      const int status = wait_for(child([&] {
        ::setenv("HSTU_JIT_TEST_CRASH", std::string(step).c_str(), 1);
        return write_bundle(place.path, kernels(3), notes()).ok() ? 0 : 1;
      }));
      const bool replaces_only = step == "bundle_linked";
      if (replaces_only && !had_one) {
        CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
      } else {
        REQUIRE(WIFSIGNALED(status));  // else the step is in the table and not in the code
        CHECK(WTERMSIG(status) == SIGKILL);
      }
      const bool there = step == "bundle_published" || step == "bundle_done" || replaces_only;
      const bool renamed = there && !(replaces_only && had_one);
      CHECK(fs::exists(place.path) == (had_one || renamed));
      if (renamed) {
        CHECK(open_bundle(place.path).verify().empty());
        CHECK(open_bundle(place.path).manifest().entries.size() == 3);
      } else if (had_one) {
        CHECK(get(place.path) == old);
      }
      // Only between its temporary name and the rename can a nameless file leave something.
      CHECK(count_files(place.dir.path(), ".k.hjb.tmp-") == (replaces_only && had_one ? 1 : 0));
      for (const auto& file : fs::directory_iterator(place.dir.path())) {
        set_age(file.path().string(), 7200);
      }
      place.make(kernels(2));
      CHECK(open_bundle(place.path).manifest().entries.size() == 2);
      CHECK(count_files(place.dir.path()) == 1);
    }
  }
}

TEST_CASE("file systems without nameless files") {
  const Place place;
  {
    auto file = NewFile::create(place.path, false);
    REQUIRE(file.ok());
    CHECK(count_files(place.dir.path(), ".k.hjb.tmp-") == 1);
    REQUIRE(file->write("one").ok());
    REQUIRE(file->commit().ok());
  }
  CHECK(get(place.path) == "one");
  {
    auto file = NewFile::create(place.path, false);
    REQUIRE(file.ok());
    REQUIRE(file->write("two").ok());
  }  // not committed
  CHECK(get(place.path) == "one");
  {
    auto file = NewFile::create(place.path, false);
    REQUIRE(file.ok());
    REQUIRE(file->write("three").ok());
    REQUIRE(file->commit().ok());
  }
  CHECK(get(place.path) == "three");
  CHECK(count_files(place.dir.path()) == 1);
  // The longest name a file can have.
  const std::string longest = place.dir.path() + "/" + std::string(255, 'n');
  for (const bool nameless : {false, true, true}) {
    auto file = NewFile::create(longest, nameless);
    REQUIRE(file.ok());
    REQUIRE(file->write("x").ok());
    CHECK(file->commit().ok());
  }
  CHECK(count_files(place.dir.path()) == 2);
}

TEST_CASE("a bundle behind a link is replaced, the link stays") {
  const Place place;
  place.make(kernels(1));
  const std::string link = place.dir.path() + "/current.hjb";
  REQUIRE(::symlink("k.hjb", link.c_str()) == 0);
  REQUIRE(write_bundle(link, kernels(2), notes()).ok());
  CHECK(fs::is_symlink(link));
  CHECK(open_bundle(place.path).manifest().entries.size() == 2);
}

TEST_CASE("killed while writing: the old bundle or the new one, whole") {
  const Place place;
  place.make(kernels(1));
  const std::string old = get(place.path);
  std::vector<std::string> many = {encoded(kernel(3, 'c', size_t{6} << 20))};
  const std::string fresh_path = place.dir.path() + "/fresh.hjb";
  REQUIRE(write_bundle(fresh_path, many, notes()).ok());
  const std::string fresh = get(fresh_path);
  fs::remove(fresh_path);
  int seen_old = 0, seen_new = 0;
  for (int round = 0; round < 16; ++round) {
    put(place.path, old);
    const pid_t pid = child([&] {
      (void)write_bundle(place.path, many, notes());
      return 0;
    });
    ::usleep(static_cast<useconds_t>(1500 * round));
    ::kill(pid, SIGKILL);
    wait_for(pid);
    const std::string now = get(place.path);
    CHECK((now == old || now == fresh));
    ++(now == old ? seen_old : seen_new);
    CHECK(open_bundle(place.path).verify().empty());
  }
  CHECK(seen_old > 0);  // else the kills came too late
  // At most the one that died between its link and its rename; none is taken for a bundle.
  CHECK(count_files(place.dir.path()) <= 2);
}

TEST_CASE("what a killed writer left is removed when it is old") {
  const Place place;
  const std::string left = place.dir.path() + "/.k.hjb.tmp-1-1";
  const std::string young = place.dir.path() + "/.k.hjb.tmp-1-2";
  const std::string other = place.dir.path() + "/.other.hjb.tmp-1-1";
  for (const std::string& path : {left, young, other}) put(path, "x");
  for (const std::string& path : {left, other}) {
    const timespec old[2] = {{::time(nullptr) - 7200, 0}, {::time(nullptr) - 7200, 0}};
    REQUIRE(::utimensat(AT_FDCWD, path.c_str(), old, 0) == 0);
  }
  place.make(kernels(1));
  CHECK_FALSE(fs::exists(left));
  CHECK(fs::exists(young));
  CHECK(fs::exists(other));
}

TEST_CASE("many threads read one bundle, and a forked child as well") {
  const Place place;
  place.make(kernels(20));
  const Bundle bundle = open_bundle(place.path);
  const auto read_all = [&] {
    for (int round = 0; round < 20; ++round) {
      for (int i = 0; i < 20; ++i) {
        if (bundle.lookup(kernel(i).key, true).artifact.payload != kernel(i).payload) return false;
      }
    }
    return true;
  };
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { good += read_all(); });
  for (std::thread& thread : threads) thread.join();
  CHECK(good == 4);
  const pid_t pid = child([&] { return read_all() ? 0 : 1; });
  CHECK(read_all());
  CHECK(wait_for(pid) == 0);
}

TEST_CASE("a store takes a bundle, entry by entry") {
  const Place place;
  place.make(kernels(4));
  const Bundle bundle = open_bundle(place.path);
  const std::string root = place.dir.path() + "/cache";
  const Store store = open_store(root);
  auto report = install_bundle(bundle, store);
  REQUIRE(report.ok());
  CHECK(report->installed == 4);
  CHECK(report->present == 0);
  CHECK(report->problems.empty());
  for (const BundleEntry& entry : bundle.manifest().entries) {
    CHECK(store.lookup(entry.key).hit);
    // The very same bytes.
    CHECK(output_of({"sha256sum", store.entry_path(entry.key)}).substr(0, 64) == entry.sha256);
  }
  report = install_bundle(bundle, store);
  CHECK(report->installed == 0);
  CHECK(report->present == 4);

  // A bundle of that store again is the same bundle.
  BundleWriter writer(notes());
  for (const BundleEntry& entry : bundle.manifest().entries) {
    REQUIRE(writer.add(store, entry.key).ok());
  }
  const std::string again = place.dir.path() + "/again.hjb";
  CHECK(*writer.write(again) == bundle.digest());
  CHECK(get(again) == get(place.path));
  CHECK_FALSE(writer.add(store, kernel(9).key).ok());

  SECTION("damage is reported and the others are installed") {
    std::string bytes = get(place.path);
    const BundleEntry& hit = bundle.manifest().entries[1];
    bytes[bytes.find(entry_name(hit.key)) + 700] ^= 1;
    put(place.path, bytes);
    const Store fresh = open_store(place.dir.path() + "/fresh");
    report = install_bundle(open_bundle(place.path), fresh);
    REQUIRE(report.ok());
    CHECK(report->installed == 3);
    REQUIRE(report->problems.size() == 1);
    CHECK(report->problems[0].entry == 1);
    CHECK_THAT(report->problems[0].reason, ContainsSubstring("SHA-256"));
    CHECK_FALSE(fresh.lookup(hit.key).hit);
  }
  SECTION("a damaged entry of the store is healed") {
    const BundleEntry& hit = bundle.manifest().entries[2];
    put(store.entry_path(hit.key), "damage");
    report = install_bundle(bundle, store);
    CHECK(report->installed == 1);
    CHECK(store.lookup(hit.key).hit);
  }
  SECTION("an entry that went away between add and write") {
    fs::remove(store.entry_path(bundle.manifest().entries[0].key));
    const auto gone = writer.write(again);
    REQUIRE_FALSE(gone.ok());
    check_error(gone.error(), again, "cannot write bundle", hstu::jit::ErrorKind::kCache);
    CHECK(get(again) == get(place.path));
  }
  SECTION("a store that may not hold as much takes nothing") {
    Store::Options small;
    small.root = place.dir.path() + "/small";
    small.explicit_root = true;
    small.size_limit = 3000;
    const auto refused = install_bundle(bundle, *Store::open(small));
    REQUIRE_FALSE(refused.ok());
    check_error(refused.error(), place.path, "HSTU_JIT_CACHE_SIZE", hstu::jit::ErrorKind::kCache);
    CHECK(count_files(small.root, kernel(0).key.request.substr(0, 8)) == 0);
  }
  SECTION("a store that is not writable takes nothing") {
    const auto refused = install_bundle(bundle, open_store(root, Mode::read_only));
    REQUIRE_FALSE(refused.ok());
    check_error(refused.error(), place.path, "not open for writing", hstu::jit::ErrorKind::kCache);
  }
}
