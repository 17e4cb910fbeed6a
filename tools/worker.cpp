// SPDX-License-Identifier: Apache-2.0
// hstu-jit-worker: one compile in a process of its own, so that a compiler that crashes, hangs or
// prints takes nothing else with it.
//   --serve                                       one request on standard input, one answer on
//   output
//   --compile FILE --target T [--driver D] [--library L] [-o OBJECT]   by hand
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>

#include "base/file.hpp"
#include "compile/client.hpp"
#include "compile/compile.hpp"
#include "compile/job.hpp"
#include "compile/root.hpp"
#include "target/target.hpp"

namespace {

using namespace hstu::jit;

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(fd, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(wrote));
  }
  return true;
}

bool read_all(int fd, std::string* bytes) {
  char buffer[65536];
  while (true) {
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return false;
    if (got == 0) return true;
    bytes->append(buffer, static_cast<size_t>(got));
  }
}

void say(std::string_view line) {
  const std::string text = fmt::format("hstu-jit-worker: {}\n", line);
  write_all(STDERR_FILENO, text);
}

int serve() {
  // The group holds this process and the compilers it starts, and nothing else.
  if (::getpgrp() == ::getpid()) {
    ::signal(SIGTERM, [](int) { ::kill(0, SIGKILL); });
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  }
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  // What a compiler prints must not get into the answer.
  const int out = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  if (out < 0 || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0) return 70;

  std::string bytes;
  if (!read_all(STDIN_FILENO, &bytes)) return 70;
  Result<Job> job = decode_job(bytes);
  if (!job.ok()) {
    say(job.error().message);
    return 2;
  }
  return write_all(out, encode_answer(run_job(*job))) ? 0 : 1;
}

int usage(std::string_view problem) {
  say(problem);
  say("usage: hstu-jit-worker --compile FILE --target T [--driver hiprtc|nvrtc|clang|host] "
      "[--library PATH] [-o OBJECT]");
  return 2;
}

int failed(const Error& error) {
  say(error.message);
  return exit_code(error.kind);
}

int compile_by_hand(int argc, char** argv) {
  std::string file, target_name, driver, library, object;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    std::string* value = word == "--compile"   ? &file
                         : word == "--target"  ? &target_name
                         : word == "--driver"  ? &driver
                         : word == "--library" ? &library
                         : word == "-o"        ? &object
                                               : nullptr;
    if (value == nullptr) return usage("unknown option " + word);
    if (i + 1 == argc) return usage(word + " needs a value");
    *value = argv[++i];
  }
  if (file.empty() || target_name.empty()) return usage("a file and a target are needed");

  Result<std::string> source = read_file(file, uint64_t{64} << 20);
  if (!source.ok()) return failed(source.error());
  Result<Target> target = find_target(target_name);
  if (!target.ok()) return failed(target.error());
  Result<CompileOptions> options = compile_options_from_environment();
  if (!options.ok()) return failed(options.error());

  Toolchain toolchain;
  if (driver.empty() || library.empty()) {
    Result<Toolchain> found = find_toolchain(*target, "");
    if (!found.ok()) return failed(found.error());
    toolchain = *found;
  }
  if (!driver.empty()) {
    bool known = false;
    for (Driver each : {Driver::hiprtc, Driver::nvrtc, Driver::clang, Driver::host}) {
      if (driver != driver_name(each)) continue;
      if (library.empty() && each != toolchain.driver) {
        return usage("this driver needs --library PATH here");
      }
      toolchain.driver = each;
      known = true;
    }
    if (!known) return usage("unknown driver " + driver);
  }
  if (!library.empty()) toolchain.library = library;

  Job job;
  job.driver = toolchain.driver;
  job.library = toolchain.library;
  job.target = target->name;
  job.options = canonical_options(*target, toolchain.driver, *options);
  job.source = *source;
  Answer answer;
  if (system_root_of(job.library).empty()) {
    answer = run_job(job);
  } else {  // only a process under that system's loader can load it
    Call call = call_worker(job, options->timeout);
    if (!call.answered) {
      say(call.problem);
      return exit_code(ErrorKind::kCompile);
    }
    answer = std::move(call.answer);
  }
  write_all(STDERR_FILENO, answer.log);
  if (answer.outcome != Outcome::ok) {
    say(answer.message);
    return exit_code(ErrorKind::kCompile);
  }
  if (object.empty()) return 0;
  if (Status status = write_file_atomic(object, answer.object); !status.ok()) {
    return failed(status.error());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  int code = 70;
  try {
    if (argc == 2 && std::string(argv[1]) == "--serve") {
      code = serve();
    } else if (argc > 1) {
      code = compile_by_hand(argc, argv);
    } else {
      code = usage("nothing to do");
    }
  } catch (const std::exception& error) {
    say(error.what());
  }
  std::fflush(nullptr);
  ::_exit(code);  // compiler libraries crash in their own destructors
}
