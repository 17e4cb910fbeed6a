// SPDX-License-Identifier: Apache-2.0
// Death, full disks and refusals at every step of a publish.
#include "cache/publish.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include "cache/statistics.hpp"
#include "helpers.hpp"

using namespace hstu::cache;
using namespace hstu::cache::test;

namespace {

// What is found after a death at a step. A step that has no line here fails the test.
struct AfterDeath {
  std::string_view step;
  bool new_entry;
  bool temporary;  // that a later publish has to sweep
};
constexpr AfterDeath kAfterDeath[] = {
    {"started", false, false},     {"folder_made", false, false}, {"temporary_made", false, true},
    {"half_written", false, true}, {"written", false, true},      {"synced", false, true},
    {"closed", false, true},       {"renamed", true, false},      {"folder_synced", true, false},
};

const AfterDeath* after_death(std::string_view step) {
  for (const AfterDeath& after : kAfterDeath) {
    if (after.step == step) return &after;
  }
  return nullptr;
}

void age_temporaries(const std::string& root) {
  for (const auto& file : fs::recursive_directory_iterator(root)) {
    if (file.path().filename().string().rfind(".tmp-", 0) == 0) set_age(file.path(), 7200);
  }
}

}  // namespace

TEST_CASE("kill -9 at every step of a publish") {
  for (const std::string_view step : kPublishStepNames) {
    const std::string name(step);
    INFO("step " << name);
    const AfterDeath* after = after_death(step);
    REQUIRE(after != nullptr);
    for (const bool had_entry : {false, true}) {
      const auto dir = folder();
      const Store store = open_store(dir.path() + "/root");
      const Artifact old = artifact("kernel\nbody\n", 'c', "old");
      const Artifact neighbour = artifact("kernel\nbody\n", 'd', "neighbour");
      REQUIRE(store.publish(neighbour).ok());
      if (had_entry) REQUIRE(store.publish(old).ok());
      const Artifact fresh = artifact("kernel\nbody\n", 'c', std::string(50000, 'n'));
      const int status = wait_for(child([&] {
        ::setenv("HSTU_JIT_TEST_CRASH", name.c_str(), 1);
        (void)store.publish(fresh);
        return 0;
      }));
      REQUIRE(WIFSIGNALED(status));  // else the step is in the table and not in the code
      CHECK(WTERMSIG(status) == SIGKILL);

      const Lookup found = store.lookup(old.key);
      REQUIRE(found.hit == (had_entry || after->new_entry));
      if (after->new_entry) {
        CHECK(found.artifact.payload == fresh.payload);
      } else if (had_entry) {
        CHECK(found.artifact.payload == "old");
      } else {
        CHECK(found.reason == MissReason::toolchain);  // the neighbour is not damaged or lost
      }
      CHECK(store.lookup(neighbour.key).artifact.payload == "neighbour");
      CHECK(count_files(dir.path() + "/root/v1/quarantine") == 0);
      CHECK(count_files(dir.path(), ".tmp-") == (after->temporary ? 1 : 0));

      age_temporaries(dir.path());
      REQUIRE(store.publish(old).ok());
      CHECK(store.lookup(old.key).artifact.payload == "old");
      CHECK(count_files(dir.path(), ".tmp-") == 0);
    }
  }
}

TEST_CASE("a limit of the file size at any byte leaves the old entry and no temporary") {
  const auto dir = folder();
  const Store store = open_store(dir.path());
  const Artifact old = artifact("kernel\nbody\n", 'c', "old");
  REQUIRE(store.publish(old).ok());
  for (const rlim_t bytes : {0, 1, 95, 96, 200, 4096, 60000}) {
    const int status = wait_for(child([&] {
      const rlimit limit{bytes, bytes};
      ::setrlimit(RLIMIT_FSIZE, &limit);
      const auto result = store.publish(artifact("kernel\nbody\n", 'c', std::string(100000, 'x')));
      if (result.ok()) return 1;
      const Counters counters = store.statistics().counters();
      if (counters.count("local.publish_failed.EFBIG") == 0) return 3;
      return result.error().message.find("File too large") == std::string::npos ? 2 : 0;
    }));
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
    CHECK(store.lookup(old.key).artifact.payload == "old");
    CHECK(count_files(dir.path() + "/v1/objects") == 1);
  }
}

