// SPDX-License-Identifier: Apache-2.0
// Redis by hiredis: GET and SET, each over a connection of its own.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/signal_guard.hpp"
#include "base/text.hpp"
#include "cache/remote_resolve.hpp"
#include "cache/remote_transport.hpp"

#ifdef HSTU_JIT_HAVE_HIREDIS
#include <hiredis/hiredis.h>
#ifdef HSTU_JIT_HAVE_HIREDIS_SSL
#include <arpa/inet.h>
#include <hiredis/hiredis_ssl.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#endif

namespace hstu::cache {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Kind = Answer::Kind;

constexpr uint64_t kMaxStatus = 4096;  // bytes of a reply that is no object
#ifdef HSTU_JIT_HAVE_HIREDIS_SSL
constexpr const char* kUntrusted =
    "its certificate is not trusted (HSTU_JIT_REMOTE_CA_FILE names certificates to trust)";
#endif

struct ContextCloser {
  void operator()(redisContext* context) const { redisFree(context); }
};
using Context = std::unique_ptr<redisContext, ContextCloser>;
struct ReplyCloser {
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
};
using Reply = std::unique_ptr<redisReply, ReplyCloser>;

// A connection. Its socket does not block: time-outs of hiredis are for each system call, and a
// server that sends a byte now and then would never meet one.
struct Connection {
  Context context;
#ifdef HSTU_JIT_HAVE_HIREDIS_SSL
  const SSL* tls = nullptr;  // the context's
#endif

  // Until it can be written to or read from; false when the time is up.
  bool wait(short events, steady_clock::time_point deadline) const {
#ifdef HSTU_JIT_HAVE_HIREDIS_SSL
    if (tls != nullptr && SSL_want_read(tls) != 0) events = POLLIN;
    if (tls != nullptr && SSL_want_write(tls) != 0) events = POLLOUT;
#endif
    for (;;) {
      const auto left =
          std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now()).count();
      if (left <= 0) return false;
      pollfd ready{context->fd, events, 0};
      const int count = ::poll(&ready, 1, static_cast<int>(std::min<int64_t>(left, 60000)));
      if (count > 0) return true;
      if (count < 0 && errno != EINTR) return false;
    }
  }
};

Answer answer(Kind kind, std::string problem = {}) {
  Answer made;
  made.kind = kind;
  made.problem = std::move(problem);
  return made;
}

// False when the time is up.
bool time_left(steady_clock::time_point deadline, timeval* left) {
  const auto us = std::chrono::duration_cast<microseconds>(deadline - steady_clock::now()).count();
  if (us < 1000) return false;
  left->tv_sec = static_cast<time_t>(us / 1000000);
  left->tv_usec = static_cast<suseconds_t>(us % 1000000);
  return true;
}

// What an error reply means, by its first word alone: the rest is the server's and stays unread.
Answer of_error(std::string_view text, bool put) {
  std::string word;
  for (const char c : text.substr(0, 16)) {
    if (c < 'A' || c > 'Z') break;
    word += c;
  }
  const std::string said = fmt::format("it answered {}", word.empty() ? "an error" : word);
  if (word == "NOAUTH" || word == "WRONGPASS") {
    return answer(Kind::refused, said +
                                     ": set HSTU_JIT_REMOTE_TOKEN_FILE to the password's file, "
                                     "or the password is wrong");
  }
  if (word == "NOPERM") {
    return answer(put ? Kind::full : Kind::forbidden,
                  said + ": the user may not do this; see ACL LIST of the server");
  }
  if (put && (word == "OOM" || word == "MISCONF" || word == "READONLY")) {
    return answer(Kind::full, said + ": it is full or takes no writes");
  }
  return answer(Kind::unreachable, said);
}

