// SPDX-License-Identifier: Apache-2.0
// hstu-jit bundle ls | verify | merge | diff | install: many kernels in one file.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/env.hpp"
#include "base/text.hpp"
#include "cache/bundle.hpp"
#include "cli/commands.hpp"
#include "cli/version.hpp"

namespace hstu::jit::cli {
namespace {

using Json = nlohmann::ordered_json;
using cache::Bundle;
using cache::BundleEntry;

struct Options {
  std::string file, other, out, digest, verify_command, prefer;
  std::vector<std::string> files;
  int verify_timeout = 60;
};

std::string schema(const char* command) { return fmt::format("hstu-jit/bundle-{}/1", command); }

// Ends a command: its JSON or its text, and the code; or the error of printing it.
int finish(const Common& common, const char* command, const Json& json, const std::string& text,
           int code = 0) {
  std::string out = text;
  if (common.json) {
    Json all;
    all["schema"] = schema(command);
    for (const auto& [name, value] : json.items()) all[name] = value;
    out = all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  const Status printed = print(out);
  return printed ? code : report(printed.error(), common, schema(command).c_str());
}

int fail(const Common& common, const char* command, const Error& error) {
  return report(error, common, schema(command).c_str());
}

Json entry_json(const BundleEntry& entry) {
  return {{"key", entry.key.request}, {"toolchain", entry.key.toolchain},
          {"target", entry.target},   {"name", entry.name},
          {"size", entry.size},       {"sha256", entry.sha256}};
}

std::string entry_text(const BundleEntry& entry) {
  return fmt::format("{}  {}  {:<8} {:>9}  {}", entry.key.request.substr(0, 16),
                     entry.key.toolchain.substr(0, 12), printable(entry.target), entry.size,
                     printable(entry.name, 200));
}

Json summary_json(const Bundle& bundle) {
  uint64_t bytes = 0;
  for (const BundleEntry& entry : bundle.manifest().entries) bytes += entry.size;
  return {{"file", bundle.path()},
          {"digest", "sha256:" + bundle.digest()},
          {"producer", bundle.manifest().producer},
          {"count", bundle.manifest().entries.size()},
          {"bytes", bytes}};
}

std::string counted(size_t count) {
  return fmt::format("{} {}", count, count == 1 ? "kernel" : "kernels");
}

std::string shown(const std::string& path) { return printable(path, 300); }

int list_command(const Common& common, const Options& options) {
  // To look at a bundle is no reason to trust it.
  const Result<Bundle> bundle = Bundle::open(options.file, Bundle::Trust::any);
  if (!bundle) return fail(common, "ls", bundle.error());
  const cache::BundleManifest& manifest = bundle->manifest();
  Json json = summary_json(*bundle);
  json["entries"] = Json::array();
  std::string text;
  for (const BundleEntry& entry : manifest.entries) {
    json["entries"].push_back(entry_json(entry));
    text += entry_text(entry) + "\n";
  }
  json["failed"] = Json::array();
  for (const cache::BundleFailure& failure : manifest.failed) {
    json["failed"].push_back(
        {{"spec", failure.spec}, {"target", failure.target}, {"reason", failure.reason}});
    text += fmt::format("failed: {}{}{}: {}\n", printable(failure.spec, 200),
                        failure.target.empty() ? "" : " for ", printable(failure.target),
                        printable(failure.reason, 500));
  }
  json["requested"] = Json::array();
  for (const std::string& spec : manifest.requested) {
    json["requested"].push_back(Json::parse(spec, nullptr, false));
  }
  text += fmt::format("{}: {} by {}, {} requested, {} failed, digest sha256:{}\n",
                      shown(bundle->path()), counted(manifest.entries.size()),
                      printable(manifest.producer), manifest.requested.size(),
                      manifest.failed.size(), bundle->digest());
  return finish(common, "ls", json, text);
}

// FILE or FILE@sha256:HEX, with the digest of an option put in its place.
Result<std::string> pinned(const std::string& file, std::string digest) {
  if (digest.empty()) return file;
  if (file.find("@sha256:") != std::string::npos) {
    return Error{ErrorKind::kUsage, "give the digest once: behind the file or as --digest", "", ""};
  }
  if (digest.rfind("sha256:", 0) != 0) digest = "sha256:" + digest;
  return file + "@" + digest;
}

int verify_command(const Common& common, const Options& options) {
  const Result<std::string> file = pinned(options.file, options.digest);
  if (!file) return fail(common, "verify", file.error());
  const Result<Bundle> bundle = Bundle::open(*file);
  if (!bundle) return fail(common, "verify", bundle.error());

  const std::string command = options.verify_command.empty()
                                  ? get_env("HSTU_JIT_BUNDLE_VERIFY").value_or("")
                                  : options.verify_command;
  if (!command.empty()) {
    const Status accepted =
        cache::run_verify_command(*bundle, command, 1000 * std::min(options.verify_timeout, 86400));
    if (!accepted) return fail(common, "verify", accepted.error());
  }
  const std::vector<Bundle::Problem> problems = bundle->verify();
  Json json = summary_json(*bundle);
  json["good"] = problems.empty();
  json["signature"] = command.empty() ? "not asked for" : "accepted";
  json["problems"] = Json::array();
  std::string text;
  for (const Bundle::Problem& problem : problems) {
    Json entry = entry_json(bundle->manifest().entries[problem.entry]);
    entry["reason"] = problem.reason;
    json["problems"].push_back(std::move(entry));
    text += "BAD  " + problem.reason + "\n";
  }
  if (problems.empty()) {
    text += fmt::format("{}: good, {}, digest sha256:{}{}\n", shown(bundle->path()),
                        counted(bundle->manifest().entries.size()), bundle->digest(),
                        command.empty() ? "" : ", accepted by the verify command");
  }
  int code = 0;
  if (!problems.empty()) {
    fmt::print(stderr, "hstu-jit: bundle {}: {} of {} damaged; fetch or make it again\n",
               shown(bundle->path()), problems.size(), counted(bundle->manifest().entries.size()));
    code = exit_code(ErrorKind::kCache);
  }
  return finish(common, "verify", json, text, code);
}

int merge_command(const Common& common, const Options& options) {
  std::vector<Bundle> bundles;
  for (const std::string& file : options.files) {
    Result<Bundle> bundle = Bundle::open(file);
    if (!bundle) return fail(common, "merge", bundle.error());
    bundles.push_back(std::move(*bundle));
  }
  std::vector<const Bundle*> list;
  for (const Bundle& bundle : bundles) list.push_back(&bundle);
  const cache::Prefer prefer = options.prefer == "first"  ? cache::Prefer::first
                               : options.prefer == "last" ? cache::Prefer::last
                                                          : cache::Prefer::none;
  const Result<std::string> digest =
      cache::merge_bundles(list, options.out, producer_text(), prefer);
  if (!digest) return fail(common, "merge", digest.error());
  const Result<Bundle> merged = Bundle::open(options.out + "@sha256:" + *digest);
  if (!merged) return fail(common, "merge", merged.error());
  return finish(common, "merge", summary_json(*merged),
                fmt::format("{}: {}, digest sha256:{}\n", shown(options.out),
                            counted(merged->manifest().entries.size()), *digest));
}

int diff_command(const Common& common, const Options& options) {
  const Result<Bundle> a = Bundle::open(options.file, Bundle::Trust::any);
  if (!a) return fail(common, "diff", a.error());
  const Result<Bundle> b = Bundle::open(options.other, Bundle::Trust::any);
  if (!b) return fail(common, "diff", b.error());
  const std::vector<BundleEntry>& left = a->manifest().entries;
  const std::vector<BundleEntry>& right = b->manifest().entries;
  Json only_a = Json::array(), only_b = Json::array(), differing = Json::array();
  std::string text;
  size_t same = 0;
  for (size_t i = 0, j = 0; i < left.size() || j < right.size();) {
    const std::string name_a = i < left.size() ? cache::entry_name(left[i].key) : "";
    const std::string name_b = j < right.size() ? cache::entry_name(right[j].key) : "";
    if (!name_a.empty() && (name_b.empty() || name_a < name_b)) {
      only_a.push_back(entry_json(left[i]));
      text += "< " + entry_text(left[i++]) + "\n";
    } else if (name_a.empty() || name_b < name_a) {
      only_b.push_back(entry_json(right[j]));
      text += "> " + entry_text(right[j++]) + "\n";
    } else {
      if (left[i].sha256 == right[j].sha256) {
        ++same;
      } else {
        differing.push_back({{"a", entry_json(left[i])}, {"b", entry_json(right[j])}});
        text += "! " + entry_text(right[j]) + "\n";
      }
      ++i;
      ++j;
    }
  }
  const bool equal = a->digest() == b->digest();
  const bool entries_equal = only_a.empty() && only_b.empty() && differing.empty();
  if (!equal && entries_equal) {
    text += "the kernels are the same, the notes (producer, requested, failed) are not\n";
  }
  Json json{{"a", summary_json(*a)}, {"b", summary_json(*b)}, {"equal", equal},
            {"same", same},          {"only_a", only_a},      {"only_b", only_b},
            {"differing", differing}};
  return finish(common, "diff", json, text, equal ? 0 : exit_code(ErrorKind::kFailed));
}

int install_command(const Common& common, const Options& options) {
  const Result<std::string> file = pinned(options.file, options.digest);
  if (!file) return fail(common, "install", file.error());
  const Result<Bundle> bundle = cache::open_trusted_bundle(*file);
  if (!bundle) return fail(common, "install", bundle.error());
  const Result<EngineOptions> engine = engine_options(common);
  if (!engine) return fail(common, "install", engine.error());
  cache::Store::Options where;
  where.root = common.cache_dir;
  where.explicit_root = !common.cache_dir.empty();
  where.mode = engine->cache_mode;
  const Result<cache::Store> store = cache::Store::open(where);
  if (!store) return fail(common, "install", store.error());
  const Result<cache::InstallReport> done = cache::install_bundle(*bundle, *store);
  if (!done) return fail(common, "install", done.error());

  Json json = summary_json(*bundle);
  json["cache"] = store->root();
  json["installed"] = done->installed;
  json["present"] = done->present;
  json["problems"] = Json::array();
  std::string text;
  for (const Bundle::Problem& problem : done->problems) {
    Json entry = entry_json(bundle->manifest().entries[problem.entry]);
    entry["reason"] = problem.reason;
    json["problems"].push_back(std::move(entry));
    text += "BAD  " + entry_text(bundle->manifest().entries[problem.entry]) + ": " +
            problem.reason + "\n";
  }
  text += fmt::format("{}: {} installed into {}, {} were there, {} failed\n", shown(bundle->path()),
                      counted(done->installed), shown(store->root()), done->present,
                      done->problems.size());
  int code = 0;
  if (!done->problems.empty()) {
    fmt::print(stderr, "hstu-jit: bundle {}: {} of {} not installed: {}\n", shown(bundle->path()),
               done->problems.size(), counted(bundle->manifest().entries.size()),
               done->problems.front().reason);
    code = exit_code(ErrorKind::kCache);
  }
  return finish(common, "install", json, text, code);
}

}  // namespace

void add_bundle(CLI::App& app, Common& common, Action& action) {
  CLI::App* bundle = app.add_subcommand(
      "bundle", "Look at, verify, merge, compare and install bundles of compiled kernels");
  bundle->require_subcommand(1);
  bundle->footer(
      "A bundle (.hjb) is a plain tar file with manifest.json first; \"hstu-jit prewarm\" makes "
      "them.\nExample: hstu-jit bundle verify kernels.hjb --digest sha256:HEX\n"
      "Exit code 8 for a bundle that cannot be used.");
  const auto options = std::make_shared<Options>();
  const auto runs = [&common, &action, options](CLI::App* c,
                                                int (*command)(const Common&, const Options&)) {
    c->callback([&common, &action, options, command] {
      action = [&common, options, command] { return command(common, *options); };
    });
  };

  CLI::App* ls = bundle->add_subcommand("ls", "List the kernels, what failed, and the digest");
  ls->add_option("file", options->file, "Bundle")->required();
  ls->footer("Example: hstu-jit bundle ls kernels.hjb --json");
  runs(ls, list_command);

  CLI::App* verify = bundle->add_subcommand(
      "verify", "Check every byte, the digest, and a signature by your own tool");
  verify->add_option("file", options->file, "Bundle")->required();
  verify->add_option("--digest", options->digest, "SHA-256 the manifest must have: sha256:HEX");
  verify->add_option("--verify-command", options->verify_command,
                     "Program that checks a signature: {manifest} is a copy of manifest.json, "
                     "{bundle} the bundle; exit code 0 accepts (default HSTU_JIT_BUNDLE_VERIFY)");
  verify->add_option("--verify-timeout", options->verify_timeout, "Seconds it may take")
      ->check(at_least(1))
      ->capture_default_str();
  verify->footer(
      "Example: hstu-jit bundle verify kernels.hjb --digest sha256:HEX\n"
      "Example: hstu-jit bundle verify kernels.hjb --verify-command "
      "'minisign -Vm {manifest} -x {bundle}.minisig -p fleet.pub'");
  runs(verify, verify_command);

  CLI::App* merge = bundle->add_subcommand("merge", "All kernels of some bundles in one");
  merge->add_option("files", options->files, "Bundles")->required();
  merge->add_option("-o,--out", options->out, "The bundle to write")->required();
  merge
      ->add_option("--prefer", options->prefer,
                   "Whose kernel to take where two differ (default: that is an error)")
      ->check(CLI::IsMember({"first", "last"}));
  merge->footer("Example: hstu-jit bundle merge shard-*.hjb -o kernels.hjb");
  runs(merge, merge_command);

  CLI::App* diff = bundle->add_subcommand("diff", "What differs between two bundles");
  diff->add_option("a", options->file, "Bundle")->required();
  diff->add_option("b", options->other, "Bundle")->required();
  diff->footer(
      "Lines: < only in the first, > only in the second, ! other bytes.\n"
      "Example: hstu-jit bundle diff old.hjb new.hjb\nExit code 1 when they differ.");
  runs(diff, diff_command);

  CLI::App* install =
      bundle->add_subcommand("install", "Put every kernel of a bundle into the local cache");
  install->add_option("file", options->file, "Bundle")->required();
  install->add_option("--digest", options->digest, "SHA-256 the manifest must have: sha256:HEX");
  install->footer("Example: hstu-jit bundle install kernels.hjb --digest sha256:HEX");
  runs(install, install_command);
}

}  // namespace hstu::jit::cli
