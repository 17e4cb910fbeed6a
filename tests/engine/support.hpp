// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of the engine.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "base/temp_dir.hpp"
#include "catch.hpp"
#include "engine/engine.hpp"
#include "spec/parse.hpp"

namespace hstu::jit::test {

struct Case {
  Problem problem;
  Geometry geometry;
};

inline Case case_of(const std::string& json) {
  Result<ParsedSpec> spec = parse_spec(json, ".");
  if (!spec) FAIL(spec.error().message);
  Problem p = spec->problems.front();
  Geometry g = *make_geometry(p);
  return {p, g};
}

inline const char* const kShort = R"({"op": "hstu_attention", "heads": 2, "head_dim_qk": 16,
                                      "uih_lengths": [5, 9]})";
inline const char* const kLong = R"({"op": "hstu_attention", "name": "other", "heads": 3,
    "head_dim_qk": 16, "uih_lengths": [70, 1, 0], "data": {"seed": 2}})";

// Specs with kernels of their own, numbered.
inline std::string numbered_spec(int number) {
  return R"({"op": "hstu_attention", "heads": 1, "uih_lengths": [5], "head_dim_qk": )" +
         std::to_string(8 * (1 + number % 8)) + R"(, "head_dim_v": )" +
         std::to_string(8 * (1 + number / 8)) + "}";
}

// Sets a variable for a scope.
class ScopedEnv {
 public:
  ScopedEnv(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    setenv(name, value.c_str(), 1);
  }
  ScopedEnv(const ScopedEnv&) = delete;
  ScopedEnv& operator=(const ScopedEnv&) = delete;
  ~ScopedEnv() {
    if (old_)
      setenv(name_, old_->c_str(), 1);
    else
      unsetenv(name_);
  }

 private:
  const char* name_;
  std::optional<std::string> old_;
};

inline TempDir folder() {
  Result<TempDir> dir = TempDir::create("hstu-engine-test-");
  if (!dir) FAIL(dir.error().message);
  return std::move(*dir);
}

inline EngineOptions options_in(const std::string& dir,
                                cache::Mode mode = cache::Mode::read_write) {
  EngineOptions options;
  options.cache_dir = dir;
  options.cache_mode = mode;
  return options;
}

inline std::unique_ptr<Engine> engine_of(const EngineOptions& options) {
  Result<std::unique_ptr<Engine>> engine = Engine::create(options);
  if (!engine) FAIL(engine.error().message);
  return std::move(*engine);
}

inline std::unique_ptr<Engine> engine_in(const std::string& dir,
                                         cache::Mode mode = cache::Mode::read_write) {
  return engine_of(options_in(dir, mode));
}

inline Result<Prepared> prepare(Engine& engine, const std::string& json,
                                const char* target = "cpu") {
  const Case c = case_of(json);
  return engine.prepare(c.problem, c.geometry, *find_target(target));
}

inline std::vector<std::string> entries(const std::string& dir) {
  std::vector<std::string> found;
  for (const auto& e : std::filesystem::recursive_directory_iterator(dir))
    if (e.path().extension() == ".hko") found.push_back(e.path());
  return found;
}

// A compile worker of this behaviour (tests/compile/fake_worker.cpp) for as long as it lives. With
// "tiny", every compile takes 50 ms or more, gives a small object with the kernel's name and is
// written to a log.
class FakeWorker {
 public:
  explicit FakeWorker(const std::string& mode)
      : path_(dir_.path() + "/" + mode), variable_("HSTU_JIT_WORKER", path_) {
    std::filesystem::create_symlink(HSTU_FAKE_WORKER, path_);
  }
  // Names of the kernels compiled, in order.
  std::vector<std::string> compiled() const {
    const Result<std::string> log = read_file(path_ + ".log");
    std::vector<std::string> names;
    for (size_t at = 0; log && at < log->size();) {
      const size_t end = log->find('\n', at);
      names.push_back(log->substr(at, end - at));
      at = end == std::string::npos ? log->size() : end + 1;
    }
    return names;
  }

 private:
  TempDir dir_ = folder();
  std::string path_;
  ScopedEnv variable_;
};

}  // namespace hstu::jit::test
