// SPDX-License-Identifier: Apache-2.0
#include "cache/remote_secrets.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/env.hpp"
#include "base/file.hpp"
#include "base/text.hpp"
#include "cache/remote_url.hpp"

namespace hstu::cache {
namespace {

using hstu::jit::Error;
using hstu::jit::ErrorKind;
using hstu::jit::get_env;
using hstu::jit::printable;
using hstu::jit::Result;

constexpr size_t kShownPath = 300;
constexpr uint64_t kMaxFile = uint64_t{64} << 10;
constexpr size_t kMaxHeaders = 64;

Error usage(std::string message) { return Error{ErrorKind::kUsage, std::move(message), "", ""}; }

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// No control characters: they could end a header and begin another.
bool is_plain(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f;
  });
}

bool is_header_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  });
}

// Those that say where a message ends or whom it is for are the transport's own.
bool is_reserved(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  constexpr std::array<std::string_view, 9> kReserved = {
      "connection", "content-length",    "expect",  "host",   "keep-alive",
      "te",         "transfer-encoding", "trailer", "upgrade"};
  return std::find(kReserved.begin(), kReserved.end(), lower) != kReserved.end();
}

Result<std::string> read_secret_file(const char* variable, const std::string& path) {
  Result<std::string> text = hstu::jit::read_file(path, kMaxFile);
  if (text.ok()) return text;
  return Error{ErrorKind::kCache,
               fmt::format("{}: {}", variable, printable(text.error().message, 400)), "", ""};
}

Result<std::string> read_token(const std::string& path) {
  Result<std::string> text = read_secret_file("HSTU_JIT_REMOTE_TOKEN_FILE", path);
  if (!text.ok()) return text;
  while (!text->empty() && (text->back() == '\n' || text->back() == '\r')) text->pop_back();
  if (text->empty() || !is_plain(*text)) {
    return usage(fmt::format("HSTU_JIT_REMOTE_TOKEN_FILE: {} does not hold one line of text",
                             printable(path, kShownPath)));
  }
  return text;
}

Result<std::vector<std::pair<std::string, std::string>>> read_headers(const std::string& path) {
  const Result<std::string> text = read_secret_file("HSTU_JIT_REMOTE_HEADERS_FILE", path);
  if (!text.ok()) return text.error();
  std::vector<std::pair<std::string, std::string>> headers;
  std::string_view rest = *text;
  for (int number = 1; !rest.empty(); ++number) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (trimmed(line).empty() || line.front() == '#') continue;

    const auto refuse = [&](std::string_view reason) {
      return usage(fmt::format("HSTU_JIT_REMOTE_HEADERS_FILE: line {} of {} {}", number,
                               printable(path, kShownPath), reason));
    };
    const size_t colon = line.find(':');
    if (colon == line.npos || !is_header_name(line.substr(0, colon)) || !is_plain(line)) {
      return refuse("is not \"Name: value\"");
    }
    if (is_reserved(line.substr(0, colon))) return refuse("sets a header that is not yours to set");
    if (headers.size() == kMaxHeaders) return refuse("is one header too many (64)");
    headers.emplace_back(line.substr(0, colon), trimmed(line.substr(colon + 1)));
  }
  return headers;
}

Result<uint64_t> number(const char* name, const std::string& text, uint64_t least, uint64_t most) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    return usage(fmt::format("{} is \"{}\": want a whole number from {} to {}", name,
                             printable(text), least, most));
  }
  return value;
}

}  // namespace

Result<RemoteOptions> remote_options_from_environment() {
  RemoteOptions options;
  const auto url = get_env("HSTU_JIT_REMOTE");
  if (!url) return options;
  options.url = *url;
  if (const auto mode = get_env("HSTU_JIT_REMOTE_MODE")) {
    if (*mode != "ro" && *mode != "rw") {
      return usage(fmt::format("HSTU_JIT_REMOTE_MODE is \"{}\": want ro or rw", printable(*mode)));
    }
    options.read_write = *mode == "rw";
  }
  options.token = get_env("HSTU_JIT_REMOTE_TOKEN").value_or("");
  options.token_file = get_env("HSTU_JIT_REMOTE_TOKEN_FILE").value_or("");
  options.headers_file = get_env("HSTU_JIT_REMOTE_HEADERS_FILE").value_or("");
  options.ca_file = get_env("HSTU_JIT_REMOTE_CA_FILE").value_or("");

  struct Row {
    const char* name;
    uint64_t least, most;
    uint64_t value;
  };
  Row connect{"HSTU_JIT_REMOTE_CONNECT_MS", 1, 60000,
              static_cast<uint64_t>(options.connect_timeout_ms)};
  Row whole{"HSTU_JIT_REMOTE_TIMEOUT_MS", 1, 600000, static_cast<uint64_t>(options.timeout_ms)};
  Row ttl{"HSTU_JIT_REMOTE_TTL", 1, uint64_t{10} * 365 * 86400, 0};
  for (Row* row : {&connect, &whole, &ttl}) {
    const auto text = get_env(row->name);
    if (!text) continue;
    const Result<uint64_t> value = number(row->name, *text, row->least, row->most);
    if (!value.ok()) return value.error();
    row->value = *value;
  }
  options.connect_timeout_ms = static_cast<int>(connect.value);
  options.timeout_ms = static_cast<int>(whole.value);
  options.ttl_seconds = static_cast<uint32_t>(ttl.value);
  return options;
}

Result<Credentials> load_credentials(const RemoteOptions& options) {
  Credentials credentials;
  credentials.token = options.token;
  if (!is_plain(options.token)) {
    return usage("HSTU_JIT_REMOTE_TOKEN has a control character in it");
  }
  if (!options.token_file.empty()) {
    Result<std::string> token = read_token(options.token_file);
    if (!token.ok()) return std::move(token).error();
    credentials.token = std::move(*token);
  }
  if (!options.headers_file.empty()) {
    auto headers = read_headers(options.headers_file);
    if (!headers.ok()) return std::move(headers).error();
    credentials.headers = std::move(*headers);
  }
  return credentials;
}

std::string secrets_warning(const RemoteOptions& options) {
  for (const std::string* path : {&options.token_file, &options.headers_file}) {
    struct stat info {};
    if (path->empty() || ::stat(path->c_str(), &info) != 0) continue;
    if ((info.st_mode & (S_IROTH | S_IWOTH | S_IWGRP)) != 0) {
      return fmt::format(
          "every user of this host may read or change {}, which holds a secret of the "
          "remote cache: chmod o-rwx,g-w",
          printable(*path, kShownPath));
    }
  }
  return {};
}

}  // namespace hstu::cache
