// SPDX-License-Identifier: Apache-2.0
// Workers that crash, hang, flood and lie: a clear error, no orphan, no leftover.
#include <sys/stat.h>

#include "base/subprocess.hpp"
#include "compile/job.hpp"
#include "helpers.hpp"

using namespace hstu::jit;
using namespace hstu::jit::test;
using std::chrono::milliseconds;

namespace {

// A compile for the host by a worker of this behaviour, with a TMPDIR that must be clean
// afterwards.
Result<CodeObject> compile_with(const FakeWorker&, milliseconds timeout = milliseconds(20000)) {
  const auto temporary = folder();
  const Environment variable("TMPDIR", temporary.path());
  Toolchain toolchain;
  toolchain.driver = Driver::host;
  toolchain.library = "/usr/bin/g++";
  CompileOptions options;
  options.timeout = timeout;
  Result<CodeObject> object = compile(source(kHostKernel), target("cpu"), toolchain, options);
  CHECK(count_entries(temporary.path(), "hstu-jit-worker-") == 0);
  return object;
}

}  // namespace

TEST_CASE("a crash is tried again once, then an error with the signal") {
  const FakeWorker worker("crash");
  const Result<CodeObject> object = compile_with(worker);
  REQUIRE_FALSE(object.ok());
  CHECK_THAT(one_line(object.error()), ContainsSubstring("signal 11"));
  CHECK_THAT(object.error().message, ContainsSubstring("about to crash"));
  CHECK(worker.runs() == 2);

  const FakeWorker recovering("crash-once");
  CHECK(compile_with(recovering).ok());
  CHECK(recovering.runs() == 2);
}

TEST_CASE("a hang ends at the time-out with its descendants") {
  const FakeWorker worker("hang");
  const auto start = std::chrono::steady_clock::now();
  const Result<CodeObject> object = compile_with(worker, milliseconds(1000));
  const auto took = std::chrono::steady_clock::now() - start;
  REQUIRE_FALSE(object.ok());
  CHECK(took >= milliseconds(1000));
  CHECK(took < milliseconds(10000));
  CHECK_THAT(one_line(object.error()), ContainsSubstring("no answer within 1 s"));
  CHECK_THAT(object.error().message, ContainsSubstring("HSTU_JIT_COMPILE_TIMEOUT"));
  CHECK(worker.runs() == 1);
  CHECK(gone(static_cast<pid_t>(std::stoi(*read_file(worker.path() + ".pid")))));
}

TEST_CASE("nonsense, half an answer, one that is too long, no answer, one without an object") {
  for (const char* mode : {"garbage", "half", "huge", "cut", "long", "silent", "lies", "fail"}) {
    INFO(mode);
    const FakeWorker worker(mode);
    const Result<CodeObject> object = compile_with(worker);
    REQUIRE_FALSE(object.ok());
    CHECK_THAT(one_line(object.error()), ContainsSubstring("without a usable answer"));
    CHECK_THAT(object.error().message, ContainsSubstring(worker.path()));
    CHECK(worker.runs() == 1);
  }
}

TEST_CASE("a worker that is not there") {
  const Environment variable("HSTU_JIT_WORKER", "/nowhere/worker");
  Toolchain toolchain;
  toolchain.library = "/usr/bin/g++";
  const Result<CodeObject> object = compile(source(kHostKernel), target("cpu"), toolchain, {});
  REQUIRE_FALSE(object.ok());
  CHECK_THAT(one_line(object.error()), ContainsSubstring("HSTU_JIT_WORKER names /nowhere/worker"));
  const auto state = folder();
  const std::string message = one_line(find_toolchain(target("gfx90a"), state.path()).error());
  CHECK_THAT(message, ContainsSubstring("HSTU_JIT_WORKER names /nowhere/worker"));
  CHECK(message.find("HIPRTC") == std::string::npos);  // the compiler is not to blame
}

