// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace hstu::jit::cli {

// "hstu-jit 0.1.0", as bundles name their producer.
std::string producer_text();

// Version, build and compiler identities, several lines.
std::string version_text();

}  // namespace hstu::jit::cli
