// SPDX-License-Identifier: Apache-2.0
// hstu-jit prewarm, as a build host and the nodes of a fleet use it.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "catch.hpp"
#include "program.hpp"

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

// Small kernels, so that a compile is short.
std::string sweep(const std::string& set) {
  return R"({"schema": "hstu-jit/manifest/1", "specs": [{"sweep": {"base":
      {"op": "hstu_attention", "name": "s", "heads": 2, "head_dim_qk": 32, "uih_lengths": [40, 9]},
      "set": )" +
         set + "}}]}";
}
const std::string kTwo = sweep(R"({"/mask/causal": [true, false]})");
const std::string kFour = sweep(R"({"/mask/causal": [true, false], "/dtype": ["bf16", "fp16"]})");

// Whether gfx90a kernels can be compiled here; else says so.
bool can_compile(const Program& program, const char* test) {
  const std::string missing = program.missing("compiler for gfx90a");
  if (missing.empty()) return true;
  fmt::print("SKIPPED: {}: {}\n", test, missing);
  return false;
}

json parsed(const Outcome& o) {
  const json j = json::parse(o.out, nullptr, false);
  INFO("stdout: " << o.out << "\nstderr: " << o.err);
  REQUIRE_FALSE(j.is_discarded());
  return j;
}

std::string text_of(const std::string& path) {
  auto text = hstu::jit::read_file(path);
  REQUIRE(text.ok());
  return *text;
}

std::set<std::string> files_in(const std::string& path) {
  std::set<std::string> names;
  if (fs::exists(path))
    for (const auto& e : fs::directory_iterator(path)) names.insert(e.path().filename());
  return names;
}

// A run of the program that is still under way.
class Started {
 public:
  Started(const Program& program, std::vector<std::string> arguments) {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    std::vector<std::string> words{HSTU_PROGRAM}, settings;
    words.insert(words.end(), arguments.begin(), arguments.end());
    for (const auto& [name, value] : program.environment)
      if (!value.empty()) settings.push_back(name + "=" + value);
    std::vector<char*> argv, environment;
    for (std::string& word : words) argv.push_back(word.data());
    for (std::string& setting : settings) environment.push_back(setting.data());
    argv.push_back(nullptr);
    environment.push_back(nullptr);
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      ::dup2(ends[1], 1);
      const int null = ::open("/dev/null", O_WRONLY);
      if (null >= 0) ::dup2(null, 2);
      ::execve(argv[0], argv.data(), environment.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    out_ = ends[0];
  }
  ~Started() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::close(out_);
  }
  // The next line of standard output; "" at its end.
  std::string line() {
    std::string text;
    for (char c; ::read(out_, &c, 1) == 1 && c != '\n';) text += c;
    return text;
  }
  // Up to the first event of this kind.
  json event(const std::string& kind) {
    for (std::string text = line(); !text.empty(); text = line()) {
      json j = json::parse(text);
      if (j["event"] == kind) return j;
    }
    FAIL("there was no event " << kind);
    return {};
  }
  void signal(int number) { ::kill(pid_, number); }
  // As waitpid() says it.
  int wait() {
    int status = 0;
    REQUIRE(::waitpid(std::exchange(pid_, -1), &status, 0) > 0);
    return status;
  }

 private:
  pid_t pid_ = -1;
  int out_ = -1;
};

// Processes whose environment names this folder: workers get their TMPDIR below it.
int processes_of(const std::string& folder) {
  int count = 0;
  for (const auto& e : fs::directory_iterator("/proc")) {
    const std::string name = e.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const auto settings = hstu::jit::read_file(e.path() / "environ", 1 << 20);
    if (settings.ok() && settings->find("TMPDIR=" + folder) != std::string::npos) ++count;
  }
  return count;
}

