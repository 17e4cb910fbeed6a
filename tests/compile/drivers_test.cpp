// SPDX-License-Identifier: Apache-2.0
// Every compiler found here, for real: objects, determinism, diagnostics.
#include <dlfcn.h>

#include <thread>
#include <vector>

#include "base/subprocess.hpp"
#include "helpers.hpp"

using namespace hstu::jit;
using namespace hstu::jit::test;

namespace {

struct Case {
  const char* target;
  Driver driver;
  int machine;  // e_machine of the object
};

constexpr Case kCases[] = {
    {"gfx90a", Driver::hiprtc, 224}, {"gfx908", Driver::hiprtc, 224},
    {"gfx942", Driver::clang, 224},  {"gfx1100", Driver::clang, 224},
    {"sm_80", Driver::nvrtc, 190},   {"sm_90a", Driver::nvrtc, 190},
};

int machine(const std::string& elf) {
  return elf.size() < 20
             ? -1
             : static_cast<unsigned char>(elf[18]) | static_cast<unsigned char>(elf[19]) << 8;
}

// The toolchain of this case, or nothing after saying why it is skipped.
std::optional<Toolchain> toolchain_or_skip(const Case& each) {
  Result<Toolchain> found = find_toolchain(target(each.target), "");
  if (found.ok()) return *found;
  std::printf("SKIPPED: compile for %s: %s\n", each.target, found.error().message.c_str());
  return std::nullopt;
}

std::string compile_bytes(const Case& each, const Toolchain& toolchain) {
  Result<CodeObject> object = compile(source(kGpuKernel), target(each.target), toolchain, {});
  if (!object.ok()) UNSCOPED_INFO(object.error().message << "\n" << object.error().detail);
  REQUIRE(object.ok());
  CHECK(object->milliseconds > 0);
  return object->bytes;
}

}  // namespace

TEST_CASE("GPU objects: right machine, same bytes twice and from another folder") {
  for (const Case& each : kCases) {
    const auto toolchain = toolchain_or_skip(each);
    if (!toolchain) continue;
    INFO(each.target << " by " << toolchain->version);
    CHECK(toolchain->id.size() == 64);
    CHECK_FALSE(toolchain->version.empty());
    const std::string first = compile_bytes(each, *toolchain);
    CHECK(machine(first) == each.machine);
    CHECK(first.find("twice") != std::string::npos);
    const auto elsewhere = folder();
    const fs::path here = fs::current_path();
    fs::current_path(elsewhere.path());
    const Environment temporary("TMPDIR", elsewhere.path());
    const std::string second = compile_bytes(each, *toolchain);
    fs::current_path(here);
    CHECK(first == second);
  }
}

TEST_CASE("hipRTC serves the targets it knows, clang the others") {
  for (const Case& each : kCases) {
    const auto toolchain = toolchain_or_skip(each);
    // A newer hipRTC may know the targets that clang is listed for.
    if (toolchain && each.driver != Driver::clang) CHECK(toolchain->driver == each.driver);
  }
}

TEST_CASE("host objects run, and do not depend on where they were made") {
  const Target cpu = target("cpu");
  Result<Toolchain> toolchain = find_toolchain(cpu, "");
  if (!toolchain.ok()) UNSCOPED_INFO(toolchain.error().message);
  REQUIRE(toolchain.ok());
  Result<CodeObject> object = compile(source(kHostKernel), cpu, *toolchain, {});
  REQUIRE(object.ok());
  const auto dir = folder();
  const fs::path here = fs::current_path();
  fs::current_path(dir.path());
  Result<CodeObject> again = compile(source(kHostKernel), cpu, *toolchain, {});
  fs::current_path(here);
  REQUIRE(again.ok());
  CHECK(object->bytes == again->bytes);
  CHECK(object->bytes.find(dir.path()) == std::string::npos);

  const std::string path = dir.path() + "/twice.so";
  REQUIRE(write_file_atomic(path, object->bytes, 0700).ok());
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  auto* twice = reinterpret_cast<void (*)(float*, int)>(::dlsym(library, "twice"));
  REQUIRE(twice != nullptr);
  std::vector<float> values{1, 2.5f, -3, 0, 1e30f};
  twice(values.data(), 5);
  CHECK(values == std::vector<float>{2, 5, -6, 0, 2e30f});
  ::dlclose(library);
}

