// SPDX-License-Identifier: Apache-2.0
// The layers together: who is asked first, who keeps what, and what a miss says.
#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include "bundle_helpers.hpp"
#include "cache/cache.hpp"
#include "cache/remote.hpp"
#include "cache/remote_transport.hpp"

using namespace hstu::cache;
using namespace hstu::cache::test;

namespace {

// A server's memory, and whether it answers.
struct Shelf {
  std::mutex mutex;
  std::map<std::string, std::string> objects;
  bool dead = false;
  int gets = 0, puts = 0;
};

class ShelfTransport : public Transport {
 public:
  explicit ShelfTransport(Shelf* shelf) : shelf_(shelf) {}
  Answer get(const Request& request) override {
    const std::lock_guard<std::mutex> lock(shelf_->mutex);
    ++shelf_->gets;
    if (shelf_->dead) return {Answer::Kind::unreachable, "", "nobody there"};
    const auto at = shelf_->objects.find(request.name);
    if (at == shelf_->objects.end()) return {Answer::Kind::absent, "", ""};
    return {Answer::Kind::done, at->second, ""};
  }
  Answer put(const Request& request, std::string_view bytes) override {
    const std::lock_guard<std::mutex> lock(shelf_->mutex);
    ++shelf_->puts;
    if (shelf_->dead) return {Answer::Kind::unreachable, "", "nobody there"};
    shelf_->objects[request.name] = std::string(bytes);
    return {Answer::Kind::done, "", ""};
  }

 private:
  Shelf* shelf_;
};

std::shared_ptr<Remote> remote_over(Shelf* shelf, bool read_write = false) {
  RemoteOptions options;
  options.url = "http://shelf.test/cache";
  options.read_write = read_write;
  return Remote::over(std::make_unique<ShelfTransport>(shelf), options);
}

CacheOptions options_in(const std::string& root, Mode mode = Mode::read_write) {
  CacheOptions options;
  options.local.root = root;
  options.local.explicit_root = true;
  options.local.mode = mode;
  options.environment_bundles = false;
  options.environment_remote = false;
  options.wait_for_remote = true;
  return options;
}

std::unique_ptr<Cache> cache_of(const CacheOptions& options) {
  auto cache = Cache::open(options);
  if (!cache.ok()) FAIL(cache.error().message);
  return std::move(*cache);
}

// A bundle of these; its path with the pin, or without.
std::string bundle_of(const std::string& folder, const std::vector<Artifact>& artifacts,
                      bool pinned, const std::string& name = "k.hjb") {
  std::vector<std::string> bytes;
  for (const Artifact& each : artifacts) bytes.push_back(encoded(each));
  auto digest = write_bundle(folder + "/" + name, bytes, notes());
  REQUIRE(digest.ok());
  return folder + "/" + name + (pinned ? "@sha256:" + *digest : "");
}

Artifact with_payload(const std::string& payload, char toolchain = 'c') {
  return artifact("kernel\nbody\n", toolchain, payload);
}

void give(Shelf* shelf, const Artifact& artifact) {
  REQUIRE(remote_over(shelf, true)->publish(artifact).ok());
}

bool one_line(const std::string& text) { return text.find('\n') == std::string::npos; }

}  // namespace

TEST_CASE("bundles answer before the local store, and that before the remote") {
  const auto dir = folder(), bundles = folder();
  Shelf shelf;
  const Artifact bundled = with_payload("bundled"), local = with_payload("local"),
                 far = with_payload("far");
  give(&shelf, far);
  const int before = shelf.gets;
  CacheOptions options = options_in(dir.path());
  options.remote = remote_over(&shelf);

  // Nothing here: from the remote, and kept as the remote had it.
  {
    auto cache = cache_of(options);
    const CacheLookup found = cache->lookup(far.key);
    REQUIRE(found.hit);
    CHECK(found.layer == Layer::remote);
    CHECK(found.artifact.payload == "far");
    CHECK(get(cache->store().entry_path(far.key)) == encoded(far));
    CHECK(cache->lookup(far.key).layer == Layer::local);
    CHECK(shelf.gets == before + 1);
    const CacheStatistics s = cache->statistics();
    CHECK(s.hits[static_cast<size_t>(Layer::remote)] == 1);
    CHECK(s.hits[static_cast<size_t>(Layer::local)] == 1);
    CHECK(s.misses[static_cast<size_t>(Layer::local)][static_cast<size_t>(MissReason::absent)] ==
          1);
    CHECK(s.kept == 1);
    REQUIRE(cache->publish_local(local).ok());
    CHECK(cache->lookup(far.key).artifact.payload == "local");
  }
  options.bundles = {bundle_of(bundles.path(), {bundled}, true)};
  auto cache = cache_of(options);
  CHECK(cache->lookup(far.key).artifact.payload == "bundled");
  CHECK(cache->lookup(far.key).layer == Layer::bundle);
  CHECK(cache->lookup_bundles(far.key).artifact.payload == "bundled");
  CHECK(shelf.gets == before + 1);
}

