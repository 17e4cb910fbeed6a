// SPDX-License-Identifier: Apache-2.0
// Environment variables: every HSTU_JIT_* name, once, with its meaning.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hstu::jit {

struct EnvironmentVariable {
  const char* name;
  const char* meaning;  // one line
  bool secret = false;  // its value is never shown
};

// The table behind `hstu-jit help environment` and the check for unknown names.
std::span<const EnvironmentVariable> environment_variables();

// Value of a variable; an empty value counts as unset.
std::optional<std::string> get_env(const char* name);

// HSTU_JIT_* names set in this process that the table does not have, each with the nearest known.
std::vector<std::string> unknown_environment_warnings();

}  // namespace hstu::jit
