// SPDX-License-Identifier: Apache-2.0
// The verify command as words.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"

namespace hstu::cache {

// Words separated by spaces; '...' takes everything literally, "..." takes \" and \\, a backslash
// outside of quotes takes the next character literally. Errors: kUsage.
hstu::jit::Result<std::vector<std::string>> split_command(const std::string& command);

// The words with {manifest} and {bundle} replaced, after splitting: paths may hold anything.
// Errors: kUsage, also when {manifest} is not there.
hstu::jit::Result<std::vector<std::string>> fill_command(const std::string& command,
                                                         const std::string& manifest,
                                                         const std::string& bundle);

}  // namespace hstu::cache
