// SPDX-License-Identifier: Apache-2.0
// The Hopper kernel's scheduling warp, 32 lanes of it on the host: every query tile is named
// exactly once, every row is in one of them, and the steps of a tile hold every key that its rows
// see exactly once.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "attention/hopper_bits.h"  // templates/
#include "attention/hopper_tile.h"
#include "catch.hpp"

using namespace hstu;

namespace {

template <bool causal_, bool cross_, bool local_, bool context_, bool targets_, int groups,
          int tile_n_, bool jagged_, bool minfull_ = local_, bool grouped_ = false,
          bool apart_ = false>
struct Shape {
  static constexpr int head_dim_qk = 128, head_dim_v = 128;
  static constexpr bool jagged = jagged_, grouped = grouped_;
  static constexpr bool causal = causal_, cross = cross_, local = local_, context = context_;
  static constexpr bool minfull = minfull_, targets = targets_;
  static constexpr int tile_m = 64 * groups, tile_n = tile_n_, waves = 4 * (groups + 1);
  static constexpr bool apart = apart_;
};
// Warpgroups that each have their own steps of keys.
template <bool causal, bool cross, int groups, bool jagged, bool grouped = false,
          bool context = false>
using Apart = Shape<causal, cross, true, context, true, groups, 80, jagged, context, grouped, true>;

struct Batch {
  std::vector<int> offsets_q{0}, offsets_kv{0}, targets;
  std::vector<GroupArguments> groups;
  ForwardArguments arguments{};
};

template <class C>
Batch random_batch(std::mt19937& random, bool long_ones) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  Batch b;
  const int batch = 1 + below(70), longest = long_ones ? 12000 : 1 + below(900);
  const int context = C::context ? below(3) * below(90) : 0;
  const int fixed = below(longest), fixed_kv = below(longest);
  int most_q = 0, most_kv = 0;
  for (int i = 0; i < batch; ++i) {
    const int targets = C::targets ? (below(3) ? below(30) : below(200)) : 0;
    const int history = C::jagged ? (below(5) ? below(longest) : 0) : fixed + 200 - targets;
    const int q = context + history + targets;
    const int kv = !C::cross ? q : context + (C::jagged ? below(longest) : fixed_kv);
    b.offsets_q.push_back(b.offsets_q.back() + q);
    b.offsets_kv.push_back(b.offsets_kv.back() + kv);
    b.targets.push_back(targets);
    most_q = std::max(most_q, q);
    most_kv = std::max(most_kv, kv);
  }
  ForwardArguments& a = b.arguments;
  a.batch = batch;
  a.heads = 1 + below(5);
  // Servers give upper bounds.
  a.seqlen_q = most_q + (C::jagged ? below(2) * below(1000) : 0);
  a.seqlen_kv = most_kv + (C::jagged ? below(2) * below(1000) : 0);
  const auto group = [&] {
    // Windows that the planner finds narrow, and others, which have to be right too.
    const int window = C::apart && below(4) != 0 ? 1 + below(16) : below(300);
    return GroupArguments{C::local ? window : 0, context, C::minfull ? below(2) * below(300) : 0,
                          1.0f};
  };
  a.uniform = group();
  if (C::grouped) {
    a.batches_per_group = 1 + below(batch);
    for (int i = 0; i < batch; i += a.batches_per_group) {
      b.groups.push_back(group());
      b.groups.back().context_len = below(context + 1);
    }
  }
  return b;
}

struct Described {
  TileName name;
  HopperTile tile;
};

// What workgroup `from` of `step` draws when it takes every step-th number.
template <class C>
std::vector<Described> draw(const ForwardArguments& a, unsigned from, unsigned step,
                            bool paired = false) {
  std::vector<Described> drawn;
  HopperTile shared{};
  lanes::warp([&](int lane) {
    HopperSchedule<C> schedule;
    schedule.start(a, paired);
    for (unsigned number = from;; number += step) {
      const TileName name = schedule.find(a, number);
      if (name.tile < 0) break;
      describe<C>(shared, a, name, schedule.cut, lane);
      hopper::warp_barrier();
      if (lane == 0) drawn.push_back({name, shared});
      hopper::warp_barrier();
    }
  });
  return drawn;
}

