// SPDX-License-Identifier: Apache-2.0
// The table of hstu-jit-bench-peers: its rows against the peers' own counts, its arithmetic against
// numbers worked out here, and wrong outputs, which must never become a figure.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/file.hpp"
#include "base/subprocess.hpp"
#include "bench_peers_support.hpp"
#include "catch.hpp"

using namespace hstu::jit;
using namespace hstu::jit::bench;
using namespace hstu::jit::bench::test;
using Json = nlohmann::json;

TEST_CASE("the rows are the problems the peers ran, each with its best peer") {
  const Rows silu = rows_of(kForwardPeers, RowSet::silu);
  REQUIRE(silu.rows.size() == 17);
  CHECK(silu.rows[0].peer == "meta_fa3");
  CHECK(silu.rows[0].peer_ms == 0.0886);
  CHECK(silu.rows[9].problem.uih_q == std::vector<int32_t>{4096 - 256});
  CHECK(silu.rows[9].problem.num_targets == std::vector<int32_t>{256});
  CHECK(silu.rows[11].problem.mask.context_len == 8);
  for (const Row& row : silu.rows) {
    const Geometry g = *make_geometry(row.problem);
    CHECK(useful_flops(row.problem, g) / 1e12 == Approx(row.peer_tflop).epsilon(1e-4));
    CHECK(g.longest_q <= row.max_len);
  }
  const Rows softmax = rows_of(kForwardPeers, RowSet::softmax);
  REQUIRE(softmax.rows.size() == 11);
  CHECK(softmax.rows[0].peer == "metasm_fa3");
  CHECK(softmax.rows[5].peer == "sdpa_cudnn");
  CHECK(softmax.rows[5].peer_ms == 0.6583);
  CHECK(softmax.rows[5].problem.activation == hstu::Activation::softmax);
}

TEST_CASE("rows that are not the problems the peers ran are refused") {
  Json file = Json::parse(kForwardPeers);
  file["cases"][3]["physical_lengths"] = 8190;
  const Result<Rows> rows = read_rows(file.dump(), RowSet::silu, 1);
  REQUIRE_FALSE(rows.ok());
  CHECK_THAT(rows.error().message, ContainsSubstring("its peers counted"));
  CHECK_FALSE(read_rows("{}", RowSet::silu, 1).ok());
  CHECK_FALSE(read_rows("[", RowSet::windowed, 1).ok());
}

TEST_CASE("windowed rows have a causal twin of the same lengths, and the peer's own pairs") {
  const Rows windowed = rows_of(kWindowedSets, RowSet::windowed);
  int costs = 0, floors = 0, peers = 0;
  for (const Row& row : windowed.rows) {
    costs += row.causal_row >= 0 && row.problem.mask.minfull_len > 0;
    floors += row.memory_goal;
    if (row.causal_row >= 0) {
      const Row& twin = windowed.rows[static_cast<size_t>(row.causal_row)];
      CHECK(twin.number == row.causal_row);
      CHECK(twin.problem.mask.local_len == 0);
      CHECK(twin.problem.uih_q == row.problem.uih_q);
      CHECK(twin.problem.num_targets == row.problem.num_targets);
    }
    if (row.peer_ms <= 0) continue;
    ++peers;
    // 257 keys a history row once there are so many, 257 a target: 172 to 191 TFLOP/s were said.
    double pairs = 0;
    for (size_t b = 0; b < row.problem.uih_q.size(); ++b) {
      const double u = row.problem.uih_q[b], t = row.problem.num_targets[b];
      pairs += 257.0 * 258 / 2 + (u - 257) * 257 + t * 257;
    }
    const Geometry g = *make_geometry(row.problem);
    CHECK(static_cast<double>(visible_pairs(g)) == pairs);
    const double rate = tflops(useful_flops(row.problem, g), row.peer_ms);
    CHECK(rate > 171.5);
    CHECK(rate < 191.5);
  }
  CHECK(costs == 18 + 1);
  CHECK(floors == 6);
  CHECK(peers == 3);
}