class RedisTransport final : public Transport {
 public:
  explicit RedisTransport(const TransportOptions& options) : options_(options) {}

#ifdef HSTU_JIT_HAVE_HIREDIS_SSL
  // Our own settings, not those that hiredis makes: it does not check whom a certificate is for.
  bool start_tls(std::string* problem) {
    tls_.reset(SSL_CTX_new(TLS_client_method()));
    const char* file = options_.ca_file.c_str();
    const bool ok =
        tls_ != nullptr && SSL_CTX_set_min_proto_version(tls_.get(), TLS1_2_VERSION) == 1 &&
        (options_.ca_file.empty() ? SSL_CTX_set_default_verify_paths(tls_.get()) == 1
                                  : SSL_CTX_load_verify_locations(tls_.get(), file, nullptr) == 1);
    if (!ok) {
      *problem = "TLS cannot be set up; does HSTU_JIT_REMOTE_CA_FILE name a file of certificates?";
      return false;
    }
    SSL_CTX_set_verify(tls_.get(), SSL_VERIFY_PEER, nullptr);
    return true;
  }
#endif

  Answer get(const Request& request) override {
    const std::string key = key_of(request.name);
    Answer result = session(request, {"GET", key}, request.limit);
    if (result.kind == Kind::done && result.bytes.size() > request.limit) {
      return answer(Kind::unreachable, "its answer is longer than an entry may be");
    }
    return result;
  }

  Answer put(const Request& request, std::string_view bytes) override {
    const std::string key = key_of(request.name);
    const std::string seconds = std::to_string(options_.ttl_seconds);
    std::vector<std::string_view> command = {"SET", key, bytes};
    if (options_.ttl_seconds != 0) command.insert(command.end(), {"EX", seconds});
    return session(request, command, 0);
  }

 private:
  // "objects/ab/NAME.hko" or "objects/ab/NAME" to "hstu-jit:v1:NAME".
  static std::string key_of(const std::string& name) {
    std::string_view rest = std::string_view(name).substr(name.rfind('/') + 1);
    if (rest.size() > 4 && rest.substr(rest.size() - 4) == ".hko") rest.remove_suffix(4);
    return fmt::format("hstu-jit:v1:{}", rest);
  }

  Answer session(const Request& request, const std::vector<std::string_view>& command,
                 uint64_t limit) const;
  Connection connect(const Request& request, Answer* failure) const;
  // One command and its reply. Kind::done with a bulk reply's bytes or a status; absent for nil.
  static Answer call(const Connection& connection, const Request& request,
                     const std::vector<std::string_view>& command, uint64_t limit, bool put);

  const TransportOptions options_;
#ifdef HSTU_JIT_HAVE_HIREDIS_SSL
  struct SettingsCloser {
    void operator()(SSL_CTX* settings) const { SSL_CTX_free(settings); }
  };
  const SSL* start_tls_on(redisContext* context, std::string* problem) const;
  std::unique_ptr<SSL_CTX, SettingsCloser> tls_;
#endif
};

#ifdef HSTU_JIT_HAVE_HIREDIS_SSL
// Null with `problem` when it fails. The handshake goes on with the first command.
const SSL* RedisTransport::start_tls_on(redisContext* context, std::string* problem) const {
  struct Closer {
    void operator()(SSL* tls) const { SSL_free(tls); }
  };
  std::unique_ptr<SSL, Closer> tls(SSL_new(tls_.get()));
  *problem = "TLS cannot be set up";
  if (!tls) return nullptr;
  const std::string& host = options_.url.host;
  in6_addr address{};
  const bool numeric = ::inet_pton(AF_INET, host.c_str(), &address) == 1 ||
                       ::inet_pton(AF_INET6, host.c_str(), &address) == 1;
  const bool named =
      numeric ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls.get()), host.c_str()) == 1
              : SSL_set1_host(tls.get(), host.c_str()) == 1 &&
                    SSL_set_tlsext_host_name(tls.get(), host.c_str()) == 1;
  if (!named) return nullptr;
  if (redisInitiateSSL(context, tls.get()) != REDIS_OK) {
    *problem = SSL_get_verify_result(tls.get()) != X509_V_OK ? kUntrusted : "it speaks no TLS";
    return nullptr;
  }
  return tls.release();  // the context's from now on
}
#endif