// "" if the steps of the tile are as they should be.
template <class C>
std::string judge(const Described& d) {
  constexpr MaskFeatures f{C::causal, C::cross, C::local, C::context, C::minfull, C::targets};
  const SequenceMask& m = d.tile.mask.mask;
  for (int group = 0; group < C::waves / 4 - 1; ++group) {
    const HopperTile::Steps& steps = C::apart ? d.tile.own_steps[group] : d.tile.steps;
    const HopperTile::Rows& rows = d.tile.rows[group];
    const HopperTile::Needed& needed = d.tile.needed[group];
    const int begin = d.tile.place.first_row + 64 * group, end = begin + needed.exists;
    const auto sees = [&](int s) { return s >= needed.seen_first && s < needed.seen_end; };
    const auto owns = [&](int s) { return s >= needed.own_first && s < needed.own_end; };
    for (int s = 0; s < steps.count && C::apart; ++s)
      if (!sees(s) && !owns(s)) return fmt::format("rows from {} on need no step {}", begin, s);
    if (C::apart && C::causal && !C::context && m.window <= 16 &&
        steps.count - steps.diagonal_count > 1)
      return fmt::format("rows from {} on have {} steps under a window of {}", begin, steps.count,
                         m.window);
    for (int s = 0; s < steps.count && needed.exists == 0; ++s)
      if (sees(s) || owns(s)) return fmt::format("no row needs step {}", s);
    for (int s = 0; s < steps.count && needed.exists > 0; ++s) {
      const int from = first_key<C>(steps, s), to = from + C::tile_n;
      if ((sees(s) && (from >= rows.end || to <= rows.begin)) ||
          (owns(s) && (from >= rows.diagonal_end || to <= rows.diagonal_begin)))
        return fmt::format("rows from {} on see nothing of step {}", begin, s);
    }
    // The ends of the rows and a few between: every row would take minutes.
    for (int row = begin; row < end; row += row == begin || row + 7 >= end ? 1 : 7) {
      const RowKeys keys = row_keys(f, m, row);
      int seen = 0;
      for (int s = 0; s < steps.count; ++s) {
        const int from = first_key<C>(steps, s), to = std::min(from + C::tile_n, m.seqlen_kv);
        const bool full = s >= needed.full_first && s < needed.full_end;
        const int in_step = std::max(0, std::min(keys.end, to) - std::max(keys.begin, from));
        const bool own = keys.diagonal && row >= from && row < to;
        if (from < 0) return fmt::format("step {} begins at {}", s, from);
        if (full && in_step != C::tile_n)
          return fmt::format("row {}: step {} is called full, it sees {} keys", row, s, in_step);
        if ((in_step > 0 && !sees(s)) || (own && !owns(s)))
          return fmt::format("row {}: step {} is passed over", row, s);
        // What half a step is chosen by: the hull of the warpgroup's keys, and own keys.
        if (in_step > 0 &&
            (std::max(keys.begin, from) < rows.begin || std::min(keys.end, to) > rows.end))
          return fmt::format("row {}: step {} lies outside the hull", row, s);
        if (own && (row < rows.diagonal_begin || row >= rows.diagonal_end))
          return fmt::format("row {}: its own key is outside the diagonal", row);
        seen += in_step + own;
      }
      const int want = std::max(keys.end - keys.begin, 0) + keys.diagonal;
      if (seen != want)
        return fmt::format("row {} of {}: {} of {} keys are in the steps", row, m.seqlen_q, seen,
                           want);
      const HopperTile::Common common = C::apart ? HopperTile::Common{} : d.tile.common[group];
      if (common.begin < common.end && (keys.begin > common.begin || keys.end < common.end))
        return fmt::format("row {} does not see all of the keys [{}, {}) said to be common", row,
                           common.begin, common.end);
      if (!needed.few && want < 32)
        return fmt::format("row {} sees {} keys and is not called one of few", row, want);
    }
  }
  return "";
}