TEST_CASE("lists of rows") {
  CHECK(*select_rows("", 3) == std::vector<bool>{true, true, true});
  CHECK(*select_rows("0,2-3", 5) == std::vector<bool>{true, false, true, true, false});
  for (const char* bad : {"5", "3-1", "1,", ",1", "x", "1-", "-1", "1 2", "0-99999999999999999999"})
    CHECK_FALSE(select_rows(bad, 5).ok());
}

TEST_CASE("the random block is normal, the same each time, and tiles from any place") {
  const std::vector<uint16_t> block = random_block(200001, 7);
  CHECK(block == random_block(200001, 7));
  CHECK(block != random_block(200001, 8));
  double sum = 0, squares = 0, fourth = 0;
  for (const uint16_t bits : block) {
    const double x = to_double(bits, hstu::Dtype::bf16);
    sum += x, squares += x * x, fourth += x * x * x * x;
  }
  const double n = static_cast<double>(block.size());
  CHECK(std::fabs(sum / n) < 0.01);
  CHECK(squares / n == Approx(1).epsilon(0.02));
  CHECK(fourth / n == Approx(3).epsilon(0.05));
  std::vector<uint16_t> out(3000000, 0);
  tile(block, 123456, out.size() - 1, out.data());
  bool same = true;
  for (size_t i = 0; i + 1 < out.size(); ++i) same &= out[i] == block[(123456 + i) % block.size()];
  CHECK(same);
  CHECK(out.back() == 0);
}

TEST_CASE("figures of a row, worked out by hand") {
  Table t;
  t.add(made(0, 16, 128, 8192, 3, 2));
  t.ceilings.copy = {{4, {}, ""}};
  const Figures f = t.figures().front();
  CHECK(*f.useful_tflops == Approx(500));  // 1e12 in 2 ms
  CHECK(*f.dense_tflops == Approx(1000));
  CHECK(*f.ratio == Approx(1.5));
  CHECK(*f.matrix_share == Approx(0.625));  // of 800, the better of the two
  CHECK(*f.floor_ms == Approx(1));          // 4 GB at 4 TB/s
  CHECK(*f.floor_share == Approx(0.5));
  CHECK(*f.per_pair == Approx(2));  // ps
  CHECK(*f.p10 == Approx(1.8));
  CHECK_FALSE(f.cost.has_value());

  t.ceilings = {};
  CHECK_FALSE(t.figures().front().matrix_share.has_value());
  CHECK_FALSE(t.figures().front().floor_ms.has_value());

  t.measured[0].valid = false;
  const Figures none = t.figures().front();
  for (const auto& value : {none.useful_tflops, none.dense_tflops, none.ms, none.p10, none.p90,
                            none.ratio, none.matrix_share, none.floor_share, none.per_pair})
    CHECK_FALSE(value.has_value());
}

TEST_CASE("forward goals are met and missed where they should be") {
  Table t;
  t.add(made(0, 32, 128, 1024, 4.2, 3));    // 1.4
  t.add(made(1, 32, 128, 2048, 1.2, 1));    // 1.2
  t.add(made(2, 16, 128, 8192, 1.3, 1.2));  // 833 TFLOP/s of 800
  std::vector<Figures> all = t.figures();
  CHECK(*geometric_mean(all) == Approx(std::cbrt(1.4 * 1.2 * 1.3 / 1.2)));
  std::vector<Goal> goals = judge(RowSet::silu, t.rows, all);
  CHECK(goal_about(goals, "ahead").met);
  CHECK(goal_about(goals, "matrix product").met);
  CHECK(goal_about(goals, "max length").met);
  CHECK_FALSE(goal_about(goals, "geometric mean").met);  // 1.22
  CHECK_THAT(goal_about(goals, "geometric mean").detail, ContainsSubstring("2 % short"));

  t.add(made(7, 8, 128, 4096, 0.9, 1));       // behind
  t.add(made(8, 16, 256, 16384, 3, 1.6));     // 625 TFLOP/s
  t.add(made(9, 1, 128, 4096, 1.3, 1.08));    // 1.2, but within 93 % of the floor of 1 ms
  t.add(made(10, 128, 128, 512, 1.3, 1.25));  // 1.04, and 80 % of it
  all = t.figures();
  goals = judge(RowSet::silu, t.rows, all);
  CHECK_FALSE(goal_about(goals, "ahead").met);
  CHECK_THAT(goal_about(goals, "ahead").detail,
             ContainsSubstring("6 of 7 rows\n       row 7 row: 0.90, 10 % short of 1.00"));
  CHECK_THAT(goal_about(goals, "matrix product").detail,
             ContainsSubstring("1 of 2 rows\n       row 8 row: 0.78, 22 % short of 1.00"));
  CHECK_THAT(goal_about(goals, "max length").detail,
             ContainsSubstring("2 of 3 rows\n       row 10 "));
  // Of softmax only the first goal is spoken of.
  goals = judge(RowSet::softmax, t.rows, all);
  REQUIRE(goals.size() == 1);
  CHECK_FALSE(goal_about(goals, "ahead").met);

  // A wrong output counts against its row, and not into the mean.
  t.measured[1].valid = false;
  all = t.figures();
  goals = judge(RowSet::silu, t.rows, all);
  CHECK_THAT(goal_about(goals, "ahead").detail,
             ContainsSubstring("row 1 row: nothing valid measured"));
}

