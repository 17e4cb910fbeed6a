// SPDX-License-Identifier: Apache-2.0
// Addresses, variables and files of secrets.
#include <sys/stat.h>

#include "cache/remote_secrets.hpp"
#include "remote_server.hpp"

using namespace hstu::cache;
using namespace hstu::cache::test;
using hstu::jit::write_file_atomic;

TEST_CASE("addresses") {
  const auto plain = parse_remote_url("http://cache.example/kernels/");
  REQUIRE(plain.ok());
  CHECK(plain->host == "cache.example");
  CHECK(plain->port == 80);
  CHECK(plain->path == "/kernels");
  CHECK(plain->shown() == "http://cache.example:80/kernels");

  const auto full =
      parse_remote_url("https://a%40b:p%3a%2fw@[2001:db8::1]:8443/x/y?X-Signature=1%2F2&b=");
  REQUIRE(full.ok());
  CHECK(full->user == "a@b");
  CHECK(full->password == "p:/w");
  CHECK(full->host == "2001:db8::1");
  CHECK(full->query == "X-Signature=1%2F2&b=");
  CHECK(full->shown() == "https://[2001:db8::1]:8443/x/y");

  const auto redis = parse_remote_url("redis://:pass@10.0.0.1/15");
  REQUIRE(redis.ok());
  CHECK(redis->port == 6379);
  CHECK(redis->user.empty());
  CHECK(redis->password == "pass");
  CHECK(redis->path == "/15");
  CHECK(parse_remote_url("rediss://h")->tls());
}

TEST_CASE("addresses that cannot be meant are refused without being repeated") {
  for (const char* bad : {"",
                          "http",
                          "http://",
                          "http:///x",
                          "ftp://s3cr3t/x",
                          "HTTP://s3cr3t/",
                          "s3cr3t",
                          "http://u:s3cr3t@/x",
                          "http://u:s3cr3t@h:0/x",
                          "http://u:s3cr3t@h:65536/x",
                          "http://u:s3cr3t@h:/x",
                          "http://u:s3cr3t@h:8o/x",
                          "http://u:s3cr3t@h/x#f",
                          "http://u:s3cr3t@h/a b",
                          "http://u:s3cr3t@h/a\r\nX: y",
                          "http://u:s3cr3t@h/\xc3\xa4",
                          "http://u%0d%0aX:s3cr3t@h/",
                          "http://u:s3cr3t%zz@h/",
                          "http://u:s3cr3t%4@h/",
                          "http://a%3ab:s3cr3t@h/",
                          "http://u:1/s3cr3t@h/",
                          "http://u:1?s3cr3t@h/",
                          "http://u:s3cr3t@[::1/x",
                          "http://u:s3cr3t@[s3cr3t]/x",
                          "http://u:s3cr3t@[::1]x/",
                          "redis://u:s3cr3t@h/name",
                          "redis://u:s3cr3t@h/1/2",
                          "redis://u:s3cr3t@h/-1",
                          "redis://u:s3cr3t@h/123456",
                          "redis://u:s3cr3t@h/0?x=1"}) {
    INFO(bad);
    const auto url = parse_remote_url(bad);
    REQUIRE_FALSE(url.ok());
    CHECK(url.error().message.find(kSecret) == std::string::npos);
    CHECK(url.error().kind == hstu::jit::ErrorKind::kUsage);
  }
  CHECK_FALSE(parse_remote_url("http://h/" + std::string(10000, 'x')).ok());
}

TEST_CASE("variables") {
  const Environment url("HSTU_JIT_REMOTE", "https://h/x"), mode("HSTU_JIT_REMOTE_MODE", "rw"),
      token("HSTU_JIT_REMOTE_TOKEN", "t"), connect("HSTU_JIT_REMOTE_CONNECT_MS", "250"),
      whole("HSTU_JIT_REMOTE_TIMEOUT_MS", "5000"), ttl("HSTU_JIT_REMOTE_TTL", "60");
  const auto options = remote_options_from_environment();
  REQUIRE(options.ok());
  CHECK(options->url == "https://h/x");
  CHECK(options->read_write);
  CHECK(options->token == "t");
  CHECK(options->connect_timeout_ms == 250);
  CHECK(options->timeout_ms == 5000);
  CHECK(options->ttl_seconds == 60);

  for (const char* name : {"HSTU_JIT_REMOTE_MODE", "HSTU_JIT_REMOTE_CONNECT_MS",
                           "HSTU_JIT_REMOTE_TIMEOUT_MS", "HSTU_JIT_REMOTE_TTL"}) {
    for (const char* value : {"yes", "-1", "0", "1s", "99999999999999999999", " 1", "1.5"}) {
      const Environment bad(name, value);
      const auto refused = remote_options_from_environment();
      REQUIRE_FALSE(refused.ok());
      CHECK(refused.error().message.find(name) != std::string::npos);
    }
  }
}