template <class C>
void check(std::mt19937& random, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    Batch b = random_batch<C>(random, round % 5 == 1);
    ForwardArguments& a = b.arguments;
    a.seq_offsets_q = C::jagged ? b.offsets_q.data() : nullptr;
    a.seq_offsets_kv = C::jagged ? b.offsets_kv.data() : nullptr;
    a.num_targets = C::targets ? b.targets.data() : nullptr;
    a.groups = b.groups.data();
    const unsigned step = 1 + random() % 3;
    const bool paired = random() % 3 == 0;  // two workgroups share each tile
    hopper::launched = round % 2 == 0 ? 132 : 1 + static_cast<int>(random() % 3);
    std::set<std::tuple<int, int, int>> named;
    std::map<std::tuple<int, int, int>, int> pieces;  // sequence, head, first row: rows
    size_t drawn = 0;
    std::string wrong;
    for (unsigned from = 0; from < step; ++from) {
      for (const Described& d : draw<C>(a, from, step, paired)) {
        ++drawn;
        named.insert({d.name.batch, d.name.head, d.name.tile});
        const int i = d.name.batch;
        for (int group = 0; group < C::waves / 4 - 1; ++group)
          if (const int rows = d.tile.needed[group].exists; rows != 0)
            pieces[{i, d.name.head, d.tile.place.first_row + 64 * group}] += rows;
        const bool right = d.name.seqlen_q == b.offsets_q[i + 1] - b.offsets_q[i] &&
                           d.name.seqlen_kv == b.offsets_kv[i + 1] - b.offsets_kv[i] &&
                           d.name.targets == b.targets[i] &&
                           d.name.first_q == (C::jagged ? b.offsets_q[i] : 0) &&
                           d.name.first_kv == (C::jagged ? b.offsets_kv[i] : 0);
        if (!right && wrong.empty()) wrong = fmt::format("sequence {} is told wrong", i);
        if (wrong.empty() && d.name.head == 0) wrong = judge<C>(d);
      }
    }
    const int tile_rows = paired ? std::min(C::tile_m, 128) : C::tile_m;
    std::set<std::tuple<int, int, int>> want;
    for (int i = 0; i < a.batch; ++i)
      for (int h = 0; h < a.heads; ++h)
        for (int t = 0; t * tile_rows < b.offsets_q[i + 1] - b.offsets_q[i]; ++t)
          want.insert({i, h, t});
    // Every row in one piece of a tile.
    for (int i = 0; i < a.batch; ++i) {
      for (int h = 0; h < a.heads; ++h) {
        for (int row = 0; row < b.offsets_q[i + 1] - b.offsets_q[i]; row += 64) {
          const auto piece = pieces.find({i, h, row});
          const int rows = std::min(64, b.offsets_q[i + 1] - b.offsets_q[i] - row);
          if (piece == pieces.end() || piece->second != rows) {
            if (wrong.empty()) wrong = fmt::format("row {} of sequence {} is in no tile", row, i);
          } else {
            pieces.erase(piece);
          }
        }
      }
    }
    if (!pieces.empty() && wrong.empty()) wrong = "a tile has rows that do not exist";
    INFO(fmt::format(
        "workgroups {}{} round {} batch {} heads {} longest {} window {} context {} wide {}",
        hopper::launched, paired ? " in pairs" : "", round, a.batch, a.heads, a.seqlen_q,
        a.uniform.local_len, a.uniform.context_len, a.uniform.minfull_len));
    CHECK(wrong == "");
    CHECK(drawn == want.size());
    CHECK(named == want);
  }
}

}  // namespace

TEST_CASE("Hopper: every tile is named once, every visible key is in one step") {
  std::mt19937 random(11);
  //          causal cross  local  context targets groups keys jagged minfull grouped
  check<Shape<true, false, false, false, true, 2, 128, true>>(random, 5);
  check<Shape<true, false, false, false, true, 3, 64, true>>(random, 5);
  check<Shape<true, false, false, true, true, 3, 64, true>>(random, 3);
  check<Shape<true, false, false, true, true, 2, 64, true, false, true>>(random, 3);
  check<Shape<true, false, true, true, true, 3, 64, true, true, true>>(random, 3);
  check<Shape<true, false, true, true, true, 2, 128, true>>(random, 5);
  check<Shape<true, false, true, true, true, 3, 128, true>>(random, 3);
  check<Shape<false, false, true, true, true, 2, 64, true>>(random, 3);
  check<Shape<true, true, true, true, true, 2, 128, true>>(random, 3);
  check<Shape<false, true, false, false, true, 3, 128, true>>(random, 2);
  check<Shape<true, false, false, true, true, 2, 64, false>>(random, 2);
  check<Shape<false, false, false, false, false, 2, 128, false>>(random, 2);
  // Each warpgroup with its own steps.
  check<Apart<true, false, 3, true>>(random, 5);
  check<Apart<true, false, 2, false>>(random, 3);
  check<Apart<true, false, 2, true, true>>(random, 3);
  check<Apart<false, false, 2, true>>(random, 3);
  check<Apart<true, true, 3, true>>(random, 3);
  check<Apart<false, true, 2, true>>(random, 3);
  check<Apart<true, false, 3, true, false, true>>(random, 3);
  // Windows without wide last rows, with and without contextual rows.
  check<Shape<true, false, true, false, true, 2, 128, true, false>>(random, 2);
  check<Shape<true, false, true, true, true, 2, 128, true, false>>(random, 2);
}