TEST_CASE("a full file system") {
  const auto dir = folder();
  if (::geteuid() != 0 || ::mount("tmpfs", dir.path().c_str(), "tmpfs", 0, "size=256k") != 0) {
    std::printf("SKIPPED: a full file system: mounting a tmpfs is not allowed here\n");
    return;
  }
  {
    const Store store = open_store(dir.path() + "/root");
    const Artifact first = artifact("first", 'c', "first");
    CHECK(store.publish(first).ok());
    int failures = 0;
    std::vector<Key> kept;
    for (int i = 0; i < 12; ++i) {
      const Artifact more = artifact(fmt::format("more {}", i), 'c', std::string(40000, 'm'));
      const auto status = store.publish(more);
      if (status.ok()) {
        kept.push_back(more.key);
      } else {
        ++failures;
        CHECK_THAT(status.error().message, ContainsSubstring("No space left on device"));
        CHECK(status.error().kind == hstu::jit::ErrorKind::kCache);
      }
    }
    CHECK(failures > 0);
    CHECK_FALSE(kept.empty());
    for (const Key& key : kept) CHECK(store.lookup(key).hit);
    CHECK(store.lookup(first.key).hit);
    CHECK(count_files(dir.path(), ".tmp-") == 0);
    CHECK(store.statistics().counters()["local.publish_failed.ENOSPC"] ==
          static_cast<uint64_t>(failures));
    // Room again: the next publish works, with nothing to mend.
    fs::remove(store.entry_path(kept.front()));
    CHECK(store.publish(artifact("after")).ok());
  }
  CHECK(::umount2(dir.path().c_str(), MNT_DETACH) == 0);
}

TEST_CASE("a folder that may only be read: hits, and a publish that says why not") {
  const auto dir = folder();
  fs::permissions(dir.path(), fs::perms(0755));
  const std::string root = dir.path() + "/root";
  const Artifact in = artifact();
  {
    const Store store = open_store(root);
    REQUIRE(store.publish(in).ok());
    set_age(store.entry_path(in.key), 7200);
  }
  fs::permissions(root, fs::perms(0555));
  const std::string objects = root + "/v1/objects";
  const std::string fan = objects + "/" + in.key.request.substr(0, 2);
  fs::permissions(fan, fs::perms(0555));
  fs::permissions(objects, fs::perms(0555));
  const int code = run_unprivileged([&] {
    ::unsetenv("XDG_RUNTIME_DIR");
    Store::Options options;
    options.root = root;
    options.explicit_root = true;
    if (Store::open(options).ok()) return 1;  // a named folder has to be writable
    options.mode = Mode::read_only;
    auto reader = Store::open(options);
    if (!reader.ok()) return 2;
    if (!reader->lookup(in.key).hit || !reader->publish(in).ok()) return 3;
    return 0;
  });
  CHECK(code == 0);
  CHECK(age_of(open_store(root, Mode::read_only).entry_path(in.key)) >= 7200);
  fs::permissions(root, fs::perms(0755));  // so that it can be removed
  fs::permissions(objects, fs::perms(0755));
  fs::permissions(fan, fs::perms(0755));
  // It turned read-only after it was opened.
  const auto spare = folder();
  REQUIRE(::chmod(spare.path().c_str(), 0777) == 0);
  const int later = run_unprivileged([&] {
    ::unsetenv("XDG_RUNTIME_DIR");
    Store::Options options;
    options.root = spare.path() + "/root";
    options.explicit_root = true;
    auto store = Store::open(options);
    if (!store.ok() || !store->publish(in).ok()) return 1;
    const Artifact next = artifact("next");
    if (::chmod((options.root + "/v1/objects").c_str(), 0555) != 0) return 2;
    const auto status = store->publish(next);
    ::chmod((options.root + "/v1/objects").c_str(), 0755);
    if (status.ok()) return in.key.request[0] == next.key.request[0] ? 3 : 4;
    if (status.error().message.find("Permission denied") == std::string::npos) return 5;
    if (!store->lookup(in.key).hit) return 6;
    return store->publish(next).ok() ? 0 : 7;
  });
  CHECK(later == 0);
  CHECK(count_files(spare.path(), ".tmp-") == 0);
}

TEST_CASE("a folder that is taken away between two publishes is made again") {
  const auto dir = folder();
  const Store store = open_store(dir.path() + "/root");
  REQUIRE(store.publish(artifact()).ok());
  fs::remove_all(dir.path() + "/root/v1");
  CHECK(store.lookup(artifact().key).reason == MissReason::absent);
  REQUIRE(store.publish(artifact()).ok());
  CHECK(store.lookup(artifact().key).hit);
}
