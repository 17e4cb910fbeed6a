// SPDX-License-Identifier: Apache-2.0
// A cursor over MessagePack (the encoding of AMDGPU metadata): nothing is allocated, nothing
// recurses, and each container is refused unless the bytes left could hold it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace hstu::jit::object {

class MsgpackCursor {
 public:
  enum class Kind { nil, boolean, integer, real, text, binary, array, map, extension };
  struct Value {
    Kind kind = Kind::nil;
    int64_t integer = 0;    // integer and boolean; unsigned values above 2^63-1 are refused
    std::string_view text;  // text and binary
    uint32_t count = 0;     // elements of an array, pairs of a map; they follow in the stream
  };

  explicit MsgpackCursor(std::string_view bytes) : bytes_(bytes) {}

  // The next value's head; of a container only its count. Nothing when the bytes are malformed:
  // the cursor then stays failed.
  std::optional<Value> next();
  // Passes over one whole value, containers included. False when malformed.
  bool skip();

  // One value of the kind wanted; values of another kind are malformed here.
  std::optional<uint32_t> map();
  std::optional<uint32_t> array();
  std::optional<std::string_view> text();
  std::optional<int64_t> integer();

  uint64_t position() const { return position_; }

 private:
  std::optional<uint64_t> big_endian(unsigned bytes);
  std::optional<std::string_view> take(uint64_t bytes);
  std::optional<Value> fail();
  std::optional<Value> expect(Kind kind);

  std::string_view bytes_;
  uint64_t position_ = 0;
  bool failed_ = false;
};

}  // namespace hstu::jit::object
