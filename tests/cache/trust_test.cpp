// SPDX-License-Identifier: Apache-2.0
// Whose files are loaded, and which links are followed.
#include <sys/stat.h>
#include <unistd.h>

#include "base/temp_dir.hpp"
#include "cache/collect.hpp"
#include "cache/listing.hpp"
#include "helpers.hpp"

using namespace hstu::cache;
using namespace hstu::cache::test;

namespace {

struct Place {
  hstu::jit::TempDir dir = folder();
  std::string root = dir.path() + "/root";
  Store store = open_store(root);
  Artifact in = artifact();
  std::string path = store.entry_path(in.key);
  std::string fan = fs::path(path).parent_path();
  Place() { REQUIRE(store.publish(in).ok()); }
};

}  // namespace

TEST_CASE("an entry that others may write to is not loaded, and stays") {
  Place place;
  for (const mode_t mode : {0664, 0646, 0666, 0622}) {
    REQUIRE(::chmod(place.path.c_str(), mode) == 0);
    const Lookup missed = place.store.lookup(place.in.key);
    CHECK_FALSE(missed.hit);
    CHECK(missed.reason == MissReason::foreign_owner);
    CHECK_THAT(missed.explanation, ContainsSubstring("others may write to it"));
    CHECK(fs::exists(place.path));
  }
  REQUIRE(place.store.publish(place.in).ok());  // replaced by one that only we may write to
  CHECK(place.store.lookup(place.in.key).hit);
  struct stat info {};
  REQUIRE(::stat(place.path.c_str(), &info) == 0);
  CHECK((info.st_mode & 022) == 0);
}

TEST_CASE("entries are private to write whatever the umask") {
  const mode_t before = ::umask(0);
  Place place;
  ::umask(before);
  struct stat info {};
  for (fs::path path = place.path; path.string().size() >= place.root.size();
       path = path.parent_path()) {
    REQUIRE(::stat(path.c_str(), &info) == 0);
    CHECK((info.st_mode & 022) == 0);
  }
}

TEST_CASE("entries of trusted users are loaded, of others not") {
  if (::geteuid() != 0) {
    std::printf("SKIPPED: entries of trusted users: needs root\n");
    return;
  }
  Place place;
  REQUIRE(::chown(place.path.c_str(), 12345, 12345) == 0);
  CHECK(place.store.lookup(place.in.key).reason == MissReason::foreign_owner);
  CHECK_THAT(place.store.lookup(place.in.key).explanation, ContainsSubstring("user 12345"));
  {
    const Environment trusted("HSTU_JIT_TRUSTED_UIDS", "7,12345");
    CHECK(place.store.lookup(place.in.key).hit);
  }
  for (const char* list : {"12344", "12345x", "12345,", ",12345", "-1", " 12345", "99999999999"}) {
    const Environment trusted("HSTU_JIT_TRUSTED_UIDS", list);
    INFO(list);
    CHECK(place.store.lookup(place.in.key).reason == MissReason::foreign_owner);
    const bool is_list = std::string(list) == "12344";
    CHECK(open_store(place.root).warning().empty() == is_list);
  }
  CHECK(place.store.peek(place.in.key).reason == MissReason::foreign_owner);
  REQUIRE(place.store.publish(place.in).ok());
  CHECK(place.store.lookup(place.in.key).hit);
}

TEST_CASE("an ordinary user loads what root published, not what a third one did") {
  if (::geteuid() != 0) {
    std::printf("SKIPPED: entries of root for an ordinary user: needs root\n");
    return;
  }
  Place place;
  fs::permissions(place.dir.path(), fs::perms(0755));
  fs::permissions(place.root, fs::perms(0755));
  const auto reason = [&] {
    return run_unprivileged([&] {
      const Lookup found = open_store(place.root, Mode::read_only).lookup(place.in.key);
      return found.hit ? 0 : static_cast<int>(found.reason);
    });
  };
  CHECK(reason() == 0);
  REQUIRE(::chown(place.path.c_str(), 12345, 12345) == 0);
  CHECK(reason() == static_cast<int>(MissReason::foreign_owner));
}

