// SPDX-License-Identifier: Apache-2.0
// Shipped specs with random bytes changed: valid, or refused in one line.
#include <random>

#include "support.hpp"

namespace hstu::jit::test {
namespace {

// A short run of bytes of the text itself, or of bytes that matter to JSON and to numbers.
std::string scrap(std::mt19937& random, const std::string& text) {
  static const std::vector<std::string> kScraps{"{",
                                                "}",
                                                "[",
                                                "]",
                                                ",",
                                                ":",
                                                "\"",
                                                "\\",
                                                "-",
                                                ".",
                                                "e",
                                                "0",
                                                "9",
                                                "null",
                                                "true",
                                                "\n",
                                                std::string(1, '\0'),
                                                "\xff",
                                                "\xc3",
                                                "1e308",
                                                "4294967296",
                                                "\"op\":",
                                                "[[[[[[[["};
  if (random() % 2) return kScraps[random() % kScraps.size()];
  const size_t at = random() % text.size();
  return text.substr(at, 1 + random() % 12);
}

std::string mutated(std::mt19937& random, std::string text) {
  const int edits = 1 + static_cast<int>(random() % 3);
  for (int i = 0; i < edits && !text.empty(); ++i) {
    const size_t at = random() % text.size();
    switch (random() % 4) {
      case 0:
        text[at] = static_cast<char>(random() % 256);
        break;
      case 1:
        text.erase(at, 1 + random() % 8);
        break;
      case 2:
        text.insert(at, scrap(random, text));
        break;
      default:
        text.replace(at, 1, scrap(random, text));
    }
  }
  return text;
}

}  // namespace

TEST_CASE("random edits of shipped specs give a valid spec or a one-line error") {
  std::mt19937 random(97);
  int refused = 0, accepted = 0;
  for (const std::string& path : shipped_specs()) {
    std::string original = contents(path);
    // The first problems of a long suite are as good as all of them.
    if (original.size() > 2500 && original.front() == '[')
      original = original.substr(0, original.rfind(",\n", 2500)) + "\n]\n";
    REQUIRE(parse_spec(original, "").ok());
    for (int i = 0; i < 300; ++i) {
      const std::string text = mutated(random, original);
      auto spec = parse_spec(text, "");
      if (!spec.ok()) {
        ++refused;
        INFO(text);
        INFO(spec.error().message);
        REQUIRE(spec.error().kind == ErrorKind::kSpec);
        REQUIRE(one_line(spec.error().message));
        continue;
      }
      ++accepted;
      for (const Problem& p : spec->problems) {
        INFO(to_json(p).substr(0, 2000));
        REQUIRE(check_geometry(p).ok());
        REQUIRE(parse_spec(to_json(p), "")->problems[0] == p);
      }
    }
  }
  CHECK(refused > 1000);
  CHECK(accepted > 100);
}

}  // namespace hstu::jit::test
