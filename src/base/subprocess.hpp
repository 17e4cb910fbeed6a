// SPDX-License-Identifier: Apache-2.0
// Runs a program to its end: argv array (never a shell), bounded time and output, no inherited
// descriptors, no orphan: a program dies with the thread that runs it.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace hstu::jit {

struct ProcessOptions {
  std::vector<std::string> argv;  // argv[0]: path, or a name looked up in PATH
  std::string input;              // standard input
  std::optional<std::vector<std::string>> environment;  // "NAME=value"; absent: inherited
  std::chrono::milliseconds timeout{120000};
  size_t max_output = size_t{256} << 20;  // of standard output; more is cut off, `output_cut` set
  size_t max_errors = size_t{256} << 20;  // the same for standard error
  bool end_when_cut = false;              // kill it once its standard output passes the limit
  // False: the program joins this process's group, so that whoever kills that group ends it too.
  bool own_group = true;
  int nice = 0;  // added to this process's own niceness
};

struct ProcessResult {
  int exit_code = 0;  // when it exited by itself; -1 when the host program reaped it first
  int signal = 0;     // when a signal ended it
  bool timed_out = false;
  bool output_cut = false;
  std::string output;  // standard output
  std::string errors;  // standard error
  bool succeeded() const { return exit_code == 0 && signal == 0 && !timed_out; }
  // "exit code 1", "killed by signal 11 (Segmentation fault)", "no answer within 120 s".
  std::string how_it_ended() const;
  std::chrono::milliseconds timeout{0};  // the limit it ran under
};

// Errors: kFailed when the program cannot be started. On time-out its whole process group is
// killed.
Result<ProcessResult> run_process(const ProcessOptions& options);

// Kills every program that run_process runs now, each with its process group. Safe in a handler.
void kill_running_processes();
// For programs that are about to end: does that, and from now on run_process starts nothing and
// fails. Safe in a handler.
void end_running_processes();
bool processes_ended();  // whether it was called
// For programs, not libraries: SIGINT, SIGTERM and SIGHUP, where not ignored, first do that. Groups
// of their own hear nothing of a terminal's interrupt.
void end_children_on_signals();

// Full path of `program` on PATH, or nothing.
std::optional<std::string> find_program(const std::string& program);

}  // namespace hstu::jit
