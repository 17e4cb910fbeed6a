// SPDX-License-Identifier: Apache-2.0
// Right outputs pass; each kind of corruption fails, at the right place.
#include <cmath>
#include <limits>
#include <set>

#include "check/test_problems.hpp"

using namespace hstu::jit;
using hstu::Activation;
using hstu::Dtype;

namespace {

using Index = std::array<int64_t, 4>;

struct Checked : SmallProblem {
  ReferenceOutput out;

  explicit Checked(const Problem& p, Dtype dtype = Dtype::bf16,
                   Activation activation = Activation::silu) {
    problem = p;
    problem.dtype = dtype;
    problem.activation = activation;
    problem.training = activation == Activation::softmax;
    build();
    auto reference = reference_output(problem, geometry, tensors);
    REQUIRE(reference.ok());
    out = *reference;
  }
  Comparison run(int tile_m = 0, ToleranceSpec tolerance = {}) const {
    return compare(problem, geometry, tensors, out.o, out.lse, tile_m, tolerance);
  }
  uint16_t& o(const Index& at) {
    return out.o[query_offset(geometry, geometry.o, at[0], at[1], at[2]) + at[3]];
  }
  float& lse(int b, int i, int h) { return out.lse[query_offset(geometry, geometry.lse, b, i, h)]; }
  double value(const Index& at) { return to_double(o(at), problem.dtype); }
  void set(const Index& at, double value) {
    o(at) = from_float(static_cast<float>(value), problem.dtype);
  }
  // The largest element of a row: what 5 % of it is cannot hide below the row's own scale.
  Index largest(int b, int i, int h) {
    Index best{b, i, h, 0};
    for (int d = 1; d < problem.head_dim_v; ++d)
      if (std::fabs(value({b, i, h, d})) > std::fabs(value(best))) best[3] = d;
    return best;
  }
};

void check_failed_at(const Comparison& c, const Index& at) {
  INFO(c.summary);
  CHECK(!c.pass);
  CHECK(c.has_worst);
  CHECK(c.worst_index == at);
  CHECK(c.summary.substr(0, 5) == "FAIL:");
}

}  // namespace

TEST_CASE("a rounded reference passes, and every element is looked at") {
  Problem open = jagged_problem();
  open.causal = false;
  open.mask = {};
  Problem strided = batched_problem();
  strided.o_strides = StrideSpec{9000, 120, 40};
  Problem empty = jagged_problem();
  empty.batch = 0;
  empty.uih_q = empty.uih_kv = empty.num_targets = {};
  for (const Problem& p :
       {jagged_problem(), batched_problem(), cross_problem(), open, strided, empty})
    for (Dtype dtype : {Dtype::fp16, Dtype::bf16})
      for (Activation activation : {Activation::silu, Activation::softmax}) {
        const Checked s(p, dtype, activation);
        const Comparison c = s.run(64);
        INFO(c.summary);
        CHECK(c.pass);
        CHECK(c.mismatches == 0);
        const int per_row = 16 + (activation == Activation::softmax ? 1 : 0);
        CHECK(c.checked == s.geometry.tokens_q * 3 * per_row);
        CHECK(c.rel_frobenius < (dtype == Dtype::bf16 ? 3e-3 : 3e-4));
        CHECK(c.summary.substr(0, 5) == "PASS:");
        CHECK(c.has_worst == (c.checked > 0));
      }
}

TEST_CASE("one element off by 5 % fails, and is found") {
  const auto dtype = GENERATE(Dtype::fp16, Dtype::bf16);
  Checked s(jagged_problem(), dtype);
  const Index at = s.largest(3, 17, 2);
  const double want = s.value(at);
  s.set(at, 1.05 * want);
  const Comparison c = s.run();
  check_failed_at(c, at);
  CHECK(c.mismatches == 1);
  CHECK(c.worst_got == s.value(at));
  CHECK(c.worst_want == Approx(want).epsilon(0.005));
  CHECK(c.max_abs == Approx(0.05 * std::fabs(want)).epsilon(0.2));
  CHECK(c.max_rel == Approx(0.05).epsilon(0.2));
}

TEST_CASE("NaN and infinity never pass") {
  for (uint16_t bits : {0x7fff, 0xffc1, 0x7f80, 0xff80}) {
    Checked s(jagged_problem());
    const Index at{2, 1, 1, 7};
    s.o(at) = bits;
    const Comparison c = s.run();
    check_failed_at(c, at);
    CHECK(c.mismatches == 1);
    CHECK(std::isinf(c.max_abs));
    const Comparison ck = s.run(0, {.ck = true});
    check_failed_at(ck, at);
  }
}