TEST_CASE("only a bundle named with its digest answers for any compiler, the right one first") {
  const auto dir = folder(), bundles = folder();
  const Artifact other = with_payload("other", 'd'), own = with_payload("own", 'c');
  const std::string open_one = bundle_of(bundles.path(), {other}, false, "open.hjb");
  const std::string pinned = bundle_of(bundles.path(), {other}, true, "pinned.hjb");
  const std::string later = bundle_of(bundles.path(), {own}, false, "later.hjb");
  const auto lookup = [&](std::vector<std::string> names, const Key& key, bool any = false) {
    CacheOptions options = options_in(dir.path());
    options.bundles = std::move(names);
    return cache_of(options)->lookup(key, any);
  };
  const Key nobody{own.key.request, ""};
  CHECK_FALSE(lookup({open_one}, own.key).hit);
  CHECK(lookup({open_one}, own.key).reason == MissReason::toolchain);
  CHECK(lookup({open_one}, own.key, true).artifact.payload == "other");
  CHECK(lookup({pinned}, own.key).artifact.payload == "other");
  CHECK(lookup({pinned, later}, own.key).artifact.payload == "own");
  CHECK(lookup({pinned, later}, nobody).artifact.payload == "other");
  CHECK_FALSE(lookup({open_one}, nobody).hit);
}

TEST_CASE("a miss has the reason of every layer, in one line") {
  const auto dir = folder(), bundles = folder();
  Shelf shelf;
  CacheOptions options = options_in(dir.path());
  options.bundles = {bundle_of(bundles.path(), {kernel(0)}, false)};
  options.remote = remote_over(&shelf);
  auto cache = cache_of(options);
  const Artifact wanted = with_payload("x");
  const Artifact near = artifact("kernel\nother body\n");
  REQUIRE(cache->publish(near).ok());
  CacheLookup miss = cache->lookup(wanted.key, false, &wanted.ingredients);
  REQUIRE_FALSE(miss.hit);
  CHECK(miss.layer == Layer::none);
  CHECK(miss.reason == MissReason::absent);
  CHECK(one_line(miss.explanation));
  for (const char* part : {"bundle: ", "local: ", "remote: ", "source: from line 2 on"}) {
    CHECK_THAT(miss.explanation, ContainsSubstring(part));
  }
  // The remote dies, and the local entry is damaged: the first layer that has more to say counts.
  REQUIRE(cache->publish(wanted).ok());
  const std::string path = cache->store().entry_path(wanted.key);
  std::string bytes = get(path);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  put(path, bytes);
  shelf.dead = true;
  miss = cache->lookup(wanted.key);
  REQUIRE_FALSE(miss.hit);
  CHECK(miss.reason == MissReason::corrupt);
  CHECK(one_line(miss.explanation));
  CHECK_THAT(miss.explanation, ContainsSubstring("damaged"));
  CHECK_THAT(miss.explanation, ContainsSubstring("remote: "));
  miss = cache->lookup(wanted.key);
  CHECK(miss.reason == MissReason::unreachable);
  const CacheStatistics s = cache->statistics();
  const auto misses = [&](Layer layer, MissReason reason) {
    return s.misses[static_cast<size_t>(layer)][static_cast<size_t>(reason)];
  };
  CHECK(misses(Layer::bundle, MissReason::absent) == 3);
  CHECK(misses(Layer::local, MissReason::absent) == 2);
  CHECK(misses(Layer::local, MissReason::corrupt) == 1);
  CHECK(misses(Layer::remote, MissReason::absent) == 1);
  CHECK(misses(Layer::remote, MissReason::unreachable) == 2);
  CHECK(s.hits[static_cast<size_t>(Layer::none)] == 3);
}

TEST_CASE("modes: read-only and sealed keep and send nothing, off asks nobody") {
  Shelf shelf;
  const Artifact far = with_payload("far"), made = artifact("made here\n");
  give(&shelf, far);
  for (const Mode mode : {Mode::read_only, Mode::sealed, Mode::off}) {
    const auto dir = folder(), bundles = folder();
    const int gets = shelf.gets, puts = shelf.puts;
    CacheOptions options = options_in(dir.path(), mode);
    options.remote = remote_over(&shelf, true);
    options.bundles = {bundle_of(bundles.path(), {kernel(0)}, true)};
    auto cache = cache_of(options);
    CHECK(cache->lookup(far.key).hit == (mode != Mode::off));
    CHECK(cache->lookup(kernel(0).key).hit == (mode != Mode::off));
    CHECK(cache->publish(made).ok());
    Store::CompileLock lock;
    CHECK_FALSE(cache->lookup_or_lock(made.key, nullptr, 1000, &lock).hit);
    CHECK_FALSE(lock.held());
    CHECK(count_files(dir.path()) == 0);
    CHECK(shelf.puts == puts);
    if (mode == Mode::off) CHECK(shelf.gets == gets);
  }
}

