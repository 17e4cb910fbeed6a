// SPDX-License-Identifier: Apache-2.0
// The job behind "run", called here: what is said of simulated launches before and during them, and
// that a launch which does not come about has nobody else's counters.
#include "cli/job.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "base/file.hpp"
#include "base/temp_dir.hpp"
#include "catch.hpp"
#include "cli/simulation.hpp"
#include "object/listing.hpp"
#include "sim/sim.hpp"
#include "spec/parse.hpp"

using namespace hstu::jit;
using cli::duration_text;
using cli::simulated_seconds;
using cli::simulation_notice;
using cli::SimulationWatch;

namespace {

Problem problem_of(const std::string& text) {
  auto spec = parse_spec(text, ".");
  INFO((spec ? "" : spec.error().message));
  REQUIRE(spec.ok());
  return spec->problems.front();
}

Plan plan_of(const Problem& problem) {
  const auto geometry = make_geometry(problem);
  REQUIRE(geometry.ok());
  const auto target = find_target("gfx90a");
  REQUIRE(target.ok());
  auto plan = make_plan(problem, *geometry, *target);
  REQUIRE(plan.ok());
  return *plan;
}

// Without a mask and in whole tiles, so that the work is known beforehand.
Problem square(int length, int heads) {
  return problem_of(fmt::format(
      R"({{"op": "hstu_attention", "heads": {}, "head_dim_qk": 64, "uih_lengths": [{}],
           "mask": {{"causal": false}}}})",
      heads, length));
}

std::string text_of(std::FILE* file) {
  std::string text;
  std::rewind(file);
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
  return text;
}

}  // namespace

TEST_CASE("simulations: the estimate follows the work and the threads") {
  const Plan plan = plan_of(square(4096, 2));
  // 4096 x 4096 pairs of 2 heads, 64 + 64 multiply-adds each, at the rate the notice states.
  const double work = 4096.0 * 4096 * 2 * 128;
  CHECK(simulated_seconds(plan, 1, 1) == Approx(work / 500e6));
  CHECK(simulated_seconds(plan, 1, 2) == Approx(work / 500e6 / 2));
  CHECK(simulated_seconds(plan, 7, 2) == Approx(7 * work / 500e6 / 2));
  CHECK(simulated_seconds(plan_of(square(8192, 2)), 1, 2) == Approx(4 * work / 500e6 / 2));
  // One workgroup keeps one thread busy.
  const Plan one = plan_of(square(64, 1));
  REQUIRE(one.launch.grid == 1);
  CHECK(simulated_seconds(one, 1, 64) == simulated_seconds(one, 1, 1));
}

TEST_CASE("simulations: only long ones are announced") {
  CHECK(simulation_notice(plan_of(square(1024, 1)), 1, 1).empty());
  // 32768 x 32768 x 4 x 128 at 500 million a second: 1100 s, two threads: 9.2 min.
  const std::string notice = simulation_notice(plan_of(square(32768, 4)), 1, 2);
  CHECK_THAT(notice, ContainsSubstring("about 9.16 min"));
  CHECK_THAT(notice, ContainsSubstring("4294967296 visible pairs"));
  CHECK_THAT(notice, ContainsSubstring("500 million a second and thread, 2 threads"));
  CHECK(notice.find('\n') == std::string::npos);
  CHECK_THAT(simulation_notice(plan_of(square(1024, 1)), 1000, 1),
             ContainsSubstring("1000 launches"));
  CHECK(duration_text(59.6) == "60 s");
  CHECK(duration_text(600) == "10 min");
  CHECK(duration_text(3600 * 5) == "5 h");
  CHECK(duration_text(86400.0 * 12) == "12 days");
}

TEST_CASE("simulations: progress is told line by line where there is no terminal") {
  std::FILE* file = std::tmpfile();
  REQUIRE(file != nullptr);
  {
    const SimulationWatch watch(plan_of(square(64, 3)), 2, file, std::chrono::milliseconds(20));
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
  }
  const std::string text = text_of(file);
  INFO(text);
  CHECK_THAT(text, ContainsSubstring("hstu-jit: simulated 0 of 6 workgroups in 0 s\n"));
  CHECK(text.find('\r') == std::string::npos);
  // Ever more seldom: 20 ms, then as long again as has gone by.
  CHECK(std::count(text.begin(), text.end(), '\n') <= 6);
  std::fclose(file);
  file = std::tmpfile();
  REQUIRE(file != nullptr);
  { const SimulationWatch quiet(plan_of(square(64, 3)), 1, file); }
  CHECK(text_of(file).empty());
  std::fclose(file);
}

TEST_CASE("simulations: counters are of this launch or of none, and workgroups are counted") {
  setenv("HSTU_JIT_WORKER", HSTU_REAL_WORKER, 1);
  auto folder = TempDir::create("job-test-");
  REQUIRE(folder.ok());
  const auto target = find_target("gfx90a");
  REQUIRE(target.ok());
  const auto toolchain = find_toolchain(*target, folder->path());
  const auto disassembler = find_amd_disassembler("gfx90a");
  if (!toolchain || !disassembler) {
    fmt::print("SKIPPED: counters of launches: {}\n",
               (toolchain ? disassembler.error() : toolchain.error()).message);
    return;
  }
  EngineOptions options;
  options.cache_dir = folder->path() + "/cache";
  auto engine = Engine::create(options);
  REQUIRE(engine.ok());
  cli::JobRunner runner(**engine, {});
  Problem problem = square(64, 3);
  problem.device = "sim:gfx90a";

  sim::Options watched;
  watched.progress = std::make_shared<sim::Progress>();
  sim::set_options(watched);
  const cli::JobReport good = runner.run(problem);
  sim::set_options({});
  INFO((good.error ? good.error->message : ""));
  REQUIRE_FALSE(good.failed());
  CHECK(good.simulated);
  CHECK(good.useful_tflops == 0);
  CHECK_FALSE(good.counters_text.empty());
  // One launch, and more of them where it was quick.
  CHECK(watched.progress->done == watched.progress->workgroups);
  CHECK(watched.progress->done % 3 == 0);
  CHECK(watched.progress->done >= 3);

  REQUIRE(sim::fail_call("event_create", 999));
  const cli::JobReport failed = runner.run(problem);
  sim::forget_failures();
  REQUIRE(failed.failed());
  CHECK_THAT(failed.error->message, ContainsSubstring("999"));
  CHECK(failed.counters_text.empty());
  CHECK(failed.counters_json.empty());
}