TEST_CASE("swapped heads, zeroed rows and unwritten rows fail") {
  Checked s(jagged_problem());
  const auto row = [&](int b, int i, int h) { return &s.o({b, i, h, 0}); };
  SECTION("heads of one token") {
    std::swap_ranges(row(0, 30, 0), row(0, 30, 0) + 16, row(0, 30, 1));
    const Comparison c = s.run();
    CHECK(!c.pass);
    CHECK(c.mismatches > 20);
    CHECK(c.worst_index[0] == 0);
    CHECK(c.worst_index[1] == 30);
    CHECK(c.worst_index[2] < 2);
  }
  SECTION("a zeroed row") {
    std::fill_n(row(3, 0, 1), 16, 0);
    const Comparison c = s.run();
    CHECK(!c.pass);
    CHECK(c.worst_index[0] == 3);
    CHECK(c.worst_index[1] == 0);
    CHECK(c.worst_index[2] == 1);
    CHECK(c.worst_got == 0);
  }
  SECTION("a row never written") {
    std::fill_n(row(2, 5, 2), 16, 0x7fff);
    const Comparison c = s.run();
    check_failed_at(c, {2, 5, 2, 0});
    CHECK(c.mismatches == 16);
  }
}

TEST_CASE("one key too many or too few fails") {
  const auto activation = GENERATE(Activation::silu, Activation::softmax);
  for (int change : {1, -1}) {
    Checked s(jagged_problem(), Dtype::bf16, activation);
    Problem wrong = jagged_problem();
    wrong.mask.local_len += change;
    const Checked other(wrong, Dtype::bf16, activation);
    s.out = other.out;
    const Comparison c = s.run();
    INFO(c.summary);
    CHECK(!c.pass);
    CHECK(c.mismatches > 0);
  }
}

TEST_CASE("a bias that every element hides fails as a whole") {
  const auto dtype = GENERATE(Dtype::fp16, Dtype::bf16);
  Checked s(jagged_problem(), dtype);
  const double factor = dtype == Dtype::bf16 ? 1.012 : 1.003;
  for (uint16_t& bits : s.out.o)
    bits = from_float(static_cast<float>(factor * to_double(bits, dtype)), dtype);
  const Comparison c = s.run();
  INFO(c.summary);
  CHECK(!c.pass);
  CHECK(c.mismatches == 0);
  CHECK(c.rel_frobenius > c.frobenius_limit);
  CHECK_THAT(c.summary, ContainsSubstring("ABOVE"));
  // A bound that CK's numbers do not have.
  CHECK_THAT(s.run(0, {.ck = true}).summary, !ContainsSubstring("limit"));
}

TEST_CASE("wrong LSE fails") {
  Checked s(cross_problem(), Dtype::bf16, Activation::softmax);
  REQUIRE(s.run().pass);
  SECTION("off by a little") {
    s.lse(3, 4, 2) += 3e-4f * (1 + std::fabs(s.lse(3, 4, 2)));
    const Comparison c = s.run();
    check_failed_at(c, {3, 4, 2, -1});
    CHECK(c.mismatches == 1);
    CHECK_THAT(c.summary, ContainsSubstring("lse[b 3, i 4, h 2]"));
  }
  SECTION("finite where the row is fully masked") {
    REQUIRE(std::isinf(s.lse(0, 3, 1)));
    s.lse(0, 3, 1) = -1e30f;
    check_failed_at(s.run(), {0, 3, 1, -1});
  }
  SECTION("infinite where the row is not masked, or of the wrong sign, or NaN") {
    s.lse(0, 30, 1) = -std::numeric_limits<float>::infinity();
    check_failed_at(s.run(), {0, 30, 1, -1});
    s.lse(0, 30, 1) = std::numeric_limits<float>::quiet_NaN();
    check_failed_at(s.run(), {0, 30, 1, -1});
    s = Checked(cross_problem(), Dtype::bf16, Activation::softmax);
    s.lse(0, 3, 1) = std::numeric_limits<float>::infinity();
    check_failed_at(s.run(), {0, 3, 1, -1});
  }
}

TEST_CASE("a fully masked row must be exactly zero") {
  const auto dtype = GENERATE(Dtype::fp16, Dtype::bf16);
  Checked s(cross_problem(), dtype);
  REQUIRE(s.value({0, 3, 1, 5}) == 0);
  s.o({0, 3, 1, 5}) = 0x8000;  // -0 is zero
  CHECK(s.run().pass);
  s.o({0, 3, 1, 5}) = 0x0001;
  check_failed_at(s.run(), {0, 3, 1, 5});
}

TEST_CASE("a reference that is zero everywhere") {
  Problem p = cross_problem();
  p.uih_kv = {0, 0, 0, 0};
  Checked s(p);
  CHECK(s.run().pass);
  CHECK(s.run().rel_frobenius == 0);
  s.set({3, 1, 0, 0}, 1e-20);
  check_failed_at(s.run(), {3, 1, 0, 0});
}

TEST_CASE("outputs near the smallest fp16 step are judged by that step") {
  Problem p = jagged_problem();
  p.attn_scale = 2e-6;
  Checked s(p, Dtype::fp16);
  const Comparison c = s.run();
  INFO(c.summary);
  CHECK(c.pass);
  for (int d = 0; d < 16; ++d) s.o({3, 12, 0, d}) += 3;
  CHECK(!s.run().pass);
}

