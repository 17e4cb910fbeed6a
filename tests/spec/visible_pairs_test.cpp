// SPDX-License-Identifier: Apache-2.0
// The closed count of visible pairs against counting cells of the mask predicate.
#include <chrono>
#include <nlohmann/json.hpp>

#include "support.hpp"

namespace hstu::jit::test {
namespace {

int64_t count_cells(const MaskFeatures& f, const SequenceMask& m) {
  int64_t pairs = 0;
  for (int i = 0; i < m.seqlen_q; ++i)
    for (int j = 0; j < m.seqlen_kv; ++j) pairs += visible(f, m, i, j);
  return pairs;
}

MaskFeatures features_from(int bits) {
  return {bool(bits & 1), bool(bits & 2),  bool(bits & 4),
          bool(bits & 8), bool(bits & 16), bool(bits & 32)};
}

}  // namespace

TEST_CASE("visible_pairs equals the count of visible cells, exhaustively for small sizes") {
  int64_t checked = 0, wrong = 0;
  for (int bits = 0; bits < 64; ++bits) {
    const MaskFeatures f = features_from(bits);
    if (f.minfull && !f.local) continue;
    for (int uih = 0; uih < 8; ++uih)
      for (int targets = 0; targets <= (f.targets ? 3 : 0); ++targets)
        for (int context = 0; context <= (f.context ? 4 : 0); ++context)
          for (int local = 0; local <= (f.local ? 6 : 0); ++local)
            for (int full = 0; full <= (f.minfull ? 9 : 0); full += 3)
              for (int keys = 0; keys < (f.cross ? 11 : 1); ++keys) {
                const int q = uih + context + targets;
                const int kv = f.cross ? keys + context : q;
                const SequenceMask m = resolve_mask(f, q, kv, targets, local, context, full);
                wrong += visible_pairs(f, m) != count_cells(f, m);
                ++checked;
              }
  }
  CHECK(wrong == 0);
  CHECK(checked > 100000);
}

TEST_CASE("visible_pairs of the worked mask examples") {
  const auto json = nlohmann::json::parse(contents(HSTU_TEST_DATA "/mask_examples.json"));
  REQUIRE(json["examples"].size() >= 4);
  for (const auto& example : json["examples"]) {
    const auto& e = example["params"];
    INFO(example["name"].get<std::string>());
    nlohmann::json spec{{"op", "hstu_attention"},
                        {"heads", 1},
                        {"head_dim_qk", 8},
                        {"uih_lengths", e["uih_q"]},
                        {"num_targets", e["targets"]},
                        {"mask",
                         {{"causal", e["causal"].get<int>() != 0},
                          {"local_len", e["local_len"]},
                          {"context_len", e["context_len"]},
                          {"minfull_len", e["minfull_len"]}}}};
    if (e["is_cross"].get<bool>()) spec["uih_lengths_kv"] = e["uih_kv"];
    auto geometry = make_geometry(parse_one(spec.dump()));
    REQUIRE(geometry.ok());
    CHECK(geometry->sequences[0].seqlen_q == e["phys_seqlen_q"].get<int>());
    CHECK(geometry->sequences[0].seqlen_kv == e["phys_seqlen_kv"].get<int>());
    int64_t ones = 0;
    for (const auto& row : example["rows"]) {
      const auto text = row.get<std::string>();
      ones += std::count(text.begin(), text.end(), '1');
    }
    CHECK(visible_pairs(*geometry) == ones);
  }
}

TEST_CASE("visible_pairs by hand: causal triangles, windows and targets") {
  // n (n + 1) / 2 of a causal sequence, whatever its length.
  CHECK(visible_pairs(geometry_of(R"("uih_lengths": 1000000)")) == 500000500000);
  CHECK(visible_pairs(geometry_of(R"("uih_lengths": [3, 4], "batch": 3)")) == 6 + 10 + 10);
  // Rows i < 6 see i + 1 keys, the other 4 see 6 (window 5 and itself); 2 targets see 5 and itself.
  CHECK(visible_pairs(
            geometry_of(R"("uih_lengths": 10, "num_targets": 2, "mask": {"local_len": 5})")) ==
        21 + 4 * 6 + 2 * 6);
  // With min-full the targets see all 10 and themselves, the last 3 rows 8, 9, 10.
  CHECK(visible_pairs(geometry_of(R"("uih_lengths": 10, "num_targets": 2,
                                     "mask": {"local_len": 5, "minfull_len": 3})")) ==
        21 + 6 + 8 + 9 + 10 + 2 * 11);
}

TEST_CASE("pairs of large and of many sequences are counted without a loop over rows") {
  const auto start = std::chrono::steady_clock::now();
  const Geometry long_one = geometry_of(R"("uih_lengths": 1073741823, "layout": "batched")");
  CHECK(visible_pairs(long_one) == int64_t{1073741823} * 1073741824 / 2);
  CHECK(dense_pairs(long_one) == int64_t{1073741823} * 1073741823);
  const Geometry many = geometry_of(R"("uih_lengths": 4096, "batch": 512)");
  CHECK(visible_pairs(many) == int64_t{512} * 4096 * 4097 / 2);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(2));
}

}  // namespace hstu::jit::test