bool soon(const std::function<bool()>& what) {
  for (int i = 0; i < 500; ++i) {
    if (what()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

}  // namespace

TEST_CASE("prewarm: cold, warm, without a cache, one thread or two: the same bundle") {
  Program program;
  if (!can_compile(program, "prewarm")) return;
  const std::string manifest = program.file("m.json", kTwo);
  const std::string a = program.folder() + "/a.hjb", b = program.folder() + "/b.hjb",
                    c = program.folder() + "/c.hjb";
  const Outcome not_yet = program.run({"prewarm", manifest, "--targets", "gfx90a", "--check"});
  CHECK(not_yet.code == 8);
  CHECK_THAT(not_yet.out, ContainsSubstring("not ready: 0 of 2"));
  CHECK(not_yet.lines_err() == 1);

  const json cold = parsed(program.run({"prewarm", manifest, "--targets", "gfx90a", "--jobs", "2",
                                        "--out", a, "--json", "--progress", "none"}));
  CHECK(cold["schema"] == "hstu-jit/prewarm/1");
  CHECK(cold["total"] == 2);
  CHECK(cold["compiled"] == 2);
  CHECK(cold["failed"] == 0);
  CHECK(cold["bundle"]["entries"] == 2);
  CHECK(cold["kernels"][0]["specs"][0]["spec"] == "s /mask/causal=true");

  const json warm = parsed(program.run(
      {"prewarm", manifest, "--targets", "gfx90a", "--jobs", "1", "--out", b, "--json"}));
  CHECK(warm["compiled"] == 0);
  CHECK(warm["cached"]["local"] == 2);
  CHECK(warm["bundle"]["digest"] == cold["bundle"]["digest"]);
  CHECK(text_of(a) == text_of(b));

  Program bare;
  bare.environment["HSTU_JIT_CACHE_MODE"] = "off";
  const Outcome memory =
      bare.run({"prewarm", manifest, "--targets", "gfx90a", "--out", c}, "", false);
  CHECK(memory.code == 0);
  CHECK(text_of(a) == text_of(c));

  const Outcome ready = program.run({"prewarm", manifest, "--targets", "gfx90a", "--check"});
  CHECK(ready.code == 0);
  CHECK(ready.err.empty());
  CHECK(ready.out == "ready: 2 of 2 kernels are there\n");

  // A node that has nothing but the bundle, pinned or its own.
  Program node;
  for (const std::string& pin :
       {std::string(), "@sha256:" + cold["bundle"]["digest"].get<std::string>()}) {
    INFO(pin);
    node.environment["HSTU_JIT_BUNDLES"] = a + pin;
    const json served = parsed(node.run({"prewarm", manifest, "--targets", "gfx90a", "--json"}));
    CHECK(served["compiled"] == 0);
    CHECK(served["cached"]["bundle"] == 2);
  }
  const Outcome probe = node.run({"prewarm", manifest, "--targets", "gfx90a", "--check"});
  CHECK(probe.code == 0);
}

TEST_CASE("prewarm --check writes nothing and tells each missing kernel with its reason") {
  Program program;
  const std::string manifest = program.file("m.json", kTwo);
  const Outcome o =
      program.run({"prewarm", manifest, "--targets", "gfx90a,gfx942", "--check", "--json"});
  CHECK(o.code == 8);
  const json j = parsed(o);
  CHECK(j["schema"] == "hstu-jit/prewarm-check/1");
  CHECK(j["ready"] == false);
  CHECK(j["total"] == 4);
  REQUIRE(j["missing"].size() == 4);
  for (const auto& m : j["missing"]) {
    CHECK(m["key"].get<std::string>().size() == 64);
    CHECK_FALSE(m["reason"].get<std::string>().empty());
    CHECK_FALSE(m["explanation"].get<std::string>().empty());
    CHECK(m["specs"].size() == 1);
  }
  // Nothing remembers a compiler, no entry is there.
  for (const auto& e : fs::recursive_directory_iterator(program.folder()))
    if (e.is_regular_file()) CHECK(e.path() == manifest);
}

// A node is filled by a bundle or a remote and has never compiled: which compiler it has is then
// not remembered, and the probe has to find out.
TEST_CASE("prewarm --check on a node that was filled from elsewhere and has a compiler") {
  Program program;
  if (!can_compile(program, "readiness of a filled node")) return;
  const std::string manifest = program.file("m.json", kTwo);
  const std::string out = program.folder() + "/k.hjb";
  REQUIRE(program.run({"prewarm", manifest, "--targets", "gfx90a", "--out", out}).code == 0);
  Program node;
  const std::vector<std::string> check{"prewarm", manifest, "--targets", "gfx90a", "--check"};
  CHECK(node.run(check).code == 8);
  REQUIRE(node.run({"bundle", "install", out}).code == 0);
  const Outcome ready = node.run(check);
  INFO(ready.err);
  CHECK(ready.code == 0);
  // With another compiler, or none that works, the answers are those of a run there.
  node.environment["HSTU_JIT_HIPRTC"] = "/nonexistent/libamdhip64.so";
  node.environment["HSTU_JIT_CLANG"] = "/nonexistent/clang++";
  const Outcome without = node.run(check);
  const Outcome made = node.run({"prewarm", manifest, "--targets", "gfx90a"});
  INFO(without.err << made.err);
  CHECK((without.code == 0) == (made.code == 0));
}

TEST_CASE("prewarm: one entry that cannot be compiled does not take the others along") {
  Program program;
  if (!can_compile(program, "prewarm of a failing entry")) return;
  // No compiler for the second target.
  const std::string out = program.folder() + "/k.hjb";
  program.environment["HSTU_JIT_NVRTC"] = "/nonexistent/libnvrtc.so";
  const std::string manifest = program.file("m.json", kTwo);
  const std::vector<std::string> call{"prewarm", manifest, "--targets", "gfx90a,sm_80",
                                      "--out",   out,      "--json"};
  const Outcome o = program.run(call);
  CHECK(o.code == 5);
  const json j = parsed(o);
  CHECK(j["compiled"] == 2);
  CHECK(j["failed"] == 2);
  REQUIRE(j["failures"].size() == 2);
  for (const auto& f : j["failures"]) {
    CHECK(f["target"] == "sm_80");
    CHECK(f["kind"] == "compile");
    CHECK(f["pointer"] == "/specs/0");
    CHECK_THAT(f["reason"].get<std::string>(), ContainsSubstring("no compiler for target sm_80"));
  }
  CHECK(j["bundle"]["entries"] == 2);
  const std::string bundle = text_of(out);
  CHECK(bundle.find("no compiler for target sm_80") != std::string::npos);  // in its manifest

  fs::remove(out);
  std::vector<std::string> strict = call;
  strict.push_back("--strict");
  const Outcome refused = program.run(strict);
  CHECK(refused.code == 5);
  CHECK_FALSE(fs::exists(out));
  CHECK_THAT(refused.err, ContainsSubstring("no bundle was written"));
  CHECK_FALSE(parsed(refused).contains("bundle"));
}

TEST_CASE("prewarm: specs a target has no kernel for are exit code 4") {
  Program program;
  if (!can_compile(program, "prewarm of an unsupported entry")) return;
  const std::string odd =
      R"({"spec": {"op": "hstu_attention", "name": "odd", "heads": 2, "head_dim_qk": 32,
          "uih_lengths": [40, 9], "strides": {"q": [0, 68, 34]}}})";
  const std::string good =
      R"({"spec": {"op": "hstu_attention", "name": "even", "heads": 2, "head_dim_qk": 32,
          "uih_lengths": [40, 9]}})";
  const std::string manifest = program.file(
      "m.json", R"({"schema": "hstu-jit/manifest/1", "targets": ["gfx90a"], "specs": [)" + odd +
                    "," + good + "]}");
  const Outcome o = program.run({"prewarm", manifest, "--json"});
  CHECK(o.code == 4);
  const json j = parsed(o);
  CHECK(j["compiled"] == 1);
  CHECK(j["unsupported"] == 1);
  REQUIRE(j["failures"].size() == 1);
  CHECK(j["failures"][0]["spec"] == "odd");
  CHECK(j["failures"][0]["kind"] == "unsupported");
  // A node need not have what no node can have.
  const Outcome check = program.run({"prewarm", manifest, "--check"});
  CHECK(check.code == 0);
  CHECK_THAT(check.err, ContainsSubstring("unsupported, not counted: odd"));
}

