// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of the compile room.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "base/file.hpp"
#include "base/subprocess.hpp"
#include "base/temp_dir.hpp"
#include "catch.hpp"
#include "compile/compile.hpp"
#include "target/target.hpp"

namespace hstu::jit::test {

namespace fs = std::filesystem;

class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    const char* old = std::getenv(name);
    had_ = old != nullptr;
    if (had_) old_ = old;
    ::setenv(name, value.c_str(), 1);
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
  Result<TempDir> dir = TempDir::create("hstu-compile-test-");
  REQUIRE(dir.ok());
  return std::move(*dir);
}

inline Target target(const std::string& name) {
  Result<Target> found = find_target(name);
  REQUIRE(found.ok());
  return *found;
}

inline Source source(const std::string& body, const std::string& entry = "twice") {
  Source made;
  made.head = "// a comment for people\n";
  made.body = body;
  made.entry = entry;
  return made;
}

constexpr const char* kGpuKernel = R"(#if defined(__CUDACC_RTC__) || defined(__HIPCC_RTC__)
#define KERNEL extern "C" __global__
#else
#define KERNEL extern "C" __attribute__((global))
#endif
KERNEL void twice(float* p, int n) {
  for (int i = 0; i < n; ++i) p[i] *= 2.0f;
}
)";
constexpr const char* kHostKernel = R"(extern "C" void twice(float* p, int n) {
  for (int i = 0; i < n; ++i) p[i] *= 2.0f;
}
)";

inline size_t count_entries(const std::string& path, const std::string& prefix) {
  size_t count = 0;
  for (const auto& entry : fs::directory_iterator(path)) {
    if (entry.path().filename().string().rfind(prefix, 0) == 0) ++count;
  }
  return count;
}

// A fake worker of this behaviour (see fake_worker.cpp) in a folder of its own.
class FakeWorker {
 public:
  explicit FakeWorker(const std::string& mode)
      : path_(dir_.path() + "/" + mode), variable_("HSTU_JIT_WORKER", path_) {
    fs::create_symlink(HSTU_FAKE_WORKER, path_);
  }
  size_t runs() const {
    std::error_code none;
    const auto size = fs::file_size(path_ + ".runs", none);
    return none ? 0 : size;
  }
  std::string path() const { return path_; }

 private:
  TempDir dir_ = folder();
  std::string path_;
  Environment variable_;
};

// find_toolchain in a process of its own, which has no memory but the folder's. The id, or "".
inline std::string id_in_new_process(const std::string& target_name, const std::string& state_dir) {
  ProcessOptions options;
  options.argv = {HSTU_PRINT_TOOLCHAIN, target_name, state_dir};
  Result<ProcessResult> result = run_process(options);
  REQUIRE(result.ok());
  CHECK((result->exit_code == 0 || result->exit_code == 5));
  return result->output;
}

// Within two seconds; a zombie is gone.
inline bool gone(pid_t pid) {
  for (int i = 0; i < 200; ++i) {
    if (::kill(pid, 0) != 0) return true;
    char state = 0;
    if (FILE* file = std::fopen(("/proc/" + std::to_string(pid) + "/stat").c_str(), "r")) {
      if (std::fscanf(file, "%*d %*s %c", &state) != 1) state = 0;
      std::fclose(file);
    }
    if (state == 'Z') return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

inline std::string one_line(const Error& error) {
  CHECK(error.kind == ErrorKind::kCompile);
  CHECK(error.message.find('\n') == std::string::npos);
  CHECK(error.message.size() < 3000);
  return error.message;
}

}  // namespace hstu::jit::test
