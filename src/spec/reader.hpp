// SPDX-License-Identifier: Apache-2.0
// Reads typed values out of one JSON object; the first error wins and later reads give defaults.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "spec/document.hpp"

namespace hstu::jit {

// The first error of a whole problem.
class FirstError {
 public:
  void fail(const std::string& pointer, std::string_view text);
  // "found X; allowed Y".
  void refuse(const std::string& pointer, const Value& found, std::string_view allowed);
  void take(Status status);
  bool failed() const { return error_.has_value(); }
  Error&& error() && { return std::move(*error_); }

 private:
  std::optional<Error> error_;
};

class ObjectReader {
 public:
  // `place`: the object's row in spec_levels(). Not an object: an error. A null `value` stands for
  // an absent object: every read gives its default.
  ObjectReader(FirstError& first, const Value* value, std::string pointer, std::string_view place);

  const Value* find(std::string_view key) const { return value_ ? value_->find(key) : nullptr; }
  std::string pointer(std::string_view key) const { return pointer_to(pointer_, key); }
  FirstError& first() { return first_; }
  void refuse_unknown_keys();
  void require(std::string_view key, std::string_view allowed);

  bool boolean(std::string_view key, bool fallback);
  int64_t integer(std::string_view key, int64_t least, int64_t most, int64_t fallback);
  uint64_t unsigned_integer(std::string_view key, uint64_t fallback);
  // A number a float can hold, or null (0). Absent: `fallback`.
  double scale(std::string_view key, double fallback);
  // No control characters, at most kMaxText bytes.
  std::string text(std::string_view key, std::string_view fallback, bool may_be_empty);
  // Index into the words of spec_words().
  size_t word(std::string_view key, size_t fallback);

  static constexpr size_t kMaxText = 4096;

 private:
  FirstError& first_;
  const Value* value_;
  std::string pointer_;
  std::string place_;
};

// An exact integer in [least, most]; on error `fallback`.
int64_t read_integer(FirstError& first, const Value& value, const std::string& pointer,
                     int64_t least, int64_t most, int64_t fallback);

}  // namespace hstu::jit
