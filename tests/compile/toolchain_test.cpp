// SPDX-License-Identifier: Apache-2.0
// Which compiler is chosen, and that the choice is remembered and not believed blindly.
#include <sys/stat.h>

#include "base/subprocess.hpp"
#include "helpers.hpp"

using namespace hstu::jit;
using namespace hstu::jit::test;

namespace {

std::string only_memo(const std::string& state_dir) {
  std::string path;
  for (const auto& entry : fs::directory_iterator(state_dir + "/v1/toolchains")) {
    path = entry.path().string();
  }
  return path;
}

}  // namespace

TEST_CASE("a warm start asks no compiler and starts no worker") {
  for (const char* name : {"cpu", "gfx90a", "gfx942"}) {
    const auto state = folder();
    const FakeWorker worker("count");
    const std::string first = id_in_new_process(name, state.path());
    if (first.empty() && std::string(name) != "cpu") {
      std::printf("SKIPPED: warm start for %s: no compiler\n", name);
      continue;
    }
    REQUIRE(first.size() == 64);
    const size_t cold = worker.runs();
    CHECK(cold >= 1);
    CHECK(id_in_new_process(name, state.path()) == first);
    CHECK(worker.runs() == cold);
    CHECK(id_in_new_process(name, "") == first);  // no folder: asked again, the same answer
    CHECK(worker.runs() == 2 * cold);
  }
}

TEST_CASE("a compiler that changes is another toolchain") {
  const auto dir = folder();
  const std::string wrapper = dir.path() + "/my c++";
  const auto real = find_program("g++");
  if (!real) {
    std::printf("SKIPPED: changing compiler: no g++\n");
    return;
  }
  const std::string script = "#!/bin/sh\nexec " + *real + " \"$@\"\n";
  REQUIRE(write_file_atomic(wrapper, script, 0755).ok());
  const Environment compiler("HSTU_JIT_CXX", wrapper);
  const FakeWorker worker("count");
  const std::string first = id_in_new_process("cpu", dir.path());
  REQUIRE(first.size() == 64);
  CHECK(id_in_new_process("cpu", dir.path()) == first);
  CHECK(worker.runs() == 1);
  REQUIRE(write_file_atomic(wrapper, script + "# another\n", 0755).ok());
  const std::string second = id_in_new_process("cpu", dir.path());
  CHECK(second.size() == 64);
  CHECK(second != first);
  CHECK(worker.runs() == 2);
}

TEST_CASE("whatever lies in the place of the memory, the answer is the same") {
  const auto state = folder();
  const std::string first = id_in_new_process("cpu", state.path());
  REQUIRE(first.size() == 64);
  const std::string memo = only_memo(state.path());
  const std::string good = *read_file(memo);
  const auto wrong_id = [&] {  // a consistent edit, but for the digest in front
    std::string text = good;
    const size_t at = text.find(first);
    text[at] = text[at] == '0' ? '1' : '0';
    return text;
  };
  const std::string bad[] = {"",         "x",        good.substr(0, good.size() / 2),
                             wrong_id(), good + "x", std::string(200000, '[')};
  for (const std::string& text : bad) {
    REQUIRE(replace_file_atomic(memo, text).ok());
    CHECK(id_in_new_process("cpu", state.path()) == first);
    CHECK(*read_file(memo) == good);  // healed
  }
  fs::remove(memo);
  fs::create_directory(memo);
  CHECK(id_in_new_process("cpu", state.path()) == first);
  CHECK(id_in_new_process("cpu", "/proc/none") == first);  // nowhere to remember
}

