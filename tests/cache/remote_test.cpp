// SPDX-License-Identifier: Apache-2.0
// The policy of remotes over a transport in memory: what counts as a hit, when nothing is asked,
// what is said, what fork() does.
#include <fmt/format.h>
#include <sys/wait.h>

#include <new>
#include <random>

#include "cache/remote_circuit.hpp"
#include "remote_server.hpp"

using namespace hstu::cache;
using namespace hstu::cache::test;
using Kind = Answer::Kind;

namespace {

Answer give(Kind kind, std::string bytes = {}) {
  return {kind, std::move(bytes), kind == Kind::done || kind == Kind::absent ? "" : "it is broken"};
}

// Objects in memory; `fail` turns every answer into one of that kind.
struct Fake {
  std::mutex mutex;
  std::map<std::string, std::string> objects;
  std::atomic<int> gets{0}, puts{0};
  std::atomic<Kind> fail{Kind::done};
  std::atomic<int> delay_ms{0};
  std::atomic<bool> no_memory{false};

  class Client final : public Transport {
   public:
    explicit Client(Fake& fake) : fake_(fake) {}
    Answer get(const Request& request) override {
      ++fake_.gets;
      if (fake_.fail != Kind::done) return give(fake_.fail);
      const std::lock_guard lock(fake_.mutex);
      const auto found = fake_.objects.find(request.name);
      return found == fake_.objects.end() ? give(Kind::absent) : give(Kind::done, found->second);
    }
    Answer put(const Request& request, std::string_view bytes) override {
      ++fake_.puts;
      if (fake_.no_memory) throw std::bad_alloc();
      std::this_thread::sleep_for(std::chrono::milliseconds(fake_.delay_ms));
      if (fake_.fail != Kind::done) return give(fake_.fail);
      const std::lock_guard lock(fake_.mutex);
      fake_.objects[request.name] = bytes;
      return give(Kind::done);
    }

   private:
    Fake& fake_;
  };

  std::unique_ptr<Remote> open(RemoteOptions options) {
    return Remote::over(std::make_unique<Client>(*this), options);
  }
};

// Each with an address of its own: warnings are once for each address in a process.
RemoteOptions fresh_options() {
  static std::atomic<int> number{0};
  RemoteOptions options = quick_options("http://u:s3cr3t@fake-" + std::to_string(++number) +
                                        ".example/base?sig=s3cr3t");
  options.first_pause_ms = 40;
  options.longest_pause_ms = 100;
  return options;
}

std::string name_of(const Key& key) {
  return "objects/" + key.request.substr(0, 2) + "/" + key.request + "." +
         key.toolchain.substr(0, 12) + ".hko";
}
std::string pointer_of(const Key& key) {
  return "objects/" + key.request.substr(0, 2) + "/" + key.request + ".toolchain";
}

}  // namespace

TEST_CASE("no remote without an address") {
  const Environment none("HSTU_JIT_REMOTE", nullptr);
  const auto options = remote_options_from_environment();
  REQUIRE(options.ok());
  const auto remote = Remote::open(*options);
  REQUIRE(remote.ok());
  CHECK(*remote == nullptr);
}

TEST_CASE("whatever bytes come back, only the exact entry is a hit") {
  LogLines log;
  Fake fake;
  const auto remote = fake.open(fresh_options());
  const Artifact right = artifact();
  const std::string good = encoded(right);
  const std::string name = name_of(right.key);
  const std::string foreign = encoded(artifact("another\n")),
                    other = encoded(artifact("kernel\nbody\n", 'd'));
  std::mt19937 random(20261130);
  const auto roll = [&](size_t below) { return static_cast<size_t>(random()) % below; };
  int hits = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string bytes;
    switch (roll(7)) {
      case 0:
        bytes = good;
        break;
      case 1:  // noise
        bytes.resize(roll(300));
        for (char& c : bytes) c = static_cast<char>(random());
        break;
      case 2:
        bytes = good.substr(0, roll(good.size()));
        break;
      case 3:
        bytes = good + std::string(1 + roll(9), 'x');
        break;
      case 4:
        bytes = good;
        bytes[roll(bytes.size())] ^= static_cast<char>(1 + roll(255));
        break;
      case 5:
        bytes = roll(2) ? foreign : other;
        break;
      default:  // one entry's head on another's body
        bytes = good.substr(0, roll(good.size())) + foreign.substr(roll(foreign.size()));
    }
    fake.objects[name] = bytes;
    const Lookup lookup = remote->lookup(right.key);
    CHECK(lookup.hit == (bytes == good));
    if (lookup.hit) {
      ++hits;
      CHECK(encoded(lookup.artifact) == good);
    } else {
      CHECK(lookup.reason != MissReason::none);
      CHECK(lookup.artifact.payload.empty());
      CHECK_FALSE(lookup.explanation.empty());
    }
  }
  CHECK(hits > 300);
  CHECK(log.lines().size() == 1);  // about thousands of damaged entries
}

