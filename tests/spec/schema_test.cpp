// SPDX-License-Identifier: Apache-2.0
// The published JSON Schema against the parser: the same keys at every level, the same words, and
// the same verdict on specs.
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "spec/keys.hpp"
#include "support.hpp"

namespace hstu::jit::test {
namespace {

using nlohmann::json;

const json& schema() {
  static const json parsed = json::parse(spec_schema());
  return parsed;
}

const json& resolved(const json& s) {
  if (!s.contains("$ref")) return s;
  const auto ref = s["$ref"].get<std::string>();
  REQUIRE(ref.rfind("#/", 0) == 0);
  return schema().at(json::json_pointer(ref.substr(1)));
}

bool of_type(const json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "number") return value.is_number();
  if (type == "integer") return value.is_number_integer();  // the parser wants no 2.0 either
  FAIL("unknown type " << type);
  return false;
}

// The keywords our schema uses; any other fails the test, so that none is silently ignored.
std::string violation(const json& s_in, const json& value) {
  const json& s = resolved(s_in);
  static const std::set<std::string> kNotes{"description", "default",    "title",    "$schema",
                                            "definitions", "properties", "required", "items"};
  for (const auto& [key, rule] : s.items()) {
    if (kNotes.count(key)) continue;
    if (key == "type") {
      const json types = rule.is_array() ? rule : json::array({rule});
      if (std::none_of(types.begin(), types.end(),
                       [&](const json& t) { return of_type(value, t.get<std::string>()); }))
        return "type " + rule.dump();
    } else if (key == "enum") {
      if (std::find(rule.begin(), rule.end(), value) == rule.end()) return "enum " + rule.dump();
    } else if (key == "minimum") {
      if (value.is_number() && value.get<double>() < rule.get<double>())
        return "minimum " + rule.dump();
    } else if (key == "maximum") {
      if (value.is_number() && value.get<double>() > rule.get<double>())
        return "maximum " + rule.dump();
    } else if (key == "multipleOf") {
      if (value.is_number_integer() && value.get<int64_t>() % rule.get<int64_t>() != 0)
        return "multipleOf " + rule.dump();
    } else if (key == "minLength") {
      if (value.is_string() && value.get<std::string>().size() < rule.get<size_t>())
        return "minLength";
    } else if (key == "maxLength") {
      if (value.is_string() && value.get<std::string>().size() > rule.get<size_t>())
        return "maxLength";
    } else if (key == "pattern") {
      if (value.is_string() && !one_line("x" + value.get<std::string>())) return "pattern";
    } else if (key == "minItems") {
      if (value.is_array() && value.size() < rule.get<size_t>()) return "minItems";
    } else if (key == "maxItems") {
      if (value.is_array() && value.size() > rule.get<size_t>()) return "maxItems";
    } else if (key == "additionalProperties") {
      REQUIRE(rule == false);
      if (value.is_object())
        for (const auto& [name, member] : value.items())
          if (!s["properties"].contains(name)) return "unknown key " + name;
    } else if (key == "anyOf") {
      if (std::none_of(rule.begin(), rule.end(),
                       [&](const json& option) { return violation(option, value).empty(); }))
        return "anyOf";
    } else {
      FAIL("schema keyword " << key << " is not looked at by this test");
    }
  }
  if (value.is_object() && s.contains("required"))
    for (const auto& name : s["required"])
      if (!value.contains(name.get<std::string>())) return "missing " + name.dump();
  if (value.is_object() && s.contains("properties"))
    for (const auto& [name, member] : value.items())
      if (s["properties"].contains(name))
        if (auto v = violation(s["properties"][name], member); !v.empty()) return name + ": " + v;
  if (value.is_array() && s.contains("items"))
    for (const auto& item : value)
      if (auto v = violation(s["items"], item); !v.empty()) return "item: " + v;
  return "";
}

// place -> keys of every object of the schema, in the parser's notation of places.
void collect(const json& s_in, const std::string& place,
             std::map<std::string, std::set<std::string>>& levels,
             std::map<std::string, json>& enums) {
  const json& s = resolved(s_in);
  if (s.contains("enum")) enums[place] = s["enum"];
  if (s.contains("anyOf"))
    for (const json& option : s["anyOf"]) collect(option, place, levels, enums);
  if (s.contains("items") && place.size()) collect(s["items"], place + "/*", levels, enums);
  if (!s.contains("properties")) return;
  CHECK(s.value("additionalProperties", true) == false);
  for (const auto& [name, member] : s["properties"].items()) {
    levels[place].insert(name);
    CHECK(member.contains("description"));
    collect(member, place + "/" + name, levels, enums);
  }
}

json minimal() {
  return {{"op", "hstu_attention"}, {"heads", 4}, {"head_dim_qk", 64}, {"uih_lengths", {5, 6}}};
}

// A spec whose object at `place` is `object`.
json with_object(const std::string& place, const json& object) {
  json spec = minimal();
  if (place.empty())
    spec.update(object);
  else if (place == "/groups/*")
    spec["groups"] = {object, json::object()};
  else
    spec[json::json_pointer(place)] = object;
  if (place == "/data/files") spec["data"]["init"] = "files";
  return spec;
}

}  // namespace