Connection RedisTransport::connect(const Request& request, Answer* failure) const {
  const auto connect_by =
      std::min(request.deadline, steady_clock::now() + milliseconds(options_.connect_timeout_ms));
  std::string problem;
  const std::vector<std::string> addresses = resolve_host(options_.url.host, connect_by, &problem);
  for (const std::string& address : addresses) {
    timeval left{};
    if (!time_left(connect_by, &left)) {
      problem = "no connection in time";
      break;
    }
    Context context(redisConnectWithTimeout(address.c_str(), options_.url.port, left));
    if (!context) {
      problem = "no memory for a connection";
      break;
    }
    if (context->err != 0) {
      problem = fmt::format("no connection: {}", hstu::jit::printable(context->errstr, 120));
      continue;
    }
    const int flags = ::fcntl(context->fd, F_GETFL);
    if (flags < 0 || ::fcntl(context->fd, F_SETFL, flags | O_NONBLOCK) != 0) {
      problem = fmt::format("no connection: {}", std::strerror(errno));
      continue;
    }
    context->flags &= ~REDIS_BLOCK;
    Connection connection;
    connection.context = std::move(context);
#ifdef HSTU_JIT_HAVE_HIREDIS_SSL
    if (tls_ != nullptr) {
      connection.tls = start_tls_on(connection.context.get(), &problem);
      if (connection.tls == nullptr) continue;
    }
#endif
    return connection;
  }
  *failure = answer(Kind::unreachable, problem);
  return {};
}

Answer RedisTransport::call(const Connection& connection, const Request& request,
                            const std::vector<std::string_view>& command, uint64_t limit,
                            bool put) {
  redisContext* const context = connection.context.get();
  std::vector<const char*> parts;
  std::vector<size_t> sizes;
  for (const std::string_view part : command) {
    parts.push_back(part.data());
    sizes.push_back(part.size());
  }
  if (redisAppendCommandArgv(context, static_cast<int>(parts.size()), parts.data(), sizes.data()) !=
      REDIS_OK) {
    return answer(Kind::unreachable, "no memory for the command");
  }
  const auto lost = [&]() -> Answer {
#ifdef HSTU_JIT_HAVE_HIREDIS_SSL
    if (connection.tls != nullptr && SSL_get_verify_result(connection.tls) != X509_V_OK) {
      return answer(Kind::unreachable, kUntrusted);
    }
#endif
    if (context->err == 0) return answer(Kind::unreachable, "no whole answer in time");
    return answer(Kind::unreachable, context->err == REDIS_ERR_EOF
                                         ? "it closed the connection"
                                         : "its connection broke or it does not speak Redis");
  };
  for (int sent = 0; sent == 0;) {
    if (redisBufferWrite(context, &sent) != REDIS_OK) return lost();
    if (sent == 0 && !connection.wait(POLLOUT, request.deadline)) return lost();
  }

  for (bool looked = false;;) {
    const size_t before = context->reader->len;
    // Reading comes before waiting: TLS may hold bytes that the socket no longer has.
    if (redisBufferRead(context) != REDIS_OK) return lost();
    if (context->reader->len == before) {
      if (!connection.wait(POLLIN, request.deadline)) return lost();
      continue;
    }
    if (steady_clock::now() >= request.deadline) return lost();
    const redisReader* reader = context->reader;
    const std::string_view bytes(reader->buf + reader->pos, reader->len - reader->pos);
    if (!looked && !bytes.empty()) {
      // hiredis would take memory for whatever length or count the server names.
      if (std::string_view("$+-:").find(bytes.front()) == std::string_view::npos) {
        return answer(Kind::unreachable, "it does not speak Redis");
      }
      const size_t end = bytes.find('\r');
      if (end == bytes.npos) {
        if (bytes.size() > kMaxStatus) {
          return answer(Kind::unreachable, "its answer does not end");
        }
        continue;
      }
      if (bytes.front() == '$') {
        uint64_t length = 0;
        for (const char c : bytes.substr(1, end - 1)) {
          if (c == '-' || c < '0' || c > '9') break;  // "-1" is nil; hiredis refuses the others
          length = std::min<uint64_t>(length * 10 + static_cast<uint64_t>(c - '0'), UINT32_MAX);
        }
        if (length > limit) {
          return answer(Kind::unreachable, "its answer is longer than an entry may be");
        }
      }
      looked = true;
    }
    if (bytes.size() > limit + kMaxStatus) {
      return answer(Kind::unreachable, "its answer is longer than an entry may be");
    }
    void* raw = nullptr;
    if (redisGetReplyFromReader(context, &raw) != REDIS_OK) return lost();
    if (raw == nullptr) continue;
    const Reply reply(static_cast<redisReply*>(raw));
    switch (reply->type) {
      case REDIS_REPLY_NIL:
        return answer(Kind::absent);
      case REDIS_REPLY_ERROR:
        return of_error(std::string_view(reply->str, static_cast<size_t>(reply->len)), put);
      case REDIS_REPLY_STRING:
      case REDIS_REPLY_STATUS: {
        Answer result = answer(Kind::done);
        const bool text = reply->type == REDIS_REPLY_STRING;
        const bool good = std::string_view(reply->str, static_cast<size_t>(reply->len)) == "OK";
        if (text == put || (!text && !good)) {
          return answer(Kind::unreachable, "its answer does not fit the command");
        }
        if (text) result.bytes.assign(reply->str, static_cast<size_t>(reply->len));
        return result;
      }
      default:
        return answer(Kind::unreachable, "its answer does not fit the command");
    }
  }
}

