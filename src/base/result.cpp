// SPDX-License-Identifier: Apache-2.0
#include "base/result.hpp"

namespace hstu::jit {

const char* error_kind_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kFailed:
      return "failed";
    case ErrorKind::kUsage:
      return "usage";
    case ErrorKind::kSpec:
      return "spec";
    case ErrorKind::kUnsupported:
      return "unsupported";
    case ErrorKind::kCompile:
      return "compile";
    case ErrorKind::kMismatch:
      return "mismatch";
    case ErrorKind::kDevice:
      return "device";
    case ErrorKind::kCache:
      return "cache";
    case ErrorKind::kTimeout:
      return "timeout";
    case ErrorKind::kInternal:
      return "internal";
  }
  return "internal";
}

Error Error::with_context(const std::string& context) && {
  message = context + ": " + message;
  return std::move(*this);
}

}  // namespace hstu::jit
