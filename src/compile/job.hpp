// SPDX-License-Identifier: Apache-2.0
// What the compile worker is asked and what it answers, and the bytes of both on a pipe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "compile/compile.hpp"

namespace hstu::jit {

// One compile. A probe also asks who the compiler is.
struct Job {
  bool probe = false;
  Driver driver = Driver::host;
  std::string library;               // path of the library or program
  std::string target;                // bare architecture, "gfx942"
  std::vector<std::string> options;  // in the compiler's spelling
  std::string source;
};

enum class Outcome {
  ok,
  diagnostics,       // the compiler rejected the source
  unsupported_arch,  // the compiler does not know the target
  unusable,          // the compiler cannot be loaded, is too old or lacks a part
};

struct Answer {
  Outcome outcome = Outcome::unusable;
  std::string message;  // one line unless ok
  std::string log;
  std::string object;
  // Of a probe: the version for people, "name build-id" of every part of the compiler, sorted, and
  // the files whose change means another compiler.
  std::string version;
  std::vector<std::string> parts;
  std::vector<std::string> files;
};

std::string encode_job(const Job& job);
std::string encode_answer(const Answer& answer);
// Errors: kInternal; any bytes are allowed, what is odd is an error.
Result<Job> decode_job(std::string_view bytes);
Result<Answer> decode_answer(std::string_view bytes);

// Runs the compiler in this process. The drivers' own promise is only that no C++ exception leaves:
// a compiler library may crash or hang, which is why this runs in the worker.
Answer run_job(const Job& job);
// Used by run_job: libraries loaded at run time, and programs.
Answer run_rtc(const Job& job);
Answer run_program(const Job& job);

}  // namespace hstu::jit
