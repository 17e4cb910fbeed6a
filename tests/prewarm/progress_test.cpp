// SPDX-License-Identifier: Apache-2.0
// What somebody who waits sees.
#include "prewarm/progress.hpp"

#include <stdlib.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/log.hpp"
#include "support.hpp"

using namespace hstu::jit;
using namespace hstu::jit::test;

namespace {

// A stream that keeps what is written to it.
class Stream {
 public:
  Stream() : file_(::open_memstream(&text_, &size_)) { REQUIRE(file_ != nullptr); }
  ~Stream() {
    std::fclose(file_);
    std::free(text_);
  }
  std::FILE* file() { return file_; }
  std::string text() {
    std::fflush(file_);
    return {text_, size_};
  }

 private:
  char* text_ = nullptr;
  size_t size_ = 0;
  std::FILE* file_;
};

KernelJob job(const std::string& entry) {
  KernelJob made;
  made.request = std::string(64, 'a');
  made.entry = entry;
  made.target = *find_target("gfx90a");
  made.askers = {{"first spec", "/specs/0"}, {"second", "/specs/1"}};
  return made;
}

JobResult compiled() {
  JobResult r;
  r.state = JobResult::State::ready;
  r.compile_ms = 400;
  r.prepare_ms = 410;
  return r;
}

JobResult cached() {
  JobResult r;
  r.state = JobResult::State::ready;
  r.origin = KernelOrigin::local;
  return r;
}

JobResult failed() {
  JobResult r;
  r.state = JobResult::State::failed;
  r.error = Error{ErrorKind::kCompile, "cannot compile it:\na second line", "", ""};
  return r;
}

RunCount count(size_t done, size_t total, size_t compiled = 0, double each_ms = 0) {
  RunCount c;
  c.done = done;
  c.total = total;
  c.compiled = compiled;
  c.prepare_ms = each_ms * static_cast<double>(compiled);
  c.seconds = 10;
  return c;
}

JobList list_of(size_t jobs) {
  JobList list;
  list.targets = {"gfx90a"};
  for (size_t i = 0; i < jobs; ++i) list.jobs.push_back(job("k"));
  list.refused.push_back({{"odd", "/specs/9"}, "gfx90a", {ErrorKind::kUnsupported, "no", "", ""}});
  return list;
}

}  // namespace

TEST_CASE("the time left is that of the kernels compiled so far, on all threads") {
  CHECK(time_left(count(0, 10), 2) == "");
  CHECK(time_left(count(4, 10), 2) == "");  // all from the cache: nothing is known
  CHECK(time_left(count(4, 10, 4, 1000), 2) == "about 3 s left");
  CHECK(time_left(count(4, 10, 2, 1000), 1) == "about 6 s left");
  CHECK(time_left(count(0, 1000, 1, 1000), 2) == "about 8:20 min left");
  CHECK(time_left(count(0, 10000, 1, 3000), 1) == "about 8:20 h left");
  CHECK(time_left(count(10, 10, 10, 1000), 2) == "");
  CHECK(time_left(count(1, 2, 1, 1000), 0) == "about 1 s left");
}

TEST_CASE("a bar is never wider than the terminal and fills up") {
  for (int columns = 1; columns < 200; ++columns) {
    RunCount c = count(37, 12345, 30, 400);
    c.failed = 2;
    c.cached = 5;
    CHECK(bar_text(c, 2, columns).size() <= static_cast<size_t>(std::max(columns, 1)));
  }
  const std::string none = bar_text(count(0, 8), 2, 80), half = bar_text(count(4, 8), 2, 80),
                    all = bar_text(count(8, 8), 2, 80);
  CHECK_THAT(none, ContainsSubstring("[>"));
  CHECK_THAT(none, ContainsSubstring(" 0/8"));
  CHECK_THAT(half, ContainsSubstring("[====================>                   ]"));
  CHECK_THAT(all, ContainsSubstring("[========================================]"));
  CHECK_THAT(bar_text(count(0, 0), 2, 80), ContainsSubstring("0/0"));
}