TEST_CASE("prewarm: shards merged are the whole") {
  Program program;
  if (!can_compile(program, "prewarm of shards")) return;
  const std::string manifest = program.file("m.json", kFour);
  const std::string whole = program.folder() + "/whole.hjb",
                    merged = program.folder() + "/merged.hjb";
  std::vector<std::string> merge{"bundle", "merge"};
  std::set<std::string> seen;
  for (int i = 0; i < 3; ++i) {
    const std::string part = fmt::format("{}/part{}.hjb", program.folder(), i);
    const json j = parsed(program.run({"prewarm", manifest, "--targets", "gfx90a", "--shard",
                                       fmt::format("{}/3", i), "--out", part, "--json"}));
    for (const auto& kernel : j["kernels"]) CHECK(seen.insert(kernel["key"]).second);
    merge.push_back(part);
  }
  CHECK(seen.size() == 4);
  REQUIRE(program.run({"prewarm", manifest, "--targets", "gfx90a", "--out", whole}).code == 0);
  merge.insert(merge.end(), {"-o", merged});
  const Outcome o = program.run(merge);
  INFO(o.err);
  REQUIRE(o.code == 0);
  CHECK(text_of(whole) == text_of(merged));
}

TEST_CASE("prewarm: killed in the middle, the next run goes on there") {
  Program program;
  if (!can_compile(program, "prewarm that is killed")) return;
  const std::string manifest = program.file("m.json", kFour);
  const std::string tmp = program.folder() + "/tmp";
  REQUIRE(hstu::jit::make_directories(tmp).ok());
  program.environment["TMPDIR"] = tmp;
  const std::vector<std::string> call{
      "prewarm", manifest,     "--targets", "gfx90a",      "--jobs",
      "1",       "--progress", "ndjson",    "--cache-dir", program.cache_dir()};
  Started run(program, call);
  CHECK(run.event("kernel")["state"] == "ready");
  run.signal(SIGKILL);
  CHECK(WTERMSIG(run.wait()) == SIGKILL);
  CHECK(soon([&] { return processes_of(tmp) == 0; }));
  const json j =
      parsed(program.run({"prewarm", manifest, "--targets", "gfx90a", "--jobs", "2", "--json"}));
  CHECK(j["cached"]["local"].get<int>() >= 1);
  CHECK(j["cached"]["local"].get<int>() + j["compiled"].get<int>() == 4);
  CHECK(j["compiled"].get<int>() <= 3);
}

