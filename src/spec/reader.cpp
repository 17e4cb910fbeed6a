// SPDX-License-Identifier: Apache-2.0
#include "spec/reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/text.hpp"
#include "spec/keys.hpp"
#include "spec/spec_error.hpp"

namespace hstu::jit {
namespace {

std::string list_of(std::span<const std::string> words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> words) {
  const std::string near = nearest(word, words);
  return near.empty() ? "" : fmt::format("; did you mean {}?", near);
}

}  // namespace

void FirstError::fail(const std::string& pointer, std::string_view text) {
  if (!error_) error_ = spec_error(pointer, text);
}

void FirstError::refuse(const std::string& pointer, const Value& found, std::string_view allowed) {
  fail(pointer, fmt::format("found {}; allowed {}", found.describe(), allowed));
}

void FirstError::take(Status status) {
  if (!status.ok() && !error_) error_ = std::move(status).error();
}

ObjectReader::ObjectReader(FirstError& first, const Value* value, std::string pointer,
                           std::string_view place)
    : first_(first), value_(value), pointer_(std::move(pointer)), place_(place) {
  if (!value_ || value_->is(Value::Kind::object)) return;
  first_.refuse(
      pointer_, *value_,
      place_.empty() ? "an object" : "an object with the keys " + list_of(spec_keys(place)));
  value_ = nullptr;
}

void ObjectReader::refuse_unknown_keys() {
  if (!value_) return;
  const auto known = spec_keys(place_);
  for (const std::string& key : value_->keys()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string hint = did_you_mean(key, known);
    first_.fail(pointer_to(pointer_, key), fmt::format("found unknown key \"{}\"; allowed {}{}",
                                                       printable(key, 40), list_of(known), hint));
    return;
  }
}

void ObjectReader::require(std::string_view key, std::string_view allowed) {
  if (!find(key)) first_.fail(pointer(key), fmt::format("found nothing; allowed {}", allowed));
}

bool ObjectReader::boolean(std::string_view key, bool fallback) {
  const Value* v = find(key);
  if (!v) return fallback;
  if (v->is(Value::Kind::boolean)) return v->boolean;
  first_.refuse(pointer(key), *v, "true or false");
  return fallback;
}

int64_t ObjectReader::integer(std::string_view key, int64_t least, int64_t most, int64_t fallback) {
  const Value* v = find(key);
  return v ? read_integer(first_, *v, pointer(key), least, most, fallback) : fallback;
}

uint64_t ObjectReader::unsigned_integer(std::string_view key, uint64_t fallback) {
  const Value* v = find(key);
  if (!v) return fallback;
  if (v->is(Value::Kind::big_integer)) return v->big_integer;
  if (v->is(Value::Kind::integer) && v->integer >= 0) return static_cast<uint64_t>(v->integer);
  first_.refuse(pointer(key), *v,
                fmt::format("an integer from 0 to {}", std::numeric_limits<uint64_t>::max()));
  return fallback;
}

double ObjectReader::scale(std::string_view key, double fallback) {
  const Value* v = find(key);
  if (!v) return fallback;
  double number = 0;
  switch (v->kind) {
    case Value::Kind::null:
      return 0;
    case Value::Kind::integer:
      number = static_cast<double>(v->integer);
      break;
    case Value::Kind::big_integer:
      number = static_cast<double>(v->big_integer);
      break;
    case Value::Kind::real:
      number = v->real;
      break;
    default:
      first_.refuse(pointer(key), *v, "a number or null");
      return fallback;
  }
  // Kernels take a float: one that becomes infinite, or 0 (which would mean "default"), is refused.
  const double size = std::abs(number);
  if (number != 0 &&
      !(size >= std::numeric_limits<float>::min() && size <= std::numeric_limits<float>::max())) {
    first_.refuse(pointer(key), *v, "0, null, or a magnitude from 1.18e-38 to 3.40e38");
    return fallback;
  }
  // A literal like 1e-999 reads as 0; so do "0", "0.0" and "-0e5", which have no other digit.
  if (number == 0 && v->is(Value::Kind::real)) {
    const std::string mantissa = v->text().substr(0, v->text().find_first_of("eE"));
    if (mantissa.find_first_of("123456789") != mantissa.npos) {
      first_.refuse(pointer(key), *v, "0, null, or a magnitude from 1.18e-38 to 3.40e38");
      return fallback;
    }
    return 0;  // not -0.0
  }
  return number;
}

std::string ObjectReader::text(std::string_view key, std::string_view fallback, bool may_be_empty) {
  const Value* v = find(key);
  if (!v) return std::string(fallback);
  const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (!v->is(Value::Kind::string)) {
    first_.refuse(pointer(key), *v, "a string");
  } else if (v->text().empty() && !may_be_empty) {
    first_.refuse(pointer(key), *v, "a string that is not empty");
  } else if (v->text().size() > kMaxText) {
    first_.fail(pointer(key), fmt::format("found a string of {} bytes; allowed at most {}",
                                          v->text().size(), kMaxText));
  } else if (std::any_of(v->text().begin(), v->text().end(), control)) {
    first_.refuse(pointer(key), *v, "a string without control characters");
  } else {
    return v->text();
  }
  return std::string(fallback);
}

size_t ObjectReader::word(std::string_view key, size_t fallback) {
  const Value* v = find(key);
  if (!v) return fallback;
  const auto words = spec_words(pointer_to(place_, key));
  if (!v->is(Value::Kind::string)) {
    first_.refuse(pointer(key), *v, list_of(words));
    return fallback;
  }
  const auto at = std::find(words.begin(), words.end(), v->text());
  if (at != words.end()) return static_cast<size_t>(at - words.begin());
  first_.refuse(pointer(key), *v, list_of(words) + did_you_mean(v->text(), words));
  return fallback;
}

int64_t read_integer(FirstError& first, const Value& value, const std::string& pointer,
                     int64_t least, int64_t most, int64_t fallback) {
  if (value.is(Value::Kind::integer) && value.integer >= least && value.integer <= most)
    return value.integer;
  first.refuse(pointer, value, fmt::format("an integer from {} to {}", least, most));
  return fallback;
}

}  // namespace hstu::jit
