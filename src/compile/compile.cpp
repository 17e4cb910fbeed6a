// SPDX-License-Identifier: Apache-2.0
#include "compile/compile.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/digest.hpp"
#include "base/env.hpp"
#include "base/file.hpp"
#include "base/log.hpp"
#include "base/subprocess.hpp"
#include "base/text.hpp"
#include "compile/client.hpp"
#include "compile/locate.hpp"
#include "target/cpu_level.hpp"

namespace hstu::jit {
namespace {

constexpr size_t kShownLog = size_t{256} << 10;

const char* extension(Driver driver) {
  switch (driver) {
    case Driver::nvrtc:
      return "cu";
    case Driver::host:
      return "cpp";
    default:
      return "hip";
  }
}

// Names a job in the dump folder and among the kept sources.
std::string short_name(const Job& job) {
  std::string text = std::string(driver_name(job.driver)) + "\n" + job.target + "\n";
  for (const std::string& option : job.options) text += option + "\n";
  return sha256_hex(text + job.source).substr(0, 16);
}

std::string quoted(const std::string& word) {
  const bool plain =
      !word.empty() && word.find_first_not_of(
                           "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKL"
                           "MNOPQRSTUVWXYZ0123456789_-+=./:,%@") == std::string::npos;
  if (plain) return word;
  std::string text = "'";
  for (char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

// The source of a failed compile, for people. "" when there is no place for it.
std::string keep_source(const Job& job) {
  if (processes_ended()) return {};  // the compiler was killed: its source is not at fault
  std::vector<std::string> bases;
  if (auto base = get_env("TMPDIR"); base && base->front() == '/') bases.push_back(*base);
  bases.emplace_back("/tmp");
  for (const std::string& base : bases) {
    const std::string folder = fmt::format("{}/hstu-jit-{}", base, ::getuid());
    if (!make_private_folder(folder).ok() || !make_private_folder(folder + "/failed").ok())
      continue;
    std::string path =
        fmt::format("{}/failed/{}.{}", folder, short_name(job), extension(job.driver));
    if (replace_file_atomic(path, job.source, 0600).ok()) return path;
  }
  return {};
}

std::string reproducing_command(const Job& job, const std::string& source,
                                const CompileOptions& options) {
  std::string command;
  if (!options.extra_flags.empty()) {
    std::string flags;
    for (const std::string& flag : options.extra_flags) flags += (flags.empty() ? "" : " ") + flag;
    command = "HSTU_JIT_EXTRA_FLAGS=" + quoted(flags) + " ";
  }
  const Result<std::string> worker = find_worker();
  return command + fmt::format("{} --compile {} --target {} --driver {} --library {} -o /dev/null",
                               quoted(worker.ok() ? *worker : "hstu-jit-worker"), quoted(source),
                               quoted(job.target), driver_name(job.driver), quoted(job.library));
}

// "file(12): error: ..." of NVRTC as everybody else writes it: "file:12: error: ...".
std::string usual_form(const std::string& line) {
  const size_t error = line.find("): error");
  const size_t open = error == std::string::npos ? error : line.rfind('(', error);
  if (open == std::string::npos) return line;
  return line.substr(0, open) + ":" + line.substr(open + 1, error - open - 1) +
         line.substr(error + 1);
}

// The first line of the log that states an error, "" if there is none.
std::string first_error(const std::string& log) {
  for (size_t begin = 0; begin < log.size();) {
    const size_t end = std::min(log.find('\n', begin), log.size());
    const std::string line = log.substr(begin, end - begin);
    if (line.find("error:") != std::string::npos || line.find("error :") != std::string::npos) {
      return usual_form(line);
    }
    begin = end + 1;
  }
  return {};
}

Error compile_error(const Job& job, const CompileOptions& options, std::string message,
                    const std::string& log) {
  Error error{ErrorKind::kCompile, std::move(message), "", ""};
  const std::string source = keep_source(job);
  if (!source.empty()) {
    error.detail = fmt::format("source: {}\nreproduce: {}\n", source,
                               reproducing_command(job, source, options));
  }
  if (!log.empty()) error.detail += "compiler log:\n" + log.substr(0, kShownLog);
  return error;
}

void dump(const Job& job, const CompileOptions& options, const Call& call) {
  if (options.dump_dir.empty()) return;
  const std::string stem = options.dump_dir + "/" + short_name(job);
  std::string words = fmt::format("driver {}\nlibrary {}\ntarget {}\n", driver_name(job.driver),
                                  job.library, job.target);
  for (const std::string& option : job.options) words += "option " + option + "\n";
  const std::string log = call.answered ? call.answer.log : call.problem + "\n";
  Status status = make_directories(options.dump_dir);
  const auto write = [&](const std::string& path, const std::string& bytes) {
    if (status.ok()) status = write_file_atomic(path, bytes);
  };
  write(fmt::format("{}.{}", stem, extension(job.driver)), job.source);
  write(stem + ".options.txt", words);
  write(stem + ".log.txt", log);
  if (call.answered && !call.answer.object.empty()) write(stem + ".o", call.answer.object);
  if (!status.ok()) log_warn("HSTU_JIT_DUMP: " + status.error().message);
}

}  // namespace

Result<CodeObject> compile(const Source& source, const Target& target, const Toolchain& toolchain,
                           const CompileOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  Job job;
  job.driver = toolchain.driver;
  job.library = toolchain.library;
  job.target = target.name;
  job.options = canonical_options(target, toolchain.driver, options);
  // Without the head: it is no part of the key, so it may not reach the compiler.
  job.source = source.body;

  Call call = call_worker(job, options.timeout, options.nice);
  dump(job, options, call);
  const std::string what = fmt::format("{} for {}", printable(source.entry, 120), target.name);
  if (!call.answered) {
    return compile_error(job, options, fmt::format("cannot compile {}: {}", what, call.problem),
                         "");
  }
  Answer& answer = call.answer;
  if (answer.outcome != Outcome::ok) {
    std::string reason = answer.outcome == Outcome::diagnostics ? first_error(answer.log) : "";
    if (reason.empty()) reason = answer.message;
    return compile_error(job, options,
                         fmt::format("cannot compile {}: {}", what, printable(reason, 400)),
                         answer.log);
  }
  CodeObject object;
  object.bytes = std::move(answer.object);
  object.log = std::move(answer.log);
  object.toolchain = toolchain;
  object.milliseconds =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return object;
}

}  // namespace hstu::jit
