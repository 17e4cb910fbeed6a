// SPDX-License-Identifier: Apache-2.0
// Addresses of remotes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace hstu::cache {

struct RemoteUrl {
  enum class Scheme { http, https, redis, rediss };
  Scheme scheme = Scheme::http;
  std::string host;  // a name or an address, IPv6 without brackets
  uint16_t port = 0;
  std::string path;            // "" or "/..." without a last slash, as given
  std::string query;           // as given, without "?"; secret
  std::string user, password;  // percent-decoded; secret

  bool redis() const { return scheme == Scheme::redis || scheme == Scheme::rediss; }
  bool tls() const { return scheme == Scheme::https || scheme == Scheme::rediss; }
  std::string authority() const;  // "host:port", IPv6 in brackets
  std::string shown() const;      // what messages may say: without user info and query
};

// Errors: kUsage, without any part of the text but its scheme: the rest may hold secrets.
hstu::jit::Result<RemoteUrl> parse_remote_url(std::string_view text);

}  // namespace hstu::cache
