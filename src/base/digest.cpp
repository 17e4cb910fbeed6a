// SPDX-License-Identifier: Apache-2.0
// The calls below EVP: EVP's first use in a process reads OpenSSL's configuration and its
// providers, which takes longer than all else that a kernel from the disk takes.
#define OPENSSL_SUPPRESS_DEPRECATED
#include "base/digest.hpp"

#include <openssl/evp.h>
#include <openssl/sha.h>

#include <stdexcept>

namespace hstu::jit {
namespace {

bool sha256(std::string_view bytes, unsigned char* digest) {
#if defined(OPENSSL_NO_DEPRECATED_3_0)
  unsigned length = 0;
  return EVP_Digest(bytes.data(), bytes.size(), digest, &length, EVP_sha256(), nullptr) == 1 &&
         length == SHA256_DIGEST_LENGTH;
#else
  SHA256_CTX context;
  return SHA256_Init(&context) == 1 && SHA256_Update(&context, bytes.data(), bytes.size()) == 1 &&
         SHA256_Final(digest, &context) == 1;
#endif
}

}  // namespace

std::string sha256_hex(std::string_view bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  // A libcrypto without SHA-256 cannot be worked with: an empty digest would make keys equal.
  if (!sha256(bytes, digest)) throw std::runtime_error("libcrypto does not provide SHA-256");
  static const char kDigits[] = "0123456789abcdef";
  std::string hex(64, '0');
  for (unsigned i = 0; i < 32; ++i) {
    hex[2 * i] = kDigits[digest[i] >> 4];
    hex[2 * i + 1] = kDigits[digest[i] & 15];
  }
  return hex;
}

}  // namespace hstu::jit
