// SPDX-License-Identifier: Apache-2.0
// Invalid specs: each gives kSpec, one line that starts with the place, and the pointer to it.
#include <nlohmann/json.hpp>
#include <set>

#include "support.hpp"

namespace hstu::jit::test {
namespace {

struct BadSpec {
  std::string name, text, pointer, says;
};

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

std::vector<BadSpec> bad_specs() {
  std::vector<BadSpec> list;
  for (const auto& b : nlohmann::json::parse(contents(HSTU_TEST_DATA "/bad_specs/bad_specs.json")))
    list.push_back(
        {b["name"].get<std::string>(),
         b.contains("hex") ? from_hex(b["hex"].get<std::string>()) : b["text"].get<std::string>(),
         b["pointer"].get<std::string>(), b["says"].get<std::string>()});
  return list;
}

}  // namespace

TEST_CASE("every bad spec is refused in one line with its place and what is allowed") {
  const auto list = bad_specs();
  CHECK(list.size() >= 80);
  for (const BadSpec& bad : list) {
    INFO(bad.name << ": " << bad.text);
    auto spec = parse_spec(bad.text, "");
    REQUIRE_FALSE(spec.ok());
    const Error& e = spec.error();
    INFO(e.message);
    CHECK(e.kind == ErrorKind::kSpec);
    CHECK(e.pointer == bad.pointer);
    CHECK(one_line(e.message));
    CHECK_THAT(e.message, ContainsSubstring(bad.says));
    CHECK_THAT(e.message, ContainsSubstring("found "));
    CHECK_THAT(e.message, ContainsSubstring("allowed "));
    if (one_line(bad.pointer)) CHECK(e.message.rfind(bad.pointer + ": ", 0) == 0);
    if (bad.pointer.empty()) CHECK(e.message.rfind("spec: ", 0) == 0);
  }
}

TEST_CASE("the same faults inside a suite point into the suite") {
  const std::string good = spec_text(R"("uih_lengths": 1)");
  int moved = 0;
  for (const BadSpec& bad : bad_specs()) {
    if (bad.text.empty() || bad.text.front() != '{' || bad.pointer.empty()) continue;
    INFO(bad.name);
    const Error e = error_of("[" + good + ", " + bad.text + "]");
    CHECK(e.pointer == "/1" + bad.pointer);
    CHECK(one_line(e.message));
    ++moved;
  }
  CHECK(moved > 80);
}

TEST_CASE("a truncated spec is refused wherever it is cut") {
  const std::string text = contents(HSTU_TEST_DATA "/specs/quickstart.json");
  const size_t end = text.rfind('}');
  for (size_t length = 0; length <= end; ++length) {
    INFO(length);
    auto spec = parse_spec(text.substr(0, length), "");
    REQUIRE_FALSE(spec.ok());
    CHECK(one_line(spec.error().message));
  }
  CHECK(parse_spec(text.substr(0, end + 1), "").ok());
}

}  // namespace hstu::jit::test