TEST_CASE("CK's tolerance") {
  Problem p = jagged_problem();
  p.attn_scale = 1;
  Checked s(p);
  const Index at = s.largest(3, 17, 2);
  const double want = s.value(at);
  s.set(at, 1.03 * want);
  CHECK(s.run().pass);
  check_failed_at(s.run(0, {.ck = true}), at);
  s.set(at, 1.01 * want);
  CHECK(s.run(0, {.ck = true}).pass);
}

TEST_CASE("infinite inputs make the rows that see them fail, and no others pass unseen") {
  Checked s(jagged_problem());
  s.tensors.v[key_offset(s.geometry, s.geometry.v, 3, 10, 0)] = 0x7f80;
  const Comparison c = s.run();
  CHECK(!c.pass);
  CHECK(c.worst_index[3] == 0);
  // The rest of such a row keeps its tolerance.
  const int64_t before = c.mismatches;
  s.set(s.largest(3, 10, 0), 1.1 * s.value(s.largest(3, 10, 0)));
  CHECK(s.run().mismatches >= before);
  s.set({3, 10, 0, 5}, 1000);
  CHECK(s.run().mismatches > before);
}

TEST_CASE("buffers that are too small are refused") {
  Checked s(jagged_problem(), Dtype::bf16, Activation::softmax);
  const std::vector<float> lse = s.out.lse;
  s.out.lse.pop_back();
  CHECK(!s.run().pass);
  s.out.lse = lse;
  s.out.o.pop_back();
  CHECK(!s.run().pass);
  s.tensors.q.clear();
  CHECK_THAT(s.run().summary, ContainsSubstring("input"));
}

TEST_CASE("sampled rows hold the edges of every sequence, and spread") {
  Problem p = jagged_problem();
  p.batch = 3;
  p.uih_q = p.uih_kv = {3000, 700, 2000};
  p.num_targets = {40, 0, 7};
  p.mask = {64, 10, 100, 0, 0};
  p.validate.rows = 200;
  const auto geometry = make_geometry(p);
  REQUIRE(geometry.ok());
  const auto rows_of = [&](int64_t b, int32_t h) {
    const auto rows = rows_to_check(p, *geometry, b, h, 128);
    CHECK(std::is_sorted(rows.begin(), rows.end()));
    return std::set<int32_t>(rows.begin(), rows.end());
  };
  // Sequence 0: 10 context, 3000 history, 40 targets.
  const auto rows = rows_of(0, 0);
  for (int32_t i : {0, 9, 10, 3009, 3010, 3049,  // first, last, regions
                    2909, 2910,                  // wide rows
                    73, 74,                      // the window leaves the context block
                    64, 65, 2946})
    CHECK(rows.count(i) == 1);
  CHECK(*rows.rbegin() == 3049);
  int32_t tile_edges = 0;
  for (int32_t tile = 0; tile < 24; ++tile)
    tile_edges += rows.count(128 * tile) && rows.count(std::min(128 * tile + 127, 3049));
  CHECK(tile_edges >= 14);
  CHECK(rows.size() < 300);
  // Sequence 1 has 710 rows, 12 groups of 64: tiles of 320 rows cut from the end begin at 128.
  const auto cut = rows_to_check(p, *geometry, 1, 0, 320);
  for (int32_t i : {0, 127, 128, 319, 320, 447, 448, 639, 640, 709})
    CHECK(std::count(cut.begin(), cut.end(), i) == 1);
  // All sequences together: at least the asked rows, in every tenth of the tokens.
  size_t total = 0;
  for (int b = 0; b < 3; ++b) total += rows_of(b, 1).size();
  CHECK(total >= 200);
  CHECK(total < 600);
  CHECK(rows_of(0, 1) != rows);
  int32_t previous = 0, gap = 0;
  for (int32_t i : rows) {
    gap = std::max(gap, i - previous);
    previous = i;
  }
  CHECK(gap < 80);
  p.validate.rows = 1 << 30;
  CHECK(rows_of(1, 0).size() == 710);
  p.validate.rows = 0;
  CHECK(rows_of(1, 0).size() == 710);
}

TEST_CASE("sampled rows find a fault at an edge") {
  Problem p = jagged_problem();
  p.batch = 1;
  p.uih_q = p.uih_kv = {500};
  p.num_targets = {9};
  p.validate.rows = 3;
  Checked s(p);
  const Comparison clean = s.run(64);
  CHECK(clean.pass);
  CHECK(clean.checked < 511 * 3 * 16 / 3);
  for (int i : {0, 3, 63, 64, 502, 503, 511}) {
    Checked broken(p);
    const Index at = broken.largest(0, i, 2);
    broken.set(at, 1.2 * broken.value(at));
    check_failed_at(broken.run(64), at);
  }
}

TEST_CASE("the report does not depend on the run") {
  const Checked s(jagged_problem());
  const Comparison first = s.run();
  for (int n = 0; n < 5; ++n) {
    const Comparison again = s.run();
    CHECK(again.rel_frobenius == first.rel_frobenius);
    CHECK(again.worst_index == first.worst_index);
    CHECK(again.summary == first.summary);
  }
}