TEST_CASE("schema and parser know the same keys at every level") {
  std::map<std::string, std::set<std::string>> levels;
  std::map<std::string, json> enums;
  collect(schema(), "", levels, enums);
  CHECK(levels.size() == spec_levels().size());
  for (const SpecLevel& level : spec_levels()) {
    INFO(level.place);
    CHECK(levels[level.place] == std::set<std::string>(level.keys.begin(), level.keys.end()));
  }
  for (const auto& [place, words] : enums) {
    INFO(place);
    const auto known = spec_words(place);
    CHECK(words.get<std::vector<std::string>>() ==
          std::vector<std::string>(known.begin(), known.end()));
  }
  CHECK(enums.size() == 5);
}

TEST_CASE("the parser reads every key it knows: a value no key takes is refused at that key") {
  // {"": 0} is no boolean, number, string, list or known object anywhere.
  for (const SpecLevel& level : spec_levels())
    for (const std::string& key : level.keys) {
      json object{{key, {{"", 0}}}};
      for (const std::string& other : level.keys)  // all of these are required
        if (level.place == std::string("/data/files") && other != key) object[other] = "x";
      const json spec = with_object(level.place, object);
      INFO(spec.dump());
      const Error e = error_of(spec.dump());
      std::string place = level.place;
      if (place == "/groups/*") place = "/groups/0";
      CHECK(e.pointer.rfind(place + "/" + key, 0) == 0);
      CHECK_THAT(e.message, !ContainsSubstring("unknown key \"" + key + "\""));
      CHECK_FALSE(violation(schema(), spec).empty());
    }
}

