// SPDX-License-Identifier: Apache-2.0
#include "cache/remote_resolve.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

namespace hstu::cache {
namespace {

constexpr size_t kMaxAddresses = 8;

bool is_numeric(const std::string& host) {
  in6_addr address{};
  return ::inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

// Of one question; its thread and whoever asked hold it, so that either may leave first.
struct Question {
  std::string host;
  std::mutex mutex;
  std::condition_variable answered;
  bool done = false;
  std::vector<std::string> addresses;
  std::string problem;
};

void ask(const std::shared_ptr<Question>& question) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(question->host.c_str(), nullptr, &hints, &found);
  std::vector<std::string> addresses;
  for (const addrinfo* at = code == 0 ? found : nullptr; at != nullptr; at = at->ai_next) {
    char text[NI_MAXHOST];
    if (addresses.size() < kMaxAddresses &&
        ::getnameinfo(at->ai_addr, at->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) ==
            0) {
      addresses.emplace_back(text);
    }
  }
  if (code == 0) ::freeaddrinfo(found);
  const std::lock_guard lock(question->mutex);
  question->addresses = std::move(addresses);
  if (code != 0) question->problem = ::gai_strerror(code);
  question->done = true;
  question->answered.notify_all();
}

}  // namespace

std::vector<std::string> resolve_host(const std::string& host,
                                      std::chrono::steady_clock::time_point deadline,
                                      std::string* problem) {
  if (is_numeric(host)) return {host};
  const auto question = std::make_shared<Question>();
  question->host = host;

  // The host program's signals are none of this thread's business.
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = true;
  try {
    std::thread([question] {
      try {
        ask(question);
      } catch (const std::exception&) {  // no memory: whoever asked finds no answer in time
      }
    }).detach();
  } catch (const std::system_error&) {
    started = false;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!started) {
    *problem = "no thread to resolve its name with";
    return {};
  }

  std::unique_lock lock(question->mutex);
  if (!question->answered.wait_until(lock, deadline, [&] { return question->done; })) {
    *problem = "its name was not resolved in time";
    return {};
  }
  if (question->addresses.empty()) {
    *problem = question->problem.empty()
                   ? "its name has no address"
                   : fmt::format("its name has no address ({})", question->problem);
  }
  return std::move(question->addresses);
}

}  // namespace hstu::cache
