// SPDX-License-Identifier: Apache-2.0
#include "cache/store.hpp"

#include <fmt/format.h>

#include <atomic>
#include <chrono>

#include "base/digest.hpp"
#include "base/env.hpp"
#include "base/text.hpp"
#include "base/trust.hpp"
#include "cache/collect.hpp"
#include "cache/entry.hpp"
#include "cache/folder.hpp"
#include "cache/names.hpp"
#include "cache/publish.hpp"
#include "cache/root.hpp"
#include "cache/search.hpp"
#include "cache/statistics.hpp"

namespace hstu::cache {
namespace {

using hstu::jit::Error;
using hstu::jit::ErrorKind;
using hstu::jit::printable;
using hstu::jit::Result;
using hstu::jit::Status;

constexpr auto kSaveEvery = std::chrono::minutes(10);
constexpr auto kLookEvery = std::chrono::minutes(10);  // whether a collection is due

// A limit that is no size is the default: a cache without any would fill the disk.
uint64_t size_limit_of(const Store::Options& options, std::string* warning) {
  if (options.size_limit != 0) return options.size_limit;
  const auto text = hstu::jit::get_env("HSTU_JIT_CACHE_SIZE");
  if (!text) return kDefaultSizeLimit;
  Result<uint64_t> size = parse_size(*text);
  if (size.ok()) return *size;
  *warning = fmt::format("HSTU_JIT_CACHE_SIZE is ignored: {}", size.error().message);
  return kDefaultSizeLimit;
}

void add_line(std::string* line, const std::string& more) {
  if (more.empty()) return;
  *line += (line->empty() ? "" : "; ") + more;
}

}  // namespace

std::string request_digest(const Ingredients& ingredients) {
  // Lengths in front, so that no two lists have one spelling.
  std::string list = fmt::format("hstu-cache/1 {}\n", ingredients.size());
  for (const auto& [name, text] : ingredients) {
    list += fmt::format("{} {}\n", name.size(), text.size());
    list += name;
    list += text;
  }
  return hstu::jit::sha256_hex(list);
}

const char* miss_reason_name(MissReason reason) {
  switch (reason) {
    case MissReason::none:
      return "none";
    case MissReason::absent:
      return "absent";
    case MissReason::toolchain:
      return "toolchain";
    case MissReason::corrupt:
      return "corrupt";
    case MissReason::foreign_owner:
      return "foreign_owner";
    case MissReason::unreadable:
      return "unreadable";
    case MissReason::disabled:
      return "disabled";
    case MissReason::unreachable:
      return "unreachable";
  }
  return "?";
}

Result<Mode> parse_mode(std::string_view text) {
  if (text == "rw") return Mode::read_write;
  if (text == "ro") return Mode::read_only;
  if (text == "off") return Mode::off;
  if (text == "sealed") return Mode::sealed;
  return Error{ErrorKind::kUsage,
               fmt::format("cache mode \"{}\" is not one of rw, ro, off, sealed", printable(text)),
               "", ""};
}

// What copies of a store share.
struct Store::State {
  State(std::string root_folder, bool save) : root(std::move(root_folder)), saves(save) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (saves) statistics.save(root);
  }

  const std::string root;
  const bool saves;
  uint64_t size_limit = kUnlimited;
  Statistics statistics;
  std::atomic<uint64_t> published{0};  // bytes since the last collection of this process
  std::atomic<int64_t> next_look{0}, next_save{0};  // steady clock, its own ticks
};

namespace {

// True once each time the moment has come; it is then moved on by `period`.
bool moment_has_come(std::atomic<int64_t>* moment, std::chrono::steady_clock::duration period) {
  const int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
  int64_t due = moment->load();
  return due <= now && moment->compare_exchange_strong(due, now + period.count());
}

}  // namespace

Store::Store() : state_(std::make_shared<State>("", false)) {}

