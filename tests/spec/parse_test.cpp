// SPDX-License-Identifier: Apache-2.0
// Every key of the spec: its default and its effect.
#include "support.hpp"

namespace hstu::jit::test {

TEST_CASE("defaults of a minimal spec") {
  const Problem p = parse_one(spec_text(R"("uih_lengths": [7, 9])"));
  CHECK(p.name.empty());
  CHECK(p.dtype == Dtype::bf16);
  CHECK(p.heads == 2);
  CHECK(p.head_dim_qk == 16);
  CHECK(p.head_dim_v == 16);
  CHECK(p.layout == Layout::jagged);
  CHECK(p.batch == 2);
  CHECK(p.uih_q == std::vector<int32_t>{7, 9});
  CHECK(p.uih_kv == p.uih_q);
  CHECK(p.num_targets == std::vector<int32_t>{0, 0});
  CHECK_FALSE(p.cross);
  CHECK(p.max_uih_q == 0);
  CHECK(p.max_targets == 0);
  CHECK(p.causal);
  CHECK(p.mask == GroupSpec{});
  CHECK(p.groups.empty());
  CHECK(p.activation == Activation::silu);
  CHECK(p.alpha == 0);
  CHECK(p.attn_scale == 0);
  CHECK_FALSE(p.training);
  CHECK(p.data == DataSpec{});
  CHECK(p.data.seed == 13579);
  CHECK(p.target == "auto");
  CHECK(p.device == "auto");
  CHECK(p.validate.enabled);
  CHECK(p.validate.rows == 0);
  CHECK_FALSE(p.benchmark.has_value());
  CHECK_FALSE(p.q_strides.has_value());
  CHECK(p.dump_dir.empty());
}

TEST_CASE("every key is read") {
  auto spec = parse_spec(R"({
    "$schema": "anything", "op": "hstu_attention", "name": "näme", "dtype": "fp16",
    "heads": 3, "head_dim_qk": 24, "head_dim_v": 256, "layout": "jagged", "batch": 4,
    "uih_lengths": [5, 6], "uih_lengths_kv": 8, "num_targets": [1],
    "max_uih_length": 10, "max_uih_length_kv": 11, "max_targets": 12,
    "mask": {"causal": false, "local_len": 1, "context_len": 2, "minfull_len": 3},
    "groups": [{"local_len": 4}, {"context_len": 5, "minfull_len": 6, "attn_scale": null,
                                  "max_uih_length": 7}],
    "activation": "softmax", "alpha": 0.5, "attn_scale": 2, "training": true,
    "data": {"init": "files", "seed": 1, "files": {"q": "q.dat", "k": "/k.dat", "v": "sub/v.dat"}},
    "target": "gfx942", "device": "cpu", "validate": {"rows": 17},
    "strides": {"q": [1, 2, 3], "k": [0, 0, 0], "v": [4, 5, 6], "o": [0, 1024, 256]},
    "benchmark": {"warmup": 1, "iterations": 2, "flush_l2": false},
    "output": {"dump": "out", "mask": "m.dat"}})",
                         "/some/folder");
  INFO((spec.ok() ? "" : spec.error().message));
  REQUIRE(spec.ok());
  CHECK_FALSE(spec->suite);
  const Problem& p = spec->problems.at(0);
  CHECK(p.name == "näme");
  CHECK(p.dtype == Dtype::fp16);
  CHECK(p.heads == 3);
  CHECK(p.head_dim_qk == 24);
  CHECK(p.head_dim_v == 256);
  CHECK(p.uih_q == std::vector<int32_t>{5, 6, 6, 6});
  CHECK(p.uih_kv == std::vector<int32_t>{8, 8, 8, 8});
  CHECK(p.cross);
  CHECK(p.num_targets == std::vector<int32_t>{1, 1, 1, 1});
  CHECK(p.max_uih_q == 10);
  CHECK(p.max_uih_kv == 11);
  CHECK(p.max_targets == 12);
  CHECK_FALSE(p.causal);
  CHECK(p.mask.local_len == 1);
  CHECK(p.mask.context_len == 2);
  CHECK(p.mask.minfull_len == 3);
  REQUIRE(p.groups.size() == 2);
  CHECK(p.groups[0] == GroupSpec{4, 2, 3, 2.0, 10});  // the rest from mask and the top level
  CHECK(p.groups[1] == GroupSpec{1, 5, 6, 0.0, 7});
  CHECK(p.activation == Activation::softmax);
  CHECK(p.alpha == 0.5);
  CHECK(p.attn_scale == 2);
  CHECK(p.training);
  CHECK(p.writes_lse());
  CHECK(p.data.init == DataSpec::Init::files);
  CHECK(p.data.seed == 1);
  CHECK(p.data.q_file == "/some/folder/q.dat");
  CHECK(p.data.k_file == "/k.dat");
  CHECK(p.data.v_file == "/some/folder/sub/v.dat");
  CHECK(p.target == "gfx942");
  CHECK(p.device == "cpu");
  CHECK(p.validate.rows == 17);
  CHECK(p.q_strides == StrideSpec{1, 2, 3});
  CHECK(p.o_strides == StrideSpec{0, 1024, 256});
  REQUIRE(p.benchmark.has_value());
  CHECK(*p.benchmark == BenchmarkSpec{1, 2, false});
  CHECK(p.dump_dir == "/some/folder/out");
  CHECK(p.mask_path == "/some/folder/m.dat");
}