TEST_CASE("Hopper: workgroups end at nearly the same time") {
  // A model: a tile takes as long as a step and a half beside its steps, and workgroups draw the
  // next when they are done. The bound is what the longest has over the mean.
  using C = Shape<true, false, false, true, true, 3, 64, true>;
  struct Row {
    int batch, longest, targets;
    bool uneven;
    double bound;
    int context = 0;
  };
  const Row row = GENERATE(Row{32, 1024, 0, false, 1.06}, Row{32, 2048, 0, false, 1.03},
                           Row{8, 4096, 256, false, 1.04}, Row{128, 512, 64, true, 1.10},
                           Row{300, 512, 20, true, 1.04}, Row{32, 1984, 0, false, 1.04, 65},
                           Row{8, 1984, 0, false, 1.10, 200});
  std::mt19937 random(5);
  Batch b;
  for (int i = 0; i < row.batch; ++i) {
    const int n = row.uneven
                      ? row.targets + static_cast<int>(random() % (row.longest - row.targets + 1))
                      : row.longest;
    b.offsets_q.push_back(b.offsets_q.back() + n);
    b.targets.push_back(row.targets);
  }
  ForwardArguments& a = b.arguments;
  a.batch = row.batch;
  a.heads = 4;
  a.seqlen_q = a.seqlen_kv = row.longest;
  a.seq_offsets_q = a.seq_offsets_kv = b.offsets_q.data();
  a.num_targets = b.targets.data();
  a.uniform = {0, row.context, 0, 1.0f};
  hopper::launched = 132;
  std::vector<double> free_at(132);
  double all = 0;
  for (const Described& d : draw<C>(a, 0, 1)) {
    const double takes = 1.5 + d.tile.steps.count;
    *std::min_element(free_at.begin(), free_at.end()) += takes;
    all += takes;
  }
  const double longest = *std::max_element(free_at.begin(), free_at.end());
  INFO(fmt::format("batch {} longest {} context {}", row.batch, row.longest, row.context));
  CHECK(longest / (all / 132) < row.bound);
}

TEST_CASE("Hopper: pairs of workgroups draw every number once, in rising order") {
  using Schedule = HopperSchedule<Shape<true, false, false, false, true, 2, 128, true>>;
  for (const unsigned pairs : {1u, 2u, 5u, 66u}) {
    std::set<unsigned> numbers;
    for (unsigned pair = 0; pair < pairs; ++pair) {
      for (unsigned drawn = 0; drawn < 7; ++drawn) {
        const unsigned number = Schedule::number_of_pair(drawn, pair, pairs);
        CHECK(number / pairs == drawn);
        numbers.insert(number);
      }
    }
    CHECK(numbers.size() == size_t{7} * pairs);
  }
}