TEST_CASE("goals are judged on the device the peers ran on, at full length") {
  Table t;
  t.add(made(0, 32, 128, 1024, 4.2, 3));
  Report report;
  report.rows.device = "NVIDIA H200";
  report.rows.rows = t.rows;
  report.measured = t.measured;
  report.ceilings = t.ceilings;
  report.description = "NVIDIA H200 (sm_90a), 132 SMs";
  CHECK_THAT(to_text(report), ContainsSubstring("MET    ahead of the best peer"));
  CHECK_THAT(to_text(report), ContainsSubstring("geometric mean of the ratios: 1.400"));
  CHECK(Json::parse(to_json(report))["goals"].size() == 3);
  report.description = "NVIDIA H100";
  CHECK_THAT(to_text(report), ContainsSubstring("ratios compare devices"));
  CHECK(Json::parse(to_json(report))["goals"].empty());
  report.description = "NVIDIA H200";
  report.options.scale = 2;
  CHECK(Json::parse(to_json(report))["goals"].empty());
}

TEST_CASE("windowed goals are met and missed where they should be") {
  Table t;
  t.add(made(4, 8, 128, 2048, 0, 1));
  Made good = made(5, 8, 128, 2048, 0.3, 0.2);
  good.row.windowed = true;
  good.row.causal_row = 4;
  good.row.problem.mask.local_len = good.row.problem.mask.minfull_len = 256;
  good.measured.pairs = 1.25e8;  // 1.6 ps each
  t.add(good);
  Made bad = good;
  bad.row.number = 6;
  bad.measured.pairs = 1e8;  // 2 ps each
  bad.row.peer_ms = 0.26;    // 1.3
  t.add(bad);
  Made memory = made(7, 32, 128, 1024, 0, 1.3);  // floor: 1 ms
  memory.row.memory_goal = true;
  t.add(memory);
  const std::vector<Figures> all = t.figures();
  CHECK(*all[1].cost == Approx(1.6));
  CHECK(*all[2].cost == Approx(2));
  const std::vector<Goal> goals = judge(RowSet::windowed, t.rows, all);
  CHECK_THAT(goal_about(goals, "causal").detail,
             ContainsSubstring("1 of 2 rows\n       row 6 row: 2.00, 18 % over 1.70"));
  CHECK_THAT(goal_about(goals, "Triton").detail,
             ContainsSubstring("1 of 2 rows\n       row 6 row: 1.30, 7 % short of 1.40"));
  CHECK_THAT(goal_about(goals, "memory").detail,
             ContainsSubstring("0 of 1 rows\n       row 7 row: 0.77, 4 % short of 0.80"));
}

