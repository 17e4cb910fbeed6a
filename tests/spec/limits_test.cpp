// SPDX-License-Identifier: Apache-2.0
// Sizes near 2^30, 2^31 and 2^63: handled or refused, never wrapped.
#include "spec/document.hpp"
#include "support.hpp"

namespace hstu::jit::test {
namespace {

Error refusal(const std::string& more) {
  const Error e = error_of(spec_text(more));
  CHECK(e.kind == ErrorKind::kSpec);
  CHECK(one_line(e.message));
  return e;
}

}  // namespace

TEST_CASE("physical lengths end below 2^30") {
  CHECK(geometry_of(R"("uih_lengths": 1073741823)").tokens_q == 1073741823);
  CHECK(refusal(R"("uih_lengths": 1073741824)").pointer == "/uih_lengths");
  const Error sum = refusal(R"("uih_lengths": 1073741816, "mask": {"context_len": 8})");
  CHECK(sum.pointer == "/uih_lengths");
  CHECK_THAT(sum.message, ContainsSubstring("too large"));
  CHECK(refusal(R"("uih_lengths": 1073741823, "num_targets": 1)").pointer == "/uih_lengths");
  CHECK(refusal(R"("uih_lengths": 1, "uih_lengths_kv": 1073741823, "mask": {"context_len": 1})")
            .pointer == "/uih_lengths_kv");
  CHECK(refusal(R"("uih_lengths": 1, "max_uih_length": 1073741823, "num_targets": 1)").pointer ==
        "/uih_lengths");
}

TEST_CASE("jagged offsets stay within int32") {
  // 2 * 1073741823 + 1 = 2^31 - 1 fits, one more token does not.
  const Geometry g = geometry_of(R"("uih_lengths": [1073741823, 1073741823, 1])");
  CHECK(g.seq_offsets_q.back() == 2147483647);
  const Error e = refusal(R"("uih_lengths": [1073741823, 1073741823, 2])");
  CHECK(e.pointer == "/uih_lengths");
  CHECK_THAT(e.message, ContainsSubstring("too large"));
  CHECK(refusal(R"("batch": 3, "uih_lengths": 1, "uih_lengths_kv": 1000000000)").pointer ==
        "/uih_lengths_kv");
  // No such bound without offsets.
  CHECK(geometry_of(R"("layout": "batched", "batch": 3, "uih_lengths": 1073741823)").tokens_q ==
        int64_t{3} * 1073741823);
}

TEST_CASE("element and pair counts that pass 64 bits are refused") {
  // 2^24 * (2^30 - 1) rows of 65536 * 256 elements: 2^78.
  const Error e = error_of(spec_text(R"("layout": "batched", "batch": 16777216,
                                        "uih_lengths": 1073741823)",
                                     R"("heads": 65536, "head_dim_qk": 256)"));
  CHECK(e.pointer == "/batch");
  CHECK_THAT(e.message, ContainsSubstring("too large"));
  // 2^24 sequences of 2^20 rows: 2^44 rows are fine, 2^64 pairs are not.
  CHECK(refusal(R"("layout": "batched", "batch": 16777216, "uih_lengths": 1048576)").pointer ==
        "/batch");
  CHECK(refusal(R"("uih_lengths": 4, "strides": {"q": [0, 4611686018427387904, 16]})").pointer ==
        "/strides/q");
  CHECK(refusal(R"("uih_lengths": 4, "strides": {"q": [0, 9223372036854775807, 16]})").pointer ==
        "/strides/q/1");
  CHECK(refusal(R"("uih_lengths": 4, "strides": {"q": [0, 18446744073709551615, 16]})").pointer ==
        "/strides/q/1");
}

TEST_CASE("integers of any size are read exactly or refused") {
  for (const char* n :
       {"2147483647", "2147483648", "4294967295", "4294967296", "4294967297", "9223372036854775807",
        "9223372036854775808", "18446744073709551615", "18446744073709551616",
        "18446744073709551617", "-1", "-2147483648", "-9223372036854775808", "-9223372036854775809",
        "1e9", "1.0", "1e400", "100000000000000000000000000000000000000000000000000"}) {
    for (const char* key : {"uih_lengths", "uih_lengths_kv", "num_targets", "batch", "heads",
                            "head_dim_qk", "head_dim_v", "max_uih_length", "max_targets"}) {
      std::string text = R"({"op": "hstu_attention")";
      for (const char* other : {"uih_lengths", "heads", "head_dim_qk"})
        if (std::string(other) != key) text += std::string(", \"") + other + "\": 8";
      text += std::string(", \"") + key + "\": " + n + "}";
      INFO(text);
      auto spec = parse_spec(text, "");
      REQUIRE(!spec.ok());
      CHECK(spec.error().pointer == std::string("/") + key);
      CHECK(one_line(spec.error().message));
    }
  }
  CHECK(parse_one(spec_text(R"("uih_lengths": 1, "data": {"seed": 18446744073709551615})"))
            .data.seed == UINT64_MAX);
  CHECK(refusal(R"("uih_lengths": 1, "data": {"seed": 18446744073709551616})").pointer ==
        "/data/seed");
  CHECK(refusal(R"("uih_lengths": 1, "data": {"seed": -1})").pointer == "/data/seed");
}

