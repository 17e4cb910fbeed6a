// SPDX-License-Identifier: Apache-2.0
// HTTP and HTTPS by libcurl: GET and PUT, each over a connection of its own.
#include <curl/curl.h>
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/signal_guard.hpp"
#include "base/text.hpp"
#include "cache/remote_resolve.hpp"
#include "cache/remote_transport.hpp"

namespace hstu::cache {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr size_t kMaxHeaders = size_t{64} << 10;        // of an answer
constexpr uint64_t kMaxOtherBody = uint64_t{64} << 10;  // of an answer that is no object
constexpr long kSlow = 1024;                            // bytes a second ...
constexpr long kSlowSeconds = 4;                        // ... for so long end a transfer

struct EasyCloser {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
struct ListCloser {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using List = std::unique_ptr<curl_slist, ListCloser>;

bool append(List* list, const std::string& line) {
  curl_slist* longer = curl_slist_append(list->get(), line.c_str());
  if (longer == nullptr) return false;
  static_cast<void>(list->release());
  list->reset(longer);
  return true;
}

// One transfer, as libcurl's callbacks see it.
struct Transfer {
  CURL* handle = nullptr;
  uint64_t limit = 0;
  bool keep = false;  // the body of a GET's 200; other bodies are read and dropped
  std::string body;
  uint64_t received = 0;
  size_t header_bytes = 0;
  bool head_whole = false;  // libcurl takes a head that ends in the middle
  bool too_long = false, headers_too_long = false;
  std::string_view upload;
};

size_t on_header(char* data, size_t size, size_t count, void* user) {
  auto* transfer = static_cast<Transfer*>(user);
  const size_t bytes = size * count;
  const std::string_view line(data, bytes);
  transfer->head_whole = line == "\r\n" || line == "\n";
  transfer->header_bytes += bytes;
  if (transfer->header_bytes > kMaxHeaders) {
    transfer->headers_too_long = true;
    return 0;  // ends the transfer
  }
  return bytes;
}

size_t on_body(char* data, size_t size, size_t count, void* user) {
  auto* transfer = static_cast<Transfer*>(user);
  const size_t bytes = size * count;
  long code = 0;
  curl_easy_getinfo(transfer->handle, CURLINFO_RESPONSE_CODE, &code);
  const bool object = transfer->keep && code == 200;
  const uint64_t limit = object ? transfer->limit : kMaxOtherBody;
  if (bytes > limit - std::min(limit, transfer->received)) {
    transfer->too_long = true;
    return 0;
  }
  transfer->received += bytes;
  if (object) {
    try {
      transfer->body.append(data, bytes);
    } catch (const std::bad_alloc&) {
      transfer->too_long = true;
      return 0;
    }
  }
  return bytes;
}

size_t on_upload(char* data, size_t size, size_t count, void* user) {
  auto* transfer = static_cast<Transfer*>(user);
  const size_t bytes = std::min(size * count, transfer->upload.size());
  std::memcpy(data, transfer->upload.data(), bytes);
  transfer->upload.remove_prefix(bytes);
  return bytes;
}

Answer answer(Answer::Kind kind, std::string problem = {}) {
  Answer made;
  made.kind = kind;
  made.problem = std::move(problem);
  return made;
}

// libcurl's own short text: its long one may quote the server.
std::string curl_problem(CURLcode code) {
  switch (code) {
    case CURLE_OPERATION_TIMEDOUT:
      return "no whole answer in time";
    case CURLE_PARTIAL_FILE:
      return "the answer ended early";
    case CURLE_GOT_NOTHING:
      return "it closed the connection without an answer";
    case CURLE_PEER_FAILED_VERIFICATION:
      return "its certificate is not trusted (HSTU_JIT_REMOTE_CA_FILE names certificates to trust)";
    case CURLE_SSL_CACERT_BADFILE:
      return "the file that HSTU_JIT_REMOTE_CA_FILE names holds no certificates";
    default:
      return hstu::jit::printable(curl_easy_strerror(code), 120);
  }
}

// What a status means. 403 may be how an object store says "absent" to who may not list.
Answer of_status(long status, bool put) {
  using Kind = Answer::Kind;
  const std::string said = fmt::format("it answered {}", status);
  if (put ? status == 200 || status == 201 || status == 204 : status == 200) {
    return answer(Kind::done);
  }
  if (status >= 300 && status < 400) {
    return answer(Kind::refused, said +
                                     ", a redirect, which is not followed: set HSTU_JIT_REMOTE "
                                     "to the address that it leads to");
  }
  switch (status) {
    case 404:
    case 410:
      if (!put) return answer(Kind::absent);
      return answer(Kind::full, said + ": is the path of HSTU_JIT_REMOTE right?");
    case 401:
    case 407:
      return answer(Kind::refused,
                    said +
                        ": set HSTU_JIT_REMOTE_TOKEN_FILE or HSTU_JIT_REMOTE_HEADERS_FILE, or "
                        "what they hold has expired");
    case 403:
      if (put) {
        return answer(Kind::full, said +
                                      ": writing is not allowed with what "
                                      "HSTU_JIT_REMOTE_TOKEN_FILE or _HEADERS_FILE hold; or set "
                                      "HSTU_JIT_REMOTE_MODE=ro");
      }
      return answer(Kind::forbidden,
                    said +
                        ": set HSTU_JIT_REMOTE_TOKEN_FILE or HSTU_JIT_REMOTE_HEADERS_FILE (or "
                        "allow listing, if the server says so of absent objects)");
    case 405:
    case 409:
    case 501:
      if (put) {
        return answer(Kind::full, said +
                                      ": the server is not set up for PUT (nginx: dav_methods "
                                      "PUT and create_full_put_path on)");
      }
      break;
    case 413:
      return answer(Kind::too_large, said + ": raise its limit (nginx: client_max_body_size)");
    case 500:
    case 507:
      if (put) return answer(Kind::full, said + ": it is full or cannot write");
      break;
    default:
      break;
  }
  return answer(Kind::unreachable, said);
}

class HttpTransport final : public Transport {
 public:
  explicit HttpTransport(const TransportOptions& options) : options_(options) {}

