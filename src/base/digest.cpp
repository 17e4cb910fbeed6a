// SPDX-License-Identifier: Apache-2.0
#include "base/digest.hpp"

#include <openssl/evp.h>

#include <stdexcept>

namespace hstu::jit {

std::string sha256_hex(std::string_view bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  // A libcrypto without SHA-256 cannot be worked with: an empty digest would make keys equal.
  if (EVP_Digest(bytes.data(), bytes.size(), digest, &length, EVP_sha256(), nullptr) != 1 ||
      length != 32) {
    throw std::runtime_error("libcrypto does not provide SHA-256");
  }
  static const char kDigits[] = "0123456789abcdef";
  std::string hex(64, '0');
  for (unsigned i = 0; i < 32; ++i) {
    hex[2 * i] = kDigits[digest[i] >> 4];
    hex[2 * i + 1] = kDigits[digest[i] & 15];
  }
  return hex;
}

}  // namespace hstu::jit
