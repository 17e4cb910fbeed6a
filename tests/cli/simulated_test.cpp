// SPDX-License-Identifier: Apache-2.0
// Simulated devices on a machine that misbehaves: nonsense in the environment, disassemblers that
// hang, disks that are full.
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/file.hpp"
#include "base/subprocess.hpp"
#include "catch.hpp"
#include "object/make_object.hpp"
#include "program.hpp"

using nlohmann::json;

namespace {

constexpr uint32_t kGfx90a = 0x3f;  // EF_AMDGPU_MACH

void check_error(const Outcome& o, int code, std::vector<std::string> words) {
  INFO("stdout: " << o.out << "stderr: " << o.err);
  CHECK(o.code == code);
  CHECK(o.lines_err() == 1);
  CHECK(o.err.rfind("hstu-jit: ", 0) == 0);
  for (const std::string& word : words) CHECK_THAT(o.err, ContainsSubstring(word));
}

// Whether this machine can run things on sim:gfx90a; says so where not.
bool simulates(const Program& p, const char* test) {
  for (const char* thing : {"compiler for gfx90a", "disassembler for gfx90a"}) {
    const std::string lack = p.missing(thing);
    if (lack.empty()) continue;
    fmt::print("SKIPPED: {}: {}\n", test, lack);
    return false;
  }
  return true;
}

std::string hand_made_object(const Program& p) {
  return p.file("k.hsaco",
                hstu::test::make_amd_object(kGfx90a, hstu::test::amd_metadata("kernel", 64)));
}

bool alive(pid_t pid) {
  for (int i = 0; i < 200; ++i) {  // a killed orphan is reaped by init in its own time
    const auto status = hstu::jit::read_file(fmt::format("/proc/{}/stat", pid));
    if (!status || status->find(") Z ") != std::string::npos) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

}  // namespace

TEST_CASE("nonsense in the simulator's variables is a usage error on simulated devices only") {
  Program p;
  const std::string spec = p.file("spec.json", kSmallSpec);
  for (const char* variable : {"HSTU_JIT_SIM_THREADS", "HSTU_JIT_SIM_LIMIT"}) {
    for (const char* value :
         {"many", "0", "-1", "1.5", " 4", "4 ", "0x10", "99999999999999999999"}) {
      p.environment = {{"PATH", p.environment["PATH"]}, {variable, value}};
      check_error(p.run({"run", spec, "--device", "sim:gfx90a"}), 2,
                  {variable, fmt::format("\"{}\"", value), "number from 1 to", "unset"});
    }
    CHECK(p.run({"plan", spec}).code == 0);
  }
  p.environment = {{"PATH", p.environment["PATH"]}, {"HSTU_JIT_SIM_THREADS", "1025"}};
  check_error(p.run({"run", spec, "--device", "sim:gfx90a"}), 2, {"from 1 to 1024"});
  p.environment["HSTU_JIT_SIM_THREADS"] = "1024";
  CHECK(p.run({"plan", spec, "--device", "sim:gfx90a"}).code == 0);
}

TEST_CASE("a wave's limit of the environment is honoured") {
  Program p;
  if (!simulates(p, "limit of instructions")) return;
  p.environment["HSTU_JIT_SIM_LIMIT"] = "10";
  check_error(p.run({"run", "-", "--device", "sim:gfx90a"}, kSmallSpec), 1, {"10 "});
}

TEST_CASE("a disassembler that hangs is given up, in words and with its exit code") {
  Program p;
  const std::string object = hand_made_object(p), lack = p.missing("compiler for gfx90a");
  p.environment["HSTU_JIT_OBJDUMP"] = p.file("hang", "#!/bin/sh\nsleep 1000\n", true);
  p.environment["HSTU_JIT_OBJDUMP_TIMEOUT"] = "0.2";
  const auto start = std::chrono::steady_clock::now();
  check_error(p.run({"inspect", "--schedule", object}), 9,
              {"no answer within 200 ms", "HSTU_JIT_OBJDUMP_TIMEOUT"});
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
  p.environment["HSTU_JIT_OBJDUMP_TIMEOUT"] = "soon";
  check_error(p.run({"inspect", "--schedule", object}), 2, {"\"soon\"", "seconds"});
  p.environment["HSTU_JIT_OBJDUMP_TIMEOUT"] = "0.2";
  // The doctor asks it once, for all targets.
  CHECK_THAT(p.missing("disassembler for gfx90a"), ContainsSubstring("no answer within"));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(40));
  if (!lack.empty()) {
    fmt::print("SKIPPED: hanging disassembler in a run: {}\n", lack);
    return;
  }
  check_error(p.run({"run", "-", "--device", "sim:gfx90a"}, kSmallSpec), 9,
              {"no answer within 200 ms"});
}

TEST_CASE("a command that is told to end takes its disassembler along") {
  Program p;
  const std::string object = hand_made_object(p), pids = p.folder() + "/pids";
  p.environment["HSTU_JIT_OBJDUMP"] = p.file(
      "hang",
      fmt::format("#!/bin/sh\nsleep 1000 & echo $$ $! > {0}.new; mv {0}.new {0}\nwait\n", pids),
      true);
  for (const char* signal : {"TERM", "INT", "HUP", "KILL"}) {
    INFO(signal);
    // A shell's background commands ignore interrupts; "env" of coreutils can undo that.
    const std::string script = p.file(
        "start.sh",
        fmt::format("#!/bin/sh\nrm -f {0}\nenv --default-signal=INT {1} inspect --schedule {2} "
                    ">/dev/null 2>&1 &\n"
                    "i=0\nwhile [ ! -e {0} ] && [ $i -lt 1000 ]; do sleep 0.02; i=$((i+1)); done\n"
                    "kill -{3} $!\nwait $!\necho $?\n",
                    pids, HSTU_PROGRAM, object, signal),
        true);
    hstu::jit::ProcessOptions options;
    options.argv = {script};
    options.environment.emplace();
    for (const auto& [name, value] : p.environment)
      options.environment->push_back(name + "=" + value);
    // This kills the script's own group at its end; the disassembler is in another.
    const auto ended = hstu::jit::run_process(options);
    REQUIRE(ended.ok());
    const int code = std::atoi(ended->output.c_str());
    CHECK(code == 128 + (signal == std::string("TERM")  ? SIGTERM
                         : signal == std::string("INT") ? SIGINT
                         : signal == std::string("HUP") ? SIGHUP
                                                        : SIGKILL));
    const auto text = hstu::jit::read_file(pids);
    REQUIRE(text.ok());
    const auto first = static_cast<pid_t>(std::stoi(*text));
    const auto second = static_cast<pid_t>(std::stoi(text->substr(text->find(' '))));
    CHECK_FALSE(alive(first));
    // Nobody can act on SIGKILL: only the direct child is bound to us by the kernel.
    if (signal != std::string("KILL")) CHECK_FALSE(alive(second));
    ::kill(second, SIGKILL);
  }
}

TEST_CASE("a full disk while a kernel is loaded is a failed run that says so") {
  Program p;
  // Files may not grow beyond a kilobyte: the object for the disassembler does not fit.
  const auto limited = [&](const std::string& arguments) {
    return p.file("limited.sh",
                  fmt::format("#!/bin/sh\nulimit -f 2\nexec {} {} --cache-dir {}\n", HSTU_PROGRAM,
                              arguments, p.cache_dir()),
                  true);
  };
  const auto run_script = [&](const std::string& script) {
    hstu::jit::ProcessOptions options;
    options.argv = {script};
    options.environment.emplace();
    for (const auto& [name, value] : p.environment)
      options.environment->push_back(name + "=" + value);
    const auto result = hstu::jit::run_process(options);
    REQUIRE(result.ok());
    CHECK(result->signal == 0);
    return Outcome{result->exit_code, result->output, result->errors};
  };
  const std::string spec = p.file("spec.json", kSmallSpec);
  if (!simulates(p, "full disk in a simulated load")) return;
  REQUIRE(p.run({"run", spec, "--device", "sim:gfx90a"}).code == 0);
  const Outcome run = run_script(limited(fmt::format("run {} --device sim:gfx90a", spec)));
  INFO(run.out);
  check_error(run, 1, {"cannot write", "File too large", "TMPDIR"});
  const std::string object = p.folder() + "/k.o";
  REQUIRE(p.run({"compile", spec, "--device", "sim:gfx90a", "-o", object}).code == 0);
  check_error(run_script(limited("inspect --schedule " + object)), 1,
              {"cannot write", "File too large", "TMPDIR"});
}

TEST_CASE("what simulating took is not called a GPU's time or rate") {
  const Program p;
  if (!simulates(p, "times of simulated runs")) return;
  const std::string spec = p.file("spec.json", kSmallSpec);
  const Outcome text = p.run({"run", spec, "--device", "sim:gfx90a"});
  INFO(text.out << text.err);
  REQUIRE(text.code == 0);
  CHECK(text.err.empty());  // a short one is not announced
  CHECK_THAT(text.out, ContainsSubstring("not a GPU's time"));
  CHECK_THAT(text.out, ContainsSubstring("visible pairs"));
  CHECK(text.out.find("FLOP") == std::string::npos);
  CHECK(text.out.find("\ntime ") == std::string::npos);
  const Outcome suite =
      p.run({"run", "-", "--device", "sim:gfx90a"}, fmt::format("[{}]", kSmallSpec));
  CHECK_THAT(suite.out, ContainsSubstring("ms to simulate"));
  CHECK(suite.out.find("FLOP") == std::string::npos);
  const json r =
      json::parse(p.run({"run", spec, "--device", "sim:gfx90a", "--json"}).out)["results"][0];
  CHECK(r["simulated"] == true);
  for (const char* key : {"median", "p10", "p90", "runs"}) CHECK(r["simulation_ms"].contains(key));
  for (const char* key : {"run_ms", "useful_tflops", "dense_tflops"}) CHECK_FALSE(r.contains(key));
  const json cpu = json::parse(p.run({"run", spec, "--json", "--device", "cpu"}).out)["results"][0];
  CHECK(cpu["simulated"] == false);
  CHECK(cpu.contains("run_ms"));
}

TEST_CASE("a simulation that will take long says so before it begins") {
  Program p;
  if (!simulates(p, "announcement of long simulations")) return;
  // 65536 x 65536 pairs of 32 multiply-adds: minutes on any machine.
  const std::string spec = p.file("spec.json", R"({"op": "hstu_attention", "heads": 1,
      "head_dim_qk": 16, "uih_lengths": [65536], "mask": {"causal": false}})");
  const std::string err = p.folder() + "/err";
  hstu::jit::ProcessOptions options;
  options.argv = {p.file(
      "start.sh",
      fmt::format(
          "#!/bin/sh\n{} run {} --device sim:gfx90a --no-validate --cache-dir {} 2>{} &\ni=0\n"
          "while [ ! -s {} ] && [ $i -lt 600 ]; do sleep 0.1; i=$((i+1)); done\n"
          "kill $!\nwait $!\necho $?\n",
          HSTU_PROGRAM, spec, p.cache_dir(), err, err),
      true)};
  options.environment = {{"HSTU_JIT_SIM_THREADS=1", "PATH=" + p.environment["PATH"]}};
  const auto ended = hstu::jit::run_process(options);
  REQUIRE(ended.ok());
  CHECK(ended->output == "143\n");  // it was still at it
  const auto said = hstu::jit::read_file(err);
  REQUIRE(said.ok());
  CHECK_THAT(*said, ContainsSubstring("hstu-jit: simulating takes about 4.58 min, estimated: "
                                      "4294967296 visible pairs"));
  CHECK(std::count(said->begin(), said->end(), '\n') == 1);
}
