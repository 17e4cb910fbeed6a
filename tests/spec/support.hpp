// SPDX-License-Identifier: Apache-2.0
// What the tests of this room share.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "catch.hpp"
#include "spec/geometry.hpp"
#include "spec/parse.hpp"

namespace hstu::jit::test {

// A small valid spec with more members, e.g. spec_text(R"("batch": 3)").
inline std::string spec_text(const std::string& more,
                             const std::string& sizes = R"("heads": 2, "head_dim_qk": 16)") {
  return R"({"op": "hstu_attention", )" + sizes + (more.empty() ? "" : ", ") + more + "}";
}

inline Problem parse_one(const std::string& text, const std::string& folder = "") {
  INFO(text);
  auto spec = parse_spec(text, folder);
  INFO((spec.ok() ? "" : spec.error().message));
  REQUIRE(spec.ok());
  REQUIRE(spec->problems.size() == 1);
  return spec->problems.front();
}

inline Geometry geometry_of(const std::string& more) {
  auto geometry = make_geometry(parse_one(spec_text(more)));
  REQUIRE(geometry.ok());
  return *geometry;
}

inline Error error_of(const std::string& text) {
  INFO(text);
  auto spec = parse_spec(text, "");
  REQUIRE(!spec.ok());
  return spec.error();
}

inline bool one_line(const std::string& message) {
  return !message.empty() && message.size() < 1000 &&
         std::none_of(message.begin(), message.end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

inline std::vector<std::string> shipped_specs() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(HSTU_TEST_DATA "/specs"))
    if (entry.path().extension() == ".json") paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

inline std::string contents(const std::string& path) {
  auto bytes = read_file(path);
  REQUIRE(bytes.ok());
  return *bytes;
}

}  // namespace hstu::jit::test