TEST_CASE("compiles at once in several threads give the same bytes") {
  const auto toolchain = toolchain_or_skip(kCases[0]);
  if (!toolchain) return;
  std::vector<std::string> objects(3);
  std::vector<std::thread> threads;
  const Target gfx = target(kCases[0].target);
  for (std::string& bytes : objects) {
    threads.emplace_back([&] {
      Result<CodeObject> object = compile(source(kGpuKernel), gfx, *toolchain, {});
      if (object.ok()) bytes = object->bytes;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_FALSE(objects[0].empty());
  CHECK(objects[0] == objects[1]);
  CHECK(objects[0] == objects[2]);
}

TEST_CASE("a rejected source: file and line, kept source, a command that reproduces it") {
  const auto dir = folder();
  const Environment temporary("TMPDIR", dir.path());
  std::vector<const char*> names{"cpu"};
  for (const Case& each : kCases) names.push_back(each.target);
  for (const char* name : names) {
    Result<Toolchain> toolchain = find_toolchain(target(name), "");
    if (!toolchain.ok()) continue;  // counted above
    INFO(name);
    const Source broken = source("#line 7 \"templates/some/file.h\"\ntypedef nothing broken;\n");
    Result<CodeObject> object = compile(broken, target(name), *toolchain, {});
    REQUIRE_FALSE(object.ok());
    CHECK_THAT(one_line(object.error()), ContainsSubstring("templates/some/file.h:7"));
    CHECK_THAT(object.error().message, ContainsSubstring("error:"));
    CHECK_THAT(object.error().message, ContainsSubstring("nothing"));
    const std::string& detail = object.error().detail;
    const size_t at = detail.find("source: ") + 8;
    const std::string kept = detail.substr(at, detail.find('\n', at) - at);
    CHECK(*read_file(kept) == broken.body);
    const size_t command = detail.find("reproduce: ") + 11;
    ProcessOptions again;
    again.argv = {"/bin/sh", "-c", detail.substr(command, detail.find('\n', command) - command)};
    Result<ProcessResult> result = run_process(again);
    REQUIRE(result.ok());
    CHECK(result->exit_code == 5);
    CHECK_THAT(result->errors, ContainsSubstring("templates/some/file.h"));
  }
  CHECK(count_entries(dir.path(), "hstu-jit-worker-") == 0);
}

TEST_CASE("sources that crash compilers are refused or survived") {
  for (const char* name : {"gfx90a", "cpu"}) {
    Result<Toolchain> toolchain = find_toolchain(target(name), "");
    if (!toolchain.ok()) continue;
    for (const std::string& body :
         {std::string(), std::string(" \n"), std::string("int a;\0b", 8)}) {
      Result<CodeObject> object = compile(source(body), target(name), *toolchain, {});
      REQUIRE_FALSE(object.ok());
      CHECK_FALSE(one_line(object.error()).empty());
    }
  }
}

TEST_CASE("the head of a source does not reach the compiler") {
  const Target cpu = target("cpu");
  Result<Toolchain> toolchain = find_toolchain(cpu, "");
  REQUIRE(toolchain.ok());
  Source injected = source(kHostKernel);
  injected.head = "#error the head was compiled\n";
  CHECK(compile(injected, cpu, *toolchain, {}).ok());
}

TEST_CASE("extra flags and the dump folder") {
  const auto dir = folder();
  const Target cpu = target("cpu");
  Result<Toolchain> toolchain = find_toolchain(cpu, "");
  REQUIRE(toolchain.ok());
  CompileOptions options;
  {
    const Environment flags("HSTU_JIT_EXTRA_FLAGS", "  -DTWICE=3   -DX ");
    const Environment dump("HSTU_JIT_DUMP", dir.path() + "/dump");
    const Environment timeout("HSTU_JIT_COMPILE_TIMEOUT", "7.5");
    Result<CompileOptions> read = compile_options_from_environment();
    REQUIRE(read.ok());
    options = *read;
  }
  CHECK(options.extra_flags == std::vector<std::string>{"-DTWICE=3", "-DX"});
  CHECK(options.timeout.count() == 7500);
  const auto words = canonical_options(cpu, toolchain->driver, options);
  CHECK(words.back() == "-DX");
  for (const std::string& word : words) CHECK(word.front() != '/');
  CHECK(compile(source("#if TWICE != 3\n#error no\n#endif\n"), cpu, *toolchain, options).ok());
  size_t sources = 0, objects = 0;
  for (const auto& entry : fs::directory_iterator(dir.path() + "/dump")) {
    if (entry.path().extension() == ".cpp") ++sources;
    if (entry.path().extension() == ".o") ++objects;
  }
  CHECK(sources == 1);
  CHECK(objects == 1);
  for (const char* bad : {"x", "0", "-1", "1e9", "5s", "nan"}) {
    const Environment timeout("HSTU_JIT_COMPILE_TIMEOUT", bad);
    CHECK_FALSE(compile_options_from_environment().ok());
  }
}

TEST_CASE("in-process compiles need no worker") {
  const Environment mode("HSTU_JIT_COMPILE", "inprocess");
  const Environment worker("HSTU_JIT_WORKER", "/nowhere");
  for (const char* name : {"cpu", "gfx90a"}) {
    Result<Toolchain> toolchain = find_toolchain(target(name), "");
    if (!toolchain.ok()) continue;
    const char* body = std::string(name) == "cpu" ? kHostKernel : kGpuKernel;
    CHECK(compile(source(body), target(name), *toolchain, {}).ok());
  }
}
