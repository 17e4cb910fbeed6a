// SPDX-License-Identifier: Apache-2.0
// Error values and Result<T>: how every room reports failure. Exceptions are for programming
// errors.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace hstu::jit {

// The kind of a failure; its value is the exit code of the command line.
enum class ErrorKind : int {
  kFailed = 1,       // the run failed for a reason none of the others names
  kUsage = 2,        // bad command line
  kSpec = 3,         // the spec is invalid for every target
  kUnsupported = 4,  // valid, but this target or device cannot run it
  kCompile = 5,      // no compiler, or it rejected, crashed on or hung on the source
  kMismatch = 6,     // validation found a wrong result
  kDevice = 7,       // no device, or a device call failed
  kCache = 8,        // cache or bundle unusable, or a miss while sealed
  kTimeout = 9,      // a bounded wait ran out
  kInternal = 70,    // a broken promise of our own
};

// "spec", "compile", ... as printed in JSON.
const char* error_kind_name(ErrorKind kind);
inline int exit_code(ErrorKind kind) { return static_cast<int>(kind); }

struct Error {
  ErrorKind kind = ErrorKind::kInternal;
  std::string message;  // one line: what is wrong, where, what to do
  std::string pointer;  // JSON pointer into the spec, where there is one
  std::string detail;   // many lines: compiler log, reproducing command; may be empty

  // Puts "context: " in front of the message.
  Error with_context(const std::string& context) &&;
};

// Either a value or an Error. Test it before use: value() of an error terminates the program.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }

  Error& error() & { return std::get<1>(state_); }
  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

// Success or an Error.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::move(error)) {}
  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  Error& error() & { return *error_; }
  const Error& error() const& { return *error_; }
  Error&& error() && { return std::move(*error_); }

 private:
  std::optional<Error> error_;
};

}  // namespace hstu::jit