TEST_CASE("Hopper: the checks notice a wrong description") {
  using C = Shape<true, false, true, false, true, 2, 128, true>;
  std::mt19937 random(3);
  Batch b = random_batch<C>(random, false);
  b.offsets_q = b.offsets_kv = {0, 760};  // no group is missing
  b.targets = {40};
  ForwardArguments& a = b.arguments;
  a.batch = a.heads = 1;
  a.seqlen_q = a.seqlen_kv = 760;
  a.uniform = {200, 0, 0, 1.0f};
  a.seq_offsets_q = b.offsets_q.data();
  a.seq_offsets_kv = b.offsets_kv.data();
  a.num_targets = b.targets.data();
  const std::vector<Described> drawn = draw<C>(a, 0, 1);
  REQUIRE(drawn.size() == 6);
  const auto noticed = [&](auto change) {
    for (Described d : drawn) {
      change(d.tile);
      if (!judge<C>(d).empty()) return true;
    }
    return false;
  };
  CHECK_FALSE(noticed([](HopperTile&) {}));
  CHECK(noticed([](HopperTile& t) { --t.steps.count; }));
  CHECK(noticed([](HopperTile& t) { t.steps.main_begin += 64; }));
  CHECK(noticed([](HopperTile& t) { t.needed[1].full_end = t.steps.count; }));
  CHECK(noticed([](HopperTile& t) { --t.rows[0].end; }));
  CHECK(noticed([](HopperTile& t) { ++t.needed[1].seen_first; }));
  CHECK(noticed([](HopperTile& t) { --t.needed[1].own_first; }));
  CHECK(noticed([](HopperTile& t) { --t.needed[1].seen_end; }));
  CHECK(noticed([](HopperTile& t) { --t.needed[1].own_end; }));
  CHECK(noticed([](HopperTile& t) { t.needed[0].few = 0; }));
  CHECK(noticed([](HopperTile& t) { ++t.common[0].end; }));
  CHECK(noticed([](HopperTile& t) { --t.common[1].begin; }));
  CHECK(noticed([](HopperTile& t) { t.rows[1].diagonal_end -= 1; }));

  // Each warpgroup with its own steps.
  using Own = Apart<true, false, 2, true>;
  a.uniform.local_len = 16;
  const std::vector<Described> apart = draw<Own>(a, 0, 1);
  const auto noticed_apart = [&](auto change) {
    for (Described d : apart) {
      change(d.tile);
      if (!judge<Own>(d).empty()) return true;
    }
    return false;
  };
  CHECK_FALSE(noticed_apart([](HopperTile&) {}));
  CHECK(noticed_apart([](HopperTile& t) { --t.own_steps[0].count; }));
  CHECK(noticed_apart([](HopperTile& t) { ++t.own_steps[1].count; }));
  CHECK(noticed_apart([](HopperTile& t) { ++t.own_steps[0].main_begin; }));
  CHECK(noticed_apart([](HopperTile& t) { t.own_steps[1].main_begin -= 80; }));
  CHECK(noticed_apart([](HopperTile& t) { t.own_steps[1] = t.own_steps[0]; }));
  a.uniform.local_len = 200;

  // In steps of 64 keys: those that only the other warpgroup needs.
  using Fine = Shape<true, false, true, false, true, 2, 64, true>;
  const std::vector<Described> fine = draw<Fine>(a, 0, 1);
  const auto noticed_in_fine = [&](auto change) {
    for (Described d : fine) {
      change(d.tile);
      if (!judge<Fine>(d).empty()) return true;
    }
    return false;
  };
  CHECK_FALSE(noticed_in_fine([](HopperTile&) {}));
  CHECK(noticed_in_fine([](HopperTile& t) { --t.needed[1].seen_first; }));
  CHECK(noticed_in_fine([](HopperTile& t) { ++t.needed[0].seen_end; }));
}

namespace {

// Bits of random rows and keys against the mask's predicate.
template <int count>
std::string compare_bits(std::mt19937& random, MaskFeatures f) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const int targets = f.targets ? below(3) * below(40) : 0, context = f.context ? below(40) : 0;
  const int seqlen_q = targets + context + below(300) + 1;
  const int seqlen_kv = f.cross ? context + below(300) + 1 : seqlen_q;
  const SequenceMask m = resolve_mask(f, seqlen_q, seqlen_kv, targets, f.local ? below(90) : 0,
                                      context, f.minfull ? below(2) * below(90) : 0);
  const int row = below(seqlen_q), lane = below(4);
  const int first = below(seqlen_kv + 70) - 70 + 2 * lane;  // of the thread's logits
  const unsigned seen = seen_bits<count>(row_keys(f, m, row), row, first);
  for (int bit = 0; bit < 32; ++bit) {
    const int key = first + bit / 2 * 8 + bit % 2;
    const bool exists = bit < count / 4 && key >= 0 && key < seqlen_kv;
    const bool want = exists && visible(f, m, row, key);
    if ((seen >> bit & 1) != (want ? 1u : 0u))
      return fmt::format("row {} of {}, key {} of {}, bit {} of {}: {}", row, seqlen_q, key,
                         seqlen_kv, bit, count / 4, want ? "not seen" : "seen");
  }
  return "";
}

}  // namespace

TEST_CASE("Hopper: a bit for each logit that a row sees") {
  std::mt19937 random(11);
  for (int features = 0; features < 64; ++features) {
    const MaskFeatures f{(features & 1) != 0, (features & 2) != 0,  (features & 4) != 0,
                         (features & 8) != 0, (features & 16) != 0, (features & 32) != 0};
    CAPTURE(features);
    for (int round = 0; round < 3000; ++round) {
      REQUIRE(compare_bits<64>(random, f) == "");
      REQUIRE(compare_bits<80>(random, f) == "");
      REQUIRE(compare_bits<128>(random, f) == "");
    }
  }
}
