// SPDX-License-Identifier: Apache-2.0
// A JSON text as a small tree: what the spec reader needs to say what it found and where.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace hstu::jit {

class Value {
 public:
  enum class Kind : uint8_t { null, boolean, integer, big_integer, real, string, array, object };

  Kind kind = Kind::null;
  union {
    bool boolean;
    int64_t integer = 0;   // Kind::integer
    uint64_t big_integer;  // above the largest int64
    double real;           // written with a point or an exponent, or beyond 64 bits; finite
  };

  // The text of a string; the digits of a real as written.
  const std::string& text() const { return more_->text; }
  // Elements of an array, values of an object in the order of keys().
  const std::vector<Value>& items() const { return more_->items; }
  const std::vector<std::string>& keys() const { return more_->keys; }
  // Value of an object's key, or null.
  const Value* find(std::string_view key) const;

  // As in a message: "null", "12", "\"words\"", "an array of 3".
  std::string describe() const;

  bool is(Kind k) const { return kind == k; }

 private:
  friend class DocumentBuilder;
  struct More {
    std::string text;
    std::vector<Value> items;
    std::vector<std::string> keys;
  };
  std::unique_ptr<More> more_;  // strings, reals, arrays and objects only
};

constexpr size_t kMaxSpecBytes = size_t{64} << 20;
constexpr size_t kMaxSpecValues = size_t{1} << 23;
constexpr size_t kMaxSpecDepth = 16;
constexpr size_t kMaxObjectKeys = 256;

// RFC 8259 JSON, UTF-8 (a byte order mark is skipped). Errors: kSpec for anything else: syntax,
// duplicate keys, numbers beyond double, a text or a nesting beyond the limits above.
Result<Value> parse_document(std::string_view text);

// `pointer` with one more JSON pointer token.
std::string pointer_to(const std::string& pointer, std::string_view key);

}  // namespace hstu::jit
