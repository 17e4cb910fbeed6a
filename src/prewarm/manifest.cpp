// SPDX-License-Identifier: Apache-2.0
#include "prewarm/manifest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <span>
#include <utility>

#include "base/file.hpp"
#include "base/text.hpp"
#include "prewarm/sweep.hpp"
#include "spec/document.hpp"
#include "spec/parse.hpp"
#include "spec/spec_error.hpp"

namespace hstu::jit {
namespace {

using Json = ManifestJson;

constexpr std::string_view kSchema = "hstu-jit/manifest/1";
constexpr std::string_view kRecordSchema = "hstu-jit/record/1";
constexpr size_t kMaxString = 4096;
constexpr size_t kMaxWarnings = 20;

const std::string kTopKeys[] = {"$schema", "schema", "about", "targets", "defaults", "specs"};
const std::string kDefaultKeys[] = {"priority"};
const std::string kEntryKeys[] = {"file", "spec", "sweep", "targets", "priority", "about"};
const std::string kSweepKeys[] = {"base", "set"};
const std::string kRecordKeys[] = {"schema", "key", "target", "spec"};

// An object with no other keys than these.
Status check_object(const Json& value, const std::string& at, std::span<const std::string> known) {
  std::string list;
  for (const std::string& key : known) list += (list.empty() ? "" : ", ") + key;
  if (!value.is_object())
    return manifest_error(
        at, fmt::format("found {}; allowed an object with the keys {}", describe(value), list));
  for (const auto& [key, ignored] : value.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string near = nearest(key, known);
    return manifest_error(
        pointer_to(at, key),
        fmt::format("found unknown key \"{}\"; allowed {}{}", printable(key, 40), list,
                    near.empty() ? "" : fmt::format("; did you mean {}?", near)));
  }
  return {};
}

Result<std::string> read_string(const Json& value, const std::string& at) {
  const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (!text.empty() && text.size() <= kMaxString &&
        std::none_of(text.begin(), text.end(), control))
      return text;
  }
  return manifest_error(at, fmt::format("found {}; allowed a string of 1 to {} bytes without "
                                        "control characters",
                                        describe(value), kMaxString));
}

Result<std::vector<std::string>> read_targets(const Json& value, const std::string& at) {
  if (!value.is_array() || value.empty() || value.size() > kMaxManifestTargets)
    return manifest_error(at, fmt::format("found {}; allowed a list of 1 to {} targets",
                                          describe(value), kMaxManifestTargets));
  std::vector<std::string> targets;
  for (size_t i = 0; i < value.size(); ++i) {
    Result<std::string> name = read_string(value[i], fmt::format("{}/{}", at, i));
    if (!name) return std::move(name).error();
    if (std::find(targets.begin(), targets.end(), *name) == targets.end())
      targets.push_back(std::move(*name));
  }
  return targets;
}

Result<int> read_priority(const Json& value, const std::string& at) {
  if (value.is_number_integer() && value >= 0 && value <= kMaxPriority) return value.get<int>();
  return manifest_error(
      at, fmt::format("found {}; allowed an integer from 0 to {}", describe(value), kMaxPriority));
}

class Reader {
 public:
  Reader(const std::string& folder, const ReadFile& read) : folder_(folder), read_(read) {}

  Status document(const Json& top);
  Status record_line(const Json& line, const std::string& at);
  Manifest take() && { return std::move(manifest_); }
  Manifest& manifest() { return manifest_; }

 private:
  Status entry(const Json& value, const std::string& at);
  Status file(const std::string& name, const std::string& at, ManifestSpec like);
  Status sweep(const Json& value, const std::string& at, ManifestSpec like);
  // Parses a spec text and keeps its problems, each with `like` for the rest.
  Status add(std::string_view text, const std::string& folder, const std::string& at,
             const ManifestSpec& like, const std::string& fallback_label);
  Status spend_text(size_t bytes, const std::string& at);
  Result<std::string> read_spec_file(const std::string& name, const std::string& at,
                                     std::string* folder);