TEST_CASE("the largest batch with short sequences is fine, over a suite too") {
  auto spec = parse_spec(spec_text(R"("batch": 16777216, "uih_lengths": 1)"), "");
  REQUIRE(spec.ok());
  CHECK(spec->problems[0].uih_q.size() == 16777216);
  CHECK(refusal(R"("batch": 16777217, "uih_lengths": 1)").pointer == "/batch");
  const std::string half = spec_text(R"("batch": 8388609, "uih_lengths": 0)");
  const Error e = error_of("[" + half + "," + half + "]");
  CHECK(e.pointer == "/1/batch");
}

TEST_CASE("deep nesting, many keys, many values and long texts are refused in one line") {
  for (const char* open : {"[", R"({"a":)", R"([{"data":)"}) {
    std::string text;
    for (int i = 0; i < 100000; ++i) text += open;
    CHECK(one_line(error_of(text).message));
  }
  std::string keys = "{";
  for (int i = 0; i < 100000; ++i) keys += "\"k" + std::to_string(i) + "\":1,";
  CHECK_THAT(error_of(keys + "\"z\":1}").message, ContainsSubstring("keys"));
  const Error huge = error_of(std::string(kMaxSpecBytes, ' ') + "{}");
  CHECK_THAT(huge.message, ContainsSubstring("bytes"));
  std::string values = R"({"op": "hstu_attention", "uih_lengths": [0)";
  for (int i = 0; i < 9000000; ++i) values += ",0";
  CHECK_THAT(error_of(values).message, ContainsSubstring("values"));
  CHECK_THAT(
      error_of(spec_text(R"("uih_lengths": 1, "name": ")" + std::string(5000, 'n') + "\"")).message,
      ContainsSubstring("5000 bytes"));
  const Error key = error_of(
      spec_text("\"uih_lengths\": 1, \"mask\": {\"" + std::string(100000, 'k') + "\": 1}"));
  CHECK(one_line(key.message));
  CHECK(key.pointer == "/mask");
}

TEST_CASE("a problem put together by hand is checked like a parsed one") {
  Problem good;
  good.heads = 1, good.head_dim_qk = good.head_dim_v = 8, good.batch = 2;
  good.uih_q = good.uih_kv = {3, 4}, good.num_targets = {0, 0};
  REQUIRE(make_geometry(good).ok());
  const auto refused = [&good](auto change) {
    Problem p = good;
    change(p);
    return !make_geometry(p).ok() && !check_geometry(p).ok();
  };
  CHECK(refused([](Problem& p) { p.heads = 0; }));
  CHECK(refused([](Problem& p) { p.heads = 65537; }));
  CHECK(refused([](Problem& p) { p.head_dim_qk = 12; }));
  CHECK(refused([](Problem& p) { p.head_dim_v = 264; }));
  CHECK(refused([](Problem& p) { p.batch = -1; }));
  CHECK(refused([](Problem& p) { p.batch = 3; }));
  CHECK(refused([](Problem& p) { p.uih_q = {3, -4}; }));
  CHECK(refused([](Problem& p) { p.uih_kv = {3}; }));
  CHECK(refused([](Problem& p) { p.num_targets = {0, -1}; }));
  CHECK(refused([](Problem& p) { p.mask.local_len = -1; }));
  CHECK(refused([](Problem& p) { p.mask.context_len = -1; }));
  CHECK(refused([](Problem& p) { p.max_uih_q = -1; }));
  CHECK(refused([](Problem& p) { p.groups.resize(1); }));
  CHECK(refused([](Problem& p) { p.groups.resize(3); }));
  CHECK(refused([](Problem& p) { p.o_strides = StrideSpec{0, -8, 8}; }));
}

}  // namespace hstu::jit::test
