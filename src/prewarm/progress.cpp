// SPDX-License-Identifier: Apache-2.0
#include "prewarm/progress.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/env.hpp"
#include "base/log.hpp"
#include "base/text.hpp"

namespace hstu::jit {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kEventSchema = "hstu-jit/prewarm-event/1";
constexpr const char* kClearLine = "\r\x1b[K";

std::string duration(double seconds) {
  const auto s = static_cast<int64_t>(std::llround(std::max(seconds, 0.0)));
  if (s < 100) return fmt::format("{} s", s);
  if (s < 6000) return fmt::format("{}:{:02} min", s / 60, s % 60);
  return fmt::format("{}:{:02} h", s / 3600, s / 60 % 60);
}

std::string reason_of(const JobResult& result) {
  return printable(result.error ? result.error->message : "", 600);
}

std::string askers_text(const KernelJob& job) {
  if (job.askers.empty()) return "";
  std::string text = printable(job.askers.front().label, 80);
  if (job.askers.size() > 1) text += fmt::format(" and {} more", job.askers.size() - 1);
  return text;
}

class Silent : public Progress {
 public:
  void begin(const JobList&, size_t) override {}
  void finished(const KernelJob&, const JobResult&, const RunCount&) override {}
  void tick(const RunCount&) override {}
  void end() override {}
};

// A line for each kernel that took time or failed; those the cache had are only counted.
class Lines : public Progress {
 public:
  explicit Lines(std::FILE* out) : out_(out) {}

  void begin(const JobList& list, size_t threads) override {
    say(fmt::format("{} kernels for {} on {} threads", list.jobs.size(),
                    fmt::join(list.targets, ", "), threads));
    for (const RefusedJob& job : list.refused)
      say(fmt::format("unsupported: {} for {}: {}", printable(job.asker.label, 80), job.target,
                      printable(job.error.message, 600)));
  }
  void finished(const KernelJob& job, const JobResult& result, const RunCount& count) override {
    if (result.state == JobResult::State::failed) {
      say(fmt::format("[{}/{}] failed: {} for {} ({}): {}", count.done, count.total,
                      printable(job.entry, 120), job.target.name, askers_text(job),
                      reason_of(result)));
    } else if (result.origin == KernelOrigin::compiled) {
      say(fmt::format("[{}/{}] {} for {} compiled in {:.0f} ms", count.done, count.total,
                      printable(job.entry, 120), job.target.name, result.compile_ms));
    }
  }
  void tick(const RunCount&) override {}
  void end() override {}

 protected:
  virtual void say(const std::string& line) {
    fmt::print(out_, "hstu-jit: {}\n", line);
    std::fflush(out_);
  }
  std::FILE* out_;
};

class Bar : public Lines {
 public:
  explicit Bar(std::FILE* out) : Lines(out), color_(!get_env("NO_COLOR")) {
    set_log_sink(&Bar::logged, this);
  }
  ~Bar() override { end(); }

  void begin(const JobList& list, size_t threads) override {
    threads_ = threads;
    Lines::begin(list, threads);
  }
  void finished(const KernelJob& job, const JobResult& result, const RunCount& count) override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      count_ = count;
    }
    if (result.state == JobResult::State::failed) Lines::finished(job, result, count);
  }
  void tick(const RunCount& count) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    count_ = count;
    draw();
  }
  void end() override {
    set_log_sink(nullptr, nullptr);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (shown_) fmt::print(out_, "{}", kClearLine);
    std::fflush(out_);
    shown_ = false;
  }

 private:
  void say(const std::string& line) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    fmt::print(out_, "{}hstu-jit: {}\n", shown_ ? kClearLine : "", line);
    if (shown_) draw();
    std::fflush(out_);
  }
  void draw() {
    winsize size{};
    int columns = 80;
    if (::ioctl(::fileno(out_), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) columns = size.ws_col;
    // One column short: a full line wraps on some terminals.
    const std::string text = bar_text(count_, threads_, columns - 1);
    const char* color = !color_ ? "" : count_.failed > 0 ? "\x1b[31m" : "\x1b[32m";
    fmt::print(out_, "{}{}{}{}", kClearLine, color, text, color_ ? "\x1b[0m" : "");
    std::fflush(out_);
    shown_ = true;
  }
  static void logged(LogLevel level, std::string_view line, void* user) {
    const char* name = level == LogLevel::error  ? "error: "
                       : level == LogLevel::warn ? "warning: "
                                                 : "";
    static_cast<Bar*>(user)->say(name + printable(line, 4000));
  }

  std::mutex mutex_;  // log lines come from any thread
  const bool color_;
  size_t threads_ = 1;
  RunCount count_;
  bool shown_ = false;
};