TEST_CASE("the pointer of the last publisher") {
  LogLines log;
  Fake fake;
  const auto remote = fake.open(fresh_options());
  const Artifact first = artifact("source\n", 'a'), second = artifact("source\n", 'b');
  const Key none{first.key.request, ""};
  CHECK(remote->lookup(none, true).reason == MissReason::absent);
  REQUIRE(remote->publish(first).ok());
  REQUIRE(remote->publish(second).ok());
  CHECK(remote->lookup(none, true).artifact.key.toolchain == second.key.toolchain);
  CHECK(remote->lookup(first.key, true).artifact.key.toolchain == first.key.toolchain);
  // Without a toolchain of its own and without leave to take any, there is nothing to ask for.
  CHECK_FALSE(remote->lookup(none, false).hit);
  // A damaged own entry: the other answers.
  fake.objects[name_of(first.key)] = "damaged";
  CHECK(remote->lookup(first.key, true).artifact.key.toolchain == second.key.toolchain);

  const std::string pointer = pointer_of(first.key);
  REQUIRE(fake.objects[pointer] == second.key.toolchain);
  fake.objects[pointer] += "\n";  // as a person would write it
  CHECK(remote->lookup(none, true).hit);
  for (const std::string& bad : {std::string(), std::string(63, 'b'), std::string(64, 'B'),
                                 std::string(64, '/'), std::string("../../../../etc/passwd"),
                                 std::string(64, 'b') + "x", std::string(64, 'b') + "\n\n"}) {
    fake.objects[pointer] = bad;
    const Lookup missed = remote->lookup(none, true);
    CHECK(missed.reason == MissReason::corrupt);
  }
  // The name holds twelve digits of the toolchain: the entry must have them all.
  fake.objects[pointer] = std::string(12, 'b') + std::string(52, 'c');
  CHECK(remote->lookup(none, true).reason == MissReason::corrupt);
  fake.objects[pointer] = std::string(64, 'e');  // dangling
  CHECK(remote->lookup(none, true).reason == MissReason::absent);
}

TEST_CASE("a failure is followed by silence, one probe, and longer silence") {
  Circuit circuit(100, 350);
  using Pass = Circuit::Pass;
  CHECK(circuit.enter(1000, 50) == Pass::normal);
  circuit.failed(Pass::normal, 1000);
  circuit.failed(Pass::normal, 1010);  // others that were under way
  CHECK(circuit.left(1000) == 100);
  circuit.succeeded(Pass::normal);  // an older answer proves nothing
  CHECK(circuit.enter(1099, 50) == Pass::none);
  CHECK(circuit.enter(1100, 50) == Pass::probe);
  CHECK(circuit.enter(1101, 50) == Pass::none);  // one probe at a time
  circuit.failed(Pass::probe, 1120);
  CHECK(circuit.enter(1319, 50) == Pass::none);
  CHECK(circuit.enter(1320, 50) == Pass::probe);
  circuit.failed(Pass::probe, 1320);
  CHECK(circuit.enter(1669, 50) == Pass::none);  // not longer than the longest
  CHECK(circuit.enter(1670, 50) == Pass::probe);
  // A probe that never came back.
  CHECK(circuit.enter(1719, 50) == Pass::none);
  CHECK(circuit.enter(1720, 50) == Pass::probe);
  circuit.succeeded(Pass::probe);
  CHECK(circuit.enter(1721, 50) == Pass::normal);
  circuit.failed(Pass::normal, 1721);
  CHECK(circuit.left(1721) == 100);  // from the beginning
}

TEST_CASE("a dead remote costs one warning and no request, and is found again") {
  LogLines log;
  Fake fake;
  const auto remote = fake.open(fresh_options());
  const Artifact wanted = artifact();
  fake.fail = Kind::unreachable;
  for (int i = 0; i < 100; ++i) {
    const Lookup missed = remote->lookup(wanted.key);
    CHECK(missed.reason == MissReason::unreachable);
    CHECK_FALSE(remote->publish(wanted).ok());
  }
  CHECK(fake.gets + fake.puts <= 3);  // 40 ms may have passed on a slow machine
  REQUIRE(log.lines().size() == 1);
  CHECK(log.lines()[0].find("it is broken") != std::string::npos);
  CHECK(log.lines()[0].find(kSecret) == std::string::npos);
  CHECK(remote->statistics().withheld >= 197);

  fake.fail = Kind::done;
  std::this_thread::sleep_for(std::chrono::milliseconds(120));
  CHECK(remote->publish(wanted).ok());
  CHECK(remote->lookup(wanted.key).hit);
  CHECK(log.lines().size() == 1);
}

