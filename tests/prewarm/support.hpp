// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of the prewarm room.
#pragma once

#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "base/temp_dir.hpp"
#include "catch.hpp"
#include "prewarm/jobs.hpp"
#include "prewarm/manifest.hpp"

namespace hstu::jit::test {

// Sets or, with "", unsets a variable for as long as it lives.
class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    const char* old = std::getenv(name);
    had_ = old != nullptr;
    if (had_) old_ = old;
    value.empty() ? ::unsetenv(name) : ::setenv(name, value.c_str(), 1);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() { had_ ? ::setenv(name_, old_.c_str(), 1) : ::unsetenv(name_); }

 private:
  const char* name_;
  std::string old_;
  bool had_ = false;
};

inline TempDir folder() {
  Result<TempDir> dir = TempDir::create("hstu-prewarm-test-");
  REQUIRE(dir.ok());
  return std::move(*dir);
}

inline bool one_line(const std::string& text) {
  for (const char c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return false;
  return !text.empty() && text.size() < 2000;
}

using Files = std::map<std::string, std::string>;

inline Result<Manifest> read(const std::string& text, const Files& files = {}) {
  return parse_manifest(text, "dir", [&files](const std::string& path) -> Result<std::string> {
    const auto at = files.find(path);
    if (at != files.end()) return at->second;
    return Error{ErrorKind::kFailed, "cannot read " + path + ": no such file", "", ""};
  });
}

inline Manifest good(const std::string& text, const Files& files = {}) {
  Result<Manifest> manifest = read(text, files);
  if (!manifest) FAIL(manifest.error().message);
  return std::move(*manifest);
}

inline Error bad(const std::string& text, const Files& files = {}) {
  const Result<Manifest> manifest = read(text, files);
  if (manifest) FAIL("was accepted: " << text);
  CHECK(manifest.error().kind == ErrorKind::kSpec);
  CHECK(one_line(manifest.error().message));
  return manifest.error();
}

// A manifest of these entries.
inline std::string manifest_of(const std::string& entries, const std::string& more = "") {
  return R"({"schema": "hstu-jit/manifest/1", )" + more + R"("specs": [)" + entries + "]}";
}

inline const std::string kBase =
    R"({"op": "hstu_attention", "heads": 2, "head_dim_qk": 64, "uih_lengths": [40, 9]})";

inline JobList expanded(const Manifest& manifest, const std::vector<std::string>& only = {}) {
  Result<JobList> list = expand(manifest, only, {});
  if (!list) FAIL(list.error().message);
  return std::move(*list);
}

}  // namespace hstu::jit::test
