// SPDX-License-Identifier: Apache-2.0
#include "spec/spec_error.hpp"

#include <utility>

#include "base/text.hpp"

namespace hstu::jit {
namespace {

constexpr size_t kMaxPointer = 1000;

}  // namespace

Error spec_error(const std::string& pointer, std::string_view text) {
  Error error;
  error.kind = ErrorKind::kSpec;
  error.pointer = pointer;
  // A key may be as long as the text: its object is place enough.
  while (error.pointer.size() > kMaxPointer) error.pointer.resize(error.pointer.rfind('/'));
  error.message = pointer.empty() ? "spec" : printable(pointer, 120);
  error.message += ": ";
  error.message += text;
  return error;
}

Error under_pointer(const std::string& prefix, Error error) {
  if (prefix.empty()) return error;
  // The message starts with the pointer (or "spec" for the empty one), see spec_error.
  const std::string text = error.pointer.empty() && error.message.rfind("spec: ", 0) == 0
                               ? error.message.substr(4)
                               : error.message;
  error.message = prefix + text;
  error.pointer = prefix + error.pointer;
  return error;
}

}  // namespace hstu::jit
