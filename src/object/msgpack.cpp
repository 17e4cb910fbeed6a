// SPDX-License-Identifier: Apache-2.0
#include "object/msgpack.hpp"

namespace hstu::jit::object {

std::optional<uint64_t> MsgpackCursor::big_endian(unsigned bytes) {
  const auto taken = take(bytes);
  if (!taken) return std::nullopt;
  uint64_t value = 0;
  for (const char byte : *taken) value = value << 8 | static_cast<uint8_t>(byte);
  return value;
}

std::optional<std::string_view> MsgpackCursor::take(uint64_t bytes) {
  if (failed_ || bytes > bytes_.size() - position_) {
    failed_ = true;
    return std::nullopt;
  }
  const std::string_view taken = bytes_.substr(position_, bytes);
  position_ += bytes;
  return taken;
}

std::optional<MsgpackCursor::Value> MsgpackCursor::fail() {
  failed_ = true;
  return std::nullopt;
}

std::optional<MsgpackCursor::Value> MsgpackCursor::next() {
  const auto head = big_endian(1);
  if (!head) return fail();
  const auto byte = static_cast<uint8_t>(*head);

  const auto number = [&](unsigned bytes, bool is_signed) -> std::optional<Value> {
    const auto raw = big_endian(bytes);
    if (!raw) return fail();
    const unsigned unused = 64 - 8 * bytes;
    const auto value =
        is_signed ? static_cast<int64_t>(*raw << unused) >> unused : static_cast<int64_t>(*raw);
    if (!is_signed && value < 0) return fail();
    return Value{Kind::integer, value, {}, 0};
  };
  const auto string = [&](Kind kind, std::optional<uint64_t> size) -> std::optional<Value> {
    const auto taken = size ? take(*size) : std::nullopt;
    if (!taken) return fail();
    return Value{kind, 0, *taken, 0};
  };
  const auto container = [&](Kind kind, std::optional<uint64_t> count) -> std::optional<Value> {
    // Each element is at least one byte long.
    const uint64_t left = bytes_.size() - position_;
    if (!count || *count > (kind == Kind::map ? left / 2 : left)) return fail();
    return Value{kind, 0, {}, static_cast<uint32_t>(*count)};
  };

  if (byte <= 0x7f) return Value{Kind::integer, byte, {}, 0};
  if (byte >= 0xe0) return Value{Kind::integer, static_cast<int8_t>(byte), {}, 0};
  if (byte <= 0x8f) return container(Kind::map, byte & 0x0f);
  if (byte <= 0x9f) return container(Kind::array, byte & 0x0f);
  if (byte <= 0xbf) return string(Kind::text, byte & 0x1f);
  switch (byte) {
    case 0xc0:
      return Value{};
    case 0xc2:
      return Value{Kind::boolean, 0, {}, 0};
    case 0xc3:
      return Value{Kind::boolean, 1, {}, 0};
    case 0xc4:
    case 0xc5:
    case 0xc6:
      return string(Kind::binary, big_endian(1u << (byte - 0xc4)));
    case 0xc7:
    case 0xc8:
    case 0xc9: {
      const auto size = big_endian(1u << (byte - 0xc7));
      return size ? string(Kind::extension, *size + 1) : fail();
    }
    case 0xca:
    case 0xcb:
      return string(Kind::real, byte == 0xca ? 4 : 8);
    case 0xcc:
    case 0xcd:
    case 0xce:
    case 0xcf:
      return number(1u << (byte - 0xcc), false);
    case 0xd0:
    case 0xd1:
    case 0xd2:
    case 0xd3:
      return number(1u << (byte - 0xd0), true);
    case 0xd4:
    case 0xd5:
    case 0xd6:
    case 0xd7:
    case 0xd8:
      return string(Kind::extension, 1 + (uint64_t{1} << (byte - 0xd4)));
    case 0xd9:
    case 0xda:
    case 0xdb:
      return string(Kind::text, big_endian(1u << (byte - 0xd9)));
    case 0xdc:
    case 0xdd:
      return container(Kind::array, big_endian(byte == 0xdc ? 2 : 4));
    case 0xde:
    case 0xdf:
      return container(Kind::map, big_endian(byte == 0xde ? 2 : 4));
    default:
      return fail();  // 0xc1 is never used
  }
}

bool MsgpackCursor::skip() {
  for (uint64_t pending = 1; pending > 0; --pending) {
    const auto value = next();
    if (!value) return false;
    pending += value->kind == Kind::map ? 2 * uint64_t{value->count} : value->count;
  }
  return true;
}

std::optional<MsgpackCursor::Value> MsgpackCursor::expect(Kind kind) {
  const auto value = next();
  if (!value || value->kind != kind) return fail();
  return value;
}

std::optional<uint32_t> MsgpackCursor::map() {
  const auto value = expect(Kind::map);
  return value ? std::optional(value->count) : std::nullopt;
}

std::optional<uint32_t> MsgpackCursor::array() {
  const auto value = expect(Kind::array);
  return value ? std::optional(value->count) : std::nullopt;
}

std::optional<std::string_view> MsgpackCursor::text() {
  const auto value = expect(Kind::text);
  return value ? std::optional(value->text) : std::nullopt;
}

std::optional<int64_t> MsgpackCursor::integer() {
  const auto value = expect(Kind::integer);
  return value ? std::optional(value->integer) : std::nullopt;
}

}  // namespace hstu::jit::object
