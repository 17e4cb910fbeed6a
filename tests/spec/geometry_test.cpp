// SPDX-License-Identifier: Apache-2.0
// Lengths, offsets, strides and scales against figures worked out by hand.
#include <cmath>
#include <map>

#include "support.hpp"

namespace hstu::jit::test {
namespace {

std::vector<int> lengths_q(const Geometry& g) {
  std::vector<int> out;
  for (const auto& s : g.sequences) out.push_back(s.seqlen_q);
  return out;
}

std::vector<int> lengths_kv(const Geometry& g) {
  std::vector<int> out;
  for (const auto& s : g.sequences) out.push_back(s.seqlen_kv);
  return out;
}

bool same(const Strides& s, int64_t batch, int64_t seq, int64_t head) {
  return s.batch == batch && s.seq == seq && s.head == head;
}

}  // namespace

TEST_CASE("jagged: physical lengths, offsets and dense strides") {
  // uih + context + targets: 49 + 3 + 4, 52 + 3 + 5, 55 + 3 + 6.
  const Geometry g = geometry_of(R"("uih_lengths": [49, 52, 55], "num_targets": [4, 5, 6],
                                    "head_dim_v": 24, "mask": {"local_len": 4, "context_len": 3})");
  CHECK(lengths_q(g) == std::vector<int>{56, 60, 64});
  CHECK(lengths_kv(g) == std::vector<int>{56, 60, 64});
  CHECK(g.seq_offsets_q == std::vector<int32_t>{0, 56, 116, 180});
  CHECK(g.seq_offsets_kv == g.seq_offsets_q);
  CHECK(g.sequences[2].first_q == 116);
  CHECK(g.max_seqlen_q == 64);
  CHECK(g.longest_q == 64);
  CHECK(g.tokens_q == 180);
  CHECK(same(g.q, 0, 2 * 16, 16));
  CHECK(same(g.v, 0, 2 * 24, 24));
  CHECK(same(g.lse, 0, 2, 1));
  CHECK(g.q_elements == 180 * 32);
  CHECK(g.o_elements == 180 * 48);
  CHECK(g.lse_elements == 180 * 2);
  CHECK(g.features.causal);
  CHECK(g.features.local);
  CHECK(g.features.context);
  CHECK(g.features.targets);
  CHECK_FALSE(g.features.minfull);
  CHECK_FALSE(g.features.cross);
  const SequenceMask m = g.mask_of(1);
  CHECK(m.rows == 55);
  CHECK(m.window == 4);
  CHECK(m.context == 3);
}

TEST_CASE("jagged: the longest length adds the longest parts, which no sequence need have") {
  // Longest uih 300 + context 2 + longest target count 9; the sequences have 303 and 19.
  const Geometry g =
      geometry_of(R"("uih_lengths": [300, 8], "num_targets": [1, 9], "mask": {"context_len": 2})");
  CHECK(g.max_seqlen_q == 311);
  CHECK(g.longest_q == 303);
  CHECK(lengths_q(g) == std::vector<int>{303, 19});
  CHECK(g.groups.size() == 1);
  CHECK(g.groups[0].attn_scale == static_cast<float>(1.0 / 311));

  const Geometry with = geometry_of(R"("uih_lengths": [300, 8], "num_targets": [1, 9],
      "mask": {"context_len": 2}, "max_uih_length": 400, "max_targets": 20)");
  CHECK(with.max_seqlen_q == 422);
  CHECK(with.max_seqlen_kv == 422);
  CHECK(with.longest_q == 303);
  CHECK(with.tokens_q == 322);
  CHECK(with.groups[0].attn_scale == static_cast<float>(1.0 / 422));
}

TEST_CASE("batched: every sequence has the largest length, overrides enlarge the tensors") {
  const Geometry g = geometry_of(R"("layout": "batched", "batch": 3, "uih_lengths": 100,
      "num_targets": [4, 2, 7], "mask": {"context_len": 5}, "max_uih_length": 110,
      "max_targets": 8)");
  CHECK(g.max_seqlen_q == 123);
  CHECK(lengths_q(g) == std::vector<int>{123, 123, 123});
  CHECK(g.seq_offsets_q.empty());
  CHECK(g.sequences[2].first_q == 246);
  CHECK(g.longest_q == 123);
  CHECK(g.tokens_q == 369);
  CHECK(same(g.q, 123 * 32, 32, 16));
  CHECK(same(g.lse, 123 * 2, 2, 1));
  CHECK(g.q_elements == 369 * 32);
  // The part without targets takes what the targets leave.
  CHECK(g.mask_of(0).rows == 119);
  CHECK(g.mask_of(1).rows == 121);
  CHECK(g.mask_of(2).rows == 116);
}

TEST_CASE("cross attention: keys have context and history, never targets") {
  const Geometry g = geometry_of(R"("uih_lengths": [52, 55, 58], "uih_lengths_kv": [70, 76, 80],
                                    "num_targets": [4, 5, 6], "mask": {"context_len": 2})");
  CHECK(lengths_q(g) == std::vector<int>{58, 62, 66});
  CHECK(lengths_kv(g) == std::vector<int>{72, 78, 82});
  CHECK(g.seq_offsets_kv == std::vector<int32_t>{0, 72, 150, 232});
  CHECK(g.max_seqlen_q == 66);
  CHECK(g.max_seqlen_kv == 82);
  CHECK(g.tokens_kv == 232);
  CHECK(g.features.cross);
  CHECK(g.mask_of(0).shift == 72 - 54);
  CHECK(g.groups[0].attn_scale == static_cast<float>(1.0 / 66));

  const Geometry batched = geometry_of(R"("layout": "batched", "batch": 2, "uih_lengths": 10,
      "uih_lengths_kv": [20], "num_targets": 3, "max_uih_length_kv": 32)");
  CHECK(lengths_q(batched) == std::vector<int>{13, 13});
  CHECK(lengths_kv(batched) == std::vector<int>{32, 32});
  CHECK(batched.k_elements == 2 * 32 * 32);

  // Giving the key lengths alone switches to cross attention, equal or not.
  CHECK(geometry_of(R"("uih_lengths": 7, "uih_lengths_kv": 7)").features.cross);
}

TEST_CASE("default scales") {
  CHECK(geometry_of(R"("uih_lengths": 8)").alpha == 0.25f);
  CHECK(geometry_of(R"("uih_lengths": 8, "alpha": null)").alpha == 0.25f);
  CHECK(geometry_of(R"("uih_lengths": 8, "alpha": 0)").alpha == 0.25f);
  CHECK(geometry_of(R"("uih_lengths": 8, "alpha": -2)").alpha == -2.0f);
  CHECK(geometry_of(R"("uih_lengths": 8, "head_dim_v": 64)").alpha == 0.25f);
  CHECK(geometry_of(R"("uih_lengths": 8)").groups[0].attn_scale == 0.125f);
  CHECK(geometry_of(R"("uih_lengths": 8, "attn_scale": 0.0)").groups[0].attn_scale == 0.125f);
  CHECK(geometry_of(R"("uih_lengths": 8, "attn_scale": 3)").groups[0].attn_scale == 3.0f);
  CHECK(geometry_of(R"("uih_lengths": 8, "activation": "softmax")").groups[0].attn_scale == 1.0f);
  CHECK(geometry_of(R"("uih_lengths": 8, "activation": "softmax", "attn_scale": 0.5)")
            .groups[0]
            .attn_scale == 0.5f);
  // Nothing to divide by, and nothing to scale.
  CHECK(std::isfinite(geometry_of(R"("uih_lengths": 0)").groups[0].attn_scale));
}

TEST_CASE("group mode: blocks of sequences, each with its own lengths and default scale") {
  const Geometry g = geometry_of(R"("batch": 6, "uih_lengths": [10, 20, 30, 40, 50, 60],
      "num_targets": [1, 2, 3, 4, 5, 6], "max_targets": 100, "mask": {"local_len": 3},
      "groups": [{"context_len": 2, "attn_scale": 0}, {"local_len": 0, "attn_scale": 0.5},
                 {"minfull_len": 4, "max_uih_length": 64}])");
  CHECK(lengths_q(g) == std::vector<int>{13, 24, 33, 44, 55, 66});
  std::vector<int> groups;
  for (const auto& s : g.sequences) groups.push_back(s.group);
  CHECK(groups == std::vector<int>{0, 0, 1, 1, 2, 2});
  REQUIRE(g.groups.size() == 3);
  CHECK(g.groups[0].attn_scale == static_cast<float>(1.0 / (20 + 2 + 2)));
  CHECK(g.groups[1].attn_scale == 0.5f);
  CHECK(g.groups[2].attn_scale == static_cast<float>(1.0 / (64 + 6)));
  CHECK(g.groups[0].local_len == 3);
  CHECK(g.groups[1].local_len == 0);
  CHECK(g.max_seqlen_q == 70);
  CHECK(g.longest_q == 66);
  CHECK(g.features.local);
  CHECK(g.features.context);
  CHECK(g.features.minfull);
  CHECK_FALSE(g.mask_of(2).local);
  CHECK(g.mask_of(4).wide_begin == 50 - 4);
}

TEST_CASE("features: min-full counts only beside a window, targets only where there are some") {
  const Geometry g = geometry_of(R"("uih_lengths": 9, "num_targets": [0], "mask":
                                    {"causal": false, "minfull_len": 4})");
  CHECK_FALSE(g.features.minfull);
  CHECK_FALSE(g.features.targets);
  CHECK_FALSE(g.features.causal);
  CHECK(geometry_of(R"("batch": 2, "uih_lengths": 9, "num_targets": [0, 1])").features.targets);
}

TEST_CASE("empty batches and empty sequences are valid") {
  for (const char* layout : {"batched", "jagged"}) {
    const Geometry g =
        geometry_of(std::string(R"("batch": 0, "uih_lengths": 7, "layout": ")") + layout + "\"");
    CHECK(g.sequences.empty());
    CHECK(g.tokens_q == 0);
    CHECK(g.longest_q == 0);
    CHECK(g.q_elements == 0);
    CHECK(visible_pairs(g) == 0);
    CHECK(dense_pairs(g) == 0);
  }
  const Geometry g = geometry_of(R"("uih_lengths": [0, 4, 0])");
  CHECK(g.seq_offsets_q == std::vector<int32_t>{0, 0, 4, 4});
  CHECK(visible_pairs(g) == 10);
}

TEST_CASE("given strides: sizes reach to the last element touched") {
  const Geometry g = geometry_of(R"("layout": "batched", "batch": 3, "uih_lengths": 5,
      "strides": {"q": [0, 64, 16], "k": [16, 96, 48], "o": [1000, 16, 200]})");
  CHECK(same(g.q, 0, 64, 16));
  CHECK(g.q_elements == 4 * 64 + 1 * 16 + 15 + 1);
  CHECK(g.k_elements == 2 * 16 + 4 * 96 + 48 + 15 + 1);
  CHECK(g.o_elements == 2 * 1000 + 4 * 16 + 200 + 15 + 1);
  CHECK(same(g.v, 5 * 32, 32, 16));
  // Sequences of a jagged tensor follow one another: there is no batch stride.
  const Geometry jagged = geometry_of(R"("uih_lengths": [5, 6], "strides": {"o": [7, 40, 20]})");
  CHECK(same(jagged.o, 0, 40, 20));
  CHECK(jagged.o_elements == 10 * 40 + 20 + 15 + 1);
}

TEST_CASE("strides of o are refused exactly when two elements may share a place") {
  // Every stride triple of a small tensor, against counting the offsets. The check may be stricter
  // than the count only where the dimensions interleave.
  int refused = 0, interleaved = 0;
  for (int sb = 0; sb < 80; sb += 4)
    for (int ss = 0; ss < 80; ss += 4)
      for (int sh = 0; sh < 80; sh += 4) {
        std::map<int, int> uses;
        for (int b = 0; b < 2; ++b)
          for (int s = 0; s < 2; ++s)
            for (int h = 0; h < 2; ++h)
              for (int d = 0; d < 8; ++d) ++uses[b * sb + s * ss + h * sh + d];
        const bool distinct = uses.size() == 64;
        Problem p;
        p.heads = 2, p.head_dim_qk = p.head_dim_v = 8, p.layout = Layout::batched, p.batch = 2;
        p.uih_q = p.uih_kv = {2, 2}, p.num_targets = {0, 0};
        p.o_strides = StrideSpec{sb, ss, sh};
        auto g = make_geometry(p);
        if (!distinct) CHECK_FALSE(g.ok());
        if (distinct && !g.ok()) ++interleaved;
        refused += !g.ok();
        if (g.ok()) CHECK(g->o_elements == uses.rbegin()->first + 1);
      }
  CHECK(refused > 0);
  CHECK(interleaved < refused);
}

}  // namespace hstu::jit::test
