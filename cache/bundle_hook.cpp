// SPDX-License-Identifier: Apache-2.0
// The operator's own check of a bundle.
#include "cache/bundle_hook.hpp"

#include <fmt/format.h>

#include <mutex>
#include <set>

#include "base/digest.hpp"
#include "base/env.hpp"
#include "base/file.hpp"
#include "base/fork_mutex.hpp"
#include "base/subprocess.hpp"
#include "base/temp_dir.hpp"
#include "base/text.hpp"
#include "cache/bundle.hpp"

namespace hstu::cache {
namespace {

using hstu::jit::Error;
using hstu::jit::ErrorKind;
using hstu::jit::printable;
using hstu::jit::Result;
using hstu::jit::Status;

Error usage(const std::string& command, std::string_view reason) {
  return Error{ErrorKind::kUsage,
               fmt::format("verify command \"{}\": {}", printable(command, 200), reason), "", ""};
}

// The last line that says something: what such programs end with.
std::string last_words(const std::string& errors, const std::string& output) {
  const std::string& text =
      errors.find_first_not_of(" \r\n\t") == std::string::npos ? output : errors;
  const size_t end = text.find_last_not_of(" \r\n\t");
  if (end == std::string::npos) return {};
  const size_t begin = text.rfind('\n', end);
  const size_t from = begin == std::string::npos ? 0 : begin + 1;
  return printable(std::string_view(text).substr(from, end - from + 1), 300);
}

}  // namespace

Result<std::vector<std::string>> split_command(const std::string& command) {
  std::vector<std::string> words;
  bool in_word = false;
  char quote = '\0';
  for (size_t i = 0; i < command.size(); ++i) {
    const char c = command[i];
    if (quote == '\0' && (c == ' ' || c == '\t' || c == '\n')) {
      in_word = false;
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    if (quote == '\0' && (c == '\'' || c == '"')) {
      quote = c;
    } else if (quote != '\0' && c == quote) {
      quote = '\0';
    } else if (c == '\\' && quote != '\'') {
      if (++i == command.size()) return usage(command, "it ends in a backslash");
      // Inside double quotes only these two need one.
      if (quote == '"' && command[i] != '"' && command[i] != '\\') words.back() += '\\';
      words.back() += command[i];
    } else {
      words.back() += c;
    }
  }
  if (quote != '\0') return usage(command, "a quote is not closed");
  if (words.empty()) return usage(command, "it is empty");
  return words;
}

Result<std::vector<std::string>> fill_command(const std::string& command,
                                              const std::string& manifest,
                                              const std::string& bundle) {
  Result<std::vector<std::string>> words = split_command(command);
  if (!words.ok()) return words;
  bool names_manifest = false;
  for (std::string& word : *words) {
    std::string filled;
    for (size_t at = 0; at < word.size();) {
      const std::string_view rest = std::string_view(word).substr(at);
      if (rest.substr(0, 10) == "{manifest}") {
        filled += manifest;
        at += 10;
        names_manifest = true;
      } else if (rest.substr(0, 8) == "{bundle}") {
        filled += bundle;
        at += 8;
      } else {
        filled += word[at++];
      }
    }
    word = std::move(filled);
  }
  // The path may hold another file by now; only the manifest is what this process reads.
  if (!names_manifest) return usage(command, "it does not name {manifest}, which it has to verify");
  return words;
}

Status run_verify_command(const Bundle& bundle, const std::string& command, int timeout_ms) {
  const auto refused = [&](std::string_view why) {
    return Error{ErrorKind::kCache,
                 fmt::format("bundle {} is not accepted by the verify command: {}",
                             printable(bundle.path(), 300), why),
                 "", ""};
  };
  Result<hstu::jit::TempDir> folder = hstu::jit::TempDir::create("hstu-jit-verify-");
  if (!folder.ok()) return refused(folder.error().message);
  const std::string manifest = folder->path() + "/manifest.json";
  Result<std::vector<std::string>> argv = fill_command(command, manifest, bundle.path());
  if (!argv.ok()) return std::move(argv).error();
  const Result<std::string> bytes = bundle.manifest_bytes();
  if (!bytes.ok()) return bytes.error();
  if (Status s = hstu::jit::replace_file_atomic(manifest, *bytes, 0600); !s.ok()) {
    return refused(s.error().message);
  }

  hstu::jit::ProcessOptions options;
  options.argv = std::move(*argv);
  options.timeout = std::chrono::milliseconds(timeout_ms);
  options.max_output = size_t{1} << 20;
  const Result<hstu::jit::ProcessResult> result = hstu::jit::run_process(options);
  if (!result.ok()) return refused(result.error().message);
  if (!result->succeeded()) {
    const std::string words = last_words(result->errors, result->output);
    return refused(result->how_it_ended() + (words.empty() ? "" : ": " + words));
  }
  return {};
}

Result<Bundle> open_trusted_bundle(const std::string& path_and_pin) {
  Result<Bundle> bundle = Bundle::open(path_and_pin);
  if (!bundle.ok()) return bundle;
  const std::optional<std::string> command = hstu::jit::get_env("HSTU_JIT_BUNDLE_VERIFY");
  if (!command) return bundle;
  // A manifest pins every byte of its bundle: one that was accepted needs no second asking.
  static hstu::jit::ForkMutex mutex;
  static std::set<std::string> accepted;
  const std::string asked = bundle->digest() + hstu::jit::sha256_hex(*command);
  {
    const std::lock_guard<hstu::jit::ForkMutex> lock(mutex);
    if (accepted.count(asked) != 0) return bundle;
  }
  if (Status s = run_verify_command(*bundle, *command); !s.ok()) {
    return std::move(s).error().with_context("HSTU_JIT_BUNDLE_VERIFY");
  }
  const std::lock_guard<hstu::jit::ForkMutex> lock(mutex);
  accepted.insert(asked);
  return bundle;
}

}  // namespace hstu::cache
