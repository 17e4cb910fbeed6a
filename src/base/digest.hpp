// SPDX-License-Identifier: Apache-2.0
// SHA-256 (by OpenSSL's libcrypto).
#pragma once

#include <string>
#include <string_view>

namespace hstu::jit {

// 64 lower-case hex digits.
std::string sha256_hex(std::string_view bytes);

}  // namespace hstu::jit
