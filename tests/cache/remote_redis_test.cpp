// SPDX-License-Identifier: Apache-2.0
// Redis against a server that is well, and against one that fails in every way we know.
#include "remote_server.hpp"

using namespace hstu::cache;
using namespace hstu::cache::test;

namespace {

// Accepts the password and answers the command that follows with these bytes.
std::function<void(Peer&)> answers(const std::string& bytes) {
  return [=](Peer& peer) {
    if (!peer.read_command()) return;  // AUTH
    peer.send("+OK\r\n");
    if (peer.read_command()) peer.send(bytes);
    peer.hold();
  };
}

// The same bytes whatever is asked first.
std::function<void(Peer&)> says(const std::string& bytes) {
  return [=](Peer& peer) {
    if (peer.read_command()) peer.send(bytes);
    peer.hold();
  };
}

std::string bulk(const std::string& bytes) {
  return "$" + std::to_string(bytes.size()) + "\r\n" + bytes + "\r\n";
}

bool have_redis() {
  TransportOptions options;
  options.url = *parse_remote_url("redis://127.0.0.1:1");
  std::string problem;
  if (make_transport(options, &problem)) return true;
  WARN("SKIPPED: remote redis: " + problem);
  return false;
}

}  // namespace

TEST_CASE("redis: what one node publishes another finds, under the documented keys") {
  if (!have_redis()) return;
  LogLines log;
  std::mutex mutex;
  std::map<std::string, std::string> objects;
  std::vector<std::vector<std::string>> commands;
  Server server([&](Peer& peer) {
    while (const auto command = peer.read_command()) {
      const std::lock_guard lock(mutex);
      commands.push_back(*command);
      if (command->at(0) == "SET") objects[command->at(1)] = command->at(2);
      if (command->at(0) != "GET") {
        peer.send("+OK\r\n");
      } else if (const auto found = objects.find(command->at(1)); found != objects.end()) {
        peer.send(bulk(found->second));
      } else {
        peer.send("$-1\r\n");
      }
    }
  });
  RemoteOptions options =
      quick_options("redis://node:ignored@127.0.0.1:" + std::to_string(server.port()) + "/7");
  options.ttl_seconds = 3600;
  const Artifact sent = artifact("source\n", 'a', std::string(100000, '\x00'));
  REQUIRE(open_remote(options)->publish(sent).ok());

  using Command = std::vector<std::string>;
  const std::string name = "hstu-jit:v1:" + sent.key.request;
  REQUIRE(commands.size() == 6);
  CHECK(commands[0] == Command{"AUTH", "node", "s3cr3t-token"});
  CHECK(commands[1] == Command{"SELECT", "7"});
  CHECK(commands[2] == Command{"SET", name + ".aaaaaaaaaaaa", encoded(sent), "EX", "3600"});
  CHECK(commands[5] == Command{"SET", name + ".toolchain", std::string(64, 'a'), "EX", "3600"});

  const auto node = open_remote(options);
  CHECK(encoded(node->lookup(sent.key).artifact) == encoded(sent));
  CHECK_FALSE(node->lookup({sent.key.request, std::string(64, 'b')}).hit);
  CHECK(node->lookup({sent.key.request, std::string(64, 'b')}, true).hit);
  CHECK(node->lookup({sent.key.request, ""}, true).hit);

  // No secret: no AUTH, and database 0 is where a connection begins.
  options.url = "redis://127.0.0.1:" + std::to_string(server.port());
  options.token.clear();
  commands.clear();
  CHECK(open_remote(options)->lookup(sent.key).hit);
  CHECK(commands.size() == 1);
  CHECK(log.lines().empty());
}