TEST_CASE("a memory that others could have written is not believed") {
  const auto state = folder();
  const FakeWorker worker("count");
  const std::string first = id_in_new_process("cpu", state.path());
  REQUIRE(first.size() == 64);
  const std::string memo = only_memo(state.path());
  const std::string good = *read_file(memo);
  size_t runs = worker.runs();
  const auto asked_again = [&] {  // and put right
    CHECK(id_in_new_process("cpu", state.path()) == first);
    const bool again = worker.runs() > runs;
    runs = worker.runs();
    CHECK(id_in_new_process("cpu", state.path()) == first);
    CHECK(worker.runs() == runs);
    return again;
  };
  CHECK_FALSE(asked_again());
  for (const mode_t mode : {0664, 0646}) {
    REQUIRE(::chmod(memo.c_str(), mode) == 0);
    CHECK(asked_again());
  }
  const std::string elsewhere = state.path() + "/elsewhere";
  fs::rename(memo, elsewhere);
  fs::create_symlink(elsewhere, memo);
  CHECK(asked_again());
  CHECK(*read_file(elsewhere) == good);
  if (::geteuid() != 0) {
    std::printf("SKIPPED: a memory of another user: needs root\n");
    return;
  }
  REQUIRE(::chown(memo.c_str(), 12345, 12345) == 0);
  {
    const Environment trusted("HSTU_JIT_TRUSTED_UIDS", "12345");
    CHECK_FALSE(asked_again());
  }
  CHECK(asked_again());
}

TEST_CASE("no compiler at all: what to install") {
  const Environment path("PATH", "");
  for (const char* name : {"HSTU_JIT_HIPRTC", "HSTU_JIT_CLANG", "HSTU_JIT_NVRTC", "HSTU_JIT_CXX"}) {
    ::setenv(name, "/nowhere/at/all", 1);
  }
  CHECK_THAT(one_line(find_toolchain(target("gfx90a"), "").error()),
             ContainsSubstring("HSTU_JIT_HIPRTC names /nowhere/at/all, which is not there"));
  CHECK_THAT(one_line(find_toolchain(target("sm_90a"), "").error()),
             ContainsSubstring("HSTU_JIT_NVRTC"));
  for (const char* name : {"HSTU_JIT_HIPRTC", "HSTU_JIT_CLANG", "HSTU_JIT_NVRTC", "HSTU_JIT_CXX"}) {
    ::unsetenv(name);
  }
  CHECK_THAT(one_line(find_toolchain(target("cpu"), "").error()),
             ContainsSubstring("install a C++ compiler"));
}

TEST_CASE("things that are no compiler are refused with their name") {
  const auto dir = folder();
  const std::string text = dir.path() + "/libhiprtc.so.7";
  REQUIRE(write_file_atomic(text, "no library").ok());
  const Environment library("HSTU_JIT_HIPRTC", text);
  const Environment clang("HSTU_JIT_CLANG", "/bin/true");
  const std::string message = one_line(find_toolchain(target("gfx90a"), "").error());
  CHECK_THAT(message, ContainsSubstring(text));
  CHECK_THAT(message, ContainsSubstring("/bin/true"));
}

TEST_CASE("hipRTC without its compiler library is refused, not called") {
  const Environment library("HSTU_JIT_HIPRTC", HSTU_HIPRTC_STUB);
  const Environment clang("HSTU_JIT_CLANG", "/nowhere/at/all");
  const std::string message = one_line(find_toolchain(target("gfx90a"), "").error());
  CHECK_THAT(message, ContainsSubstring("needs libamd_comgr.so.98765, which is not there"));
  CHECK_THAT(message, !ContainsSubstring("crashed"));
}

TEST_CASE("targets no compiler knows end nothing") {
  Target unknown = target("gfx90a");
  unknown.name = "gfx9999";
  CHECK_THAT(one_line(find_toolchain(unknown, "").error()), ContainsSubstring("gfx9999"));
  Target level = target("cpu");
  level.name = "cpu:mips";
  CHECK_THAT(one_line(find_toolchain(level, "").error()), ContainsSubstring("cpu:mips"));

  // A toolchain of another target, as a caller may mix them up.
  Result<Toolchain> hiprtc = find_toolchain(target("gfx90a"), "");
  if (!hiprtc.ok()) {
    std::printf("SKIPPED: unknown target to hipRTC: %s\n", hiprtc.error().message.c_str());
    return;
  }
  Result<CodeObject> object = compile(source(kGpuKernel), unknown, *hiprtc, {});
  REQUIRE_FALSE(object.ok());
  CHECK_THAT(one_line(object.error()), ContainsSubstring("does not know target gfx9999"));
}
