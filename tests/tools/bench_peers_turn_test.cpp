// SPDX-License-Identifier: Apache-2.0
// What hstu-jit-bench-peers times beside a row: matrix products in turn with its launches, a copy
// of as many bytes.
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench_peers_support.hpp"

using namespace hstu::jit;
using namespace hstu::jit::bench;
using namespace hstu::jit::bench::test;
using Json = nlohmann::json;

namespace {

// A product that takes as long as it is told and is right or not.
struct Told {
  double ms = 0;
  int runs = 0, poisons = 0, fails_at = 0;
  bool wrong = false;
};
class ToldProduct : public MatrixProduct {
 public:
  explicit ToldProduct(Told& told) : told_(told) {}
  double flop() const override { return 1e9; }
  Status poison() override {
    ++told_.poisons;
    return {};
  }
  Status run() override {
    if (++told_.runs == told_.fails_at)
      return Error{ErrorKind::kDevice, "the product fell over", "", ""};
    std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(told_.ms));
    return {};
  }
  Status check() override {
    if (!told_.wrong) return {};
    return Error{ErrorKind::kMismatch, "the product is wrong", "", ""};
  }

 private:
  Told& told_;
};
MakeProduct product_of(Told& told) {
  return [&]() -> Result<std::unique_ptr<MatrixProduct>> {
    return std::unique_ptr<MatrixProduct>(std::make_unique<ToldProduct>(told));
  };
}

Row goal_row(const Setup& s) {
  Row row = rows_of(kForwardPeers, RowSet::silu, s.options.scale).rows[11];
  row.matrix_goal = 1;
  return row;
}

}  // namespace

TEST_CASE("pieces of several works are timed in turn, each after its own preparation") {
  Setup s;
  BadDevice device(*s.cpu, BadDevice::Fault::none);
  std::string order;
  const auto note = [&](char what) {
    return [&order, what]() -> Status {
      order += what;
      return {};
    };
  };
  s.options.iterations = 4;
  const auto ms = time_in_turn(device, s.options, {{note('a'), note('A')}, {note('b'), note('B')}});
  REQUIRE(ms.ok());
  REQUIRE(ms->size() == 2);
  CHECK((*ms)[0].runs == 4);
  CHECK((*ms)[1].runs == 4);
  REQUIRE(order.size() % 4 == 0);
  REQUIRE(order.size() / 4 >= 6);  // two to warm up
  for (size_t n = 0; n < order.size(); ++n) CHECK(order[n] == "aAbB"[n % 4]);
  CHECK(device.flushes == static_cast<int>(order.size() / 2));
}

TEST_CASE("a row with a goal at the matrix product runs in turn with products for as long") {
  Setup s;
  const Row row = goal_row(s);
  BadDevice device(*s.cpu, BadDevice::Fault::none);
  Told slow{200};  // longer than a launch
  const Measured m = Bench(device, *s.engine, s.options, product_of(slow)).measure(row);
  INFO((m.error ? m.error->message : m.check.why));
  REQUIRE(m.valid);
  REQUIRE(m.in_turn.has_value());
  CHECK(m.in_turn->why_not == "");
  CHECK(m.in_turn->products == 1);
  CHECK(m.in_turn->product_flop == 1e9);
  CHECK(m.in_turn->row_ms.runs == 3);
  CHECK(m.in_turn->product_ms.median >= 200);
  CHECK(slow.poisons == slow.runs);
  CHECK_FALSE(m.same_copy.has_value());

  Told quick;
  quick.ms = m.ms.median / 8;
  const Measured many = Bench(device, *s.engine, s.options, product_of(quick)).measure(row);
  REQUIRE(many.valid);
  REQUIRE(many.in_turn.has_value());
  const InTurn& turn = *many.in_turn;
  CHECK(turn.products > 1);
  CHECK(turn.product_flop == turn.products * 1e9);
  // One at a time to learn how long it takes, then as many at once.
  const int pieces = quick.poisons - (quick.runs - quick.poisons) / (turn.products - 1);
  CHECK(quick.runs == pieces + (quick.poisons - pieces) * turn.products);

  Row plain = row;
  plain.matrix_goal = 0;
  CHECK_FALSE(Bench(device, *s.engine, s.options, product_of(quick)).measure(plain).in_turn);
}

TEST_CASE("a product that fails or is wrong is no share, and the row says why") {
  Setup s;
  const Row row = goal_row(s);
  const auto measured = [&](MakeProduct product) {
    return Bench(*s.cpu, *s.engine, s.options, std::move(product)).measure(row);
  };
  Told wrong{1};
  wrong.wrong = true;
  Told fails{1};
  fails.fails_at = 8;
  Table t;
  for (const Measured& m :
       {measured(product_of(wrong)), measured(product_of(fails)), measured({})}) {
    t.rows.push_back(row);
    t.measured.push_back(m);
    CHECK(m.valid);
    REQUIRE(m.in_turn.has_value());
  }
  CHECK(t.measured[0].in_turn->why_not == "the product is wrong");
  CHECK(t.measured[1].in_turn->why_not == "the product fell over");
  CHECK_THAT(t.measured[2].in_turn->why_not, ContainsSubstring("NVIDIA"));  // cuBLAS, on a CPU
  Report report;
  report.rows.rows = t.rows;
  report.measured = t.measured;
  report.ceilings = t.ceilings;
  CHECK_THAT(to_text(report), ContainsSubstring("not timed: the product is wrong"));
  const Json j = Json::parse(to_json(report));
  CHECK(j["rows"][1]["in_turn"]["why_not"] == "the product fell over");
  for (const Figures& f : t.figures()) CHECK_FALSE(f.turn_share.has_value());
}

