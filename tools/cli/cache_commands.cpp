// SPDX-License-Identifier: Apache-2.0
// hstu-jit cache ls | info | verify | gc | clear | path | stats: the local kernel cache, for
// people.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/digest.hpp"
#include "base/env.hpp"
#include "base/text.hpp"
#include "cache/collect.hpp"
#include "cache/listing.hpp"
#include "cache/names.hpp"
#include "cache/statistics.hpp"
#include "cli/commands.hpp"

namespace hstu::jit::cli {
namespace {

using Json = nlohmann::ordered_json;
using cache::ListedEntry;
using cache::Store;

std::string schema(const char* command) { return fmt::format("hstu-jit/cache-{}/1", command); }

// Ends a command: its JSON or its text, or the error.
int finish(const Common& common, const char* command, Json json, const std::string& text) {
  std::string out = text;
  if (common.json) {
    Json all;
    all["schema"] = schema(command);
    for (auto& [name, value] : json.items()) all[name] = value;
    out = all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  const Status printed = print(out);
  return printed ? 0 : report(printed.error(), common, schema(command).c_str());
}

int fail(const Common& common, const char* command, const Error& error) {
  return report(error, common, schema(command).c_str());
}

// The store a run would use; commands that write nothing make no folder that somebody named.
Result<Store> open_store(const Common& common, bool writes) {
  Result<cache::Mode> mode = cache::parse_mode(get_env("HSTU_JIT_CACHE_MODE").value_or("rw"));
  if (!mode) return std::move(mode).error().with_context("HSTU_JIT_CACHE_MODE");
  Store::Options options;
  options.root = common.cache_dir;
  options.explicit_root = !common.cache_dir.empty();
  options.mode = *mode;
  if (writes || options.mode == cache::Mode::off) options.mode = cache::Mode::read_write;
  if (!writes && options.explicit_root) options.mode = cache::Mode::read_only;
  Result<Store> store = Store::open(options);
  if (!store) return std::move(store).error();
  if (store->root().empty()) {
    return Error{ErrorKind::kCache, "there is no cache folder: " + store->warning(), "", ""};
  }
  if (!store->warning().empty()) fmt::print(stderr, "hstu-jit: {}\n", store->warning());
  return store;
}

std::string age_text(int64_t seconds) {
  if (seconds < 0) return "in the future";
  if (seconds < 120) return fmt::format("{} s", seconds);
  if (seconds < 120 * 60) return fmt::format("{} min", seconds / 60);
  if (seconds < 48 * 3600) return fmt::format("{} h", seconds / 3600);
  return fmt::format("{} d", seconds / 86400);
}

// By the names the engine gives its ingredients; an entry of somebody else's has none.
std::string ingredient(const cache::EntryNotes& notes, std::string_view name) {
  for (const auto& [key, text] : notes.ingredients) {
    if (key == name) return text;
  }
  return {};
}

struct Row {
  ListedEntry entry;
  std::string target, name;
};

int ls_command(const Common& common, const std::string& order) {
  Result<Store> store = open_store(common, false);
  if (!store) return fail(common, "ls", store.error());
  std::vector<Row> rows;
  uint64_t bytes = 0;
  for (ListedEntry& entry : cache::list_entries(store->root())) {
    const cache::EntryNotes notes = cache::read_notes(store->root(), entry);
    bytes += entry.size;
    rows.push_back({std::move(entry), ingredient(notes, "target"), ingredient(notes, "entry")});
  }
  std::stable_sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) {
    if (order == "size") return a.entry.size > b.entry.size;
    if (order == "target") return std::tie(a.target, a.name) < std::tie(b.target, b.name);
    return a.entry.time > b.entry.time;
  });