  Answer get(const Request& request) override {
    Transfer transfer;
    transfer.keep = true;
    transfer.limit = request.limit;
    return run(request, &transfer, false);
  }

  Answer put(const Request& request, std::string_view bytes) override {
    Transfer transfer;
    transfer.upload = bytes;
    return run(request, &transfer, true);
  }

 private:
  Answer run(const Request& request, Transfer* transfer, bool put) const;
  bool set_up(CURL* handle, const Request& request, const std::vector<std::string>& addresses,
              List* headers, List* resolved) const;

  const TransportOptions options_;
};

bool HttpTransport::set_up(CURL* handle, const Request& request,
                           const std::vector<std::string>& addresses, List* headers,
                           List* resolved) const {
  const RemoteUrl& url = options_.url;
  bool ok = true;
  const auto set = [&](CURLoption option, auto value) {
    ok = ok && curl_easy_setopt(handle, option, value) == CURLE_OK;
  };
  const long left = static_cast<long>(
      std::chrono::duration_cast<milliseconds>(request.deadline - steady_clock::now()).count());
  const std::string query = url.query.empty() ? "" : "?" + url.query;
  const std::string address = fmt::format("{}://{}{}/v1/{}{}", url.tls() ? "https" : "http",
                                          url.authority(), url.path, request.name, query);
  set(CURLOPT_URL, address.c_str());
  set(CURLOPT_PATH_AS_IS, 1L);
  // Where to: this scheme, this host, no proxy of the environment, no redirect, no ~/.netrc.
#if LIBCURL_VERSION_NUM >= 0x075500
  set(CURLOPT_PROTOCOLS_STR, url.tls() ? "https" : "http");
#else
  set(CURLOPT_PROTOCOLS, static_cast<long>(url.tls() ? CURLPROTO_HTTPS : CURLPROTO_HTTP));
#endif
  set(CURLOPT_PROXY, "");
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_FORBID_REUSE, 1L);
  // Resolved here already: libcurl's own resolver waits for its thread when time is out.
  std::string entry = fmt::format("{}:{}:", url.host, url.port);
  for (size_t i = 0; i < addresses.size(); ++i) {
    const bool ipv6 = addresses[i].find(':') != std::string::npos;
    entry +=
        fmt::format("{}{}{}{}", i == 0 ? "" : ",", ipv6 ? "[" : "", addresses[i], ipv6 ? "]" : "");
  }
  if (addresses.front() != url.host) {
    ok = ok && append(resolved, entry);
    set(CURLOPT_RESOLVE, resolved->get());
  }
  // How long. NOSIGNAL: a library may not use its host's SIGALRM.
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_CONNECTTIMEOUT_MS,
      std::clamp(static_cast<long>(options_.connect_timeout_ms), 1L, std::max(left, 1L)));
  set(CURLOPT_TIMEOUT_MS, std::max(left, 1L));
  set(CURLOPT_LOW_SPEED_LIMIT, kSlow);
  set(CURLOPT_LOW_SPEED_TIME, kSlowSeconds);
  // TLS: certificate and name are always checked.
  set(CURLOPT_SSL_VERIFYPEER, 1L);
  set(CURLOPT_SSL_VERIFYHOST, 2L);
  set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  if (!options_.ca_file.empty()) set(CURLOPT_CAINFO, options_.ca_file.c_str());
  // Who asks.
  if (!url.user.empty() || !url.password.empty()) {
    set(CURLOPT_HTTPAUTH, static_cast<long>(CURLAUTH_BASIC));
    set(CURLOPT_USERNAME, url.user.c_str());
    set(CURLOPT_PASSWORD, url.password.c_str());
  }
  ok = ok && append(headers, "User-Agent: hstu-jit") && append(headers, "Expect:");
  if (!request.credentials->token.empty()) {
    ok = ok && append(headers, "Authorization: Bearer " + request.credentials->token);
  }
  for (const auto& [name, value] : request.credentials->headers) {
    // A name without a value is spelt so.
    ok = ok && append(headers, value.empty() ? name + ";" : name + ": " + value);
  }
  set(CURLOPT_HTTPHEADER, headers->get());
  return ok;
}

Answer HttpTransport::run(const Request& request, Transfer* transfer, bool put) const {
  using Kind = Answer::Kind;
  const auto connect_by =
      std::min(request.deadline, steady_clock::now() + milliseconds(options_.connect_timeout_ms));
  std::string problem;
  const std::vector<std::string> addresses = resolve_host(options_.url.host, connect_by, &problem);
  if (addresses.empty()) return answer(Kind::unreachable, problem);

  // Writing to a connection that its peer closed; TLS libraries do not ask for silence.
  const hstu::jit::SignalGuard no_sigpipe(SIGPIPE);
  List headers, resolved;
  const std::unique_ptr<CURL, EasyCloser> handle(curl_easy_init());
  if (!handle || !set_up(handle.get(), request, addresses, &headers, &resolved)) {
    return answer(Kind::unreachable, "libcurl does not take the settings of the request");
  }
  transfer->handle = handle.get();
  bool ok = true;
  const auto set = [&](CURLoption option, auto value) {
    ok = ok && curl_easy_setopt(handle.get(), option, value) == CURLE_OK;
  };
  set(CURLOPT_HEADERFUNCTION, &on_header);
  set(CURLOPT_HEADERDATA, static_cast<void*>(transfer));
  set(CURLOPT_WRITEFUNCTION, &on_body);
  set(CURLOPT_WRITEDATA, static_cast<void*>(transfer));
  if (put) {
    set(CURLOPT_UPLOAD, 1L);
    set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(transfer->upload.size()));
    set(CURLOPT_READFUNCTION, &on_upload);
    set(CURLOPT_READDATA, static_cast<void*>(transfer));
  } else {
    set(CURLOPT_MAXFILESIZE_LARGE,
        static_cast<curl_off_t>(std::max<uint64_t>(request.limit, kMaxOtherBody)));
  }
  if (!ok) return answer(Kind::unreachable, "libcurl does not take the settings of the request");

