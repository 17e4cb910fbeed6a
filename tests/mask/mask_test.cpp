// SPDX-License-Identifier: Apache-2.0
// The mask against independent statements of it, on all small parameter sets.
#include "mask/mask.h"

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "catch.hpp"
#include "mask_cases.hpp"

namespace {

using hstu::MaskFeatures;
using hstu::SequenceMask;

constexpr MaskFeatures all_features(const MaskCase& c) {
  return {c.causal, c.cross, true, true, true, true};
}

MaskFeatures own_features(const MaskCase& c) {
  return {c.causal, c.cross, c.local_len > 0, c.context_len > 0, c.minfull_len > 0, c.targets > 0};
}

SequenceMask resolve(MaskFeatures f, const MaskCase& c) {
  return hstu::resolve_mask(f, c.seqlen_q(), c.seqlen_kv(), c.targets, c.local_len, c.context_len,
                            c.minfull_len);
}

void for_each_case(const std::function<void(const MaskCase&)>& body) {
  MaskCase c;
  for (bool cross : {false, true})
    for (bool causal : {true, false})
      for (int local : {0, 1, 2, 3, 5, 9, 30})
        for (int context : {0, 1, 2, 3, 6})
          for (int minfull : {0, 1, 2, 5, 9})
            for (int targets : {0, 1, 2, 5})
              for (int uih : {0, 1, 2, 3, 7})
                for (int uih_kv : {0, 1, 2, 5, 7, 10}) {
                  if (!cross && uih_kv != 0) continue;
                  c = {causal, cross, local, context, minfull, targets, uih, cross ? uih_kv : uih};
                  body(c);
                }
}

// Counts what differs, and keeps the first difference for the message.
struct Differences {
  int64_t compared = 0, found = 0;
  std::string first;
  void check(bool same, const MaskCase& c, int i, int j, const char* what) {
    ++compared;
    if (same) return;
    if (found++ == 0)
      first = std::string(what) + ": " + c.text() + " at (" + std::to_string(i) + ", " +
              std::to_string(j) + ")";
  }
};

using Predicate = std::function<bool(const MaskCase&, int, int)>;

Differences compare_on_all_cases(const Predicate& mask) {
  Differences differences;
  for_each_case([&](const MaskCase& c) {
    for (int i = 0; i < c.seqlen_q(); ++i)
      for (int j = 0; j < c.seqlen_kv(); ++j)
        differences.check(mask(c, i, j) == visible_by_ids(c, i, j), c, i, j, "mask");
  });
  return differences;
}

// Holds the tile classes of one mask against its pairs.
void check_tiles(const MaskCase& c, MaskFeatures f, int tile_m, int tile_n,
                 Differences& differences) {
  const SequenceMask m = resolve(f, c);
  std::vector<char> seen(static_cast<size_t>(m.seqlen_q) * m.seqlen_kv);
  for (int i = 0; i < m.seqlen_q; ++i)
    for (int j = 0; j < m.seqlen_kv; ++j) seen[i * m.seqlen_kv + j] = hstu::visible(f, m, i, j);
  for (int i0 = 0; i0 < m.seqlen_q; i0 += tile_m) {
    const int i1 = std::min(i0 + tile_m, m.seqlen_q);
    const hstu::TileKeys keys = hstu::tile_keys(f, m, i0, i0 + tile_m);
    for (int j0 = 0; j0 < m.seqlen_kv; j0 += tile_n) {
      const int j1 = std::min(j0 + tile_n, m.seqlen_kv);
      const hstu::TileClass kind = hstu::classify(keys, j0, j1);
      for (int i = i0; i < i1; ++i)
        for (int j = j0; j < j1; ++j) {
          const bool pair = seen[i * m.seqlen_kv + j];
          differences.check(kind != hstu::TileClass::skip || !pair, c, i, j, "pair lost in skip");
          differences.check(kind != hstu::TileClass::full || pair, c, i, j, "pair hidden in full");
          // A kernel walks the hull and the diagonal range, and takes the full range unmasked.
          const bool walked = (j >= keys.begin && j < keys.end) ||
                              (j >= keys.diagonal_begin && j < keys.diagonal_end);
          differences.check(walked || !pair, c, i, j, "pair outside hull");
          const bool full = j >= keys.full_begin && j < keys.full_end;
          differences.check(!full || pair, c, i, j, "full range");
        }
    }
  }
}

}  // namespace