TEST_CASE("lists are extended with their last entry, one length stands for all") {
  CHECK(parse_one(spec_text(R"("batch": 5, "uih_lengths": [1, 2])")).uih_q ==
        std::vector<int32_t>{1, 2, 2, 2, 2});
  CHECK(parse_one(spec_text(R"("batch": 2, "uih_lengths": 3)")).uih_q ==
        std::vector<int32_t>{3, 3});
  CHECK(parse_one(spec_text(R"("uih_lengths": 3)")).batch == 1);
  const Problem batched = parse_one(
      spec_text(R"("layout": "batched", "batch": 3, "uih_lengths": [4], "num_targets": [1, 2])"));
  CHECK(batched.uih_q == std::vector<int32_t>{4, 4, 4});
  CHECK(batched.num_targets == std::vector<int32_t>{1, 2, 2});
}

TEST_CASE("validate, training and strides in their other forms") {
  CHECK_FALSE(parse_one(spec_text(R"("uih_lengths": 1, "validate": false)")).validate.enabled);
  CHECK(parse_one(spec_text(R"("uih_lengths": 1, "validate": true)")).validate.enabled);
  const Problem silu = parse_one(spec_text(R"("uih_lengths": 1, "training": true)"));
  CHECK(silu.training);
  CHECK_FALSE(silu.writes_lse());
  CHECK(parse_one(spec_text(R"("uih_lengths": 1, "benchmark": {})")).benchmark == BenchmarkSpec{});
  CHECK(parse_one(spec_text(R"("uih_lengths": 1, "data": {"init": "uniform", "same_qkv": true})"))
            .data.same_qkv);
}

TEST_CASE("paths are resolved against the folder of the spec") {
  const std::string text = spec_text(R"("uih_lengths": 1, "output": {"dump": "a/b"})");
  CHECK(parse_spec(text, "")->problems[0].dump_dir == "a/b");
  CHECK(parse_spec(text, "x/")->problems[0].dump_dir == "x/a/b");
  CHECK(parse_spec(text, "/")->problems[0].dump_dir == "/a/b");
}

TEST_CASE("a suite keeps its order and points at the problem that is wrong") {
  const std::string one = spec_text(R"("uih_lengths": 1)"), two = spec_text(R"("uih_lengths": 2)");
  auto spec = parse_spec("[" + one + "," + two + "]", "");
  REQUIRE(spec.ok());
  CHECK(spec->suite);
  REQUIRE(spec->problems.size() == 2);
  CHECK(spec->problems[1].uih_q[0] == 2);
  CHECK(parse_spec("[" + one + "]", "")->suite);
  const Error e = error_of("[" + one + "," + spec_text(R"("uih_lengths": -2)") + "]");
  CHECK(e.pointer == "/1/uih_lengths");
  CHECK(e.message.rfind("/1/uih_lengths: found -2; allowed", 0) == 0);
}

TEST_CASE("white space, a byte order mark and escapes are plain JSON") {
  CHECK(parse_one("\xef\xbb\xbf\r\n\t " + spec_text(R"("uih_lengths": 1)") + " \n").batch == 1);
  CHECK(parse_one(R"({"\u006fp": "hstu_attention", "heads": 1, "head_dim_qk": 8, "uih_lengths": 0,
                      "name": "\ud83d\ude00"})")
            .name == "\xf0\x9f\x98\x80");
}

TEST_CASE("one spelling of zero scale is as good as another") {
  for (const char* zero : {"0", "0.0", "-0", "-0.0", "0e5", "null"}) {
    const Problem p = parse_one(spec_text(std::string(R"("uih_lengths": 1, "alpha": )") + zero));
    CHECK(p.alpha == 0);
    CHECK_FALSE(std::signbit(p.alpha));
  }
}

}  // namespace hstu::jit::test