Result<Store> Store::open(const Options& options) {
  Result<Root> root = find_root(options);
  if (!root.ok()) return std::move(root).error();
  Store store;
  store.root_ = std::move(root->path);
  store.why_ = std::move(root->why);
  store.warning_ = std::move(root->warning);
  store.mode_ = options.mode;
  store.state_ = std::make_shared<State>(store.root_,
                                         options.mode == Mode::read_write && !store.root_.empty());
  std::string warning;
  store.state_->size_limit = size_limit_of(options, &warning);
  (void)moment_has_come(&store.state_->next_save, kSaveEvery);
  if (options.mode != Mode::off) {
    add_line(&store.warning_, warning);
    add_line(&store.warning_, hstu::jit::trusted_uids_problem());
  }
  return store;
}

Statistics& Store::statistics() const { return state_->statistics; }
uint64_t Store::size_limit() const { return state_->size_limit; }

std::string Store::entry_path(const Key& key) const {
  if (root_.empty() || !is_digest(key.request) || !is_digest(key.toolchain)) return {};
  return fmt::format("{}/v1/objects/{}/{}", root_, fan_out_name(key), entry_file_name(key));
}

Lookup Store::find(const Key& key, bool any_toolchain, bool leave_a_trace,
                   std::string* bytes) const {
  if (mode_ == Mode::off) return miss(MissReason::disabled, "the cache is off");
  if (root_.empty()) return miss(MissReason::disabled, "there is no cache folder");
  // Who takes any toolchain's entry need not have one of his own.
  const bool no_toolchain = any_toolchain && key.toolchain.empty();
  if (!is_digest(key.request) || (!is_digest(key.toolchain) && !no_toolchain)) {
    return miss(MissReason::absent, "the key is not made of two digests");
  }
  const bool writes = leave_a_trace && mode_ == Mode::read_write;
  return search_entry({root_, key, any_toolchain, writes}, bytes);
}

Lookup Store::lookup(const Key& key, bool any_toolchain) const {
  Lookup result = find(key, any_toolchain, true, nullptr);
  state_->statistics.add(result.hit ? "local.hit" : miss_counter("local", result.reason));
  return result;
}

Lookup Store::lookup_again(const Key& key) const {
  Lookup result = find(key, false, true, nullptr);
  if (result.hit) state_->statistics.add("local.hit");
  return result;
}

Lookup Store::peek(const Key& key, bool any_toolchain) const {
  return find(key, any_toolchain, false, nullptr);
}

Result<std::string> Store::lookup_bytes(const Key& key, bool any_toolchain) const {
  std::string bytes;
  Lookup result = find(key, any_toolchain, true, &bytes);
  state_->statistics.add(result.hit ? "local.hit" : miss_counter("local", result.reason));
  if (!result.hit) return Error{ErrorKind::kCache, std::move(result.explanation), "", ""};
  return bytes;
}

Status Store::publish(const Artifact& artifact) const {
  if (mode_ != Mode::read_write || root_.empty()) return {};
  Result<std::string> bytes = encode_entry(artifact);
  if (!bytes.ok()) return std::move(bytes).error();
  PublishResult result =
      publish_entry(root_, fan_out_name(artifact.key), entry_file_name(artifact.key), *bytes);
  if (result.code != 0) {
    state_->statistics.add(failure_counter("local", result.code));
    return Error{ErrorKind::kCache, "cannot publish to the kernel cache: " + result.problem, "",
                 ""};
  }
  state_->statistics.add("local.publish");
  collect_now_and_then(bytes->size());
  if (moment_has_come(&state_->next_save, kSaveEvery)) state_->statistics.save(root_);
  return {};
}

void Store::collect_now_and_then(uint64_t published) const {
  State& state = *state_;
  if (state.size_limit == kUnlimited) return;
  // Between two collections the writers of a node together pass the limit by little.
  const bool hurry = state.published.fetch_add(published) + published > state.size_limit / 16;
  if (!moment_has_come(&state.next_look, kLookEvery) && !hurry) return;
  Collected result;
  if (!collect_when_due(root_, state.size_limit, hurry, &result)) return;
  if (!result.unfinished) state.published = 0;
  if (result.evicted == 0) return;
  state.statistics.add("local.evicted", result.evicted);
  state.statistics.add("local.evicted_bytes", result.evicted_bytes);
}

}  // namespace hstu::cache