TEST_CASE("the mask reproduces every worked example") {
  std::ifstream file(std::string(HSTU_TEST_DATA) + "/mask_examples.json");
  REQUIRE(file.good());
  const auto examples = nlohmann::json::parse(file)["examples"];
  REQUIRE(examples.size() >= 6);
  for (const auto& example : examples) {
    const auto& p = example["params"];
    INFO(example["name"].get<std::string>());
    MaskCase c;
    c.causal = p["causal"] == 1;
    c.cross = p["is_cross"];
    c.local_len = p["local_len"];
    c.context_len = p["context_len"];
    c.minfull_len = p["minfull_len"];
    c.targets = p["targets"];
    c.uih_q = p["uih_q"];
    c.uih_kv = c.cross ? p["uih_kv"].get<int>() : c.uih_q;
    REQUIRE(c.seqlen_q() == p["phys_seqlen_q"]);
    REQUIRE(c.seqlen_kv() == p["phys_seqlen_kv"]);
    const MaskFeatures f = own_features(c);
    const SequenceMask m = resolve(f, c);
    std::vector<std::string> rows;
    int64_t pairs = 0;
    for (int i = 0; i < m.seqlen_q; ++i) {
      std::string row;
      for (int j = 0; j < m.seqlen_kv; ++j) row += hstu::visible(f, m, i, j) ? '1' : '0';
      pairs += std::count(row.begin(), row.end(), '1');
      rows.push_back(row);
    }
    CHECK(rows == example["rows"].get<std::vector<std::string>>());
    CHECK(pairs == example["visible_pairs"].get<int64_t>());
  }
}

TEST_CASE("visible() is the mask by ids, on all small parameter sets") {
  const Differences d = compare_on_all_cases([](const MaskCase& c, int i, int j) {
    const MaskFeatures f = all_features(c);
    return hstu::visible(f, resolve(f, c), i, j);
  });
  INFO(d.first);
  CHECK(d.compared > 1'000'000);
  CHECK(d.found == 0);
}