TEST_CASE("launches in turn are validated like the others") {
  Setup s;
  Told told{1};
  BadDevice device(*s.cpu, BadDevice::Fault::lazy);
  device.good_launches = 6;  // 3 to warm up, 3 timed alone
  const Measured m = Bench(device, *s.engine, s.options, product_of(told)).measure(goal_row(s));
  CHECK(device.launches > 6);
  CHECK_FALSE(m.valid);
}

TEST_CASE("the goal at the matrix product is judged in turn where that was timed") {
  const auto judged = [](double alone_ms, std::optional<double> turn_ms) {
    Table t;
    Made m = made(3, 16, 128, 8192, 3, alone_ms);  // 1e12 flop; the product alone: 800
    CHECK(m.row.matrix_goal == 1);
    if (turn_ms) m.measured.in_turn = InTurn{{*turn_ms, 0, 0, 7}, {2.5, 0, 0, 7}, 2, 1.75e12, ""};
    t.add(m);
    const Figures f = t.figures().front();
    CHECK(*f.matrix_share == Approx(1000 / alone_ms / 800));
    if (turn_ms) {
      CHECK(*f.turn_product == Approx(700));
      CHECK(*f.turn_tflops == Approx(1000 / *turn_ms));
      CHECK(*f.turn_share == Approx(1000 / *turn_ms / 700));
    }
    return goal_about(judge(RowSet::silu, t.rows, t.figures()), "matrix product").met;
  };
  CHECK(judged(1.2, std::nullopt));        // 833
  CHECK_FALSE(judged(1.3, std::nullopt));  // 769
  CHECK(judged(1.3, 1.4));                 // 714 of 700
  CHECK_FALSE(judged(1.2, 1.5));           // 667 of 700
}

TEST_CASE("both figures of a row that ran in turn are said") {
  Table t;
  Made m = made(3, 16, 128, 8192, 3, 1.3);
  m.measured.in_turn = InTurn{{1.4, 1.3, 1.5, 7}, {2.5, 2.4, 2.6, 7}, 2, 1.75e12, ""};
  t.add(m);
  Made memory = made(7, 32, 128, 1024, 0, 1.3);
  memory.row.memory_goal = true;
  memory.measured.same_copy = SameCopy{{1.2, 1.1, 1.3, 9}, ""};
  t.add(memory);
  memory.row.number = 8;
  memory.measured.same_copy = SameCopy{{}, "no room"};
  t.add(memory);
  Report report;
  report.rows.rows = t.rows;
  report.measured = t.measured;
  report.ceilings = t.ceilings;
  const std::string text = to_text(report);
  CHECK_THAT(text, ContainsSubstring("row 3 in turn with the matrix product: 714.3 TFLOP/s beside "
                                     "700.0 (2 products a launch), 102 %"));
  CHECK_THAT(text, ContainsSubstring("row 7: a copy of as many bytes takes 1.2000 ms"));
  CHECK_THAT(text, ContainsSubstring("row 8: a copy of as many bytes was not timed: no room"));
  const Json j = Json::parse(to_json(report));
  CHECK(j["rows"][0]["in_turn"]["share"].get<double>() == Approx(1000 / 1.4 / 700));
  CHECK(j["rows"][0]["in_turn"]["products"] == 2);
  CHECK(j["rows"][0]["matrix_share"].get<double>() == Approx(1000 / 1.3 / 800));
  CHECK(j["rows"][1]["same_copy_ms"]["median"] == 1.2);
  CHECK(j["rows"][2]["same_copy_ms"]["why_not"] == "no room");
}

TEST_CASE("rows judged by memory have a copy of half their bytes beside them") {
  Setup s;
  Row row = goal_row(s);
  row.matrix_goal = 0;
  row.memory_goal = true;
  BadDevice device(*s.cpu, BadDevice::Fault::none);
  const Measured m = Bench(device, *s.engine, s.options).measure(row);
  REQUIRE(m.valid);
  CHECK_FALSE(m.in_turn.has_value());
  REQUIRE(m.same_copy.has_value());
  CHECK(m.same_copy->why_not == "");
  CHECK(m.same_copy->ms.runs == 3);
  CHECK(m.same_copy->ms.median > 0);
  const auto copies = std::count(device.allocated.begin(), device.allocated.end(),
                                 static_cast<size_t>(m.bytes / 2));
  CHECK(copies == 2);
}
