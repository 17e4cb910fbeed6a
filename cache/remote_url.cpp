// SPDX-License-Identifier: Apache-2.0
#include "cache/remote_url.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace hstu::cache {
namespace {

using hstu::jit::Error;
using hstu::jit::ErrorKind;
using hstu::jit::Result;

constexpr size_t kMaxUrl = 8192;  // signed addresses are long

struct SchemeRow {
  std::string_view name;
  RemoteUrl::Scheme scheme;
  uint16_t port;
};
constexpr SchemeRow kSchemes[] = {{"http", RemoteUrl::Scheme::http, 80},
                                  {"https", RemoteUrl::Scheme::https, 443},
                                  {"redis", RemoteUrl::Scheme::redis, 6379},
                                  {"rediss", RemoteUrl::Scheme::rediss, 6379}};

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Nothing when a "%" is not followed by two digits or a control character comes out.
std::optional<std::string> percent_decode(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      if (text.size() - i < 3) return std::nullopt;
      const int high = hex_value(text[i + 1]), low = hex_value(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return std::nullopt;
    out += c;
  }
  return out;
}

bool is_name_or_ipv4(std::string_view host) {
  return !host.empty() && host.size() <= 253 && std::all_of(host.begin(), host.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
           c == '-' || c == '_';
  });
}

bool is_ipv6(std::string_view host) {
  return host.size() >= 2 && host.size() <= 45 && std::all_of(host.begin(), host.end(), [](char c) {
           return hex_value(c) >= 0 || c == ':' || c == '.';
         });
}

bool parse_port(std::string_view text, uint16_t* port) {
  uint32_t value = 0;
  if (text.empty() || text.size() > 5) return false;
  for (const char c : text) {
    if (c < '0' || c > '9') return false;
    value = value * 10 + static_cast<uint32_t>(c - '0');
  }
  if (value == 0 || value > 65535) return false;
  *port = static_cast<uint16_t>(value);
  return true;
}

}  // namespace

std::string RemoteUrl::authority() const {
  const bool ipv6 = host.find(':') != std::string::npos;
  return ipv6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

std::string RemoteUrl::shown() const {
  std::string_view name = "?";
  for (const SchemeRow& row : kSchemes) {
    if (row.scheme == scheme) name = row.name;
  }
  return fmt::format("{}://{}{}", name, authority(), path);
}

Result<RemoteUrl> parse_remote_url(std::string_view text) {
  const auto refuse = [](std::string_view reason) {
    return Error{ErrorKind::kUsage,
                 fmt::format("HSTU_JIT_REMOTE {}; want http(s)://HOST[:PORT]/PATH or "
                             "redis(s)://HOST[:PORT][/DATABASE]",
                             reason),
                 "", ""};
  };
  if (text.size() > kMaxUrl) return refuse("is longer than 8 KiB");
  // Printable ASCII alone: what else a URL may hold is percent-encoded.
  if (std::any_of(text.begin(), text.end(), [](char c) { return c <= 0x20 || c >= 0x7f; })) {
    return refuse("has a space, a control character or one outside ASCII in it");
  }

  RemoteUrl url;
  const size_t colon = text.find("://");
  const std::string_view scheme = text.substr(0, colon == text.npos ? 0 : colon);
  const auto* row = std::find_if(std::begin(kSchemes), std::end(kSchemes),
                                 [&](const SchemeRow& row) { return row.name == scheme; });
  if (row == std::end(kSchemes)) {
    return refuse("does not start with http://, https://, redis:// or rediss://");
  }
  url.scheme = row->scheme;
  url.port = row->port;

  std::string_view rest = text.substr(colon + 3);
  if (rest.find('#') != rest.npos) return refuse("has a fragment (#) in it");
  if (const size_t question = rest.find('?'); question != rest.npos) {
    url.query = rest.substr(question + 1);
    rest = rest.substr(0, question);
  }
  if (const size_t slash = rest.find('/'); slash != rest.npos) {
    url.path = rest.substr(slash);
    rest = rest.substr(0, slash);
  }
  while (!url.path.empty() && url.path.back() == '/') url.path.pop_back();
  // Else a "/" or "?" that somebody left bare in a password would make its end a path to be shown.
  if (url.path.find('@') != url.path.npos || url.query.find('@') != url.query.npos) {
    return refuse(
        "has an @ behind the host; write %40 there, and / and ? as %2F and %3F before it");
  }

  if (const size_t at = rest.rfind('@'); at != rest.npos) {
    const std::string_view user_info = rest.substr(0, at);
    rest = rest.substr(at + 1);
    const size_t split = std::min(user_info.find(':'), user_info.size());
    const auto user = percent_decode(user_info.substr(0, split));
    const auto password =
        percent_decode(split < user_info.size() ? user_info.substr(split + 1) : "");
    if (!user || !password) return refuse("has a user or password that is not percent-encoded");
    url.user = *user;
    url.password = *password;
  }

  std::string_view port;
  if (!rest.empty() && rest.front() == '[') {
    const size_t end = rest.find(']');
    if (end == rest.npos || !is_ipv6(rest.substr(1, end - 1))) {
      return refuse("has no IPv6 address between its brackets");
    }
    url.host = rest.substr(1, end - 1);
    rest = rest.substr(end + 1);
    if (!rest.empty() && rest.front() != ':') return refuse("has no port behind the brackets");
    port = rest;
  } else {
    const size_t split = std::min(rest.find(':'), rest.size());
    if (!is_name_or_ipv4(rest.substr(0, split))) return refuse("has no host name or address");
    url.host = rest.substr(0, split);
    port = rest.substr(split);
  }
  if (!port.empty() && !parse_port(port.substr(1), &url.port)) {
    return refuse("has a port that is not one of 1 to 65535");
  }

  if (url.redis()) {
    if (!url.query.empty()) return refuse("has a query (?), which Redis has no use for");
    const std::string_view database = std::string_view(url.path).substr(url.path.empty() ? 0 : 1);
    if (database.size() > 5 || !std::all_of(database.begin(), database.end(),
                                            [](char c) { return c >= '0' && c <= '9'; })) {
      return refuse("has a path that is not the number of a Redis database");
    }
  } else if (url.user.find(':') != std::string::npos) {
    return refuse("has a user with a colon, which HTTP cannot carry");
  }
  return url;
}

}  // namespace hstu::cache
