// SPDX-License-Identifier: Apache-2.0
#include "prewarm/sweep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/text.hpp"
#include "spec/document.hpp"

namespace hstu::jit {
namespace {

constexpr size_t kMaxAxes = 32;
constexpr size_t kMaxTokens = 8;  // specs are not nested deeper

// The tokens of a JSON pointer (RFC 6901); nothing where it is none, or the whole document.
std::optional<std::vector<std::string>> tokens_of(const std::string& pointer) {
  if (pointer.empty() || pointer.front() != '/') return std::nullopt;
  std::vector<std::string> tokens;
  for (size_t i = 0; i < pointer.size(); ++i) {
    const char c = pointer[i];
    if (c == '/') {
      if (tokens.size() == kMaxTokens) return std::nullopt;
      tokens.emplace_back();
    } else if (c == '~') {
      const char code = i + 1 < pointer.size() ? pointer[i + 1] : '\0';
      if (code != '0' && code != '1') return std::nullopt;
      tokens.back() += code == '0' ? '~' : '/';
      ++i;
    } else {
      tokens.back() += c;
    }
  }
  return tokens;
}

// One contains the other, or they are the same place.
bool overlap(const SweepAxis& a, const SweepAxis& b) {
  const size_t common = std::min(a.tokens.size(), b.tokens.size());
  return std::equal(a.tokens.begin(), a.tokens.begin() + static_cast<ptrdiff_t>(common),
                    b.tokens.begin());
}

Error value_error(std::string message) {
  return Error{ErrorKind::kSpec, std::move(message), "", ""};
}

}  // namespace

Error manifest_error(const std::string& pointer, std::string_view text) {
  Error error;
  error.kind = ErrorKind::kSpec;
  error.pointer = pointer;
  error.message =
      fmt::format("{}: {}", pointer.empty() ? "manifest" : printable(pointer, 120), text);
  return error;
}

std::string describe(const ManifestJson& value) {
  switch (value.type()) {
    case ManifestJson::value_t::object:
      return value.empty() ? "an empty object" : "an object";
    case ManifestJson::value_t::array:
      return value.empty() ? "an empty array" : fmt::format("an array of {}", value.size());
    case ManifestJson::value_t::string:
      return fmt::format("\"{}\"", printable(value.get_ref<const std::string&>(), 40));
    default:
      return printable(value.dump(), 40);
  }
}

Result<std::vector<SweepAxis>> read_axes(const ManifestJson& set, const std::string& at) {
  if (!set.is_object() || set.empty())
    return manifest_error(at, fmt::format("found {}; allowed an object of JSON pointers, each "
                                          "with a list of values",
                                          describe(set)));
  if (set.size() > kMaxAxes)
    return manifest_error(
        at, fmt::format("found {} pointers; allowed at most {}", set.size(), kMaxAxes));
  std::vector<SweepAxis> axes;
  for (const auto& [pointer, values] : set.items()) {
    const std::string here = pointer_to(at, pointer);
    auto tokens = tokens_of(pointer);
    if (!tokens)
      return manifest_error(
          here, fmt::format("found the key \"{}\"; allowed a JSON pointer into the spec, as "
                            "\"/head_dim_qk\" or \"/mask/causal\"",
                            printable(pointer, 40)));
    if (!values.is_array() || values.empty())
      return manifest_error(
          here, fmt::format("found {}; allowed a list of at least one value", describe(values)));
    SweepAxis axis{pointer, std::move(*tokens), {values.begin(), values.end()}};
    for (const SweepAxis& other : axes)
      if (overlap(axis, other))
        return manifest_error(here, fmt::format("found it beside \"{}\"; allowed places that do "
                                                "not contain each other",
                                                printable(other.pointer, 60)));
    axes.push_back(std::move(axis));
  }
  return axes;
}

size_t combinations(const std::vector<SweepAxis>& axes, size_t limit) {
  size_t count = 1;
  for (const SweepAxis& axis : axes) {
    if (axis.values.size() > limit / count) return limit + 1;
    count *= axis.values.size();
  }
  return count;
}

std::vector<size_t> choice_of(const std::vector<SweepAxis>& axes, size_t number) {
  std::vector<size_t> choice(axes.size());
  for (size_t i = axes.size(); i-- > 0;) {
    choice[i] = number % axes[i].values.size();
    number /= axes[i].values.size();
  }
  return choice;
}

Status set_value(ManifestJson& spec, const SweepAxis& axis, const ManifestJson& value) {
  ManifestJson* place = &spec;
  for (const std::string& token : axis.tokens) {
    if (place->is_null()) *place = ManifestJson::object();
    if (place->is_object()) {
      if (!place->contains(token) && place->size() >= kMaxObjectKeys)
        return value_error("found too many keys; allowed fewer");
      place = &(*place)[token];
      continue;
    }
    if (!place->is_array())
      return value_error(fmt::format("found {} above \"{}\" in the base; allowed an object",
                                     describe(*place), printable(token, 40)));
    size_t index = 0;
    const char* end = token.data() + token.size();
    const auto [stop, fault] = std::from_chars(token.data(), end, index);
    const bool number =
        fault == std::errc() && stop == end && (token.size() == 1 || token[0] != '0');
    if (!number || index >= place->size())
      return value_error(fmt::format("found no element \"{}\" in the base, whose list has {}",
                                     printable(token, 40), place->size()));
    place = &(*place)[index];
  }
  *place = value;
  return {};
}

}  // namespace hstu::jit