  const int64_t now = std::time(nullptr);
  Json list = Json::array();
  size_t widest = 6;
  for (const Row& row : rows) widest = std::max(widest, printable(row.target, 24).size());
  std::string text;
  if (!rows.empty()) {
    text = fmt::format("{:<12}  {:<{}}  {:>10}  {:>8}  {}\n", "KEY", "TARGET", widest, "SIZE",
                       "AGE", "ENTRY");
  }
  for (const Row& row : rows) {
    list.push_back({{"request", row.entry.request},
                    {"toolchain", row.entry.toolchain},
                    {"target", row.target},
                    {"entry", row.name},
                    {"bytes", row.entry.size},
                    {"last_use", row.entry.time},
                    {"path", cache::listed_path(store->root(), row.entry)}});
    text += fmt::format("{:<12}  {:<{}}  {:>10}  {:>8}  {}\n", row.entry.request.substr(0, 12),
                        printable(row.target, 24), widest, cache::size_text(row.entry.size),
                        age_text(now - row.entry.time), printable(row.name, 100));
  }
  fmt::print(stderr, "{} entries, {}, in {}\n", rows.size(), cache::size_text(bytes),
             store->root());
  return finish(common, "ls", {{"root", store->root()}, {"bytes", bytes}, {"entries", list}}, text);
}

// One ingredient in a line: itself when it is short, else its size and digest.
std::string short_form(const std::string& text) {
  if (text.find('\n') == std::string::npos && text.size() <= 100) return printable(text, 100);
  return fmt::format("{} lines, {}, sha256 {}", 1 + std::count(text.begin(), text.end(), '\n'),
                     cache::size_text(text.size()), sha256_hex(text).substr(0, 12));
}

int info_command(const Common& common, const std::string& prefix) {
  Result<Store> store = open_store(common, false);
  if (!store) return fail(common, "info", store.error());
  std::vector<ListedEntry> found;
  bool several = false;
  for (ListedEntry& entry : cache::list_entries(store->root())) {
    if (fmt::format("{}.{}.hko", entry.request, entry.toolchain).rfind(prefix, 0) != 0) continue;
    several = several || (!found.empty() && found.front().request != entry.request);
    found.push_back(std::move(entry));
  }
  if (found.empty()) {
    return fail(common, "info",
                {ErrorKind::kFailed,
                 fmt::format("no entry has a key that starts with \"{}\"; see hstu-jit cache ls",
                             printable(prefix, 80)),
                 "", ""});
  }
  if (several) {
    return fail(common, "info",
                {ErrorKind::kUsage,
                 fmt::format("{} entries have keys that start with \"{}\": give more digits",
                             found.size(), printable(prefix, 80)),
                 "", ""});
  }
  Json list = Json::array();
  std::string text;
  for (const ListedEntry& entry : found) {
    const cache::EntryNotes notes = cache::read_notes(store->root(), entry);
    const std::string path = cache::listed_path(store->root(), entry);
    Json ingredients = Json::object();
    text += fmt::format("key        {}\ntoolchain  {}...\nfile       {}\nsize       {}\n",
                        entry.request, entry.toolchain, path, cache::size_text(entry.size));
    text += fmt::format("last use   {} ago\n", age_text(std::time(nullptr) - entry.time));
    if (notes.ingredients.empty())
      text += "(its header cannot be read: see hstu-jit cache verify)\n";
    for (const auto& [name, value] : notes.ingredients) {
      ingredients[name] = short_form(value);
      text += fmt::format("  {:<12} {}\n", printable(name), short_form(value));
    }
    text += fmt::format("metadata   {}\n", printable(notes.metadata, 2000));
    list.push_back({{"request", entry.request},
                    {"toolchain", entry.toolchain},
                    {"path", path},
                    {"bytes", entry.size},
                    {"last_use", entry.time},
                    {"ingredients", ingredients},
                    {"metadata", notes.metadata}});
  }
  return finish(common, "info", {{"entries", list}}, text);
}

int verify_command(const Common& common, bool remove) {
  // Where nothing may be written, damage is still found.
  Result<Store> store = open_store(common, false);
  if (!store) return fail(common, "verify", store.error());
  const Result<cache::Mode> mode = cache::parse_mode(get_env("HSTU_JIT_CACHE_MODE").value_or("rw"));
  bool writes = mode.ok() && *mode != cache::Mode::read_only && *mode != cache::Mode::sealed;
  if (writes) {
    const Result<Store> writable = open_store(common, true);
    writes = writable.ok() && writable->root() == store->root();
  }
  const cache::Damage damage = !writes  ? cache::Damage::leave
                               : remove ? cache::Damage::remove
                                        : cache::Damage::quarantine;
  const cache::Verification result = cache::verify_entries(store->root(), damage);
  Json list = Json::array();
  std::string text;
  for (const cache::BadEntry& bad : result.bad) {
    const char* done = bad.reason != cache::MissReason::corrupt ? ""
                       : !bad.put_away                          ? " (still there)"
                       : remove                                 ? " (removed)"
                                                                : " (quarantined)";
    list.push_back({{"path", bad.path},
                    {"reason", cache::miss_reason_name(bad.reason)},
                    {"problem", bad.problem},
                    {"put_away", bad.put_away}});
    text += fmt::format("{} {}{}\n", printable(bad.path, 300), bad.problem, done);
  }
  text += fmt::format("{} good, {} damaged, {} not for this program\n", result.good, result.damaged,
                      result.not_ours);
  const int code = finish(common, "verify",
                          {{"root", store->root()},
                           {"good", result.good},
                           {"damaged", result.damaged},
                           {"not_ours", result.not_ours},
                           {"problems", list}},
                          text);
  return code == 0 && result.damaged > 0 ? exit_code(ErrorKind::kFailed) : code;
}

int gc_command(const Common& common, const std::string& max_size) {
  uint64_t limit = 0;
  if (!max_size.empty()) {
    Result<uint64_t> size = cache::parse_size(max_size);
    if (!size) return fail(common, "gc", std::move(size).error().with_context("--max-size"));
    limit = *size;
  }
  Result<Store> store = open_store(common, true);
  if (!store) return fail(common, "gc", store.error());
  if (limit == 0) limit = store->size_limit();
  const cache::Collected result = cache::collect(store->root(), {limit, true});
  store->statistics().add("local.evicted", result.evicted);
  store->statistics().add("local.evicted_bytes", result.evicted_bytes);
  const bool unlimited = limit == cache::kUnlimited;
  std::string text = fmt::format(
      "removed {} entries ({}), {} abandoned temporary files, {} pieces of the quarantine\n"
      "{} entries ({}) stay; the limit is {}\n",
      result.evicted, cache::size_text(result.evicted_bytes), result.temporaries,
      result.quarantined, result.entries, cache::size_text(result.bytes),
      unlimited ? "off" : cache::size_text(limit));
  if (result.refused > 0) text += fmt::format("{} could not be removed\n", result.refused);
  const int code = finish(common, "gc",
                          {{"root", store->root()},
                           {"limit", unlimited ? Json(nullptr) : Json(limit)},
                           {"entries", result.entries},
                           {"bytes", result.bytes},
                           {"evicted", result.evicted},
                           {"evicted_bytes", result.evicted_bytes},
                           {"temporaries", result.temporaries},
                           {"quarantined", result.quarantined},
                           {"refused", result.refused}},
                          text);
  return code == 0 && result.refused > 0 ? exit_code(ErrorKind::kFailed) : code;
}

int clear_command(const Common& common, bool yes) {
  Result<Store> store = open_store(common, yes);
  if (!store) return fail(common, "clear", store.error());
  if (!yes) {
    uint64_t bytes = 0;
    const std::vector<ListedEntry> entries = cache::list_entries(store->root());
    for (const ListedEntry& entry : entries) bytes += entry.size;
    return fail(common, "clear",
                {ErrorKind::kUsage,
                 fmt::format("this would remove {} entries ({}) from {}: say --yes", entries.size(),
                             cache::size_text(bytes), store->root()),
                 "", ""});
  }
  const cache::Cleared result = cache::clear_entries(store->root());
  std::string text = fmt::format("removed {} entries ({}) from {}\n", result.entries,
                                 cache::size_text(result.bytes), store->root());
  if (result.refused > 0) text += fmt::format("{} could not be removed\n", result.refused);
  const int code = finish(common, "clear",
                          {{"root", store->root()},
                           {"entries", result.entries},
                           {"bytes", result.bytes},
                           {"temporaries", result.temporaries},
                           {"quarantined", result.quarantined},
                           {"refused", result.refused}},
                          text);
  return code == 0 && result.refused > 0 ? exit_code(ErrorKind::kFailed) : code;
}

int path_command(const Common& common) {
  Result<Store> store = open_store(common, true);
  if (!store) return fail(common, "path", store.error());
  const uint64_t limit = store->size_limit();
  fmt::print(stderr, "chosen by: {}\n", store->root_reason());
  return finish(common, "path",
                {{"root", store->root()},
                 {"why", store->root_reason()},
                 {"warning", store->warning()},
                 {"limit", limit == cache::kUnlimited ? Json(nullptr) : Json(limit)}},
                store->root() + "\n");
}

int stats_command(const Common& common, bool zero) {
  Result<Store> store = open_store(common, zero);
  if (!store) return fail(common, "stats", store.error());
  if (zero) cache::zero_counters(store->root());
  const cache::Counters counters = cache::saved_counters(store->root());
  uint64_t bytes = 0;
  const std::vector<ListedEntry> entries = cache::list_entries(store->root());
  for (const ListedEntry& entry : entries) bytes += entry.size;
  const uint64_t limit = store->size_limit();
  const bool unlimited = limit == cache::kUnlimited;
  std::string text =
      fmt::format("{}\n{} entries, {} of {}\n", store->root(), entries.size(),
                  cache::size_text(bytes), unlimited ? "no limit" : cache::size_text(limit));
  Json list = Json::object();
  for (const auto& [name, count] : counters) {
    list[name] = count;
    text += fmt::format("{:<36} {:>12}\n", name, count);
  }
  if (counters.empty()) text += "nothing was counted yet\n";
  return finish(common, "stats",
                {{"root", store->root()},
                 {"entries", entries.size()},
                 {"bytes", bytes},
                 {"limit", unlimited ? Json(nullptr) : Json(limit)},
                 {"counters", list}},
                text);
}

// What the options of the commands below are read into; lives as long as the action.
struct CacheOptions {
  std::string order = "age", prefix, max_size;
  bool remove = false, yes = false, zero = false;
};

}  // namespace

