// SPDX-License-Identifier: Apache-2.0
#include "cache/bundle_manifest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/text.hpp"
#include "cache/bundle_tar.hpp"
#include "cache/entry.hpp"

namespace hstu::cache {
namespace {

using hstu::jit::Error;
using hstu::jit::ErrorKind;
using hstu::jit::printable;
using hstu::jit::Result;
using nlohmann::json;

constexpr size_t kMaxDepth = 64;
constexpr size_t kMaxReason = 4000;  // characters of one failure's text

Error refuse(std::string reason) { return Error{ErrorKind::kCache, std::move(reason), "", ""}; }

// Takes the text as it comes, so that no tree of it is ever in memory.
class ManifestReader {
 public:
  using number_integer_t = json::number_integer_t;
  using number_unsigned_t = json::number_unsigned_t;
  using number_float_t = json::number_float_t;
  using string_t = json::string_t;
  using binary_t = json::binary_t;

  BundleManifest manifest;
  std::string problem;

  bool null() { return scalar("null"); }
  bool boolean(bool value) { return scalar(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) { return scalar(fmt::format("{}", value)); }
  bool number_float(number_float_t value, const string_t&) { return scalar(json(value).dump()); }
  bool binary(binary_t&) { return fail("it has binary values"); }
  bool number_unsigned(number_unsigned_t value) {
    if (in_entry() && member_ == "size") {
      entry_.size = value;
      return once(kSize);
    }
    return scalar(fmt::format("{}", value));
  }
  bool string(string_t& value) {
    if (depth_ == 1) return top_string(value);
    if (in_entry()) return entry_string(value);
    if (in_failure()) return failure_string(value);
    return scalar(capturing() ? json(std::move(value)).dump() : std::string());
  }
  bool start_object(size_t) {
    if (++depth_ > kMaxDepth) return fail("it is nested too deeply");
    if (depth_ == 2 && !skipping()) return fail(fmt::format("\"{}\" is not an array", section_));
    if (depth_ == 3) {
      entry_ = {};
      failure_ = {};
      seen_ = 0;
    }
    if (capturing(depth_ - 1)) text_ += comma() + "{";
    return true;
  }
  bool key(string_t& name) {
    if (depth_ == 1) return top_member(name);
    if (depth_ == 3) member_ = name;
    if (capturing()) text_ += comma() + json(name).dump() + ":";
    return true;
  }
  bool end_object() {
    if (capturing(depth_ - 1)) text_ += '}';
    --depth_;
    if (depth_ == 2 && section_ == "entries") return entry_ended();
    if (depth_ == 2 && section_ == "failed") return failure_ended();
    return item_ended();
  }
  bool start_array(size_t) {
    if (++depth_ > kMaxDepth) return fail("it is nested too deeply");
    if (depth_ == 1) return fail("it is not a JSON object");
    if (depth_ == 2 && (section_ == "schema" || section_ == "producer")) {
      return fail(fmt::format("\"{}\" is not text", section_));
    }
    if (depth_ == 3 && (section_ == "entries" || section_ == "failed")) {
      return fail(fmt::format("an element of \"{}\" is not an object", section_));
    }
    if (capturing(depth_ - 1)) text_ += comma() + "[";
    return true;
  }
  bool end_array() {
    if (capturing(depth_ - 1)) text_ += ']';
    --depth_;
    return item_ended();
  }
  template <typename Exception>
  bool parse_error(size_t at, const std::string&, const Exception&) {
    return fail(fmt::format("it is not JSON from byte {} on", at));
  }

  bool complete() {
    for (const char* name : {"schema", "producer", "entries", "failed", "requested"}) {
      if (std::find(sections_.begin(), sections_.end(), name) == sections_.end()) {
        return fail(fmt::format("it has no \"{}\"", name));
      }
    }
    return true;
  }

 private:
  enum Seen : unsigned { kKey = 1, kToolchain = 2, kTarget = 4, kName = 8, kSize = 16, kSha = 32 };
  enum FailureSeen : unsigned { kSpec = 1, kFailureTarget = 2, kReason = 4 };

  bool fail(std::string reason) {
    if (problem.empty()) problem = std::move(reason);
    return false;
  }
  bool in_entry() const { return depth_ == 3 && section_ == "entries"; }
  bool in_failure() const { return depth_ == 3 && section_ == "failed"; }
  // Whether a value at this depth belongs to one of "requested".
  bool capturing(size_t depth) const { return depth >= 2 && section_ == "requested"; }
  bool capturing() const { return capturing(depth_); }
  bool skipping() const {
    return std::find(std::begin(kKnown), std::end(kKnown), section_) == std::end(kKnown);
  }
  std::string comma() const {
    const char last = text_.empty() ? '[' : text_.back();
    return last == '{' || last == '[' || last == ':' ? "" : ",";
  }
  bool once(unsigned bit) {
    if ((seen_ & bit) != 0) return fail(fmt::format("\"{}\" is there twice", printable(member_)));
    seen_ |= bit;
    return true;
  }

  // A value that is not text, nor the size of an entry.
  bool scalar(std::string text) {
    if (depth_ == 0) return fail("it is not a JSON object");
    if (depth_ == 1) {
      if (!skipping()) return fail(fmt::format("\"{}\" has a value of a wrong type", section_));
      return true;
    }
    if (depth_ == 2 && (section_ == "entries" || section_ == "failed")) {
      return fail(fmt::format("an element of \"{}\" is not an object", section_));
    }
    if (capturing()) text_ += comma() + text;
    return item_ended();
  }
  bool item_ended() {
    if (depth_ == 2 && section_ == "requested") {
      manifest.requested.push_back(std::move(text_));
      text_.clear();
    }
    return true;
  }

  bool top_member(const std::string& name) {
    section_ = name;
    if (!skipping()) {
      if (std::find(sections_.begin(), sections_.end(), name) != sections_.end()) {
        return fail(fmt::format("\"{}\" is there twice", name));
      }
      sections_.push_back(name);
      // Before anything else is believed.
      if (sections_.size() == 1 && name != "schema")
        return fail("its first member is not \"schema\"");
    }
    return true;
  }
  bool top_string(std::string& value) {
    if (section_ == "schema") {
      if (value != kBundleSchema) {
        return fail(fmt::format("its schema is \"{}\", this program reads \"{}\"", printable(value),
                                kBundleSchema));
      }
    } else if (section_ == "producer") {
      manifest.producer = std::move(value);
    } else if (!skipping()) {
      return fail(fmt::format("\"{}\" is not an array", section_));
    }
    return true;
  }
  bool entry_string(std::string& value) {
    const auto take = [&](const char* name, unsigned bit, std::string* into) {
      if (member_ != name) return false;
      *into = std::move(value);
      (void)once(bit);
      return true;
    };
    (void)(take("key", kKey, &entry_.key.request) ||
           take("toolchain", kToolchain, &entry_.key.toolchain) ||
           take("target", kTarget, &entry_.target) || take("name", kName, &entry_.name) ||
           take("sha256", kSha, &entry_.sha256));
    return problem.empty();
  }
  bool failure_string(std::string& value) {
    if (member_ == "spec") {
      failure_.spec = std::move(value);
      return once(kSpec);
    }
    if (member_ == "target") {
      failure_.target = std::move(value);
      return once(kFailureTarget);
    }
    if (member_ == "reason") {
      failure_.reason = std::move(value);
      return once(kReason);
    }
    return true;
  }
  bool entry_ended() {
    const size_t index = manifest.entries.size();
    if (seen_ != (kKey | kToolchain | kTarget | kName | kSize | kSha)) {
      return fail(fmt::format("entry {} lacks a member or has one of a wrong type", index));
    }
    if (!is_digest(entry_.key.request) || !is_digest(entry_.key.toolchain) ||
        !is_digest(entry_.sha256)) {
      return fail(fmt::format("entry {} has a digest that is none", index));
    }
    if (entry_.size < kEntryPrefix || entry_.size > kMaxEntry) {
      return fail(fmt::format("entry {} has an impossible size", index));
    }
    if (index > 0 && entry_name(manifest.entries.back().key) >= entry_name(entry_.key)) {
      return fail(fmt::format("entry {} is there twice or not in order", index));
    }
    manifest.entries.push_back(std::move(entry_));
    return true;
  }
  bool failure_ended() {
    if (seen_ != (kSpec | kFailureTarget | kReason)) {
      return fail("an element of \"failed\" lacks a member or has one of a wrong type");
    }
    manifest.failed.push_back(std::move(failure_));
    return true;
  }

  static constexpr std::string_view kKnown[] = {"schema", "producer", "entries", "failed",
                                                "requested"};
  size_t depth_ = 0;
  std::string section_;  // member of the manifest we are in
  std::string member_;   // member of the entry or failure we are in
  std::string text_;     // of the requested spec we are in
  std::vector<std::string> sections_;
  BundleEntry entry_;
  BundleFailure failure_;
  unsigned seen_ = 0;
};

auto order(const BundleFailure& failure) {
  return std::tie(failure.spec, failure.target, failure.reason);
}

// "name": [ one element a line ]
std::string section(std::string_view name, const std::vector<std::string>& elements) {
  std::string text = fmt::format("\"{}\": [", name);
  for (size_t i = 0; i < elements.size(); ++i) {
    text += i == 0 ? "\n" : ",\n";
    text += elements[i];
  }
  return text + (elements.empty() ? "]" : "\n]");
}

}  // namespace

Result<BundleManifest> parse_manifest(std::string_view text) {
  ManifestReader reader;
  if (!json::sax_parse(text.begin(), text.end(), &reader) || !reader.complete()) {
    return refuse(reader.problem.empty() ? "it is not JSON" : std::move(reader.problem));
  }
  return std::move(reader.manifest);
}

Result<std::string> manifest_text(const BundleNotes& notes,
                                  const std::vector<BundleEntry>& entries) {
  try {
    std::vector<std::string> requested, failed, described;
    for (const std::string& text : notes.requested) {
      if (nested_deeper(text, kMaxDepth - 2))
        return refuse("a requested spec is nested too deeply");
      const json value = json::parse(text, nullptr, false);
      if (value.is_discarded()) {
        return refuse(fmt::format("a requested spec is not JSON: {}", printable(text)));
      }
      requested.push_back(value.dump());
    }
    std::sort(requested.begin(), requested.end());
    requested.erase(std::unique(requested.begin(), requested.end()), requested.end());

    std::vector<BundleFailure> failures = notes.failed;
    for (BundleFailure& failure : failures) {
      for (std::string* text : {&failure.spec, &failure.target, &failure.reason}) {
        *text = printable(*text, kMaxReason);
      }
    }
    std::sort(failures.begin(), failures.end(),
              [](const auto& a, const auto& b) { return order(a) < order(b); });
    for (size_t i = 0; i < failures.size(); ++i) {
      if (i > 0 && order(failures[i]) == order(failures[i - 1])) continue;
      failed.push_back(fmt::format(R"({{"spec": {}, "target": {}, "reason": {}}})",
                                   json(failures[i].spec).dump(), json(failures[i].target).dump(),
                                   json(failures[i].reason).dump()));
    }
    for (const BundleEntry& e : entries) {
      described.push_back(fmt::format(
          R"({{"key": "{}", "toolchain": "{}", "target": {}, "name": {}, "size": {}, "sha256": "{}"}})",
          e.key.request, e.key.toolchain, json(e.target).dump(), json(e.name).dump(), e.size,
          e.sha256));
    }
    std::string text =
        fmt::format("{{\n\"schema\": \"{}\",\n\"producer\": {},\n{},\n{},\n{}\n}}\n", kBundleSchema,
                    json(notes.producer).dump(), section("entries", described),
                    section("failed", failed), section("requested", requested));
    if (text.size() > kMaxManifest) {
      return refuse("its manifest would be larger than 64 MiB; make several bundles");
    }
    return text;
  } catch (const json::exception&) {  // the strict serialiser takes UTF-8 only
    return refuse("a name or a note is not UTF-8 text");
  }
}

uint64_t bundle_size(uint64_t manifest_size, const std::vector<BundleEntry>& entries) {
  uint64_t size = kTarBlock + padded(manifest_size) + kTarEnd;
  for (const BundleEntry& entry : entries) size += kTarBlock + padded(entry.size);
  return size;
}

Result<BundleEntry> describe_entry(std::string_view encoded) {
  const DecodedEntry decoded = decode_entry(encoded);
  if (decoded.fault != EntryFault::none) return refuse(decoded.problem);
  BundleEntry entry;
  entry.key = decoded.artifact.key;
  entry.size = encoded.size();
  for (const auto& [name, text] : decoded.artifact.ingredients) {
    if (name == "target") entry.target = text;
    if (name == "entry") entry.name = text;
  }
  return entry;
}

}  // namespace hstu::cache