TEST_CASE("many threads on a dead remote: few requests, one warning") {
  LogLines log;
  Fake fake;
  RemoteOptions options = fresh_options();
  options.first_pause_ms = 10000;
  const auto remote = fake.open(options);
  fake.fail = Kind::unreachable;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 200; ++k) static_cast<void>(remote->lookup(artifact().key));
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(fake.gets <= 8);
  CHECK(log.lines().size() == 1);
  CHECK(remote->statistics().lookups == 1600);
}

TEST_CASE("read-only: nothing is sent") {
  Fake fake;
  RemoteOptions options = fresh_options();
  options.read_write = false;
  const auto remote = fake.open(options);
  CHECK(remote->publish(artifact()).ok());
  remote->publish_later(artifact());
  CHECK(remote->flush(1000));
  CHECK(fake.puts == 0);
  CHECK_FALSE(remote->read_write());
}

TEST_CASE("entries over the limit are neither sent nor taken") {
  LogLines log;
  Fake fake;
  RemoteOptions options = fresh_options();
  const Artifact large = artifact("large\n", 'c', std::string(2 << 20, 'x'));
  CHECK_FALSE(fake.open(options)->publish(large).ok());
  CHECK(fake.puts == 0);
  fake.objects[name_of(large.key)] = encoded(large);
  CHECK(fake.open(options)->lookup(large.key).reason == MissReason::unreachable);
}

TEST_CASE("publishing in the background") {
  Fake fake;
  const auto remote = fake.open(fresh_options());
  fake.delay_ms = 5;
  const Watch watch;
  for (int i = 0; i < 10; ++i) remote->publish_later(artifact(fmt::format("n{}", i)));
  CHECK(watch.ms() < 60);
  CHECK(remote->flush(5000));
  CHECK(remote->statistics().publishes == 10);
  CHECK(fake.objects.size() == 20);
  // A thread of its own each time there is work again.
  remote->publish_later(artifact("again"));
  CHECK(remote->flush(5000));
  CHECK(remote->statistics().publishes == 11);
}

TEST_CASE("a job in the background that finds no memory ends itself alone") {
  Fake fake;
  fake.no_memory = true;
  const auto remote = fake.open(fresh_options());
  remote->publish_later(artifact("lost"));
  CHECK(remote->flush(5000));
  CHECK(remote->statistics().publish_failures == 1);
  fake.no_memory = false;
  remote->publish_later(artifact("sent"));
  CHECK(remote->flush(5000));
  CHECK(remote->statistics().publishes == 1);
}

TEST_CASE("the background queue is bounded in number and in time") {
  LogLines log;
  Fake fake;
  const Watch watch;
  {
    const auto remote = fake.open(fresh_options());
    fake.delay_ms = 30;
    for (int i = 0; i < 200; ++i) remote->publish_later(artifact(fmt::format("n{}", i)));
    CHECK(remote->statistics().publish_failures >= 130);  // dropped: 64 wait and one or two ran
    CHECK_FALSE(remote->flush(1));
  }
  CHECK(watch.ms() < 1000);  // 65 would have taken 3.9 s; closing waits for the time-out of 0.3 s
}

TEST_CASE("a child after fork has a remote of its own and does not wait for its parent's threads") {
  LogLines log;
  Fake fake;
  auto remote = fake.open(fresh_options());
  fake.delay_ms = 50;
  for (int i = 0; i < 20; ++i) remote->publish_later(artifact(fmt::format("n{}", i)));
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(10);  // a child that hangs dies
    remote->publish_later(artifact("of the child"));
    const bool idle = remote->flush(1000);
    fake.delay_ms = 0;
    remote.reset();
    ::_exit(idle ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  remote.reset();
}

TEST_CASE("damaged keys ask nothing") {
  Fake fake;
  const auto remote = fake.open(fresh_options());
  const std::string digest(64, 'a');
  for (const Key& key : {Key{"", ""}, Key{digest, ""}, Key{"../" + digest.substr(3), digest},
                         Key{digest, std::string(64, 'A')}, Key{digest + "0", digest}}) {
    CHECK(remote->lookup(key).reason == MissReason::absent);
  }
  Artifact bad = artifact();
  bad.key.request = digest;
  CHECK_FALSE(remote->publish(bad).ok());
  CHECK(fake.gets + fake.puts == 0);
}