TEST_CASE("prewarm: interrupted, it ends in order: no worker, no temporary file, no bundle") {
  Program program;
  if (!can_compile(program, "prewarm that is interrupted")) return;
  const std::string manifest = program.file("m.json", kFour);
  const std::string tmp = program.folder() + "/tmp", out = program.folder() + "/k.hjb";
  REQUIRE(hstu::jit::make_directories(tmp).ok());
  program.environment["TMPDIR"] = tmp;
  for (const int signal : {SIGINT, SIGTERM}) {
    Started run(program, {"prewarm", manifest, "--targets", "gfx90a", "--jobs", "2", "--progress",
                          "ndjson", "--out", out, "--cache-dir", program.cache_dir()});
    run.event("start");
    REQUIRE(soon([&] { return processes_of(tmp) > 1; }));  // itself and a worker
    run.signal(signal);
    const json last = run.event("end");
    CHECK(last["report"]["interrupted"] == true);
    CHECK(last["report"]["failed"] == 0);
    CHECK(last["report"]["skipped"].get<int>() >= 1);
    const int status = run.wait();
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 128 + signal);
    CHECK(processes_of(tmp) == 0);
    CHECK(files_in(tmp).empty());
    CHECK_FALSE(fs::exists(out));
  }
  for (const auto& e : fs::recursive_directory_iterator(program.cache_dir()))
    CHECK(e.path().filename().string().rfind(".tmp-", 0) != 0);
}

