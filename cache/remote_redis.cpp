// SPDX-License-Identifier: Apache-2.0
// Redis by hiredis: GET and SET, each over a connection of its own.
#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>

#include "base/signal_guard.hpp"
#include "base/text.hpp"
#include "cache/remote_resolve.hpp"
#include "cache/remote_transport.hpp"

#ifdef HSTU_JIT_HAVE_HIREDIS
#include <hiredis/hiredis.h>
#ifdef HSTU_JIT_HAVE_HIREDIS_SSL
#include <hiredis/hiredis_ssl.h>
#endif

namespace hstu::cache {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Kind = Answer::Kind;

constexpr uint64_t kMaxStatus = 4096;  // bytes of a reply that is no object

struct ContextCloser {
  void operator()(redisContext* context) const { redisFree(context); }
};
using Context = std::unique_ptr<redisContext, ContextCloser>;
struct ReplyCloser {
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
};
using Reply = std::unique_ptr<redisReply, ReplyCloser>;

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
  ~RedisTransport() override {
    if (tls_ != nullptr) redisFreeSSLContext(tls_);
  }
  bool start_tls(std::string* problem) {
    redisInitOpenSSL();
    redisSSLContextError error = REDIS_SSL_CTX_NONE;
    const char* file = options_.ca_file.empty() ? nullptr : options_.ca_file.c_str();
    // Without a file: the system's certificates.
    tls_ = redisCreateSSLContext(file, file == nullptr ? "/etc/ssl/certs" : nullptr, nullptr,
                                 nullptr, options_.url.host.c_str(), &error);
    if (tls_ == nullptr) {
      *problem = fmt::format("TLS cannot be set up: {}", redisSSLContextGetError(error));
    }
    return tls_ != nullptr;
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
  Context connect(const Request& request, Answer* failure) const;
  // One command and its reply. Kind::done with a bulk reply's bytes or a status; absent for nil.
  static Answer call(redisContext* context, const Request& request,
                     const std::vector<std::string_view>& command, uint64_t limit, bool put);

  const TransportOptions options_;
#ifdef HSTU_JIT_HAVE_HIREDIS_SSL
  redisSSLContext* tls_ = nullptr;
#endif
};

Context RedisTransport::connect(const Request& request, Answer* failure) const {
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
#ifdef HSTU_JIT_HAVE_HIREDIS_SSL
    if (tls_ != nullptr) {
      if (!time_left(request.deadline, &left) || redisSetTimeout(context.get(), left) != REDIS_OK ||
          redisInitiateSSLWithContext(context.get(), tls_) != REDIS_OK) {
        problem =
            "no TLS connection: its certificate is not trusted "
            "(HSTU_JIT_REMOTE_CA_FILE names certificates to trust), or it speaks no TLS";
        continue;
      }
    }
#endif
    return context;
  }
  *failure = answer(Kind::unreachable, problem);
  return nullptr;
}

Answer RedisTransport::call(redisContext* context, const Request& request,
                            const std::vector<std::string_view>& command, uint64_t limit,
                            bool put) {
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
  timeval left{};
  // hiredis knows a time-out for each system call; the deadline is for all of them.
  const auto arm = [&] {
    return time_left(request.deadline, &left) && redisSetTimeout(context, left) == REDIS_OK;
  };
  const auto lost = [&]() -> Answer {
    if (!time_left(request.deadline, &left)) {
      return answer(Kind::unreachable, "no whole answer in time");
    }
    return answer(Kind::unreachable, context->err == REDIS_ERR_EOF
                                         ? "it closed the connection"
                                         : "its connection broke or it does not speak Redis");
  };
  for (int sent = 0; sent == 0;) {
    if (!arm() || redisBufferWrite(context, &sent) != REDIS_OK) return lost();
  }

  for (bool looked = false;;) {
    if (!arm() || redisBufferRead(context) != REDIS_OK) return lost();
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
  const Context context = connect(request, &failure);
  if (!context) return failure;

  // A token replaces the password of the URL, not its user.
  const RemoteUrl& url = options_.url;
  const std::string& password =
      request.credentials->token.empty() ? url.password : request.credentials->token;
  if (!password.empty()) {
    std::vector<std::string_view> auth = {"AUTH"};
    if (!url.user.empty()) auth.push_back(url.user);
    auth.push_back(password);
    Answer result = call(context.get(), request, auth, 0, true);
    if (result.kind == Kind::unreachable && result.problem.rfind("it answered ERR", 0) == 0) {
      // Old servers know "ERR invalid password", and all "ERR ... no password is set".
      return answer(Kind::refused,
                    "it answered ERR to AUTH: the password is wrong, or the server has none");
    }
    if (result.kind != Kind::done) return result;
  }
  if (url.path.size() > 1 && url.path != "/0") {
    const std::vector<std::string_view> select = {"SELECT", std::string_view(url.path).substr(1)};
    const Answer result = call(context.get(), request, select, 0, true);
    if (result.kind != Kind::done) return result;
  }
  return call(context.get(), request, command, limit, put);
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
