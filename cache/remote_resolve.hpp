// SPDX-License-Identifier: Apache-2.0
// Host names with a bound on the time: getaddrinfo() alone may take as long as its servers do.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace hstu::cache {

// Numeric addresses, at most 8; none with `problem` when there are none by the deadline.
std::vector<std::string> resolve_host(const std::string& host,
                                      std::chrono::steady_clock::time_point deadline,
                                      std::string* problem);

}  // namespace hstu::cache