void add_cache(CLI::App& app, Common& common, Action& action) {
  CLI::App* c = app.add_subcommand("cache", "Look at, check, trim or empty the kernel cache");
  c->require_subcommand(1);
  c->footer("Example: hstu-jit cache ls --sort size");
  const auto options = std::make_shared<CacheOptions>();

  CLI::App* ls = c->add_subcommand("ls", "List the entries: key, target, size, age, entry");
  ls->add_option("--sort", options->order, "size, age (default) or target")
      ->check(CLI::IsMember({"size", "age", "target"}));
  ls->footer("Example: hstu-jit cache ls --sort size");
  ls->callback([&common, &action, options] {
    action = [&common, options] { return ls_command(common, options->order); };
  });

  CLI::App* info = c->add_subcommand("info", "Show what an entry was made of");
  info->add_option("key", options->prefix, "The first digits of its key")->required();
  info->footer("Example: hstu-jit cache info 3f9a");
  info->callback([&common, &action, options] {
    action = [&common, options] { return info_command(common, options->prefix); };
  });

  CLI::App* verify = c->add_subcommand("verify", "Check every byte of every entry");
  verify->add_flag("--remove", options->remove, "Remove what is damaged instead of keeping it");
  verify->footer(
      "Example: hstu-jit cache verify\nDamaged entries are moved to the quarantine folder, unless "
      "HSTU_JIT_CACHE_MODE is ro or sealed; exit code 1 when there were any.");
  verify->callback([&common, &action, options] {
    action = [&common, options] { return verify_command(common, options->remove); };
  });

  CLI::App* gc = c->add_subcommand("gc", "Trim the cache to its limit, sweep what is abandoned");
  gc->add_option("--max-size", options->max_size, "500M, 2G ...; default: HSTU_JIT_CACHE_SIZE");
  gc->footer("Example: hstu-jit cache gc --max-size 500M");
  gc->callback([&common, &action, options] {
    action = [&common, options] { return gc_command(common, options->max_size); };
  });

  CLI::App* clear = c->add_subcommand("clear", "Remove all entries and what is in quarantine");
  clear->add_flag("--yes", options->yes, "Do it; without, say what would go");
  clear->footer("Example: hstu-jit cache clear --yes");
  clear->callback([&common, &action, options] {
    action = [&common, options] { return clear_command(common, options->yes); };
  });

  CLI::App* path = c->add_subcommand("path", "Print the folder of the cache");
  path->footer("Example: du -sh \"$(hstu-jit cache path)\"");
  path->callback([&common, &action] { action = [&common] { return path_command(common); }; });

  CLI::App* stats = c->add_subcommand("stats", "Hits, misses by reason, failures, evictions");
  stats->add_flag("--zero", options->zero, "Forget what was counted");
  stats->footer("Example: hstu-jit cache stats --json");
  stats->callback([&common, &action, options] {
    action = [&common, options] { return stats_command(common, options->zero); };
  });
}

}  // namespace hstu::jit::cli
