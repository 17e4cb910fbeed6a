// SPDX-License-Identifier: Apache-2.0
// HTTP against a server that is well, and against one that fails in every way we know.
#include "remote_server.hpp"

using namespace hstu::cache;
using namespace hstu::cache::test;

namespace {

std::string ok(const std::string& body) {
  return "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

std::function<void(Peer&)> status(const std::string& line, const std::string& more = "") {
  return [=](Peer& peer) {
    if (peer.read_http()) {
      peer.send("HTTP/1.1 " + line + "\r\nContent-Length: 12\r\n" + more + "\r\ns3cr3t-text\n");
    }
  };
}

// GETs get this, PUTs too.
std::function<void(Peer&)> always(const std::string& bytes) {
  return [=](Peer& peer) {
    if (peer.read_http()) peer.send(bytes);
  };
}

// A server that keeps what it is sent, as nginx with WebDAV does.
struct Keeper {
  std::mutex mutex;
  std::map<std::string, std::string> objects;
  std::vector<std::string> heads;

  void serve(Peer& peer) {
    const auto request = peer.read_http();
    if (!request) return;
    const std::lock_guard lock(mutex);
    heads.push_back(request->head);
    if (request->method == "PUT") {
      objects[request->target] = request->body;
      peer.send("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n");
    } else if (const auto found = objects.find(request->target); found != objects.end()) {
      peer.send(ok(found->second));
    } else {
      peer.send("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    }
  }
};

}  // namespace

TEST_CASE("http: what one node publishes another finds, at the documented place") {
  LogLines log;
  Keeper keeper;
  Server server([&](Peer& peer) { keeper.serve(peer); });
  const std::string base = "http://127.0.0.1:" + std::to_string(server.port()) + "/kernels/";
  RemoteOptions options = quick_options(base + "?signature=abc%2F");
  const auto dir = folder();
  options.headers_file = dir.path() + "/headers";
  REQUIRE(hstu::jit::write_file_atomic(options.headers_file,
                                       "# a comment\nX-Api-Key: s3cr3t-key\r\n\nX-Empty:\n", 0600)
              .ok());
  const Artifact sent = artifact("source\n", 'a', std::string(100000, '\x01'));
  REQUIRE(open_remote(options)->publish(sent).ok());

  // The objects' names as FORMAT.md has them, the query behind them.
  const std::string folder_path =
      "/kernels/v1/objects/" + sent.key.request.substr(0, 2) + "/" + sent.key.request;
  REQUIRE(keeper.objects.count(folder_path + ".aaaaaaaaaaaa.hko?signature=abc%2F") == 1);
  CHECK(keeper.objects[folder_path + ".aaaaaaaaaaaa.hko?signature=abc%2F"] == encoded(sent));
  CHECK(keeper.objects[folder_path + ".toolchain?signature=abc%2F"] == std::string(64, 'a'));
  CHECK(keeper.heads[0].find("Authorization: Bearer s3cr3t-token\r\n") != std::string::npos);
  CHECK(keeper.heads[0].find("X-Api-Key: s3cr3t-key\r\n") != std::string::npos);
  CHECK(keeper.heads[0].find("X-Empty:\r\n") != std::string::npos);

  const auto node = open_remote(options);
  const Lookup exact = node->lookup(sent.key);
  REQUIRE(exact.hit);
  CHECK(encoded(exact.artifact) == encoded(sent));
  // A node with another compiler, and one with none.
  const Key other{sent.key.request, std::string(64, 'b')};
  CHECK_FALSE(node->lookup(other).hit);
  CHECK(node->lookup(other, true).hit);
  CHECK(node->lookup({sent.key.request, ""}, true).artifact.payload == sent.payload);
  CHECK(node->statistics().hits == 3);
  CHECK(node->statistics().misses[static_cast<size_t>(MissReason::absent)] == 1);
  CHECK(log.lines().empty());
}

TEST_CASE("http: basic credentials come from the address") {
  Keeper keeper;
  Server server([&](Peer& peer) { keeper.serve(peer); });
  RemoteOptions options =
      quick_options("http://me:a%2Fb@127.0.0.1:" + std::to_string(server.port()));
  options.token.clear();
  CHECK_FALSE(open_remote(options)->lookup(artifact().key).hit);
  CHECK(keeper.heads.at(0).find("Authorization: Basic bWU6YS9i\r\n") != std::string::npos);
}

TEST_CASE("http: proxies of the environment are not used") {
  const Environment upper("HTTP_PROXY", "http://127.0.0.1:1"), lower("http_proxy", "127.0.0.1:1"),
      all("ALL_PROXY", "http://127.0.0.1:1"), all_lower("all_proxy", "http://127.0.0.1:1");
  Keeper keeper;
  Server server([&](Peer& peer) { keeper.serve(peer); });
  const auto remote =
      open_remote(quick_options("http://127.0.0.1:" + std::to_string(server.port())));
  CHECK(remote->publish(artifact()).ok());
}

TEST_CASE("http: servers that fail") {
  const Artifact wanted = artifact();
  const std::string entry = encoded(wanted);
  std::string flipped = entry;
  flipped[flipped.size() - 3] = static_cast<char>(flipped[flipped.size() - 3] ^ 0x10);
  const std::string foreign = encoded(artifact("another kernel\n"));
  const std::string other_toolchain = encoded(artifact("kernel\nbody\n", 'd'));
  std::string newer = entry;
  newer[8] = 9;
  const auto unreachable = MissReason::unreachable;
  const auto corrupt = MissReason::corrupt;

  const std::vector<Fault> faults = {
      {"closed port", nullptr},
      {"accepts and never answers", [](Peer& peer) { peer.hold(); }},
      {"closes at once", [](Peer&) {}},
      {"closes in the head", always("HTTP/1.1 200 OK\r\nConte")},
      {"drips its answer",
       [&](Peer& peer) {
         if (!peer.read_http()) return;
         for (const char c : ok(entry)) {
           if (!peer.send(std::string_view(&c, 1))) return;
           peer.pause(5);
         }
       }},
      {"cuts the body", always(ok(entry).substr(0, ok(entry).size() - 20))},
      {"names a huge length",
       always("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n" + entry)},
      {"names no possible length",
       always("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999999\r\n\r\n" + entry),
       unreachable, true, false, false},
      {"sends chunks without end",
       [](Peer& peer) {
         if (!peer.read_http()) return;
         peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
         const std::string chunk = "4000\r\n" + std::string(0x4000, 'x') + "\r\n";
         while (peer.send(chunk)) {
         }
       }},
      {"sends headers without end",
       [](Peer& peer) {
         if (!peer.read_http()) return;
         peer.send("HTTP/1.1 200 OK\r\n");
         while (peer.send("X-More: " + std::string(1000, 'x') + "\r\n")) {
         }
       }},
      {"sends garbage", always(std::string(300, '\x00') + "\r\n\r\n")},
      {"speaks another protocol", always("+OK\r\n")},
      {"redirects to itself", status("302 Found", "Location: /cache/again\r\n")},
      {"redirects elsewhere", status("301 Moved", "Location: ftp://s3cr3t.example/\r\n")},
      {"500", status("500 Internal Server Error")},
      {"502", status("502 Bad Gateway")},
      {"503", status("503 Service Unavailable", "Retry-After: 100000\r\n")},
      {"429", status("429 Too Many Requests")},
      {"400", status("400 Bad Request")},
      {"401", status("401 Unauthorized", "WWW-Authenticate: Basic realm=\"s3cr3t\"\r\n")},
      {"403", status("403 Forbidden"), unreachable, false},
      {"404", status("404 Not Found"), MissReason::absent, false},
      {"413", status("413 Payload Too Large"), unreachable, false, true, false},
      {"507", status("507 Insufficient Storage")},
      {"405", status("405 Not Allowed")},
      // Lies. They answer PUT with 200 too, which is none of our business.
      {"a flipped bit", always(ok(flipped)), corrupt, false, false, false},
      {"the entry of another key", always(ok(foreign)), corrupt, false, false, false},
      {"of another toolchain", always(ok(other_toolchain)), corrupt, false, false, false},
      {"an empty entry", always(ok("")), corrupt, false, false, false},
      {"an error page with status 200", always(ok("<html>s3cr3t</html>")), corrupt, false, false,
       false},
  };
  for (const Fault& fault : faults) expect_fault(fault, "http");

  // An entry of a future version is no damage and no warning.
  Server server(always(ok(newer)));
  LogLines log;
  const auto remote =
      open_remote(quick_options("http://127.0.0.1:" + std::to_string(server.port())));
  const Lookup missed = remote->lookup(wanted.key);
  CHECK(miss_reason_name(missed.reason) == std::string("unreadable"));
  CHECK(log.lines().empty());
}

TEST_CASE("http: a full server still answers reads") {
  LogLines log;
  const Artifact wanted = artifact();
  Server server([&](Peer& peer) {
    const auto request = peer.read_http();
    if (!request) return;
    peer.send(request->method == "GET" ? ok(encoded(wanted))
                                       : "HTTP/1.1 507 Full\r\nContent-Length: 0\r\n\r\n");
  });
  const auto remote =
      open_remote(quick_options("http://127.0.0.1:" + std::to_string(server.port())));
  CHECK_FALSE(remote->publish(wanted).ok());
  CHECK_FALSE(remote->publish(wanted).ok());
  CHECK(server.connections() == 1);
  CHECK(remote->lookup(wanted.key).hit);
  CHECK(log.lines().size() == 1);
}

TEST_CASE("http: a refusal before the upload is read counts") {
  LogLines log;
  Server server([&](Peer& peer) {
    while (peer.buffer.find("\r\n\r\n") == std::string::npos) {
      if (!peer.more()) return;
    }
    peer.send("HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    peer.hold();
  });
  RemoteOptions options = quick_options("http://127.0.0.1:" + std::to_string(server.port()));
  options.entry_limit = 64 << 20;
  const auto sent =
      open_remote(options)->publish(artifact("large\n", 'c', std::string(8 << 20, 'x')));
  REQUIRE_FALSE(sent.ok());
  CHECK(sent.error().message.find("413") != std::string::npos);
}
