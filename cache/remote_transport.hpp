// SPDX-License-Identifier: Apache-2.0
// What moves bytes between Remote and one kind of server. Implementations: remote_http.cpp and
// remote_redis.cpp, both in the loadable module, so that who has no remote loads no network
// library.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/remote_url.hpp"

namespace hstu::cache {

struct Answer {
  enum class Kind {
    done,         // `bytes` is what a get asked for
    absent,       // the server is well and has no such object
    unreachable,  // no connection, no answer in time, or one that makes no sense
    refused,      // credentials missing or wrong; nothing will do until they change
    forbidden,    // this one object or action is not for us
    too_large,    // this one object is
    full,         // the server takes nothing any more
  };
  Kind kind = Kind::unreachable;
  std::string bytes;
  std::string problem;  // one line, no secret and no text of the server; empty when done or absent
};

struct Credentials {
  std::string token;
  std::vector<std::pair<std::string, std::string>> headers;  // checked: no CR, LF or NUL in them
};

struct Request {
  std::string name;  // "objects/ab/..."
  const Credentials* credentials = nullptr;
  std::chrono::steady_clock::time_point deadline;
  uint64_t limit = 0;  // bytes of an answer; more is refused before memory is taken for it
};

// Thread-safe. Never throws, never waits much longer than the deadline, never raises a signal.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual Answer get(const Request& request) = 0;
  virtual Answer put(const Request& request, std::string_view bytes) = 0;
};

struct TransportOptions {
  RemoteUrl url;
  std::string ca_file;
  int connect_timeout_ms = 1000;
  uint32_t ttl_seconds = 0;
};

// Of the module, by the scheme of the URL. Null with `problem` when this build lacks what it needs.
std::unique_ptr<Transport> make_transport(const TransportOptions& options, std::string* problem);
std::unique_ptr<Transport> make_http_transport(const TransportOptions& options,
                                               std::string* problem);
std::unique_ptr<Transport> make_redis_transport(const TransportOptions& options,
                                                std::string* problem);

}  // namespace hstu::cache