  const CURLcode code = curl_easy_perform(handle.get());
  long status = 0;
  curl_easy_getinfo(handle.get(), CURLINFO_RESPONSE_CODE, &status);
  // A server may refuse an upload before it has read it, and close: its answer counts.
  // So does that of one whose error page has no end.
  const bool answered_early =
      status >= 300 && (put ? code != CURLE_OPERATION_TIMEDOUT : transfer->too_long);
  if (code != CURLE_OK && !answered_early) {
    if (transfer->headers_too_long) {
      return answer(Kind::unreachable, "the headers of its answer do not end");
    }
    if (transfer->too_long || code == CURLE_FILESIZE_EXCEEDED) {
      return answer(Kind::unreachable, "its answer is longer than an entry may be");
    }
    if (code == CURLE_URL_MALFORMAT || code == CURLE_SSL_CACERT_BADFILE) {
      return answer(Kind::refused, curl_problem(code));
    }
    return answer(Kind::unreachable, curl_problem(code));
  }
  if (!transfer->head_whole) return answer(Kind::unreachable, "the answer ended early");
  Answer result = of_status(status, put);
  if (result.kind == Kind::done) result.bytes = std::move(transfer->body);
  return result;
}

}  // namespace

std::unique_ptr<Transport> make_http_transport(const TransportOptions& options,
                                               std::string* problem) {
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (ready != CURLE_OK) {
    *problem = fmt::format("libcurl does not start: {}", curl_easy_strerror(ready));
    return nullptr;
  }
  const curl_version_info_data* info = curl_version_info(CURLVERSION_NOW);
  if (options.url.tls() && (info->features & CURL_VERSION_SSL) == 0) {
    *problem = "this libcurl has no TLS, which https needs";
    return nullptr;
  }
  return std::make_unique<HttpTransport>(options);
}

}  // namespace hstu::cache