  const std::string& folder_;
  const ReadFile& read_;
  Manifest manifest_;
  int default_priority_ = kDefaultPriority;
  size_t text_ = 0;
  int64_t batch_ = 0;
};

Status Reader::spend_text(size_t bytes, const std::string& at) {
  text_ += bytes;
  if (text_ <= kMaxManifestText) return {};
  return manifest_error(at, fmt::format("found specs of more than {} bytes in all; allowed fewer: "
                                        "split the manifest",
                                        kMaxManifestText));
}

Status Reader::add(std::string_view text, const std::string& folder, const std::string& at,
                   const ManifestSpec& like, const std::string& fallback_label) {
  if (Status s = spend_text(text.size(), at); !s) return s;
  Result<ParsedSpec> spec = parse_spec(text, folder);
  if (!spec) return std::move(spec).error();
  for (size_t i = 0; i < spec->problems.size(); ++i) {
    if (manifest_.specs.size() >= kMaxManifestSpecs)
      return manifest_error(at, fmt::format("found more than {} specs in all; allowed fewer: split "
                                            "the manifest",
                                            kMaxManifestSpecs));
    Problem& problem = spec->problems[i];
    batch_ += problem.batch;
    if (batch_ > kMaxManifestBatch)
      return manifest_error(at, fmt::format("found more than {} sequences in all specs; allowed "
                                            "fewer: kernels do not depend on them",
                                            kMaxManifestBatch));
    ManifestSpec one = like;
    std::string name = problem.name;
    if (name.empty()) name = spec->suite ? fmt::format("{}#{}", fallback_label, i) : fallback_label;
    one.label = name + like.label;
    one.problem = std::move(problem);
    manifest_.specs.push_back(std::move(one));
  }
  return {};
}

Result<std::string> Reader::read_spec_file(const std::string& name, const std::string& at,
                                           std::string* folder) {
  const std::string path = name.front() == '/' || folder_.empty() ? name : folder_ + "/" + name;
  *folder = std::filesystem::path(path).parent_path().string();
  if (folder->empty()) *folder = ".";
  Result<std::string> text = read_(path);
  if (!text) return manifest_error(at, text.error().message);
  return text;
}

Status Reader::file(const std::string& name, const std::string& at, ManifestSpec like) {
  std::string folder;
  Result<std::string> text = read_spec_file(name, at, &folder);
  if (!text) return std::move(text).error();
  Status s = add(*text, folder, at, like, name);
  if (s || s.error().pointer == at) return s;
  return manifest_error(at, fmt::format("{}: {}", printable(name, 120), s.error().message));
}

Status Reader::sweep(const Json& value, const std::string& at, ManifestSpec like) {
  if (Status s = check_object(value, at, kSweepKeys); !s) return s;
  for (const char* key : {"base", "set"})
    if (!value.contains(key))
      return manifest_error(pointer_to(at, key),
                            "found nothing; allowed a base spec (an object or "
                            "a file) and the values to set in it");
  Result<std::vector<SweepAxis>> axes = read_axes(value["set"], at + "/set");
  if (!axes) return std::move(axes).error();
  const size_t count = combinations(*axes, kMaxManifestSpecs);
  if (count > kMaxManifestSpecs)
    return manifest_error(at + "/set", fmt::format("found more than {} combinations; allowed fewer",
                                                   kMaxManifestSpecs));
  Json base = value["base"];
  std::string folder = folder_, label = like.pointer;
  if (base.is_string()) {
    Result<std::string> name = read_string(base, at + "/base");
    if (!name) return std::move(name).error();
    Result<std::string> text = read_spec_file(*name, at + "/base", &folder);
    if (!text) return std::move(text).error();
    if (Status s = spend_text(text->size(), at + "/base"); !s) return s;
    Result<Value> checked = parse_document(*text);
    if (!checked)
      return manifest_error(at + "/base",
                            fmt::format("{}: {}", printable(*name, 120), checked.error().message));
    base = Json::parse(*text);
    label = *name;
  }
  if (!base.is_object())
    return manifest_error(at + "/base",
                          fmt::format("found {}; allowed one spec, an object", describe(base)));
  for (size_t i = 0; i < count; ++i) {
    const std::vector<size_t> choice = choice_of(*axes, i);
    Json spec = base;
    ManifestSpec one = like;
    for (size_t a = 0; a < axes->size(); ++a) {
      const SweepAxis& axis = (*axes)[a];
      const Json& chosen = axis.values[choice[a]];
      if (Status s = set_value(spec, axis, chosen); !s)
        return manifest_error(pointer_to(at + "/set", axis.pointer), s.error().message);
      one.label += fmt::format(" {}={}", printable(axis.pointer, 40), describe(chosen));
    }
    Status s = add(spec.dump(), folder, at, one, label);
    if (s) continue;
    if (s.error().pointer == at) return s;
    // The value at fault, where it is one of the sweep.
    std::string pointer = at;
    for (size_t a = 0; a < axes->size(); ++a)
      if (s.error().pointer == (*axes)[a].pointer)
        pointer = fmt::format("{}/{}", pointer_to(at + "/set", s.error().pointer), choice[a]);
    return manifest_error(pointer,
                          fmt::format("with{}: {}", printable(one.label, 200), s.error().message));
  }
  return {};
}

Status Reader::entry(const Json& value, const std::string& at) {
  if (Status s = check_object(value, at, kEntryKeys); !s) return s;
  ManifestSpec like;
  like.pointer = at;
  like.priority = default_priority_;
  if (value.contains("about")) {
    if (Result<std::string> text = read_string(value["about"], at + "/about"); !text)
      return std::move(text).error();
  }
  if (value.contains("targets")) {
    Result<std::vector<std::string>> targets = read_targets(value["targets"], at + "/targets");
    if (!targets) return std::move(targets).error();
    like.targets = std::move(*targets);
  }
  if (value.contains("priority")) {
    Result<int> priority = read_priority(value["priority"], at + "/priority");
    if (!priority) return std::move(priority).error();
    like.priority = *priority;
  }
  const int kinds = static_cast<int>(value.contains("file")) +
                    static_cast<int>(value.contains("spec")) +
                    static_cast<int>(value.contains("sweep"));
  if (kinds != 1)
    return manifest_error(
        at, fmt::format("found {} of the keys file, spec and sweep; allowed exactly one", kinds));
  if (value.contains("sweep")) return sweep(value["sweep"], at + "/sweep", std::move(like));
  if (value.contains("file")) {
    Result<std::string> name = read_string(value["file"], at + "/file");
    if (!name) return std::move(name).error();
    return file(*name, at + "/file", std::move(like));
  }
  const std::string spec_at = at + "/spec";
  if (!value["spec"].is_object())
    return manifest_error(
        spec_at, fmt::format("found {}; allowed one spec, an object", describe(value["spec"])));
  Status s = add(value["spec"].dump(), folder_, spec_at, like, at);
  if (s || s.error().pointer == spec_at) return s;
  return under_pointer(spec_at, std::move(s).error());
}

Status Reader::document(const Json& top) {
  if (Status s = check_object(top, "", kTopKeys); !s) return s;
  if (!top.contains("schema") || top["schema"] != kSchema)
    return manifest_error(
        "/schema",
        fmt::format("found {}; allowed \"{}\"",
                    top.contains("schema") ? describe(top["schema"]) : "nothing", kSchema));
  for (const char* key : {"$schema", "about"}) {
    if (!top.contains(key)) continue;
    if (Result<std::string> text = read_string(top[key], pointer_to("", key)); !text)
      return std::move(text).error();
  }
  if (top.contains("targets")) {
    Result<std::vector<std::string>> targets = read_targets(top["targets"], "/targets");
    if (!targets) return std::move(targets).error();
    manifest_.targets = std::move(*targets);
  }
  if (top.contains("defaults")) {
    const Json& defaults = top["defaults"];
    if (Status s = check_object(defaults, "/defaults", kDefaultKeys); !s) return s;
    if (defaults.contains("priority")) {
      Result<int> priority = read_priority(defaults["priority"], "/defaults/priority");
      if (!priority) return std::move(priority).error();
      default_priority_ = *priority;
    }
  }
  if (!top.contains("specs") || !top["specs"].is_array() || top["specs"].empty())
    return manifest_error("/specs",
                          fmt::format("found {}; allowed a list of at least one entry",
                                      top.contains("specs") ? describe(top["specs"]) : "nothing"));
  for (size_t i = 0; i < top["specs"].size(); ++i)
    if (Status s = entry(top["specs"][i], fmt::format("/specs/{}", i)); !s) return s;
  return {};
}

Status Reader::record_line(const Json& line, const std::string& at) {
  if (Status s = check_object(line, at, kRecordKeys); !s) return s;
  for (const char* key : {"schema", "target", "spec"})
    if (!line.contains(key))
      return manifest_error(at, fmt::format("found no \"{}\"; allowed lines as HSTU_JIT_RECORD "
                                            "writes them",
                                            key));
  if (line["schema"] != kRecordSchema)
    return manifest_error(at + "/schema", fmt::format("found {}; allowed \"{}\"",
                                                      describe(line["schema"]), kRecordSchema));
  Result<std::string> target = read_string(line["target"], at + "/target");
  if (!target) return std::move(target).error();
  if (!line["spec"].is_object())
    return manifest_error(
        at + "/spec", fmt::format("found {}; allowed one spec, an object", describe(line["spec"])));
  ManifestSpec like;
  like.pointer = at;
  like.targets = {std::move(*target)};
  Status s = add(line["spec"].dump(), folder_, at + "/spec", like, at);
  if (s || s.error().pointer == at + "/spec") return s;
  return under_pointer(at + "/spec", std::move(s).error());
}

// The line that starts at `*begin`, which moves past it.
std::string_view next_line(std::string_view text, size_t* begin) {
  const size_t end = std::min(text.find('\n', *begin), text.size());
  std::string_view line = text.substr(*begin, end - *begin);
  *begin = end + 1;
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return line;
}

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r\n") == line.npos; }

// A record starts with a whole object of its schema; a manifest is one object over many lines, or
// of another schema.
bool is_record(std::string_view text) {
  size_t begin = 0;
  std::string_view line;
  do {
    line = next_line(text, &begin);
  } while (is_blank(line) && begin < text.size());
  if (line.find(kRecordSchema) == line.npos) return false;
  const Result<Value> first = parse_document(line);
  if (!first || !first->is(Value::Kind::object)) return false;
  const Value* schema = first->find("schema");
  return schema != nullptr && schema->is(Value::Kind::string) && schema->text() == kRecordSchema;
}

// A process may die in the middle of a line: what is no JSON is told and left out, all other lines
// count. Lines that say something else are errors.
Status read_record(std::string_view text, Reader& reader) {
  size_t number = 0, torn = 0;
  for (size_t begin = 0; begin < text.size();) {
    const std::string_view line = next_line(text, &begin);
    ++number;
    if (is_blank(line)) continue;
    const Result<Value> checked = parse_document(line);
    if (!checked) {
      if (++torn <= kMaxWarnings)
        reader.manifest().warnings.push_back(
            fmt::format("line {} is torn and was left out", number));
      continue;
    }
    if (Status s = reader.record_line(Json::parse(line), fmt::format("/line {}", number)); !s)
      return s;
  }
  if (torn > kMaxWarnings)
    reader.manifest().warnings.push_back(
        fmt::format("{} more torn lines were left out", torn - kMaxWarnings));
  return {};
}

Result<Manifest> read_manifest(std::string_view text, const std::string& folder,
                               const ReadFile& read) {
  if (text.size() > kMaxManifestBytes)
    return manifest_error("", fmt::format("found a text of {} bytes; allowed at most {}",
                                          text.size(), kMaxManifestBytes));
  Reader reader(folder, read);
  if (is_record(text)) {
    if (Status s = read_record(text, reader); !s) return std::move(s).error();
    return std::move(reader).take();
  }
  const Result<Value> checked = parse_document(text);  // the bounds, duplicate keys, UTF-8
  if (!checked) {
    Error error = checked.error();
    if (error.pointer.empty() && error.message.rfind("spec: ", 0) == 0)
      error.message = "manifest: " + error.message.substr(6);
    return error;
  }
  if (Status s = reader.document(Json::parse(text)); !s) return std::move(s).error();
  return std::move(reader).take();
}

}  // namespace

Result<Manifest> parse_manifest(std::string_view text, const std::string& folder,
                                const ReadFile& read) {
  try {
    return read_manifest(text, folder, read);
  } catch (const std::exception& e) {  // no memory
    return manifest_error("", fmt::format("found a text that could not be read ({}); allowed a "
                                          "smaller one",
                                          printable(e.what())));
  }
}

Result<Manifest> load_manifest(const std::string& path) {
  Result<std::string> text = read_file(path, kMaxManifestBytes);
  if (!text) {
    Error error = std::move(text).error();
    error.kind = ErrorKind::kSpec;
    return error;
  }
  std::string folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty()) folder = ".";
  const ReadFile read = [](const std::string& file) { return read_file(file, kMaxSpecBytes); };
  Result<Manifest> manifest = parse_manifest(*text, folder, read);
  if (!manifest) return std::move(manifest).error().with_context(printable(path, 200));
  return manifest;
}

}  // namespace hstu::jit
