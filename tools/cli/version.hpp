// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace hstu::jit::cli {

// Version, build and compiler identities, several lines.
std::string version_text();

}  // namespace hstu::jit::cli
