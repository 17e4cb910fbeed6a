// SPDX-License-Identifier: Apache-2.0
// Compilers that are programs: clang for AMD targets, and the host's C++ compiler. Source goes in
// on standard input, so that no path reaches the object.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/env.hpp"
#include "base/file.hpp"
#include "base/subprocess.hpp"
#include "base/temp_dir.hpp"
#include "base/text.hpp"
#include "compile/identity.hpp"
#include "compile/job.hpp"

namespace hstu::jit {
namespace {

constexpr std::chrono::milliseconds kAsk{20000};        // a question about the version
constexpr std::chrono::milliseconds kCompile{3600000};  // the parent of the worker keeps the time

Answer answer_of(Outcome outcome, std::string message) {
  Answer answer;
  answer.outcome = outcome;
  answer.message = std::move(message);
  return answer;
}

Result<ProcessResult> run(std::vector<std::string> argv, std::string input,
                          std::chrono::milliseconds timeout, bool own_group) {
  ProcessOptions options;
  options.argv = std::move(argv);
  options.input = std::move(input);
  options.timeout = timeout;
  options.own_group = own_group;
  return run_process(options);
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string output_of(std::vector<std::string> argv) {
  Result<ProcessResult> result = run(std::move(argv), "", kAsk, false);
  return result.ok() && result->succeeded() ? result->output : std::string();
}

int major_version(const std::string& text) {
  const size_t digit = text.find_first_of(
      "0123456789", text.find("version") == std::string::npos ? 0 : text.find("version"));
  return digit == std::string::npos ? 0 : std::atoi(text.c_str() + digit);
}

std::string real_path(const std::string& path) {
  char* real = ::realpath(path.c_str(), nullptr);
  std::string result = real ? real : path;
  std::free(real);
  return result;
}

// The compiler's own name for a part of it, "" when it has none.
std::string part_path(const std::string& compiler, const std::string& part) {
  const std::string answer = first_line(output_of({compiler, "-print-prog-name=" + part}));
  if (answer.empty()) return {};
  const auto found = find_program(answer);
  return found ? real_path(*found) : std::string();
}

// Compiler libraries a dynamically linked clang runs with, as the loader finds them.
std::vector<std::string> llvm_libraries(const std::string& program) {
  ProcessOptions options;
  options.argv = {program};
  options.environment = {
      {"LD_TRACE_LOADED_OBJECTS=1", "LD_LIBRARY_PATH=" + get_env("LD_LIBRARY_PATH").value_or("")}};
  options.timeout = kAsk;
  options.own_group = false;
  std::vector<std::string> list;
  const Result<ProcessResult> result = run_process(options);
  if (!result.ok() || !result->succeeded()) return list;  // static: the program is all there is
  for (size_t begin = 0; begin < result->output.size();) {
    const size_t end = std::min(result->output.find('\n', begin), result->output.size());
    const std::string line = result->output.substr(begin, end - begin);
    begin = end + 1;
    const size_t path = line.find("/");
    if (path == std::string::npos) continue;
    if (line.find("LLVM") == std::string::npos && line.find("clang") == std::string::npos &&
        line.find("lld") == std::string::npos) {
      continue;
    }
    list.push_back(real_path(line.substr(path, line.find(" (", path) - path)));
  }
  return list;
}

void identify(const Job& job, const std::string& version, Answer* answer) {
  answer->version = first_line(version);
  std::vector<std::string> files{real_path(job.library)};
  const auto parts = job.driver == Driver::clang
                         ? std::vector<std::string>{"ld.lld"}
                         : std::vector<std::string>{"cc1plus", "collect2", "as", "ld"};
  for (const std::string& part : parts) {
    if (std::string path = part_path(job.library, part); !path.empty()) files.push_back(path);
  }
  for (std::string& path : llvm_libraries(files.front())) files.push_back(std::move(path));
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  answer->parts.push_back("version " + version);
  for (const std::string& path : files) {
    answer->parts.push_back(path.substr(path.rfind('/') + 1) + " " + file_identity(path));
  }
  answer->files = std::move(files);
}

// "" when clang is new enough and has a linker of its own release.
std::string clang_problem(const Job& job, const std::string& version) {
  const int major = major_version(version);
  if (version.find("clang") == std::string::npos) return job.library + " is not clang";
  if (major < 17) return fmt::format("{} is clang {}, 17 or newer is needed", job.library, major);
  const std::string linker = part_path(job.library, "ld.lld");
  if (linker.empty()) return fmt::format("{} has no ld.lld: install lld-{}", job.library, major);
  const int linker_major = major_version(output_of({linker, "-flavor", "gnu", "--version"}));
  if (linker_major != major) {
    return fmt::format("{} is clang {} and would link with ld.lld {}: install lld-{}", job.library,
                       major, linker_major, major);
  }
  return {};
}

bool target_is_unknown(const std::string& log) {
  for (const char* sign :
       {"unsupported HIP gpu architecture", "unknown target CPU", "invalid target ID",
        "not recognized processor", "bad value", "unknown target"}) {
    if (log.find(sign) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

Answer run_program(const Job& job) {
  std::string version;
  if (job.probe) {
    version = output_of({job.library, "--version"});
    if (version.empty()) {
      return answer_of(Outcome::unusable, job.library + " does not answer --version");
    }
    if (job.driver == Driver::clang) {
      if (std::string problem = clang_problem(job, version); !problem.empty()) {
        return answer_of(Outcome::unusable, std::move(problem));
      }
    }
  }

  Result<TempDir> folder = TempDir::create("hstu-jit-object-");
  if (!folder.ok()) return answer_of(Outcome::unusable, folder.error().message);
  const std::string object = folder->path() + "/object";
  std::vector<std::string> argv{job.library};
  argv.insert(argv.end(), job.options.begin(), job.options.end());
  for (const char* word : {"-o", object.c_str(), "-"}) argv.emplace_back(word);
  Result<ProcessResult> result = run(std::move(argv), job.source, kCompile, false);
  if (!result.ok()) return answer_of(Outcome::unusable, result.error().message);

  Answer answer;
  answer.log = result->errors + result->output;
  if (!result->succeeded()) {
    const bool unknown = target_is_unknown(answer.log);
    answer.outcome = unknown ? Outcome::unsupported_arch : Outcome::diagnostics;
    answer.message =
        unknown ? fmt::format("{} does not know target {}", job.library, printable(job.target))
                : fmt::format("{} failed: {}", job.library, result->how_it_ended());
    return answer;
  }
  Result<std::string> bytes = read_file(object, uint64_t{1} << 30);
  if (!bytes.ok()) {
    answer.outcome = Outcome::diagnostics;
    answer.message = fmt::format("{} made no object", job.library);
    return answer;
  }
  answer.outcome = Outcome::ok;
  answer.object = std::move(*bytes);
  if (job.probe) identify(job, version, &answer);
  return answer;
}

Answer run_job(const Job& job) {
  if (job.source.find_first_not_of(" \t\r\n") == std::string::npos) {
    return answer_of(Outcome::diagnostics, "the source is empty");  // would crash hipRTC
  }
  if (job.source.find('\0') != std::string::npos) {
    return answer_of(Outcome::diagnostics, "the source holds a NUL character");
  }
  const bool library = job.driver == Driver::hiprtc || job.driver == Driver::nvrtc;
  return library ? run_rtc(job) : run_program(job);
}

}  // namespace hstu::jit
