// SPDX-License-Identifier: Apache-2.0
// Runs hstu-jit as a user would, in a clean environment with its own cache folder.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "base/temp_dir.hpp"

struct Outcome {
  int code = 0;
  std::string out, err;
  int lines_err() const;
};

class Program {
 public:
  Program();
  // Environment of the next calls; an empty value removes the variable.
  std::map<std::string, std::string> environment;
  // `--cache-dir` is added unless the arguments have one or `cache` is false.
  Outcome run(std::vector<std::string> arguments, const std::string& input = "",
              bool cache = true) const;
  std::string folder() const { return folder_.path(); }
  std::string cache_dir() const { return folder_.path() + "/cache"; }
  // Writes a file into the folder and returns its path.
  std::string file(const std::string& name, const std::string& text, bool executable = false) const;
  // What the doctor says this machine lacks of a thing a test needs ("compiler for gfx90a",
  // "disassembler for gfx90a"); empty when it is there. Only then may a test be skipped.
  std::string missing(const std::string& subject) const;

 private:
  hstu::jit::TempDir folder_;
};

// The call failed with this exit code, printed nothing but one line, and that holds the words.
void check_refused(const Outcome& o, int code, const std::vector<std::string>& words);

// A small problem with every mask feature.
extern const char* const kSmallSpec;