TEST_CASE("what is published reaches the remote even when the local store refuses") {
  const auto dir = folder();
  Shelf shelf;
  CacheOptions options = options_in(dir.path());
  options.remote = remote_over(&shelf, true);
  auto cache = cache_of(options);
  const Artifact made = with_payload("made");
  fs::remove_all(dir.path() + "/v1");
  put(dir.path() + "/v1", "in the way");
  CHECK_FALSE(cache->publish(made).ok());
  CHECK(cache->statistics().publish_failures == 1);
  CHECK(remote_over(&shelf)->lookup(made.key).hit);
  // Nor does the remote's hit need the store.
  const CacheLookup found = cache->lookup(made.key);
  CHECK(found.hit);
  CHECK_THAT(found.note, ContainsSubstring("not kept"));
}

TEST_CASE("bundles that cannot be used: named ones fail, those of the environment warn") {
  const auto dir = folder(), bundles = folder();
  const std::string good = bundle_of(bundles.path(), {kernel(0)}, true);
  const std::string wrong = bundles.path() + "/k.hjb@sha256:" + std::string(64, 'a');
  CacheOptions named = options_in(dir.path());
  for (const std::string& name : {bundles.path() + "/none.hjb", wrong}) {
    named.bundles = {name};
    const auto refused = Cache::open(named);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().kind == hstu::jit::ErrorKind::kCache);
    CHECK(one_line(refused.error().message));
  }
  CacheOptions options = options_in(dir.path());
  options.environment_bundles = true;
  const Environment list("HSTU_JIT_BUNDLES",
                         (bundles.path() + "/none.hjb:" + wrong + ":" + good).c_str());
  auto cache = cache_of(options);
  CHECK(cache->bundles().size() == 1);
  CHECK(cache->lookup(kernel(0).key).layer == Layer::bundle);
  CHECK(one_line(cache->warning()));
  CHECK_THAT(cache->warning(), ContainsSubstring("none.hjb"));
  CHECK_THAT(cache->lookup(kernel(1).key).explanation, ContainsSubstring("none.hjb"));
}

TEST_CASE("who waits for another's work takes what that published") {
  const auto dir = folder(), runtime = folder();
  const Environment environment("XDG_RUNTIME_DIR", runtime.path().c_str());
  auto cache = cache_of(options_in(dir.path()));
  const Artifact made = with_payload("made");
  Store::CompileLock first;
  CHECK_FALSE(cache->lookup_or_lock(made.key, nullptr, 1000, &first).hit);
  REQUIRE(first.held());
  std::thread second([&] {
    Store::CompileLock lock;
    const CacheLookup found = cache->lookup_or_lock(made.key, nullptr, 20000, &lock);
    CHECK(found.hit);
    CHECK(found.layer == Layer::local);
    CHECK_FALSE(lock.held());
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(cache->publish(made).ok());
  first = {};
  second.join();
  // Bounded, and then on its own.
  const Artifact other = artifact("other\n");
  CHECK_FALSE(cache->lookup_or_lock(other.key, nullptr, 1000, &first).hit);
  Store::CompileLock late;
  CHECK_FALSE(cache->lookup_or_lock(other.key, nullptr, 30, &late).hit);
  CHECK_FALSE(late.held());
}

TEST_CASE("a question leaves no trace") {
  const auto dir = folder();
  Shelf shelf;
  const Artifact far = artifact("far away\n"), here = with_payload("here");
  give(&shelf, far);
  CacheOptions options = options_in(dir.path());
  options.remote = remote_over(&shelf);
  auto cache = cache_of(options);
  REQUIRE(cache->publish(here).ok());
  const std::string path = cache->store().entry_path(here.key);
  set_age(path, 50000);
  const size_t files = count_files(dir.path());
  CHECK(cache->peek(here.key).layer == Layer::local);
  CHECK(cache->peek(far.key).layer == Layer::remote);
  CHECK_FALSE(cache->peek(artifact("nowhere\n").key).hit);
  put(path, "damage");
  CHECK(cache->peek(here.key).reason == MissReason::corrupt);
  CHECK(fs::exists(path));
  CHECK(count_files(dir.path()) == files);
  const CacheStatistics s = cache->statistics();
  for (size_t layer = 0; layer < kLayers; ++layer) CHECK(s.hits[layer] == 0);
}

TEST_CASE("many threads ask and publish at once") {
  const auto dir = folder();
  Shelf shelf;
  CacheOptions options = options_in(dir.path());
  options.remote = remote_over(&shelf, true);
  auto cache = cache_of(options);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 12; ++i) {
        const Artifact one = kernel((i + 3 * t) % 6);
        const CacheLookup found = cache->lookup(one.key);
        if (found.hit && found.artifact.payload != one.payload) ++wrong;
        if (!found.hit && !cache->publish(one).ok()) ++wrong;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
  for (int i = 0; i < 6; ++i) CHECK(cache->lookup(kernel(i).key).layer == Layer::local);
}
