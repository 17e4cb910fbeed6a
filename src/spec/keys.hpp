// SPDX-License-Identifier: Apache-2.0
// Every key and word of the spec, once: the parser refuses others, a test holds the JSON Schema
// against this table.
#pragma once

#include <span>
#include <string>

namespace hstu::jit {

struct SpecLevel {
  const char* place;  // "" top level, "/mask", "/groups/*" ...
  std::span<const std::string> keys;
};

std::span<const SpecLevel> spec_levels();

// Keys allowed at a place of the table.
std::span<const std::string> spec_keys(std::string_view place);

// Words allowed for the string at a place ("/dtype", "/data/init"); none: any string.
std::span<const std::string> spec_words(std::string_view place);

}  // namespace hstu::jit
