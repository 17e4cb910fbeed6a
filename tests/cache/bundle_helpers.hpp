// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of bundles.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "base/subprocess.hpp"
#include "cache/bundle.hpp"
#include "cache/entry.hpp"
#include "helpers.hpp"

namespace hstu::cache::test {

// Entry number `i`, for gfx90a, with a source of its own; its name has two toolchains when wanted.
inline Artifact kernel(int i, char toolchain = 'c', size_t payload = 700) {
  Artifact made;
  made.ingredients = {{"target", i % 2 == 0 ? "gfx90a" : "gfx942"},
                      {"entry", "kernel_" + std::to_string(i)},
                      {"source", "body " + std::to_string(i)}};
  made.key = {request_digest(made.ingredients), std::string(64, toolchain)};
  made.metadata = R"({"entry":"f"})";
  made.payload = std::string(payload + static_cast<size_t>(i), static_cast<char>('a' + i % 26));
  return made;
}

inline std::string encoded(const Artifact& artifact) {
  auto bytes = encode_entry(artifact);
  REQUIRE(bytes.ok());
  return std::move(*bytes);
}

inline std::vector<std::string> kernels(int count) {
  std::vector<std::string> list;
  for (int i = 0; i < count; ++i) list.push_back(encoded(kernel(i)));
  return list;
}

inline BundleNotes notes() {
  BundleNotes notes;
  notes.producer = "test 1";
  notes.requested = {R"({"spec": {"heads": 2}, "target": "gfx90a"})", R"({"target":"gfx942"})"};
  notes.failed = {{"ranking/large", "gfx942", "no compiler\nfor it"}};
  return notes;
}

// Without fsync: for files that are only read in the test.
inline void put(const std::string& path, const std::string& bytes) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  REQUIRE(file != nullptr);
  REQUIRE(std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size());
  REQUIRE(std::fclose(file) == 0);
}

inline std::string get(const std::string& path) {
  auto bytes = hstu::jit::read_file(path);
  REQUIRE(bytes.ok());
  return std::move(*bytes);
}

inline Bundle open_bundle(const std::string& path_and_pin) {
  auto bundle = Bundle::open(path_and_pin);
  if (!bundle.ok()) FAIL(bundle.error().message);
  return std::move(*bundle);
}

// Output of a program that has to succeed.
inline std::string output_of(std::vector<std::string> argv) {
  hstu::jit::ProcessOptions options;
  options.argv = std::move(argv);
  auto result = hstu::jit::run_process(options);
  if (!result.ok()) FAIL(result.error().message);
  INFO(options.argv[0] << ": " << result->how_it_ended() << " " << result->errors);
  REQUIRE(result->succeeded());
  return result->output;
}

// One line that names the file and what is wrong.
inline void check_error(const hstu::jit::Error& error, const std::string& path,
                        const std::string& words, hstu::jit::ErrorKind kind) {
  INFO(error.message);
  CHECK(error.kind == kind);
  CHECK(error.message.find('\n') == std::string::npos);
  CHECK(error.message.find(path) != std::string::npos);
  CHECK(error.message.find(words) != std::string::npos);
}

// The file does not open, with these words.
inline void check_unusable(const std::string& path, const std::string& words) {
  const auto bundle = Bundle::open(path);
  INFO("expected: " << words);
  REQUIRE_FALSE(bundle.ok());
  check_error(bundle.error(), path.substr(0, path.find('@')), words, hstu::jit::ErrorKind::kCache);
}

}  // namespace hstu::cache::test