Answer RedisTransport::session(const Request& request, const std::vector<std::string_view>& command,
                               uint64_t limit) const {
  const hstu::jit::SignalGuard no_sigpipe(SIGPIPE);  // hiredis uses plain write()
  const bool put = command.front() == "SET";
  Answer failure;
  const Connection connection = connect(request, &failure);
  if (!connection.context) return failure;

  // A token replaces the password of the URL, not its user.
  const RemoteUrl& url = options_.url;
  const std::string& password =
      request.credentials->token.empty() ? url.password : request.credentials->token;
  if (!password.empty()) {
    std::vector<std::string_view> auth = {"AUTH"};
    if (!url.user.empty()) auth.push_back(url.user);
    auth.push_back(password);
    Answer result = call(connection, request, auth, 0, true);
    if (result.kind == Kind::unreachable && result.problem.rfind("it answered ERR", 0) == 0) {
      // Old servers know "ERR invalid password", and all "ERR ... no password is set".
      return answer(Kind::refused,
                    "it answered ERR to AUTH: the password is wrong, or the server has none");
    }
    if (result.kind != Kind::done) return result;
  }
  if (url.path.size() > 1 && url.path != "/0") {
    const std::vector<std::string_view> select = {"SELECT", std::string_view(url.path).substr(1)};
    const Answer result = call(connection, request, select, 0, true);
    if (result.kind != Kind::done) return result;
  }
  return call(connection, request, command, limit, put);
}

}  // namespace

std::unique_ptr<Transport> make_redis_transport(const TransportOptions& options,
                                                std::string* problem) {
  auto transport = std::make_unique<RedisTransport>(options);
  if (options.url.tls()) {
#ifdef HSTU_JIT_HAVE_HIREDIS_SSL
    if (!transport->start_tls(problem)) return nullptr;
#else
    *problem = fmt::format(
        "built with hiredis {}.{}.{}, which has no TLS (1.0 does); use redis:// or https://",
        HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH);
    return nullptr;
#endif
  }
  return transport;
}

}  // namespace hstu::cache

#else  // without hiredis

namespace hstu::cache {
std::unique_ptr<Transport> make_redis_transport(const TransportOptions&, std::string* problem) {
  *problem = "built without hiredis (Debian: libhiredis-dev), which redis:// needs";
  return nullptr;
}
}  // namespace hstu::cache

#endif