TEST_CASE("the compilers of a program that is killed die with it") {
  const auto dir = folder();
  const std::string compiler = dir.path() + "/slow";
  const std::string pid_file = dir.path() + "/pid";
  REQUIRE(write_file_atomic(compiler,
                            "#!/bin/sh\n[ \"$1\" = --version ] && exec echo slow 1.0\n"
                            "echo $$ > '" +
                                pid_file + ".new'; mv '" + pid_file + ".new' '" + pid_file +
                                "'\nsleep 600; exit 1\n",
                            0755)
              .ok());
  const Environment variable("HSTU_JIT_CXX", compiler);
  const Environment temporary("TMPDIR", dir.path());
  // Killed at the time-out: as a whole, but the worker is in a group of its own.
  ProcessOptions options;
  options.argv = {HSTU_PRINT_TOOLCHAIN, "cpu", ""};
  options.timeout = milliseconds(1500);
  for (int attempt = 0; attempt < 5 && !fs::exists(pid_file); ++attempt) {  // a busy machine
    const Result<ProcessResult> result = run_process(options);
    REQUIRE(result.ok());
    REQUIRE(result->timed_out);
    options.timeout *= 2;
  }
  REQUIRE(fs::exists(pid_file));
  CHECK(gone(static_cast<pid_t>(std::stoi(*read_file(pid_file)))));
}

TEST_CASE("the worker compiles by hand what it compiles on request") {
  const auto dir = folder();
  const std::string file = dir.path() + "/kernel.cpp", made = dir.path() + "/kernel.so";
  REQUIRE(write_file_atomic(file, kHostKernel).ok());
  ProcessOptions options;
  options.argv = {HSTU_REAL_WORKER, "--compile", file, "--target", "cpu", "-o", made};
  const Result<ProcessResult> result = run_process(options);
  REQUIRE(result.ok());
  INFO(result->errors);
  REQUIRE(result->succeeded());
  Result<Toolchain> toolchain = find_toolchain(target("cpu"), "");
  REQUIRE(toolchain.ok());
  Result<CodeObject> object = compile(source(kHostKernel), target("cpu"), *toolchain, {});
  REQUIRE(object.ok());
  CHECK(*read_file(made) == object->bytes);
  options.argv = {HSTU_REAL_WORKER, "--compile", file, "--target", "gfx9999"};
  CHECK(run_process(options)->exit_code == 4);
  options.argv = {HSTU_REAL_WORKER, "--compile", file};
  CHECK(run_process(options)->exit_code == 2);
  options.argv = {HSTU_REAL_WORKER, "--compile", dir.path() + "/none", "--target", "cpu"};
  CHECK(run_process(options)->exit_code == 1);
  options.argv = {HSTU_REAL_WORKER, "--serve"};
  options.input = "nonsense";
  CHECK(run_process(options)->exit_code == 2);
}

TEST_CASE("messages of the protocol: round trip, and no cut or flip passes as whole") {
  Job job;
  job.probe = true;
  job.driver = Driver::clang;
  job.library = "/a b/clang++";
  job.target = "gfx942";
  job.options = {"-O3", "-DX=\"\\\""};
  job.source = std::string("a\0b\xff", 4);
  const std::string bytes = encode_job(job);
  const Result<Job> back = decode_job(bytes);
  REQUIRE(back.ok());
  CHECK(back->options == job.options);
  CHECK(back->source == job.source);
  CHECK(back->probe);
  CHECK(back->driver == Driver::clang);
  for (size_t length = 0; length < bytes.size(); ++length) {
    CHECK_FALSE(decode_job(bytes.substr(0, length)).ok());
  }
  Answer answer;
  answer.outcome = Outcome::diagnostics;
  answer.log = "bad \xff byte";
  const std::string said = encode_answer(answer);
  CHECK(decode_answer(said).ok());
  for (size_t at = 0; at < said.size(); ++at) {  // a flip may change a text, but must not crash
    std::string bad = said;
    bad[at] = static_cast<char>(bad[at] ^ 0x40);
    (void)decode_answer(bad).ok();
  }
  answer.outcome = Outcome::ok;  // success without an ELF object
  CHECK_FALSE(decode_answer(encode_answer(answer)).ok());
}