TEST_CASE("rows are measured and validated; wrong outputs are no figures") {
  Setup s;
  const Rows rows = rows_of(kForwardPeers, RowSet::silu, s.options.scale);
  using Fault = BadDevice::Fault;
  // b 1 with targets, context and jagged, many sequences (of which some are looked at)
  for (const size_t n : {size_t{9}, size_t{11}, size_t{12}}) {
    BadDevice device(*s.cpu, Fault::none);
    Bench bench(device, *s.engine, s.options);
    const Measured m = bench.measure(rows.rows[n]);
    INFO((m.error ? m.error->message : m.check.why));
    REQUIRE(m.valid);
    CHECK(m.check.error > 1e-5);
    CHECK(m.check.error < 5e-3);
    CHECK(m.ms.runs == 3);
    CHECK(device.flushes == device.launches);
    CHECK(m.useful_flop == 512 * m.pairs);
  }
  for (const Fault fault : {Fault::one_element, Fault::row_unwritten, Fault::lazy}) {
    BadDevice device(*s.cpu, fault);
    Bench bench(device, *s.engine, s.options);
    Table t;
    t.rows = {rows.rows[11]};
    t.measured = {bench.measure(t.rows[0])};
    INFO(static_cast<int>(fault) << " " << device.launches);
    CHECK_FALSE(t.measured[0].valid);
    CHECK_FALSE(t.measured[0].error.has_value());
    CHECK_FALSE(t.figures()[0].ms.has_value());
    Report report;
    report.rows.rows = t.rows;
    report.measured = t.measured;
    report.ceilings = t.ceilings;
    CHECK_THAT(to_text(report), ContainsSubstring("INVALID"));
    const Json j = Json::parse(to_json(report));
    CHECK(j["rows"][0]["ms"].is_null());
    CHECK(j["rows"][0]["useful_tflops"].is_null());
    CHECK_FALSE(j["rows"][0]["valid"].get<bool>());
  }
}

namespace {

// The program itself, in a folder of its own.
struct Ran {
  int code = 0;
  std::string out, err;
  Json json;
};
Ran run_program(std::vector<std::string> arguments, const std::vector<std::string>& environment) {
  static const TempDir folder = std::move(*TempDir::create("bench-peers-"));
  const std::string json = folder.path() + "/table.json";
  ProcessOptions options;
  options.argv = {HSTU_BENCH_PEERS, "--pause", "0",           "--iterations",          "2",
                  "--json",         json,      "--cache-dir", folder.path() + "/cache"};
  options.argv.insert(options.argv.end(), arguments.begin(), arguments.end());
  options.environment.emplace();
  for (const char* name : {"PATH", "HOME", "ASAN_OPTIONS"})
    if (const char* value = std::getenv(name))
      options.environment->push_back(std::string(name) + "=" + value);
  options.environment->insert(options.environment->end(), environment.begin(), environment.end());
  (void)std::remove(json.c_str());
  Result<ProcessResult> result = run_process(options);
  if (!result) FAIL(result.error().message);
  INFO(result->how_it_ended());
  CHECK(result->signal == 0);
  Ran ran{result->exit_code, result->output, result->errors, {}};
  if (Result<std::string> text = read_file(json)) ran.json = Json::parse(*text);
  return ran;
}

}  // namespace

TEST_CASE("program: a table on the cpu device") {
  const Ran ran = run_program({"--device", "cpu", "--scale", "16", "--rows", "9,11"}, {});
  INFO(ran.err << ran.out);
  REQUIRE(ran.code == 0);
  REQUIRE(ran.json["rows"].size() == 2);
  CHECK_THAT(ran.out, ContainsSubstring("not measured: only known on NVIDIA GPUs"));
  const double copy = std::max(ran.json["copy_tbps"][0]["rate"].get<double>(),
                               ran.json["copy_tbps"][1]["rate"].get<double>());
  CHECK(copy > 0);
  // 240 history rows and 16 targets, 4 heads.
  const Json& row = ran.json["rows"][0];
  const double pairs = 4 * (240.0 * 241 / 2 + 16 * 241), ms = row["ms"]["median"];
  CHECK(row["visible_pairs"].get<double>() == pairs);
  CHECK(row["useful_tflops"].get<double>() == Approx(2 * 256 * pairs / ms / 1e9));
  CHECK(row["dense_tflops"].get<double>() == Approx(2 * 256 * 4 * 256.0 * 256 / ms / 1e9));
  CHECK(row["floor_ms"].get<double>() == Approx(4 * 2.0 * 4 * 256 * 128 / copy / 1e9));
  CHECK(row["ps_per_pair"].get<double>() == Approx(ms * 1e9 / pairs));
  CHECK(row["valid"].get<bool>());
  CHECK(row["relative_frobenius_error"].get<double>() < 5e-3);
  CHECK(row["ratio"].is_null());  // scaled lengths are compared with nobody
  CHECK(ran.json["goals"].empty());
}

