// SPDX-License-Identifier: Apache-2.0
// to_json and back, over random problems.
#include <random>

#include "support.hpp"

namespace hstu::jit::test {
namespace {

class Dice {
 public:
  explicit Dice(uint32_t seed) : engine_(seed) {}
  int64_t from(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(engine_);
  }
  bool coin() { return from(0, 1) == 1; }
  double number() { return coin() ? 0.0 : std::uniform_real_distribution<double>(-3, 3)(engine_); }

 private:
  std::mt19937 engine_;
};

int32_t small(Dice& dice, int most) { return static_cast<int32_t>(dice.from(0, most)); }

std::vector<int32_t> lengths(Dice& dice, int64_t batch, int most, bool equal) {
  std::vector<int32_t> out(batch);
  const int32_t first = small(dice, most);
  for (auto& n : out) n = equal ? first : small(dice, most);
  return out;
}

Problem random_problem(Dice& dice) {
  Problem p;
  p.name = dice.coin() ? "" : "problem \"\\/ \xc3\xa9";
  p.dtype = dice.coin() ? Dtype::fp16 : Dtype::bf16;
  p.heads = static_cast<int32_t>(dice.from(1, 7));
  p.head_dim_qk = static_cast<int32_t>(8 * dice.from(1, 32));
  p.head_dim_v = static_cast<int32_t>(8 * dice.from(1, 32));
  p.layout = dice.coin() ? Layout::batched : Layout::jagged;
  const bool batched = p.layout == Layout::batched;
  const int64_t groups = batched || dice.coin() ? 0 : dice.from(2, 4);
  p.batch = groups ? groups * dice.from(0, 3) : dice.from(0, 6);
  p.uih_q = lengths(dice, p.batch, 40, batched);
  p.cross = dice.coin();
  p.uih_kv = p.cross ? lengths(dice, p.batch, 40, batched) : p.uih_q;
  p.num_targets = dice.coin() ? std::vector<int32_t>(p.batch) : lengths(dice, p.batch, 9, false);
  if (dice.coin()) p.max_uih_q = 40 + small(dice, 9);
  if (dice.coin()) p.max_uih_kv = p.cross ? 40 + small(dice, 9) : p.max_uih_q;
  if (dice.coin()) p.max_targets = 9 + small(dice, 9);
  p.causal = dice.coin();
  p.mask.local_len = small(dice, 9);
  p.mask.context_len = small(dice, 9);
  p.mask.minfull_len = small(dice, 9);
  for (int64_t g = 0; g < groups; ++g)
    p.groups.push_back({small(dice, 9), small(dice, 9), small(dice, 9), dice.number(),
                        dice.coin() ? 0 : 40 + small(dice, 9)});
  p.activation = dice.coin() ? Activation::silu : Activation::softmax;
  p.alpha = dice.number();
  p.attn_scale = dice.number();
  p.training = dice.coin();
  p.data.init = static_cast<DataSpec::Init>(dice.from(0, 2));
  p.data.seed = static_cast<uint64_t>(dice.from(INT64_MIN, INT64_MAX));
  if (p.data.init == DataSpec::Init::files) {
    p.data.q_file = "/q", p.data.k_file = "k k", p.data.v_file = "../v";
  } else {
    p.data.same_qkv = dice.coin();
  }
  if (dice.coin()) p.target = "gfx942";
  if (dice.coin()) p.device = "sim:gfx942";
  p.validate.enabled = dice.coin();
  if (p.validate.enabled && dice.coin()) p.validate.rows = dice.from(1, 99);
  if (dice.coin()) p.q_strides = StrideSpec{dice.from(0, 99), dice.from(0, 99), dice.from(0, 99)};
  if (dice.coin()) p.v_strides = StrideSpec{dice.from(0, 99), dice.from(0, 99), dice.from(0, 99)};
  if (dice.coin()) p.o_strides = StrideSpec{1000000, 2048, 256};
  if (dice.coin()) p.benchmark = BenchmarkSpec{small(dice, 9), 1 + small(dice, 9), dice.coin()};
  if (dice.coin()) p.dump_dir = "/out";
  if (dice.coin()) p.mask_path = "mask.dat";
  return p;
}

}  // namespace

TEST_CASE("random problems come back equal from their JSON, which is canonical") {
  Dice dice(20240229);
  int grouped = 0, cross = 0, empty = 0;
  for (int i = 0; i < 3000; ++i) {
    const Problem p = random_problem(dice);
    const std::string text = to_json(p);
    INFO(text);
    auto back = parse_spec(text, "");
    INFO((back.ok() ? "" : back.error().message));
    REQUIRE(back.ok());
    REQUIRE(back->problems.size() == 1);
    REQUIRE(back->problems[0] == p);
    REQUIRE(to_json(back->problems[0]) == text);
    REQUIRE(parse_spec(to_json(p, 2), "")->problems[0] == p);
    grouped += p.grouped();
    cross += p.cross;
    empty += p.batch == 0;
  }
  CHECK(grouped > 300);
  CHECK(cross > 300);
  CHECK(empty > 100);
}

TEST_CASE("canonical JSON: sorted keys, defaults filled in, lists extended, groups explicit") {
  const std::string text = to_json(parse_one(spec_text(
      R"("batch": 4, "uih_lengths": [1, 2], "groups": [{}, {"local_len": 3}],
         "attn_scale": 0.5)")));
  CHECK(text ==
        R"({"activation":"silu","alpha":null,"attn_scale":0.5,"batch":4,)"
        R"("data":{"init":"normal","same_qkv":false,"seed":13579},"device":"auto",)"
        R"("dtype":"bf16","groups":[{"attn_scale":0.5,"context_len":0,"local_len":0,)"
        R"("max_uih_length":0,"minfull_len":0},{"attn_scale":0.5,"context_len":0,"local_len":3,)"
        R"("max_uih_length":0,"minfull_len":0}],"head_dim_qk":16,"head_dim_v":16,"heads":2,)"
        R"("layout":"jagged","mask":{"causal":true,"context_len":0,"local_len":0,)"
        R"("minfull_len":0},"max_targets":0,"max_uih_length":0,"max_uih_length_kv":0,"name":"",)"
        R"("num_targets":[0,0,0,0],"op":"hstu_attention","target":"auto","training":false,)"
        R"("uih_lengths":[1,2,2,2],"validate":true})");
}

TEST_CASE("a very long list is cut where it starts to repeat and reads back the same") {
  const Problem p = parse_one(spec_text(R"("batch": 1000000, "uih_lengths": [5, 4])"));
  const std::string text = to_json(p);
  CHECK(text.size() < 2000);
  CHECK(parse_one(text) == p);
}

TEST_CASE("strings that are not UTF-8 do not get in the way") {
  Problem p = parse_one(spec_text(R"("uih_lengths": 1)"));
  p.mask_path = "\xff\xfe";
  CHECK(parse_one(to_json(p)).mask_path.size() > 0);
}

}  // namespace hstu::jit::test
