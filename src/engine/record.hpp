// SPDX-License-Identifier: Apache-2.0
// HSTU_JIT_RECORD=file: every kernel a process asks for becomes a line of that file, so that
// production writes the manifest that the next prewarm reads. A line is
//   {"schema":"hstu-jit/record/1","key":"<request>","target":"gfx942","spec":{...}}
// with the spec's lengths and structure, without paths and what only concerns a run.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>

#include "base/fork_mutex.hpp"
#include "base/result.hpp"
#include "spec/problem.hpp"
#include "target/target.hpp"

namespace hstu::jit {

// Many processes and threads may share a file: each line is one write under a lock, and a request
// that the file has is not written again by a process that starts later.
class Recorder {
 public:
  explicit Recorder(std::string path) : path_(std::move(path)) {}
  // For HSTU_JIT_RECORD; null when that is unset.
  static std::unique_ptr<Recorder> from_environment();

  // Never fails: where the file cannot be written, that is one warning and the end of recording.
  // Costs a look into a table when the request was recorded before.
  void record(const std::string& request, const Problem& problem, const Target& target);

 private:
  Status append(const std::string& request, const std::string& line);
  std::string look(int fd, off_t size, uint64_t file);

  const std::string path_;
  ForkMutex mutex_;  // guards the next two; not held over a file operation
  std::unordered_set<std::string> seen_;
  bool broken_ = false;
  std::timed_mutex file_mutex_;  // guards what follows; held over the write of a line
  std::unordered_set<std::string> written_;
  uint64_t file_ = 0;  // inode: the file may be exchanged meanwhile
  off_t looked_ = 0;   // where the lines begin that are not in written_
  bool torn_ = false;  // the last line has no end
};

}  // namespace hstu::jit
