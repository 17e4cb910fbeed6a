// SPDX-License-Identifier: Apache-2.0
// Whatever lies in the place of an entry is a miss with the right reason, is put out of the way
// when it is damage, and the next publish heals it.
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <functional>

#include "base/temp_dir.hpp"
#include "helpers.hpp"

using namespace hstu::cache;
using namespace hstu::cache::test;
using hstu::jit::replace_file_atomic;

namespace {

struct Place {
  hstu::jit::TempDir dir = folder();
  Store store = open_store(dir.path());
  Artifact in = artifact();
  std::string path;
  std::string good;

  Place() {
    REQUIRE(store.publish(in).ok());
    path = store.entry_path(in.key);
    good = *hstu::jit::read_file(path);
  }
  // Expects a miss of this reason, in quarantine or not, and a publish that heals.
  void expect(MissReason reason, bool quarantined) {
    const Lookup missed = store.lookup(in.key);
    CHECK_FALSE(missed.hit);
    CHECK(miss_reason_name(missed.reason) == std::string(miss_reason_name(reason)));
    CHECK_FALSE(missed.explanation.empty());
    CHECK(missed.explanation.find('\n') == std::string::npos);
    std::error_code ignored;
    CHECK(fs::exists(fs::symlink_status(path, ignored)) == !quarantined);
    REQUIRE(store.publish(in).ok());
    CHECK(store.lookup(in.key).hit);
    CHECK(count_files(dir.path(), ".tmp-") == 0);
  }
  // Not forced to the disk: there are hundreds of these.
  void put(const std::string& bytes) const {
    fs::remove_all(path);
    std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<long>(bytes.size()));
    REQUIRE(fs::file_size(path) == bytes.size());
  }
};

}  // namespace

TEST_CASE("truncated entries") {
  Place place;
  // Every length in the fixed part and around the header's end, then samples: each costs an fsync.
  for (size_t length = 0; length < place.good.size(); length += length < 100 ? 7 : 41) {
    place.put(place.good.substr(0, length));
    place.expect(MissReason::corrupt, true);
  }
}

TEST_CASE("flipped bytes of the fixed part") {
  Place place;
  for (size_t at = 0; at < 96; ++at) {
    std::string bad = place.good;
    bad[at] = static_cast<char>(bad[at] ^ 0x20);
    place.put(bad);
    const bool version = at >= 8 && at < 12;
    place.expect(version ? MissReason::unreadable : MissReason::corrupt, !version);
  }
}

TEST_CASE("an entry of a newer format stays for the program that wrote it") {
  Place place;
  std::string newer = place.good;
  newer[8] = 2;
  place.put(newer);
  const Lookup missed = place.store.lookup(place.in.key);
  CHECK(missed.reason == MissReason::unreadable);
  CHECK_THAT(missed.explanation, ContainsSubstring("version 2"));
  CHECK(*hstu::jit::read_file(place.path) == newer);
}

TEST_CASE("the entry of another key under this name") {
  Place place;
  const Artifact other = artifact("another source");
  REQUIRE(place.store.publish(other).ok());
  place.put(*hstu::jit::read_file(place.store.entry_path(other.key)));
  place.expect(MissReason::corrupt, true);
}

TEST_CASE("a folder, a link, a pipe in the place of an entry") {
  Place place;
  for (int round = 0; round < 3; ++round) {  // the quarantine has a place for each
    fs::remove_all(place.path);
    REQUIRE(::mkdir(place.path.c_str(), 0700) == 0);
    REQUIRE(hstu::jit::write_file_atomic(place.path + "/inside", "x").ok());
    place.expect(MissReason::corrupt, true);
  }
  // A link is not followed, even to a good entry.
  const std::string elsewhere = place.dir.path() + "/elsewhere";
  REQUIRE(hstu::jit::write_file_atomic(elsewhere, place.good).ok());
  fs::remove(place.path);
  REQUIRE(::symlink(elsewhere.c_str(), place.path.c_str()) == 0);
  place.expect(MissReason::corrupt, true);
  CHECK(*hstu::jit::read_file(elsewhere) == place.good);

  fs::remove(place.path);
  REQUIRE(::mkfifo(place.path.c_str(), 0600) == 0);
  place.expect(MissReason::corrupt, true);
}

TEST_CASE("a folder that came after the lookup does not stop a publish") {
  Place place;
  fs::remove(place.path);
  REQUIRE(::mkdir(place.path.c_str(), 0700) == 0);
  REQUIRE(place.store.publish(place.in).ok());
  CHECK(place.store.lookup(place.in.key).hit);
}

TEST_CASE("an entry of another owner is not loaded") {
  if (::geteuid() != 0) {
    std::printf("SKIPPED: entry of another owner: needs root\n");
    return;
  }
  Place place;
  REQUIRE(::chown(place.path.c_str(), 12345, 12345) == 0);
  place.expect(MissReason::foreign_owner, false);
}

TEST_CASE("read-only stores leave damage where it is") {
  Place place;
  place.put("damage");
  const Store reader = open_store(place.dir.path(), Mode::read_only);
  CHECK(reader.lookup(place.in.key).reason == MissReason::corrupt);
  CHECK(*hstu::jit::read_file(place.path) == "damage");
}

TEST_CASE("a damaged neighbour of another toolchain does not hide a good one") {
  Place place;
  const Artifact second = artifact("kernel\nbody\n", 'd');
  REQUIRE(second.key.request == place.in.key.request);
  REQUIRE(place.store.publish(second).ok());
  REQUIRE(replace_file_atomic(place.store.entry_path(second.key), "damage").ok());
  CHECK(place.store.lookup({place.in.key.request, ""}, true).hit);
  REQUIRE(replace_file_atomic(place.store.entry_path(second.key), "damage").ok());
  CHECK(place.store.lookup(second.key, true).hit);  // its own is damaged, the other answers
}