TEST_CASE("the parser accepts a usual value of every key of the schema") {
  const std::map<std::string, json> usual{{"/$schema", "x"},
                                          {"/op", "hstu_attention"},
                                          {"/name", "x"},
                                          {"/dtype", "fp16"},
                                          {"/heads", 1},
                                          {"/head_dim_qk", 8},
                                          {"/head_dim_v", 8},
                                          {"/layout", "jagged"},
                                          {"/batch", 2},
                                          {"/uih_lengths", 5},
                                          {"/uih_lengths_kv", 5},
                                          {"/num_targets", 1},
                                          {"/max_uih_length", 9},
                                          {"/max_uih_length_kv", 9},
                                          {"/max_targets", 9},
                                          {"/mask", json::object()},
                                          {"/groups", {json::object(), json::object()}},
                                          {"/activation", "softmax"},
                                          {"/alpha", 1.5},
                                          {"/attn_scale", nullptr},
                                          {"/training", true},
                                          {"/data", json::object()},
                                          {"/target", "cpu"},
                                          {"/device", "cpu"},
                                          {"/validate", false},
                                          {"/strides", json::object()},
                                          {"/benchmark", json::object()},
                                          {"/output", json::object()},
                                          {"/mask/causal", false},
                                          {"/mask/local_len", 3},
                                          {"/mask/context_len", 3},
                                          {"/mask/minfull_len", 3},
                                          {"/groups/*/local_len", 3},
                                          {"/groups/*/context_len", 3},
                                          {"/groups/*/minfull_len", 3},
                                          {"/groups/*/attn_scale", 0.5},
                                          {"/groups/*/max_uih_length", 9},
                                          {"/data/init", "uniform"},
                                          {"/data/seed", 7},
                                          {"/data/same_qkv", true},
                                          {"/validate/rows", 3},
                                          {"/strides/q", {0, 256, 64}},
                                          {"/strides/k", {0, 256, 64}},
                                          {"/strides/v", {0, 256, 64}},
                                          {"/strides/o", {0, 256, 64}},
                                          {"/benchmark/warmup", 0},
                                          {"/benchmark/iterations", 1},
                                          {"/benchmark/flush_l2", false},
                                          {"/output/dump", "x"},
                                          {"/output/mask", "x"}};
  for (const SpecLevel& level : spec_levels())
    for (const std::string& key : level.keys) {
      const std::string place = std::string(level.place) + "/" + key;
      if (place.rfind("/data/files", 0) == 0) continue;  // needs all its members: below
      INFO(place);
      REQUIRE(usual.count(place) == 1);
      const json spec = with_object(level.place, {{key, usual.at(place)}});
      auto parsed = parse_spec(spec.dump(), "");
      INFO((parsed.ok() ? "" : parsed.error().message));
      CHECK(parsed.ok());
      CHECK(violation(schema(), spec) == "");
    }
  const json files = with_object("/data/files", {{"q", "a"}, {"k", "b"}, {"v", "c"}});
  CHECK(parse_spec(files.dump(), "").ok());
  CHECK(violation(schema(), files) == "");
}

TEST_CASE("shipped specs, and what to_json writes, satisfy the schema") {
  for (const std::string& path : shipped_specs()) {
    INFO(path);
    const std::string text = contents(path);
    CHECK(violation(schema(), json::parse(text)) == "");
    auto spec = parse_spec(text, "");
    REQUIRE(spec.ok());
    CHECK(violation(schema(), json::parse(to_json(spec->problems[0]))) == "");
  }
}

TEST_CASE("bad specs that the schema can tell are refused by it too") {
  // What relates two keys, or asks for the batch, is beyond a schema; the rest it must refuse.
  static const std::set<std::string> kBeyond{"batch smaller than the list",
                                             "too many key lengths",
                                             "too many targets",
                                             "batched with two lengths",
                                             "batched with two key lengths",
                                             "override below the list",
                                             "key override below the list",
                                             "target override below the list",
                                             "batched self attention with longer keys",
                                             "three groups of two",
                                             "group override below the list",
                                             "override of all groups below the list",
                                             "batched groups",
                                             "alpha below float",
                                             "alpha below double",
                                             "files without paths",
                                             "paths without files",
                                             "files and same_qkv",
                                             "overlapping rows of o",
                                             "overlapping heads of o",
                                             "duplicate key",
                                             "duplicate key by escape",
                                             "duplicate nested key",
                                             "duplicate in a group",
                                             "duplicate in a suite"};
  int refused = 0, beyond = 0;
  for (const auto& bad : json::parse(contents(HSTU_TEST_DATA "/bad_specs/bad_specs.json"))) {
    if (bad.contains("hex")) continue;
    const json spec = json::parse(bad["text"].get<std::string>(), nullptr, false);
    if (spec.is_discarded()) continue;
    INFO(bad["name"].get<std::string>());
    if (kBeyond.count(bad["name"].get<std::string>())) {
      ++beyond;
    } else {
      CHECK_FALSE(violation(schema(), spec).empty());
      ++refused;
    }
  }
  CHECK(refused > 80);
  CHECK(beyond == static_cast<int>(kBeyond.size()));
}

}  // namespace hstu::jit::test
