// SPDX-License-Identifier: Apache-2.0
// HSTU_JIT_RECORD: what processes ask for becomes a manifest.
#include "engine/record.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <thread>

#include "base/log.hpp"
#include "base/temp_dir.hpp"
#include "spec/parse.hpp"
#include "support.hpp"

using namespace hstu::jit;
using namespace hstu::jit::test;

namespace {

Problem problem_of(int dim, const std::string& more = "") {
  Result<ParsedSpec> spec = parse_spec(
      fmt::format(R"({{"op": "hstu_attention", "name": "d{0}", "heads": 2, "head_dim_qk": {0},
                      "uih_lengths": [40, 9]{1}}})",
                  dim, more),
      "/somewhere");
  REQUIRE(spec.ok());
  return spec->problems.front();
}

std::string request_of(int number) { return fmt::format("{:064x}", number); }

const Target& target() {
  static const Target found = *find_target("gfx90a");
  return found;
}

// Warnings that were logged while it lives.
class Warnings {
 public:
  Warnings() {
    set_log_sink(
        [](LogLevel level, std::string_view line, void* user) {
          if (level == LogLevel::warn) static_cast<Warnings*>(user)->lines.emplace_back(line);
        },
        this);
  }
  ~Warnings() { set_log_sink(nullptr, nullptr); }
  std::vector<std::string> lines;
};

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace

TEST_CASE("each request is recorded once, and the record is a manifest of the same kernels") {
  const TempDir dir = folder();
  const std::string path = dir.path() + "/a record";
  Recorder first(path);
  const Problem files =
      problem_of(64, R"(, "data": {"init": "files", "files": {"q": "q", "k": "k", "v": "v"}},
             "output": {"dump": "d", "mask": "m.png"}, "device": "cpu", "target": "cpu")");
  first.record(request_of(1), files, target());
  first.record(request_of(1), files, target());
  first.record(request_of(2), problem_of(128), target());
  // Another process that starts later.
  Recorder second(path);
  second.record(request_of(2), problem_of(128), target());
  second.record(request_of(3), problem_of(256), target());
  const std::vector<std::string> lines = lines_of(path);
  REQUIRE(lines.size() == 3);
  for (const std::string& line : lines) CHECK(line.find("somewhere") == std::string::npos);
  const Result<Manifest> m = load_manifest(path);
  REQUIRE(m.ok());
  CHECK(m->warnings.empty());
  const JobList list = expanded(*m);
  REQUIRE(list.jobs.size() == 3);
  CHECK(list.targets == std::vector<std::string>{"gfx90a"});
  // The keys are those of the specs as they were given.
  const JobList direct =
      expanded(good(manifest_of(R"({"sweep": {"base": )" + kBase +
                                R"(, "set": {"/head_dim_qk": [64, 128, 256]}}})")),
               {"gfx90a"});
  for (size_t i = 0; i < 3; ++i) CHECK(list.jobs[i].request == direct.jobs[i].request);
}

TEST_CASE("threads and processes that record at once lose and tear nothing") {
  const TempDir dir = folder();
  const std::string path = dir.path() + "/record";
  constexpr int kProcesses = 4, kThreads = 2, kEach = 25;
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      Recorder recorder(path);
      std::vector<std::thread> threads;
      for (int t = 0; t < kThreads; ++t)
        threads.emplace_back([&, t] {
          // Half of the requests are also another process's.
          for (int i = 0; i < kEach; ++i)
            recorder.record(request_of(1000 * (i % 2 ? p : 0) + 100 * t + i), problem_of(64),
                            target());
        });
      for (std::thread& thread : threads) thread.join();
      ::_exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  const Result<Manifest> m = load_manifest(path);
  REQUIRE(m.ok());
  CHECK(m->warnings.empty());
  std::set<std::string> expected;
  for (int p = 0; p < kProcesses; ++p)
    for (int t = 0; t < kThreads; ++t)
      for (int i = 0; i < kEach; ++i)
        expected.insert(request_of(1000 * (i % 2 ? p : 0) + 100 * t + i));
  std::multiset<std::string> found;
  for (const std::string& line : lines_of(path)) {
    const size_t at = line.find("\"key\":\"");
    REQUIRE(at != std::string::npos);
    found.insert(line.substr(at + 7, 64));
  }
  CHECK(found == std::multiset<std::string>(expected.begin(), expected.end()));
}

TEST_CASE("a torn line spoils itself alone") {
  const TempDir dir = folder();
  const std::string path = dir.path() + "/record";
  Recorder(path).record(request_of(1), problem_of(64), target());
  const std::string whole = *read_file(path);
  REQUIRE(write_file_atomic(path, whole + whole.substr(0, 70)).ok());
  Recorder(path).record(request_of(2), problem_of(128), target());
  const Result<Manifest> m = load_manifest(path);
  REQUIRE(m.ok());
  CHECK(m->specs.size() == 2);
  REQUIRE(m->warnings.size() == 1);
  CHECK_THAT(m->warnings[0], ContainsSubstring("line 2"));
}

TEST_CASE("files that are no record are left alone, with one warning") {
  const TempDir dir = folder();
  REQUIRE(::symlink("/dev/null", (dir.path() + "/link").c_str()) == 0);
  REQUIRE(::mkfifo((dir.path() + "/fifo").c_str(), 0600) == 0);
  REQUIRE(write_file_atomic(dir.path() + "/manifest", manifest_of("{}")).ok());
  for (const char* name : {"", "/link", "/fifo", "/manifest", "/none/record"}) {
    INFO(name);
    Warnings warnings;
    Recorder recorder(dir.path() + name);
    recorder.record(request_of(1), problem_of(64), target());
    recorder.record(request_of(2), problem_of(64), target());
    REQUIRE(warnings.lines.size() == 1);
    CHECK(one_line(warnings.lines[0]));
    CHECK_THAT(warnings.lines[0], ContainsSubstring("HSTU_JIT_RECORD"));
  }
  CHECK(*read_file(dir.path() + "/manifest") == manifest_of("{}"));
}

TEST_CASE("a disk that is full is one warning and leaves no part of a line") {
  const TempDir dir = folder();
  const std::string path = dir.path() + "/record";
  Recorder(path).record(request_of(1), problem_of(64), target());
  const std::string before = *read_file(path);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const rlimit limit{before.size() + 40, before.size() + 40};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(2);
    Warnings warnings;
    Recorder recorder(path);
    recorder.record(request_of(2), problem_of(128), target());
    recorder.record(request_of(3), problem_of(256), target());
    ::_exit(warnings.lines.size() == 1 ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(*read_file(path) == before);
}

TEST_CASE("without the variable nothing is recorded") {
  const Environment unset("HSTU_JIT_RECORD", "");
  CHECK(Recorder::from_environment() == nullptr);
  const Environment set("HSTU_JIT_RECORD", "/x");
  CHECK(Recorder::from_environment() != nullptr);
}
