// SPDX-License-Identifier: Apache-2.0
// JSON text -> Problem. Every error is one line with the JSON pointer, what was found and what is
// allowed; unknown keys get a "did you mean".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "spec/problem.hpp"

namespace hstu::jit {

struct ParsedSpec {
  std::vector<Problem> problems;
  bool suite = false;  // the text held an array
};

// `folder` resolves relative paths inside the spec. Errors: kSpec (invalid anywhere).
Result<ParsedSpec> parse_spec(std::string_view text, const std::string& folder);

// Canonical JSON of a problem: sorted keys, defaults filled in, lists extended. Parses back to an
// equal problem.
std::string to_json(const Problem& problem, int indent = -1);

// The published JSON Schema of a spec file.
std::string spec_schema();

}  // namespace hstu::jit