TEST_CASE("a link in the place of a fan-out folder leads nowhere") {
  Place place;
  const std::string elsewhere = place.dir.path() + "/elsewhere";
  fs::rename(place.fan, elsewhere);
  REQUIRE(::symlink(elsewhere.c_str(), place.fan.c_str()) == 0);
  // Not even a read-only store follows it; nothing outside is collected, listed or cleared.
  CHECK(open_store(place.root, Mode::read_only).lookup(place.in.key).reason == MissReason::corrupt);
  CHECK(collect(place.root, {1, true}).evicted == 0);
  CHECK(list_entries(place.root).empty());
  CHECK(verify_entries(place.root, Damage::remove).good == 0);
  CHECK(clear_entries(place.root).entries == 0);
  CHECK(count_files(elsewhere) == 1);

  const Lookup missed = place.store.lookup(place.in.key);
  CHECK(missed.reason == MissReason::corrupt);
  CHECK_FALSE(fs::exists(fs::symlink_status(place.fan)));
  REQUIRE(place.store.publish(place.in).ok());
  CHECK(place.store.lookup(place.in.key).hit);
  CHECK(count_files(elsewhere) == 1);

  // Also when it came after the lookup.
  fs::remove_all(place.fan);
  REQUIRE(::symlink(elsewhere.c_str(), place.fan.c_str()) == 0);
  REQUIRE(place.store.publish(place.in).ok());
  CHECK(place.store.lookup(place.in.key).hit);
  CHECK(count_files(elsewhere) == 1);
}

TEST_CASE("a file in the place of a fan-out folder is put out of the way") {
  Place place;
  fs::remove_all(place.fan);
  REQUIRE(hstu::jit::write_file_atomic(place.fan, "x").ok());
  CHECK(place.store.lookup(place.in.key).reason == MissReason::corrupt);
  REQUIRE(place.store.publish(place.in).ok());
  CHECK(place.store.lookup(place.in.key).hit);
}

TEST_CASE("links inside the root make it unusable, links to the root are the user's choice") {
  Place place;
  const std::string link = place.dir.path() + "/link";
  REQUIRE(::symlink(place.root.c_str(), link.c_str()) == 0);
  CHECK(open_store(link).lookup(place.in.key).hit);
  CHECK(open_store(link, Mode::read_only).lookup(place.in.key).hit);
  if (::geteuid() == 0) {
    REQUIRE(::lchown(link.c_str(), 12345, 12345) == 0);
    Store::Options options;
    options.root = link;
    options.explicit_root = true;
    for (const Mode mode : {Mode::read_write, Mode::read_only}) {
      options.mode = mode;
      const auto store = Store::open(options);
      REQUIRE_FALSE(store.ok());
      CHECK_THAT(store.error().message, ContainsSubstring("link made by user 12345"));
      options.root = link + "/v1";  // also in the middle of a path
    }
  } else {
    std::printf("SKIPPED: root reached by a stranger's link: needs root\n");
  }
  for (const char* part : {"/v1/objects", "/v1"}) {
    const std::string elsewhere = place.dir.path() + "/elsewhere" + std::to_string(part[3] != 0);
    fs::rename(place.root + part, elsewhere);
    REQUIRE(::symlink(elsewhere.c_str(), (place.root + part).c_str()) == 0);
    Store::Options options;
    options.root = place.root;
    options.explicit_root = true;
    CHECK_FALSE(Store::open(options).ok());
    CHECK_FALSE(place.store.lookup(place.in.key).hit);
    CHECK_FALSE(place.store.publish(artifact("other")).ok());
    fs::remove(place.root + part);
    fs::rename(elsewhere, place.root + part);
    CHECK(place.store.lookup(place.in.key).hit);
  }
}
