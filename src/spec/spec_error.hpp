// SPDX-License-Identifier: Apache-2.0
// How this room words its errors.
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"

namespace hstu::jit {

// kSpec with the message "pointer: text"; the whole spec has the empty pointer.
Error spec_error(const std::string& pointer, std::string_view text);

// Puts `prefix` ("/3" for the fourth problem of a suite) in front of the pointer of a spec error.
Error under_pointer(const std::string& prefix, Error error);

}  // namespace hstu::jit
