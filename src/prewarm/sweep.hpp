// SPDX-License-Identifier: Apache-2.0
// The sweep of a manifest entry: a base spec and lists of values for places in it, combined each
// with each. Internal to this room.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace hstu::jit {

// Keeps the order of keys, which is the order of the axes.
using ManifestJson = nlohmann::ordered_json;

// "manifest" or the pointer, a colon, and what is wrong there. Kind kSpec.
Error manifest_error(const std::string& pointer, std::string_view text);

// As in a message: "12", "\"words\"", "an array of 3".
std::string describe(const ManifestJson& value);

struct SweepAxis {
  std::string pointer;              // into the spec, as written
  std::vector<std::string> tokens;  // the same, taken apart
  std::vector<ManifestJson> values;
};

// One for each member of `set`, which is at `at` in the manifest.
Result<std::vector<SweepAxis>> read_axes(const ManifestJson& set, const std::string& at);

// Number of combinations; more than `limit`: limit + 1.
size_t combinations(const std::vector<SweepAxis>& axes, size_t limit);

// Combination `number`: which value each axis takes, the last one fastest.
std::vector<size_t> choice_of(const std::vector<SweepAxis>& axes, size_t number);

// Puts a value into a spec. Objects on the way are made where there are none; elements of arrays
// must be there. Errors: one line without the place in the manifest.
Status set_value(ManifestJson& spec, const SweepAxis& axis, const ManifestJson& value);

}  // namespace hstu::jit