TEST_CASE("visible() is the spelled-out table of self attention") {
  Differences d;
  for_each_case([&](const MaskCase& c) {
    if (c.cross) return;
    const MaskFeatures f = all_features(c);
    const SequenceMask m = resolve(f, c);
    for (int i = 0; i < m.seqlen_q; ++i)
      for (int j = 0; j < m.seqlen_kv; ++j)
        d.check(hstu::visible(f, m, i, j) == visible_spelled_out(c, i, j), c, i, j, "table");
  });
  INFO(d.first);
  CHECK(d.compared > 100'000);
  CHECK(d.found == 0);
}

TEST_CASE("row_keys() is visible(), with all features and with only those in use") {
  Differences d;
  for_each_case([&](const MaskCase& c) {
    const MaskFeatures all = all_features(c), own = own_features(c);
    const SequenceMask m_all = resolve(all, c), m_own = resolve(own, c);
    for (int i = 0; i < m_all.seqlen_q; ++i) {
      const hstu::RowKeys r_all = hstu::row_keys(all, m_all, i);
      const hstu::RowKeys r_own = hstu::row_keys(own, m_own, i);
      for (const hstu::RowKeys& r : {r_all, r_own}) {
        const bool inside = r.begin >= 0 && r.end <= m_all.seqlen_kv;
        d.check(inside || r.begin >= r.end, c, i, r.end, "interval out of range");
        d.check(!r.diagonal || (i < m_all.seqlen_kv && (r.begin >= r.end || i >= r.end)), c, i, i,
                "diagonal inside the interval");
      }
      for (int j = 0; j < m_all.seqlen_kv; ++j) {
        const bool want = hstu::visible(all, m_all, i, j);
        d.check(hstu::visible(own, m_own, i, j) == want, c, i, j, "pruned visible");
        const auto holds = [&](const hstu::RowKeys& r) {
          return (j >= r.begin && j < r.end) || (r.diagonal && i == j);
        };
        d.check(holds(r_all) == want, c, i, j, "row_keys");
        d.check(holds(r_own) == want, c, i, j, "pruned row_keys");
      }
    }
  });
  INFO(d.first);
  CHECK(d.found == 0);
}

TEST_CASE("tile classes: full is full, skip is empty, no pair is lost") {
  Differences d;
  for_each_case([&](const MaskCase& c) {
    constexpr int kShapes[6][2] = {{1, 1}, {2, 3}, {4, 4}, {3, 2}, {8, 4}, {16, 32}};
    for (const auto& shape : kShapes) {
      check_tiles(c, all_features(c), shape[0], shape[1], d);
      check_tiles(c, own_features(c), shape[0], shape[1], d);
    }
  });
  INFO(d.first);
  CHECK(d.compared > 100'000'000);
  CHECK(d.found == 0);
}

TEST_CASE("no visible pair is lost where contexts or targets outgrow a tile") {
  Differences d;
  int64_t pairs = 0;
  SECTION("a context longer than the key tile under a window") {
    const MaskCase c{true, false, 90, 64, 0, 0, 336, 336};
    REQUIRE(c.seqlen_q() == 400);
    check_tiles(c, own_features(c), 128, 32, d);
    for (int i = 0; i < 400; ++i)
      for (int j = 0; j < 400; ++j) pairs += visible_by_ids(c, i, j);
  }
  SECTION("many targets, a small window, not causal") {
    const MaskCase c{false, false, 5, 0, 0, 100, 100, 100};
    check_tiles(c, own_features(c), 128, 32, d);
    for (int i = 95; i < 100; ++i)  // the last history rows see all targets
      for (int j = 100; j < 200; ++j) pairs += visible_by_ids(c, i, j);
    CHECK(pairs == 500);
  }
  SECTION("larger shapes at the tiles of the kernels") {
    for (int tile_n : {32, 64, 128})
      for (int context : {0, 33, 150, 300})
        for (int targets : {0, 40, 260})
          for (bool causal : {true, false})
            for (int minfull : {0, 70}) {
              const MaskCase c{causal, false, 20, context, minfull, targets, 180, 180};
              check_tiles(c, own_features(c), 128, tile_n, d);
            }
    pairs = 1;
  }
  INFO(d.first);
  CHECK(pairs > 0);
  CHECK(d.compared > 0);
  CHECK(d.found == 0);
}

TEST_CASE("the comparison notices wrong masks") {
  // Each of these is a mistake someone has made.
  const auto wrong = [](auto&& mask) { return compare_on_all_cases(mask).found; };
  SECTION("the window excludes its last key") {
    CHECK(wrong([](const MaskCase& c, int i, int j) {
            MaskCase shorter = c;
            shorter.local_len = std::max(c.local_len - 1, c.local_len > 0 ? 1 : 0);
            return visible_by_ids(shorter, i, j);
          }) > 0);
  }
  SECTION("context keys are always visible") {
    CHECK(wrong([](const MaskCase& c, int i, int j) {
            return j < c.context_len || visible_by_ids(c, i, j);
          }) > 0);
  }
  SECTION("targets see earlier targets") {
    CHECK(wrong([](const MaskCase& c, int i, int j) {
            const int u = c.seqlen_q() - c.targets;
            return (!c.cross && i >= u && j >= u && j <= i) || visible_by_ids(c, i, j);
          }) > 0);
  }
  SECTION("the context keeps its length when min-full takes all rows") {
    CHECK(wrong([](const MaskCase& c, int i, int j) {
            const Effective e = effective(c);
            if (i < c.context_len && j < e.k) return true;
            return visible_by_ids(c, i, j);
          }) > 0);
  }
}

TEST_CASE("tile checks notice a lost pair") {
  // The same hull a kernel would walk if it forgot that context rows see everything.
  const MaskCase c{true, false, 2, 3, 0, 0, 8, 8};
  MaskCase forgetful = c;
  forgetful.context_len = 0;
  forgetful.uih_q = forgetful.uih_kv = 11;
  const MaskFeatures f = own_features(forgetful);
  const hstu::TileKeys keys = hstu::tile_keys(f, resolve(f, forgetful), 0, 4);
  int lost = 0;
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 11; ++j)
      lost += visible_by_ids(c, i, j) && hstu::classify(keys, j, j + 1) == hstu::TileClass::skip;
  CHECK(lost > 0);
}
