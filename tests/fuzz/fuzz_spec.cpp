// SPDX-License-Identifier: Apache-2.0
// Any bytes are a valid spec or a one-line error; a valid one has a geometry, and comes back equal
// from its canonical JSON. Seeds: tests/data/specs.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "spec/geometry.hpp"
#include "spec/parse.hpp"

namespace {

void expect(bool holds, const char* what, const std::string& text) {
  if (holds) return;
  std::fprintf(stderr, "%s\n%s\n", what, text.c_str());
  std::abort();
}

bool one_line(const std::string& message) {
  for (const char c : message)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return false;
  return !message.empty() && message.size() < 1000;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hstu::jit;
  auto spec = parse_spec({reinterpret_cast<const char*>(data), size}, "folder");
  if (!spec.ok()) {
    expect(spec.error().kind == ErrorKind::kSpec, "not kSpec", spec.error().message);
    expect(one_line(spec.error().message), "not one line", spec.error().message);
    return 0;
  }
  for (const Problem& p : spec->problems) {
    if (p.batch > 4096) continue;  // slow, and no different
    const std::string text = to_json(p);
    auto geometry = make_geometry(p);
    expect(geometry.ok(), "parsed, but without a geometry", text);
    const int64_t visible = visible_pairs(*geometry);
    expect(visible >= 0 && visible <= dense_pairs(*geometry), "pairs out of range", text);
    auto back = parse_spec(text, "");
    expect(back.ok() && back->problems.size() == 1, "does not read back", text);
    expect(back->problems[0] == p, "reads back differently", text);
  }
  return 0;
}
