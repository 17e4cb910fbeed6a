// SPDX-License-Identifier: Apache-2.0
// What is asked of a remote and when, and what its answers are worth. The network is in the
// transports.
#include "cache/remote.hpp"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <set>
#include <utility>

#include "base/fork_mutex.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "cache/entry.hpp"
#include "cache/remote_circuit.hpp"
#include "cache/remote_module.hpp"
#include "cache/remote_queue.hpp"
#include "cache/remote_secrets.hpp"
#include "cache/remote_transport.hpp"
#include "cache/remote_url.hpp"

namespace hstu::cache {
namespace {

using hstu::jit::Error;
using hstu::jit::ErrorKind;
using hstu::jit::Result;
using hstu::jit::Status;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Kind = Answer::Kind;
using Pass = Circuit::Pass;

constexpr size_t kQueuedJobs = 64;
constexpr uint64_t kQueuedBytes = uint64_t{64} << 20;
constexpr uint64_t kPointerLimit = 128;
constexpr uint32_t kCorruptCause = 31;  // beside the values of Kind

int64_t now_ms() {
  const auto since = steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<milliseconds>(since).count() + 1;
}

std::string folder_name(const std::string& request) {
  return fmt::format("objects/{}", request.substr(0, 2));
}

std::string entry_name(const std::string& request, const std::string& toolchain) {
  return fmt::format("{}/{}.{}.hko", folder_name(request), request, toolchain.substr(0, 12));
}

std::string pointer_name(const std::string& request) {
  return fmt::format("{}/{}.toolchain", folder_name(request), request);
}

Lookup miss(MissReason reason, std::string explanation) {
  Lookup lookup;
  lookup.reason = reason;
  lookup.explanation = std::move(explanation);
  return lookup;
}

// Once in this process: a server has an engine for each model and they share the remote.
bool first_time(const std::string& shown, uint32_t cause) {
  static hstu::jit::ForkMutex mutex;
  static std::set<std::pair<std::string, uint32_t>> said;
  const std::lock_guard lock(mutex);
  return said.size() < 4096 && said.emplace(shown, cause).second;
}

}  // namespace

struct Remote::State {
  State(std::unique_ptr<Transport> over, const RemoteOptions& given, std::string address)
      : options(given),
        transport(std::move(over)),
        shown(std::move(address)),
        reading(given.first_pause_ms, given.longest_pause_ms),
        writing(given.first_pause_ms, given.longest_pause_ms) {}
  ~State() { delete first_problem.load(); }

  // One request and its effect on counters and warnings.
  Answer ask(bool put, std::string name, std::string_view bytes, uint64_t limit,
             steady_clock::time_point deadline);
  Lookup ask_entry(const std::string& request, const std::string& toolchain,
                   steady_clock::time_point deadline, Kind* worst);
  Lookup find(const Key& key, bool any_toolchain, Kind* worst);
  Status send(const Artifact& artifact);
  void warn(uint32_t cause, std::string_view problem, std::string_view consequence);
  Lookup count(Lookup lookup);
  int64_t probe_time() const { return int64_t{options.timeout_ms} + options.connect_timeout_ms; }

  const RemoteOptions options;
  const std::unique_ptr<Transport> transport;
  const std::string shown;
  // Servers that take no writes any more still answer reads.
  Circuit reading, writing;

  std::atomic<uint64_t> lookups{0}, hits{0}, requests{0}, failed_requests{0}, withheld{0};
  std::atomic<uint64_t> bytes_read{0}, bytes_written{0}, publishes{0}, publish_failures{0};
  std::array<std::atomic<uint64_t>, RemoteStatistics::kReasons> misses{};
  std::atomic<uint32_t> causes{0};  // that this remote has warned about: a bit for each
  std::atomic<const std::string*> first_problem{nullptr};