TEST_CASE("redis: servers that fail") {
  if (!have_redis()) return;
  const std::string entry = encoded(artifact());
  std::string flipped = entry;
  flipped[20] = static_cast<char>(flipped[20] ^ 1);
  const std::string foreign = encoded(artifact("another kernel\n"));
  const auto unreachable = MissReason::unreachable;

  const std::vector<Fault> faults = {
      {"closed port", nullptr},
      {"accepts and never answers", [](Peer& peer) { peer.hold(); }},
      {"closes at once", [](Peer&) {}},
      {"never answers the command", answers("")},
      {"drips its answer",
       [&](Peer& peer) {
         if (!peer.read_command()) return;
         for (const char c : "+OK\r\n" + bulk(entry)) {
           if (!peer.send(std::string_view(&c, 1))) return;
           peer.pause(5);
         }
       }},
      {"cuts the entry",
       [&](Peer& peer) {
         if (!peer.read_command()) return;
         peer.send("+OK\r\n");
         if (peer.read_command()) peer.send(bulk(entry).substr(0, entry.size()));
       }},
      {"garbage", says(std::string(100, '\x00') + "\r\n")},
      {"speaks HTTP", says("HTTP/1.1 400 Bad Request\r\n\r\n")},
      {"names a huge length", answers("$536870912000\r\nx")},
      {"names an impossible length", answers("$99999999999999999999999999\r\nx")},
      {"names a negative length", answers("$-7\r\nx")},
      {"names no length", answers("$x\r\n")},
      {"answers with a huge array", answers("*1000000000\r\n")},
      {"answers with nested arrays", answers("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n")},
      {"answers with a number", answers(":1\r\n")},
      {"a line without end",
       [](Peer& peer) {
         if (!peer.read_command()) return;
         while (peer.send("+" + std::string(1000, 'x'))) {
         }
       }},
      {"-LOADING", answers("-LOADING Redis is loading the dataset in memory s3cr3t\r\n")},
      {"-ERR", answers("-ERR unknown s3cr3t\r\n")},
      {"-NOAUTH", answers("-NOAUTH Authentication required. s3cr3t\r\n")},
      {"-WRONGPASS", says("-WRONGPASS invalid username-password pair s3cr3t\r\n")},
      {"-ERR to AUTH", says("-ERR Client sent AUTH, but no password is set s3cr3t\r\n")},
      {"-NOPERM", answers("-NOPERM this user has no permissions s3cr3t\r\n"), unreachable, false},
      {"-OOM", answers("-OOM command not allowed when used memory > 'maxmemory' s3cr3t\r\n")},
      {"-MISCONF", answers("-MISCONF s3cr3t\r\n")},
      {"-READONLY", answers("-READONLY s3cr3t\r\n")},
      {"nil", answers("$-1\r\n"), MissReason::absent, false, true, false},
      {"a flipped bit", answers(bulk(flipped)), MissReason::corrupt, false},
      {"the entry of another key", answers(bulk(foreign)), MissReason::corrupt, false},
      {"an empty entry", answers(bulk("")), MissReason::corrupt, false},
  };
  for (const Fault& fault : faults) expect_fault(fault, "redis");
}

TEST_CASE("redis: a full server still answers reads") {
  if (!have_redis()) return;
  LogLines log;
  const Artifact wanted = artifact();
  Server server([&](Peer& peer) {
    while (const auto command = peer.read_command()) {
      if (command->at(0) == "AUTH") peer.send("+OK\r\n");
      if (command->at(0) == "GET") peer.send(bulk(encoded(wanted)));
      if (command->at(0) == "SET") peer.send("-OOM command not allowed\r\n");
    }
  });
  const auto remote =
      open_remote(quick_options("redis://127.0.0.1:" + std::to_string(server.port())));
  CHECK_FALSE(remote->publish(wanted).ok());
  CHECK_FALSE(remote->publish(wanted).ok());
  CHECK(server.connections() == 1);
  CHECK(remote->lookup(wanted.key).hit);
  CHECK(log.lines().size() == 1);
}

TEST_CASE("rediss: refused with a reason where hiredis has no TLS, never in clear") {
  std::atomic<bool> clear{false};
  Server server([&](Peer& peer) {
    if (peer.more()) clear = peer.buffer.find("AUTH") != std::string::npos;
  });
  const std::string url = "rediss://127.0.0.1:" + std::to_string(server.port());
  TransportOptions options;
  options.url = *parse_remote_url(url);
  std::string problem;
  if (make_transport(options, &problem)) {
    LogLines log;
    CHECK_FALSE(open_remote(quick_options(url))->lookup(artifact().key).hit);
  } else {
    CHECK_FALSE(problem.empty());
  }
  CHECK_FALSE(clear);
}