class Events : public Progress {
 public:
  explicit Events(std::FILE* out) : out_(out) {}

  void begin(const JobList& list, size_t threads) override {
    say({{"event", "start"},
         {"total", list.jobs.size()},
         {"refused", list.refused.size()},
         {"targets", list.targets},
         {"jobs", threads}});
    for (const RefusedJob& job : list.refused)
      say({{"event", "refused"},
           {"spec", job.asker.label},
           {"pointer", job.asker.pointer},
           {"target", job.target},
           {"reason", job.error.message}});
  }
  void finished(const KernelJob& job, const JobResult& result, const RunCount& count) override {
    const bool ready = result.state == JobResult::State::ready;
    Json event{{"event", "kernel"},
               {"done", count.done},
               {"total", count.total},
               {"key", job.request},
               {"target", job.target.name},
               {"name", job.entry},
               {"state", ready ? "ready" : "failed"}};
    if (ready) {
      event["source"] = kernel_origin_name(result.origin);
      event["compile_ms"] = result.compile_ms;
      event["prepare_ms"] = result.prepare_ms;
    } else if (result.error) {
      event["kind"] = error_kind_name(result.error->kind);
      event["reason"] = result.error->message;
    }
    event["specs"] = Json::array();
    for (const Asker& asker : job.askers)
      event["specs"].push_back({{"spec", asker.label}, {"pointer", asker.pointer}});
    say(std::move(event));
  }
  void tick(const RunCount&) override {}
  void end() override {}

 private:
  void say(Json event) {
    Json line{{"schema", kEventSchema}};
    line.update(event);
    const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    std::fwrite(text.data(), 1, text.size(), out_);
    std::fflush(out_);
  }
  std::FILE* out_;
};

}  // namespace

Result<ProgressStyle> progress_style(std::string_view word, std::FILE* out) {
  if (word == "none") return ProgressStyle::none;
  if (word == "lines") return ProgressStyle::lines;
  if (word == "bar") return ProgressStyle::bar;
  if (word == "ndjson") return ProgressStyle::ndjson;
  if (word == "auto") {
    const std::string terminal = get_env("TERM").value_or("dumb");
    return ::isatty(::fileno(out)) == 1 && terminal != "dumb" ? ProgressStyle::bar
                                                              : ProgressStyle::lines;
  }
  return Error{ErrorKind::kUsage,
               fmt::format("--progress: found \"{}\"; allowed auto, bar, lines, ndjson, none",
                           printable(word)),
               "", ""};
}

std::string time_left(const RunCount& count, size_t threads) {
  if (count.compiled == 0 || count.done >= count.total) return "";
  const double each = count.prepare_ms / 1000 / static_cast<double>(count.compiled);
  const double left = each * static_cast<double>(count.total - count.done) /
                      static_cast<double>(std::max<size_t>(threads, 1));
  return fmt::format("about {} left", duration(left));
}

std::string bar_text(const RunCount& count, size_t threads, int columns) {
  std::string text = fmt::format(" {}/{}", count.done, count.total);
  if (count.compiled > 0 && count.seconds > 0)
    text += fmt::format(", {:.1f} compiles/s", static_cast<double>(count.compiled) / count.seconds);
  if (count.cached > 0) text += fmt::format(", {} cached", count.cached);
  if (count.failed > 0) text += fmt::format(", {} FAILED", count.failed);
  const std::string left = time_left(count, threads);
  text += ", " + (left.empty() ? duration(count.seconds) : left);
  const int room = columns - 2 - static_cast<int>(text.size());
  if (room < 5) return text.substr(1, static_cast<size_t>(std::max(columns, 1)));
  const auto width = static_cast<size_t>(std::min(room, 40));
  const size_t full = count.total == 0 ? width : width * count.done / count.total;
  std::string bar(full, '=');
  if (full < width) bar += '>';
  bar.resize(width, ' ');
  return "[" + bar + "]" + text;
}

std::unique_ptr<Progress> make_progress(ProgressStyle style, std::FILE* out) {
  switch (style) {
    case ProgressStyle::lines:
      return std::make_unique<Lines>(out);
    case ProgressStyle::bar:
      return std::make_unique<Bar>(out);
    case ProgressStyle::ndjson:
      return std::make_unique<Events>(out);
    case ProgressStyle::none:
      break;
  }
  return std::make_unique<Silent>();
}

}  // namespace hstu::jit