  JobQueue queue{kQueuedJobs, kQueuedBytes};  // last, so first to go: its jobs use the rest
};

void Remote::State::warn(uint32_t cause, std::string_view problem, std::string_view consequence) {
  const uint32_t bit = uint32_t{1} << cause;
  if ((causes.fetch_or(bit) & bit) != 0) return;
  auto line = std::make_unique<const std::string>(
      fmt::format("remote cache {}: {}; {}", shown, problem, consequence));
  if (first_time(shown, cause)) hstu::jit::log_warn(*line + " (said once)");
  const std::string* none = nullptr;
  if (first_problem.compare_exchange_strong(none, line.get())) {
    static_cast<void>(line.release());  // freed with the state
  }
}

Answer Remote::State::ask(bool put, std::string name, std::string_view bytes, uint64_t limit,
                          steady_clock::time_point deadline) {
  Answer answer;
  const Result<Credentials> credentials = load_credentials(options);
  if (!credentials.ok()) {
    answer.kind = Kind::refused;
    answer.problem = credentials.error().message;
  } else {
    Request request;
    request.name = std::move(name);
    request.credentials = &*credentials;
    request.deadline = deadline;
    request.limit = limit;
    ++requests;
    answer = put ? transport->put(request, bytes) : transport->get(request);
  }
  // Whatever the transport says, more than was asked for is no answer.
  if (answer.kind == Kind::done && answer.bytes.size() > limit && !put) {
    answer = {Kind::unreachable, {}, "its answer is longer than an entry may be"};
  }
  const double pause = options.first_pause_ms / 1000.0;
  const auto cause = static_cast<uint32_t>(answer.kind);
  switch (answer.kind) {
    case Kind::done:
      (put ? bytes_written : bytes_read) += put ? bytes.size() : answer.bytes.size();
      return answer;
    case Kind::absent:
      return answer;
    case Kind::unreachable:
    case Kind::refused:
      warn(cause, answer.problem, fmt::format("going on without it, for {:g} s at first", pause));
      break;
    case Kind::forbidden:
      warn(cause, answer.problem, "such entries count as misses");
      break;
    case Kind::too_large:
      warn(cause, answer.problem, "such entries are not kept there");
      break;
    case Kind::full:
      warn(cause, answer.problem, fmt::format("nothing is sent there, for {:g} s at first", pause));
      break;
  }
  ++failed_requests;
  return answer;
}

// `worst` becomes the kind of an answer that says something about the server, not the entry.
Lookup Remote::State::ask_entry(const std::string& request, const std::string& toolchain,
                                steady_clock::time_point deadline, Kind* worst) {
  const Answer answer =
      ask(false, entry_name(request, toolchain), {}, options.entry_limit, deadline);
  if (answer.kind == Kind::absent) return miss(MissReason::absent, "the remote has no such entry");
  if (answer.kind != Kind::done) {
    *worst = answer.kind;
    return miss(MissReason::unreachable, fmt::format("remote cache {}: {}", shown, answer.problem));
  }
  DecodedEntry entry = decode_entry(answer.bytes);
  if (entry.fault == EntryFault::other_version) {
    return miss(MissReason::unreadable,
                fmt::format("the remote's entry is not used: {}", entry.problem));
  }
  if (entry.fault == EntryFault::none &&
      (entry.artifact.key.request != request || entry.artifact.key.toolchain != toolchain)) {
    entry.fault = EntryFault::corrupt;
    entry.problem = "it is the entry of another key";
  }
  if (entry.fault != EntryFault::none) {
    warn(kCorruptCause, fmt::format("it holds a damaged entry: {}", entry.problem),
         "such entries count as misses");
    return miss(MissReason::corrupt,
                fmt::format("the remote's entry is damaged: {}", entry.problem));
  }
  Lookup hit;
  hit.hit = true;
  hit.artifact = std::move(entry.artifact);
  return hit;
}

Lookup Remote::State::find(const Key& key, bool any_toolchain, Kind* worst) {
  const auto deadline = steady_clock::now() + milliseconds(options.timeout_ms);
  Lookup own = miss(MissReason::absent, "the remote has no such entry");
  if (!key.toolchain.empty()) {
    own = ask_entry(key.request, key.toolchain, deadline, worst);
    const bool lost = *worst == Kind::unreachable || *worst == Kind::refused;
    if (own.hit || !any_toolchain || lost) return own;
  }
  const Answer pointer = ask(false, pointer_name(key.request), {}, kPointerLimit, deadline);
  if (pointer.kind == Kind::absent) return own;
  if (pointer.kind != Kind::done) {
    *worst = pointer.kind;
    return miss(MissReason::unreachable,
                fmt::format("remote cache {}: {}", shown, pointer.problem));
  }
  std::string toolchain = pointer.bytes;
  if (!toolchain.empty() && toolchain.back() == '\n') toolchain.pop_back();
  if (!is_digest(toolchain)) {
    warn(kCorruptCause, "it holds a damaged pointer to an entry", "such entries count as misses");
    return miss(MissReason::corrupt, "the remote's pointer to the entry is damaged");
  }
  if (toolchain == key.toolchain) return own;
  Lookup other = ask_entry(key.request, toolchain, deadline, worst);
  if (other.hit) other.explanation = "made by another toolchain";
  return other;
}

Lookup Remote::State::count(Lookup lookup) {
  if (lookup.hit) {
    ++hits;
  } else {
    ++misses[static_cast<size_t>(lookup.reason) % misses.size()];
  }
  return lookup;
}

Status Remote::State::send(const Artifact& artifact) {
  const auto failure = [&](std::string_view reason) {
    ++publish_failures;
    return Error{ErrorKind::kCache,
                 fmt::format("cannot publish to the remote cache {}: {}", shown, reason), "", ""};
  };
  const Result<std::string> bytes = encode_entry(artifact);
  if (!bytes.ok()) return failure(bytes.error().message);
  if (bytes->size() > options.entry_limit) {
    return failure(
        fmt::format("the entry has {} bytes, {} are allowed", bytes->size(), options.entry_limit));
  }
  const Pass pass = writing.enter(now_ms(), probe_time());
  if (pass == Pass::none) {
    ++withheld;
    return failure("it failed a short while ago and is left alone");
  }
  const Key& key = artifact.key;
  const auto deadline = steady_clock::now() + milliseconds(options.timeout_ms);
  Answer answer = ask(true, entry_name(key.request, key.toolchain), *bytes, 0, deadline);
  // The entry first: who follows the pointer finds it.
  if (answer.kind == Kind::done) {
    answer = ask(true, pointer_name(key.request), key.toolchain, 0, deadline);
  }
  switch (answer.kind) {
    case Kind::unreachable:
      reading.failed(Pass::normal, now_ms());
      [[fallthrough]];
    case Kind::refused:
    case Kind::full:
      writing.failed(pass, now_ms());
      break;
    default:
      writing.succeeded(pass);
  }
  if (answer.kind != Kind::done) return failure(answer.problem);
  ++publishes;
  return {};
}

Remote::Remote(std::unique_ptr<State> state) : state_(std::move(state)) {}

Remote::~Remote() { flush(state_->options.timeout_ms); }

Result<std::unique_ptr<Remote>> Remote::open(const RemoteOptions& options) {
  if (options.url.empty()) return std::unique_ptr<Remote>();
  Result<RemoteUrl> url = parse_remote_url(options.url);
  if (!url.ok()) return std::move(url).error();
  const Result<Credentials> credentials = load_credentials(options);
  if (!credentials.ok()) return credentials.error();
  const Result<const RemoteModule*> module = load_remote_module();
  if (!module.ok()) return module.error();

  TransportOptions wanted;
  wanted.url = *url;
  wanted.ca_file = options.ca_file;
  wanted.connect_timeout_ms = options.connect_timeout_ms;
  wanted.ttl_seconds = options.ttl_seconds;
  std::string problem;
  std::unique_ptr<Transport> transport = (*module)->make(wanted, &problem);
  if (!transport) {
    return Error{ErrorKind::kCache, fmt::format("remote cache {}: {}", url->shown(), problem), "",
                 ""};
  }
  return over(std::move(transport), options);
}

std::unique_ptr<Remote> Remote::over(std::unique_ptr<Transport> transport,
                                     const RemoteOptions& options) {
  const Result<RemoteUrl> url = parse_remote_url(options.url);
  auto state =
      std::make_unique<State>(std::move(transport), options, url.ok() ? url->shown() : "?");
  if (const std::string line = secrets_warning(options); !line.empty() && first_time(line, 0)) {
    hstu::jit::log_warn(line);
  }
  return std::unique_ptr<Remote>(new Remote(std::move(state)));
}

Lookup Remote::lookup(const Key& key, bool any_toolchain) {
  State& state = *state_;
  ++state.lookups;
  const bool no_toolchain = any_toolchain && key.toolchain.empty();
  if (!is_digest(key.request) || (!is_digest(key.toolchain) && !no_toolchain)) {
    return state.count(miss(MissReason::absent, "the key is not made of two digests"));
  }
  const Pass pass = state.reading.enter(now_ms(), state.probe_time());
  if (pass == Pass::none) {
    ++state.withheld;
    return state.count(miss(MissReason::unreachable,
                            fmt::format("remote cache {} failed and is left alone for another {} s",
                                        state.shown, (state.reading.left(now_ms()) + 999) / 1000)));
  }
  Kind worst = Kind::done;
  Lookup lookup = state.find(key, any_toolchain, &worst);
  if (worst == Kind::unreachable) state.writing.failed(Pass::normal, now_ms());
  if (worst == Kind::unreachable || worst == Kind::refused) {
    state.reading.failed(pass, now_ms());
  } else {
    state.reading.succeeded(pass);
  }
  return state.count(std::move(lookup));
}

Status Remote::publish(const Artifact& artifact) {
  if (!state_->options.read_write) return {};
  return state_->send(artifact);
}

void Remote::publish_later(Artifact artifact) {
  State& state = *state_;
  if (!state.options.read_write) return;
  uint64_t bytes = artifact.payload.size() + artifact.metadata.size();
  for (const auto& [name, text] : artifact.ingredients) bytes += name.size() + text.size();
  const auto kept = std::make_shared<const Artifact>(std::move(artifact));
  const bool queued = state.queue.add(bytes, [&state, kept] {
    try {
      const Status ignored = state.send(*kept);  // counted and, once, warned about
      static_cast<void>(ignored);
    } catch (const std::exception&) {  // no memory: nothing may leave the thread
      ++state.publish_failures;
    }
  });
  if (!queued) ++state.publish_failures;
}

bool Remote::flush(int timeout_ms) { return state_->queue.wait_idle(timeout_ms); }

bool Remote::read_write() const { return state_->options.read_write; }

const std::string& Remote::shown() const { return state_->shown; }

std::string Remote::warning() const {
  const std::string* line = state_->first_problem.load();
  return line != nullptr ? *line : std::string();
}

RemoteStatistics Remote::statistics() const {
  const State& state = *state_;
  RemoteStatistics numbers;
  numbers.lookups = state.lookups;
  numbers.hits = state.hits;
  for (size_t i = 0; i < state.misses.size(); ++i) numbers.misses[i] = state.misses[i];
  numbers.requests = state.requests;
  numbers.failed_requests = state.failed_requests;
  numbers.withheld = state.withheld;
  numbers.bytes_read = state.bytes_read;
  numbers.bytes_written = state.bytes_written;
  numbers.publishes = state.publishes;
  numbers.publish_failures = state.publish_failures;
  return numbers;
}

}  // namespace hstu::cache