TEST_CASE("files of secrets") {
  const auto dir = folder();
  RemoteOptions options;
  options.token_file = dir.path() + "/token";
  CHECK_FALSE(load_credentials(options).ok());  // not there
  const auto token = [&](const std::string& text) {
    REQUIRE(write_file_atomic(options.token_file, text, 0600).ok());
    return load_credentials(options);
  };
  CHECK(token("s3cr3t\n")->token == "s3cr3t");
  CHECK(token("s3cr3t")->token == "s3cr3t");
  for (const std::string& bad : {std::string(), std::string("\n"), std::string("s3cr3t\nX: y\n"),
                                 std::string("s3cr3t\0x", 8), std::string(1 << 20, 'x')}) {
    const auto refused = token(bad);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().message.find(kSecret) == std::string::npos);
    CHECK(refused.error().message.find("TOKEN_FILE") != std::string::npos);
  }
  REQUIRE(token("s3cr3t\n").ok());
  CHECK(secrets_warning(options).empty());
  REQUIRE(::chmod(options.token_file.c_str(), 0640) == 0);
  CHECK(secrets_warning(options).empty());  // a group may be how a container gets it
  REQUIRE(::chmod(options.token_file.c_str(), 0644) == 0);
  CHECK_FALSE(secrets_warning(options).empty());

  options.token_file.clear();
  options.headers_file = dir.path() + "/headers";
  const auto headers = [&](const std::string& text) {
    REQUIRE(write_file_atomic(options.headers_file, text, 0600).ok());
    return load_credentials(options);
  };
  using Headers = std::vector<std::pair<std::string, std::string>>;
  CHECK(headers("# s\n\nX-Key:  a b \r\nEmpty:\nlast: x:y")->headers ==
        Headers{{"X-Key", "a b"}, {"Empty", ""}, {"last", "x:y"}});
  std::string many;
  for (int i = 0; i < 65; ++i) many += "X-H: v\n";
  for (const std::string& bad :
       {std::string("s3cr3t"), std::string(": s3cr3t"), std::string("a b: s3cr3t"),
        std::string("X: s3cr3t\rY: z"), std::string("X: s3\0cr3t", 10),
        std::string("ok: 1\nHost: s3cr3t"), std::string("content-LENGTH: 7"),
        std::string("Transfer-Encoding: chunked"), std::string(" X: s3cr3t"), many}) {
    const auto refused = headers(bad);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().message.find(kSecret) == std::string::npos);
    CHECK(refused.error().message.find("line ") != std::string::npos);
  }

  RemoteOptions clear;
  clear.token = "s3cr3t\r\nX: y";
  CHECK_FALSE(load_credentials(clear).ok());
}

TEST_CASE("a secret that is replaced is used; one that goes away is a warning") {
  LogLines log;
  std::mutex mutex;
  std::vector<std::string> heads;
  Server server([&](Peer& peer) {
    if (const auto request = peer.read_http()) {
      const std::lock_guard lock(mutex);
      heads.push_back(request->head);
      peer.send("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    }
  });
  const auto dir = folder();
  RemoteOptions options = quick_options("http://127.0.0.1:" + std::to_string(server.port()));
  options.token.clear();
  options.token_file = dir.path() + "/token";
  REQUIRE(write_file_atomic(options.token_file, "first", 0600).ok());
  const auto remote = open_remote(options);
  CHECK(remote->lookup(artifact().key).reason == MissReason::absent);
  REQUIRE(write_file_atomic(options.token_file, "second", 0600).ok());
  CHECK(remote->lookup(artifact().key).reason == MissReason::absent);
  CHECK(heads.at(0).find("Bearer first\r\n") != std::string::npos);
  CHECK(heads.at(1).find("Bearer second\r\n") != std::string::npos);

  REQUIRE(::unlink(options.token_file.c_str()) == 0);
  CHECK(remote->lookup(artifact().key).reason == MissReason::unreachable);
  CHECK(remote->lookup(artifact().key).reason == MissReason::unreachable);
  CHECK(server.connections() == 2);
  REQUIRE(log.lines().size() == 1);
  CHECK(log.lines()[0].find("HSTU_JIT_REMOTE_TOKEN_FILE") != std::string::npos);
}

TEST_CASE("the module is loaded and speaks") {
  LogLines log;
  // Beside the test programs' folder: one of the places it is looked for.
  RemoteOptions options = quick_options("http://127.0.0.1:" + std::to_string(closed_port()) + "/x");
  const auto remote = Remote::open(options);
  if (!remote.ok() && remote.error().message.find("built without") != std::string::npos) {
    WARN("SKIPPED: remote module: " + remote.error().message);
    return;
  }
  if (!remote.ok()) INFO(remote.error().message);
  REQUIRE(remote.ok());
  CHECK((*remote)->lookup(artifact().key).reason == MissReason::unreachable);
  CHECK((*remote)->shown().rfind("http://127.0.0.1:", 0) == 0);
}
