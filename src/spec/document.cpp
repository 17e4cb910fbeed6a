// SPDX-License-Identifier: Apache-2.0
#include "spec/document.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/text.hpp"
#include "spec/spec_error.hpp"

namespace hstu::jit {

const Value* Value::find(std::string_view key) const {
  const auto at = std::find(keys().begin(), keys().end(), key);
  return at == keys().end() ? nullptr : &items()[at - keys().begin()];
}

std::string Value::describe() const {
  switch (kind) {
    case Kind::null:
      return "null";
    case Kind::boolean:
      return boolean ? "true" : "false";
    case Kind::integer:
      return fmt::format("{}", integer);
    case Kind::big_integer:
      return fmt::format("{}", big_integer);
    case Kind::real:
      return printable(text(), 40);
    case Kind::string:
      return fmt::format("\"{}\"", printable(text(), 40));
    case Kind::array:
      return items().empty() ? "an empty array" : fmt::format("an array of {}", items().size());
    case Kind::object:
      return keys().empty() ? "an empty object" : "an object";
  }
  return "?";
}

std::string pointer_to(const std::string& pointer, std::string_view key) {
  std::string out = pointer + '/';
  for (const char c : key) {
    if (c == '~')
      out += "~0";
    else if (c == '/')
      out += "~1";
    else
      out += c;
  }
  return out;
}

// Receives the events of the JSON reader, which does not recurse, and stops it at the first error.
class DocumentBuilder {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  bool null() { return place(Value::Kind::null) != nullptr; }
  bool boolean(bool value) {
    Value* v = place(Value::Kind::boolean);
    if (v) v->boolean = value;
    return v;
  }
  bool number_integer(number_integer_t value) {
    Value* v = place(Value::Kind::integer);
    if (v) v->integer = value;
    return v;
  }
  bool number_unsigned(number_unsigned_t value) {
    const bool fits = value <= static_cast<uint64_t>(INT64_MAX);
    Value* v = place(fits ? Value::Kind::integer : Value::Kind::big_integer);
    if (v && fits) v->integer = static_cast<int64_t>(value);
    if (v && !fits) v->big_integer = value;
    return v;
  }
  bool number_float(number_float_t value, const string_t& digits) {
    Value* v = place(Value::Kind::real);
    if (!v) return false;
    v->real = value;
    v->more_->text = digits;
    return true;
  }
  bool string(string_t& value) {
    Value* v = place(Value::Kind::string);
    if (v) v->more_->text = std::move(value);
    return v;
  }
  bool binary(binary_t&) { return false; }  // not in JSON texts
  bool start_object(size_t) { return open(Value::Kind::object); }
  bool start_array(size_t) { return open(Value::Kind::array); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(string_t& name);
  bool parse_error(size_t, const std::string& token, const nlohmann::json::exception& error);

  Result<Value> finish() && {
    if (error_) return std::move(*error_);
    return std::move(root_);
  }

 private:
  // A new value at the present place; null after an error.
  Value* place(Value::Kind kind);
  bool open(Value::Kind kind);
  bool close() {
    open_.pop_back();
    return true;
  }
  bool fail(const std::string& pointer, std::string_view text) {
    error_ = spec_error(pointer, text);
    return false;
  }
  std::string here() const;

  Value root_;
  std::vector<Value*>
      open_;  // arrays and objects not yet closed; none grows while one inside is open
  size_t values_ = 0;
  std::optional<Error> error_;
};

Value* DocumentBuilder::place(Value::Kind kind) {
  if (++values_ > kMaxSpecValues) {
    fail("", fmt::format("found more than {} values; allowed fewer", kMaxSpecValues));
    return nullptr;
  }
  Value* v = &root_;
  if (!open_.empty()) v = &open_.back()->more_->items.emplace_back();
  v->kind = kind;
  if (kind >= Value::Kind::real) v->more_ = std::make_unique<Value::More>();
  return v;
}

bool DocumentBuilder::open(Value::Kind kind) {
  if (open_.size() >= kMaxSpecDepth)
    return fail(here(), fmt::format("found arrays or objects nested more than {} deep; allowed "
                                    "less nesting",
                                    kMaxSpecDepth));
  Value* v = place(kind);
  if (v) open_.push_back(v);
  return v;
}

bool DocumentBuilder::key(string_t& name) {
  auto& keys = open_.back()->more_->keys;
  if (std::find(keys.begin(), keys.end(), name) != keys.end()) {
    const std::string at = here();
    return fail(pointer_to(at, name),
                fmt::format("found the key \"{}\" twice; allowed once", printable(name, 40)));
  }
  if (keys.size() >= kMaxObjectKeys)
    return fail(here(), fmt::format("found more than {} keys; allowed fewer", kMaxObjectKeys));
  keys.push_back(std::move(name));
  return true;
}

// Pointer to the innermost open array or object.
std::string DocumentBuilder::here() const {
  std::string pointer;
  for (size_t i = 0; i + 1 < open_.size(); ++i) {
    const Value& v = *open_[i];
    pointer = v.is(Value::Kind::object) ? pointer_to(pointer, v.keys().back())
                                        : fmt::format("{}/{}", pointer, v.items().size() - 1);
  }
  return pointer;
}

bool DocumentBuilder::parse_error(size_t, const std::string& token,
                                  const nlohmann::json::exception& error) {
  if (error_) return false;
  if (error.id == 406) {  // a number beyond double
    std::string at = here();
    if (!open_.empty()) {
      const Value& v = *open_.back();
      at = v.is(Value::Kind::object) ? pointer_to(at, v.keys().back())
                                     : fmt::format("{}/{}", at, v.items().size());
    }
    return fail(at, fmt::format("found {}; allowed a finite number", printable(token, 40)));
  }
  // "[...] parse error at line 1, column 2: syntax error while parsing value - what; last read:
  // ..."
  std::string_view what = error.what();
  const auto skip_past = [&what](std::string_view mark) {
    const size_t at = what.find(mark);
    if (at != what.npos) what.remove_prefix(at + mark.size());
  };
  skip_past("parse error at ");
  const size_t colon = what.find(": ");
  const std::string place = printable(colon == what.npos ? "" : what.substr(0, colon));
  skip_past(": ");
  skip_past("syntax error while parsing ");
  const bool comment = token.size() >= 1 && token.back() == '/';
  return fail("", fmt::format("found invalid JSON at {}: {}; allowed RFC 8259 JSON{}",
                              place.empty() ? "an unknown place" : place, printable(what, 160),
                              comment ? " (it has no comments)" : ""));
}

Result<Value> parse_document(std::string_view text) {
  if (text.size() > kMaxSpecBytes)
    return spec_error("", fmt::format("found a text of {} bytes; allowed at most {}", text.size(),
                                      kMaxSpecBytes));
  if (text.find_first_not_of(" \t\r\n") == text.npos)
    return spec_error("", "found an empty text; allowed a JSON object, or an array of them");
  if (const size_t nul = text.find('\0'); nul != text.npos)  // the JSON reader would stop there
    return spec_error("", fmt::format("found a zero byte at offset {}; allowed JSON text", nul));
  DocumentBuilder builder;
  try {
    if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) {
      Result<Value> result = std::move(builder).finish();
      if (result.ok()) return spec_error("", "found a text that could not be read; allowed JSON");
      return result;
    }
    return std::move(builder).finish();
  } catch (const std::exception& e) {  // no memory
    return spec_error("", fmt::format("found a text that could not be read ({}); allowed JSON",
                                      printable(e.what())));
  }
}

}  // namespace hstu::jit
