// SPDX-License-Identifier: Apache-2.0
// A server on loopback that does what a test tells it, and helpers shared by the tests of remotes.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/log.hpp"
#include "cache/entry.hpp"
#include "cache/remote.hpp"
#include "cache/remote_transport.hpp"
#include "helpers.hpp"

namespace hstu::cache::test {

// Log lines of this process for as long as it lives.
class LogLines {
 public:
  LogLines() {
    hstu::jit::set_log_sink(
        [](hstu::jit::LogLevel, std::string_view line, void* user) {
          auto* self = static_cast<LogLines*>(user);
          const std::lock_guard lock(self->mutex_);
          self->lines_.emplace_back(line);
        },
        this);
  }
  ~LogLines() { hstu::jit::set_log_sink(nullptr, nullptr); }
  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;
  std::vector<std::string> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

// One accepted connection. All waits end when the server stops.
class Peer {
 public:
  Peer(int fd, const std::atomic<bool>& stop) : fd_(fd), stop_(stop) {}

  // At least one byte more in `buffer`; false at the end of the stream.
  bool more() {
    while (!stop_) {
      pollfd wait{fd_, POLLIN, 0};
      if (::poll(&wait, 1, 10) <= 0) continue;
      char bytes[16384];
      const ssize_t got = ::recv(fd_, bytes, sizeof bytes, 0);
      if (got <= 0) return false;
      buffer.append(bytes, static_cast<size_t>(got));
      return true;
    }
    return false;
  }
  bool send(std::string_view bytes) {
    while (!bytes.empty() && !stop_) {
      pollfd wait{fd_, POLLOUT, 0};
      if (::poll(&wait, 1, 10) <= 0) continue;
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return bytes.empty();
  }
  // Waits until the client goes.
  void hold() {
    while (more()) buffer.clear();
  }
  void pause(int ms) {
    for (int i = 0; i < ms && !stop_; i += 5) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  // Head and body of an HTTP request; nothing when the client went before its end.
  struct Http {
    std::string method, target, head, body;
  };
  std::optional<Http> read_http() {
    size_t end;
    while ((end = buffer.find("\r\n\r\n")) == std::string::npos) {
      if (!more()) return std::nullopt;
    }
    Http http;
    http.head = buffer.substr(0, end + 2);
    buffer.erase(0, end + 4);
    const size_t space = http.head.find(' ');
    http.method = http.head.substr(0, space);
    http.target = http.head.substr(space + 1, http.head.find(' ', space + 1) - space - 1);
    size_t length = 0;
    if (const size_t at = http.head.find("Content-Length: "); at != std::string::npos) {
      length = std::stoul(http.head.substr(at + 16));
    }
    while (buffer.size() < length) {
      if (!more()) return std::nullopt;
    }
    http.body = buffer.substr(0, length);
    buffer.erase(0, length);
    return http;
  }

  // The parts of a Redis command.
  std::optional<std::vector<std::string>> read_command() {
    const auto line = [this]() -> std::optional<std::string> {
      size_t end;
      while ((end = buffer.find("\r\n")) == std::string::npos) {
        if (!more()) return std::nullopt;
      }
      std::string text = buffer.substr(0, end);
      buffer.erase(0, end + 2);
      return text;
    };
    const auto count = line();
    if (!count || count->front() != '*') return std::nullopt;
    std::vector<std::string> parts;
    for (int i = std::stoi(count->substr(1)); i > 0; --i) {
      const auto size = line();
      if (!size || size->front() != '$') return std::nullopt;
      const size_t bytes = std::stoul(size->substr(1));
      while (buffer.size() < bytes + 2) {
        if (!more()) return std::nullopt;
      }
      parts.push_back(buffer.substr(0, bytes));
      buffer.erase(0, bytes + 2);
    }
    return parts;
  }

  std::string buffer;

 private:
  const int fd_;
  const std::atomic<bool>& stop_;
};

class Server {
 public:
  explicit Server(std::function<void(Peer&)> serve) : serve_(std::move(serve)) {
    listen_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::bind(listen_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(listen_, 64) == 0);
    socklen_t size = sizeof address;
    REQUIRE(::getsockname(listen_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { accept_all(); });
  }
  ~Server() {
    stop_ = true;
    thread_.join();
    for (std::thread& thread : peers_) thread.join();
    ::close(listen_);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  int port() const { return port_; }
  int connections() const { return connections_; }

 private:
  void accept_all() {
    while (!stop_) {
      pollfd wait{listen_, POLLIN, 0};
      if (::poll(&wait, 1, 10) <= 0) continue;
      const int fd = ::accept4(listen_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) continue;
      ++connections_;
      peers_.emplace_back([this, fd] {
        Peer peer(fd, stop_);
        serve_(peer);
        ::shutdown(fd, SHUT_WR);  // so that a close loses nothing that was sent
        for (int i = 0; i < 5 && peer.more(); ++i) peer.buffer.clear();
        ::close(fd);
      });
    }
  }

  std::function<void(Peer&)> serve_;
  int listen_ = -1, port_ = 0;
  std::atomic<bool> stop_{false};
  std::atomic<int> connections_{0};
  std::vector<std::thread> peers_;
  std::thread thread_;
};

// A port where nobody listens.
inline int closed_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  socklen_t size = sizeof address;
  REQUIRE(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  ::close(fd);
  return ntohs(address.sin_port);
}

// What the tests use for secrets, so that they can look for them everywhere.
inline constexpr const char* kSecret = "s3cr3t";

inline RemoteOptions quick_options(const std::string& url) {
  RemoteOptions options;
  options.url = url;
  options.read_write = true;
  options.token = "s3cr3t-token";
  options.connect_timeout_ms = 200;
  options.timeout_ms = 300;
  options.entry_limit = 1 << 20;
  return options;
}

// A Remote over the real transport, which the test program has linked.
inline std::unique_ptr<Remote> open_remote(const RemoteOptions& options) {
  auto url = parse_remote_url(options.url);
  REQUIRE(url.ok());
  TransportOptions wanted;
  wanted.url = *url;
  wanted.ca_file = options.ca_file;
  wanted.connect_timeout_ms = options.connect_timeout_ms;
  wanted.ttl_seconds = options.ttl_seconds;
  std::string problem;
  auto transport = make_transport(wanted, &problem);
  INFO(problem);
  REQUIRE(transport);
  return Remote::over(std::move(transport), options);
}

inline std::string encoded(const Artifact& artifact) {
  auto bytes = encode_entry(artifact);
  REQUIRE(bytes.ok());
  return *bytes;
}

// Open descriptors of this process.
inline size_t open_files() {
  size_t count = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    static_cast<void>(entry);
    ++count;
  }
  return count;
}

// Counts milliseconds since it was made.
class Watch {
 public:
  int64_t ms() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                                 start_)
        .count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// One fault of a server as a lookup and a publish see it: a miss or a failed publish with reasons,
// in time, one warning, silence afterwards, no secret anywhere.
struct Fault {
  std::string name;
  std::function<void(Peer&)> serve;
  MissReason reason = MissReason::unreachable;
  bool lookup_pauses = true;  // no further lookup goes out
  bool publish_fails = true;
  bool publish_pauses = true;  // no further publish goes out
};

inline void expect_fault(const Fault& fault, const std::string& scheme) {
  INFO(fault.name);
  const size_t files = open_files();
  const Artifact wanted = artifact();
  std::string texts;
  {
    LogLines log;
    std::optional<Server> server;
    if (fault.serve) server.emplace(fault.serve);
    const int port = server ? server->port() : closed_port();
    const std::string tail = scheme == "redis" ? "" : "/cache?signature=s3cr3t-query";
    const RemoteOptions options = quick_options(
        scheme + "://s3cr3t-user:s3cr3t-password@127.0.0.1:" + std::to_string(port) + tail);

    {
      const auto remote = open_remote(options);
      const Watch watch;
      const Lookup missed = remote->lookup(wanted.key);
      CHECK(watch.ms() < 1000);
      CHECK_FALSE(missed.hit);
      CHECK(miss_reason_name(missed.reason) == std::string(miss_reason_name(fault.reason)));
      CHECK_FALSE(missed.explanation.empty());
      CHECK(missed.explanation.find('\n') == std::string::npos);
      texts += missed.explanation + remote->warning() + remote->shown();
      CHECK(remote->warning().empty() == (fault.reason == MissReason::absent));

      const int before = server ? server->connections() : 0;
      const Watch again;
      CHECK_FALSE(remote->lookup(wanted.key).hit);
      if (fault.lookup_pauses) {
        CHECK(again.ms() < 50);
        CHECK(remote->statistics().withheld == 1);
        if (server) CHECK(server->connections() == before);
      }
    }
    {
      const auto remote = open_remote(options);
      const Watch watch;
      const auto sent = remote->publish(wanted);
      CHECK(watch.ms() < 1000);
      CHECK(sent.ok() == !fault.publish_fails);
      if (!sent.ok()) texts += sent.error().message;
      const Watch again;
      const auto second = remote->publish(wanted);
      if (fault.publish_pauses) {
        CHECK(again.ms() < 50);
        CHECK(remote->statistics().withheld == 1);
      }
      if (!second.ok()) texts += second.error().message;
      texts += remote->warning();
    }
    std::map<std::string, int> seen;
    for (const std::string& line : log.lines()) {
      texts += line;
      CHECK(++seen[line] == 1);
    }
    CHECK(log.lines().size() <= 2);  // one for each cause: reading and writing may differ
  }
  INFO(texts);
  CHECK(texts.find(kSecret) == std::string::npos);
  CHECK(open_files() == files);
}

}  // namespace hstu::cache::test