TEST_CASE("prewarm: two at once on one cache compile each kernel once") {
  Program program;
  if (!can_compile(program, "two prewarms")) return;
  const std::string manifest = program.file("m.json", kFour);
  const std::vector<std::string> call{
      "prewarm", manifest,     "--targets", "gfx90a",      "--jobs",
      "1",       "--progress", "ndjson",    "--cache-dir", program.cache_dir()};
  Started first(program, call), second(program, call);
  int compiled = 0;
  for (Started* run : {&first, &second}) {
    const json report = run->event("end")["report"];
    CHECK(report["failed"] == 0);
    compiled += report["compiled"].get<int>();
    CHECK(run->wait() == 0);
  }
  CHECK(compiled == 4);
}

TEST_CASE("prewarm: what a process asked for is the next manifest") {
  Program program;
  if (!can_compile(program, "a record")) return;
  const std::string record = program.folder() + "/asked.jsonl";
  program.environment["HSTU_JIT_RECORD"] = record;
  const std::string spec = program.file("s.json", kSmallSpec);
  const std::string object = program.folder() + "/o";
  for (int i = 0; i < 2; ++i)
    REQUIRE(program.run({"compile", spec, "--target", "gfx90a", "-o", object}).code == 0);
  program.environment.erase("HSTU_JIT_RECORD");
  const Outcome check = program.run({"prewarm", record, "--check", "--json"});
  CHECK(check.code == 0);
  CHECK(parsed(check)["total"] == 1);
  // Torn by a death in the middle of a line.
  const std::string whole = text_of(record);
  program.file("torn.jsonl", whole + whole.substr(0, whole.size() / 2));
  const Outcome torn = program.run({"prewarm", program.folder() + "/torn.jsonl", "--check"});
  CHECK(torn.code == 0);
  CHECK_THAT(torn.err, ContainsSubstring("line 2 is torn"));
}

TEST_CASE("prewarm: what is wrong with a call or a manifest is one line and its exit code") {
  Program program;
  const std::string good = program.file("m.json", kTwo);
  const std::string bad =
      program.file("bad.json", R"({"schema": "hstu-jit/manifest/1", "specs": [{"sweap": {}}]})");
  const std::string broken = program.file("broken.json", "{");
  check_refused(program.run({"prewarm"}), 2, {"manifest"});
  check_refused(program.run({"prewarm", good}), 3, {"--targets", "/specs/0"});
  check_refused(program.run({"prewarm", bad, "--targets", "cpu"}), 3,
                {"bad.json", "/specs/0/sweap", "did you mean sweep?"});
  check_refused(program.run({"prewarm", broken, "--targets", "cpu"}), 3, {"invalid JSON"});
  check_refused(program.run({"prewarm", "none.json", "--targets", "cpu"}), 3, {"none.json"});
  check_refused(program.run({"prewarm", good, "--targets", "gfx90b"}), 4, {"gfx90a"});
  check_refused(program.run({"prewarm", good, "--targets", "cpu", "--jobs", "0"}), 2, {"jobs"});
  check_refused(program.run({"prewarm", good, "--targets", "cpu", "--shard", "2/2"}), 2,
                {"--shard"});
  check_refused(program.run({"prewarm", good, "--targets", "cpu", "--shard", "slurm"}), 2,
                {"SLURM_ARRAY_TASK_ID"});
  check_refused(program.run({"prewarm", good, "--targets", "cpu", "--progress", "loud"}), 2,
                {"--progress"});
  check_refused(program.run({"prewarm", good, "--targets", "cpu", "--device", "cpu"}), 2,
                {"device"});
  check_refused(program.run({"prewarm", good, "--target", "cpu", "--targets", "cpu"}), 2,
                {"--targets"});
  check_refused(
      program.run({"prewarm", good, "--targets", "cpu", "--out", program.folder() + "/none/k.hjb"}),
      8, {"none/k.hjb"});
}