TEST_CASE("lines: one for a compile and one for a failure, none for the cache") {
  Stream out;
  const auto progress = make_progress(ProgressStyle::lines, out.file());
  progress->begin(list_of(3), 2);
  progress->finished(job("one"), compiled(), count(1, 3, 1));
  progress->tick(count(1, 3, 1));
  progress->finished(job("two"), cached(), count(2, 3, 1));
  progress->finished(job("three"), failed(), count(3, 3, 1));
  progress->end();
  CHECK(out.text() ==
        "hstu-jit: 3 kernels for gfx90a on 2 threads\n"
        "hstu-jit: unsupported: odd for gfx90a: no\n"
        "hstu-jit: [1/3] one for gfx90a compiled in 400 ms\n"
        "hstu-jit: [3/3] failed: three for gfx90a (first spec and 1 more): cannot compile it:\\na "
        "second line\n");
}

TEST_CASE("events: one JSON object a line, each with its schema") {
  Stream out;
  const auto progress = make_progress(ProgressStyle::ndjson, out.file());
  progress->begin(list_of(2), 2);
  progress->finished(job("one"), compiled(), count(1, 2, 1));
  progress->tick(count(1, 2, 1));
  progress->finished(job("two"), failed(), count(2, 2, 1));
  progress->end();
  std::vector<nlohmann::json> events;
  std::string text = out.text();
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    REQUIRE(end != std::string::npos);
    events.push_back(nlohmann::json::parse(text.substr(at, end - at)));
    at = end + 1;
  }
  REQUIRE(events.size() == 4);
  for (const auto& event : events) CHECK(event["schema"] == "hstu-jit/prewarm-event/1");
  CHECK(events[0]["event"] == "start");
  CHECK(events[0]["total"] == 2);
  CHECK(events[1]["event"] == "refused");
  CHECK(events[1]["pointer"] == "/specs/9");
  CHECK(events[2]["state"] == "ready");
  CHECK(events[2]["source"] == "compiled");
  CHECK(events[2]["compile_ms"] == 400);
  CHECK(events[2]["specs"][1]["pointer"] == "/specs/1");
  CHECK(events[3]["state"] == "failed");
  CHECK(events[3]["kind"] == "compile");
  CHECK(events[3]["reason"] == "cannot compile it:\na second line");
}

TEST_CASE("a bar is cleared in the end, and log lines take turns with it") {
  Stream out;
  {
    const auto progress = make_progress(ProgressStyle::bar, out.file());
    progress->begin(list_of(2), 2);
    progress->tick(count(0, 2));
    log_warn("something else");
    progress->finished(job("two"), failed(), count(1, 2));
    progress->end();
  }
  const std::string text = out.text();
  CHECK_THAT(text, ContainsSubstring("\r\x1b[Khstu-jit: warning: something else\n\r\x1b[K"));
  CHECK_THAT(text, ContainsSubstring("failed: two"));
  CHECK(text.substr(text.size() - 4) == "\r\x1b[K");
  // Nothing but a cleared line stays: no cursor was hidden, no screen switched.
  CHECK(text.find("\x1b[?") == std::string::npos);
}

TEST_CASE("NO_COLOR is honoured") {
  const auto drawn = [] {
    Stream out;
    const auto progress = make_progress(ProgressStyle::bar, out.file());
    progress->tick(count(1, 2));
    progress->end();
    return out.text();
  };
  {
    const Environment plain("NO_COLOR", "1");
    CHECK(drawn().find("\x1b[3") == std::string::npos);
  }
  const Environment unset("NO_COLOR", "");
  CHECK(drawn().find("\x1b[32m") != std::string::npos);
}

TEST_CASE("which style is taken") {
  Stream out;
  std::FILE* null = std::fopen("/dev/null", "w");
  REQUIRE(null != nullptr);
  CHECK(*progress_style("auto", null) == ProgressStyle::lines);
  CHECK(*progress_style("bar", null) == ProgressStyle::bar);
  CHECK(*progress_style("none", null) == ProgressStyle::none);
  CHECK(progress_style("loud", null).error().kind == ErrorKind::kUsage);
  std::fclose(null);
}