TEST_CASE("program: softmax and windowed tables; a window brings its causal twin") {
  const Ran softmax =
      run_program({"--device", "cpu", "--scale", "32", "--softmax", "--rows", "9"}, {});
  INFO(softmax.err);
  CHECK(softmax.code == 0);
  CHECK_THAT(softmax.json["rows"][0]["kernel"].get<std::string>(), ContainsSubstring("softmax"));
  const Ran windowed =
      run_program({"--device", "cpu", "--scale", "32", "--windowed", "--rows", "1"}, {});
  INFO(windowed.err);
  CHECK(windowed.code == 0);
  const Json& rows = windowed.json["rows"];
  REQUIRE(rows.size() == 2);
  CHECK(rows[1]["cost_over_causal"].get<double>() ==
        Approx(rows[1]["ps_per_pair"].get<double>() / rows[0]["ps_per_pair"].get<double>()));
}

TEST_CASE("program: bad command lines and missing devices") {
  CHECK(run_program({"--device", "cpu", "--rows", "17"}, {}).code == 2);
  CHECK(run_program({"--softmax", "--windowed"}, {}).code == 2);
  CHECK(run_program({"--device", "cpu", "--data", HSTU_TEST_DATA "/none.json"}, {}).code != 0);
  CHECK(run_program({}, {"HSTU_JIT_CUDA=/nonexistent/libcuda.so"}).code == 7);
}

TEST_CASE("a matrix product that is wrong or fails is no ceiling") {
  setenv("HSTU_JIT_CUDA", HSTU_FAKE_CUDA, 1);
  const std::unique_ptr<Device> device = std::move(*open_device("cuda:0"));
  Options options;
  options.scale = 64;
  options.pause_ms = 0;
  options.iterations = 1;
  const std::vector<uint16_t> block = random_block(50021, 3);
  const auto ceiling = [&](const char* fault) {
    setenv("FAKE_CUBLAS", fault, 1);
    options.cublas = HSTU_FAKE_CUBLAS;
    return matrix_ceiling(*device, options, block);
  };
  const Ceiling good = ceiling("");
  INFO(good.why_not);
  CHECK(good.rate > 0);
  CHECK(good.rate == Approx(2 * 128.0 * 128 * 128 / good.ms.median / 1e9));
  CHECK_THAT(ceiling("wrong").why_not, ContainsSubstring("cuBLAS's product is wrong"));
  CHECK_THAT(ceiling("fail").why_not, ContainsSubstring("cublasGemmEx gave 13"));
  CHECK(ceiling("wrong").rate == 0);
  options.cublas = "/nonexistent.so";
  CHECK_THAT(matrix_ceiling(*device, options, block).why_not, ContainsSubstring("/nonexistent.so"));
  unsetenv("FAKE_CUBLAS");
  unsetenv("HSTU_JIT_CUDA");
}

TEST_CASE("program: on a GPU that computes nothing, ceilings by its libraries and no figure") {
  const Ran ran = run_program({"--scale", "64", "--rows", "9", "--cublas", HSTU_FAKE_CUBLAS},
                              {std::string("HSTU_JIT_CUDA=") + HSTU_FAKE_CUDA});
  INFO(ran.err << ran.out);
  REQUIRE(ran.json.contains("rows"));
  for (const char* ceiling : {"matrix_tflops", "copy_tbps"})
    for (const Json& sample : ran.json[ceiling]) CHECK(sample["rate"].get<double>() > 0);
  const Json& row = ran.json["rows"][0];
  CHECK_FALSE(row["valid"].get<bool>());  // not written, or no compiler for it here
  CHECK(row["useful_tflops"].is_null());
  CHECK(ran.code == 6);
}
