// SPDX-License-Identifier: Apache-2.0
#include "source/source.hpp"

#include <algorithm>
#include <regex>
#include <sstream>

#include "catch.hpp"
#include "spec/parse.hpp"

using namespace hstu::jit;

namespace {

Source source_of(const std::string& json, const std::string& target) {
  Result<ParsedSpec> spec = parse_spec(json, ".");
  if (!spec) FAIL(spec.error().message);
  const Problem& p = spec->problems.front();
  Result<Plan> plan = make_plan(p, *make_geometry(p), *find_target(target));
  if (!plan) FAIL(plan.error().message);
  Result<Source> source = write_source(*plan, to_json(p, 2));
  if (!source) FAIL(source.error().message);
  return *source;
}

const char* kBase = R"({"op": "hstu_attention", "name": "a", "heads": 4, "head_dim_qk": 128,
                        "uih_lengths": [300, 20], "mask": {"local_len": 9}})";

}  // namespace

TEST_CASE("templates include only templates") {
  REQUIRE(template_files().size() > 5);
  for (const std::string& file : template_files()) {
    std::istringstream text{std::string(template_text(file))};
    std::string line;
    while (std::getline(text, line)) {
      INFO(file << ": " << line);
      CHECK(line.find("#include <") == std::string::npos);
      std::smatch match;
      if (std::regex_match(line, match, std::regex(R"re(\s*#\s*include "([^"]+)".*)re"))) {
        const std::vector<std::string> files = template_files();
        CHECK(std::count(files.begin(), files.end(), match[1].str()) == 1);
        CHECK(line.find("#include \"") == 0);  // the form the writer expands
      }
    }
  }
}

TEST_CASE("a source is one file without includes, with spec and plan in its head") {
  for (const char* target : {"cpu", "gfx90a", "gfx1100", "sm_90a"}) {
    const Source s = source_of(kBase, target);
    INFO(target);
    CHECK(s.text().find("\n#include") == std::string::npos);
    CHECK(s.text().find("#pragma once") == std::string::npos);
    CHECK(s.head.find("\"head_dim_qk\": 128") != std::string::npos);
    CHECK(s.head.find("grid") != std::string::npos);
    CHECK(s.body.find("struct Config {") == s.body.rfind("struct Config {"));
    CHECK(s.body.find("#define HSTU_ENTRY " + s.entry) != std::string::npos);
    CHECK(s.body.find("#line 1 \"templates/mask/mask.h\"") != std::string::npos);
    std::istringstream head(s.head);
    std::string line;
    while (std::getline(head, line)) {
      CHECK(line.rfind("//", 0) == 0);
      CHECK((line.empty() || line.back() != '\\'));
    }
  }
}

TEST_CASE("the body depends on structure only") {
  const std::string other =
      R"({"op": "hstu_attention", "name": "b", "heads": 2, "head_dim_qk": 128, "batch": 3,
          "uih_lengths": [1, 2], "mask": {"local_len": 500}, "alpha": 2.0,
          "data": {"seed": 4, "init": "uniform"}, "validate": false})";
  for (const char* target : {"cpu", "gfx942", "sm_80"}) {
    CHECK(source_of(kBase, target).body == source_of(other, target).body);
    CHECK(source_of(kBase, target).head != source_of(other, target).head);
  }
  const std::string softmax =
      R"({"op": "hstu_attention", "heads": 4, "head_dim_qk": 128, "activation": "softmax",
          "uih_lengths": [300, 20], "mask": {"local_len": 9}})";
  CHECK(source_of(kBase, "cpu").body != source_of(softmax, "cpu").body);
}

TEST_CASE("a hostile name cannot leave the head comment") {
  for (const char* name : {R"(*/ #error leaked \\)", R"(\\)", R"(??/)", R"(x\")"}) {
    const Source s = source_of(std::string(R"({"op": "hstu_attention", "name": ")") + name +
                                   R"(", "heads": 4, "head_dim_qk": 64, "uih_lengths": [3]})",
                               "cpu");
    std::istringstream head(s.head);
    std::string line;
    while (std::getline(head, line)) {
      CHECK(line.rfind("//", 0) == 0);
      CHECK((line.empty() || line.back() != '\\'));
    }
  }
}
