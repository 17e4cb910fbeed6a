// SPDX-License-Identifier: Apache-2.0
// The warpgroup of the Hopper kernel that computes nothing: one warp names and describes query
// tiles, a lane of the next loads keys and values, one of a third queries, each as far ahead as its
// buffers reach; or a lane of each loads what one of the other warpgroups alone needs. And how all
// read the descriptions.
#pragma once

#include "attention/arguments.h"
#include "attention/hopper_schedule.h"
#include "attention/hopper_tile.h"
#include "base/types.h"
#include "tile/hopper.h"

namespace hstu {

// A place in a ring of buffers and the parity of its round.
template <int size>
struct HopperRing {
  int at = 0;
  unsigned round = 0;
  HSTU_DEVICE void advance() {
    if (++at == size) {
      at = 0;
      round ^= 1;
    }
  }
};

template <class C>
struct HopperLoad {
  using S = HopperShape<C>;
  static_assert(sizeof(HopperTile) <= S::tile_bytes);

  // Words of a tile's description. Read when they are needed, so that nothing of them stays in
  // registers over the main loop.
  template <class Words>
  HSTU_DEVICE static Words read(unsigned from) {
    static_assert(sizeof(Words) % 16 == 0);
    union {
      nvidia::Quad quads[sizeof(Words) / 16];
      Words words;
    } u;
#pragma unroll
    for (unsigned i = 0; i < sizeof(Words) / 16; ++i)
      u.quads[i] = nvidia::load_shared(from + 16 * i);
    return u.words;
  }
  // NVRTC knows no offsetof.
  static constexpr unsigned kMaskAt =
      sizeof(HopperTile::Steps) + sizeof(HopperTile::Place) + sizeof(HopperTile::Tokens);
  static constexpr unsigned kRowsAt = kMaskAt + sizeof(HopperTile::Mask);
  static constexpr unsigned kNeededAt = kRowsAt + 3 * sizeof(HopperTile::Rows);
  static constexpr unsigned kCommonAt = kNeededAt + 3 * sizeof(HopperTile::Needed);
  static_assert(kCommonAt + 3 * sizeof(HopperTile::Common) == sizeof(HopperTile));
  HSTU_DEVICE static HopperTile::Steps steps_of(unsigned tile) {
    return read<HopperTile::Steps>(tile);
  }
  // The steps of a warpgroup's rows.
  HSTU_DEVICE static HopperTile::Steps steps_of(unsigned tile, int group) {
    if (!S::apart) return steps_of(tile);
    return read<HopperTile::Steps>(tile + kCommonAt + group * sizeof(HopperTile::Steps));
  }
  HSTU_DEVICE static HopperTile::Place place_of(unsigned tile) {
    return read<HopperTile::Place>(tile + sizeof(HopperTile::Steps));
  }
  HSTU_DEVICE static HopperTile::Tokens tokens_of(unsigned tile) {
    return read<HopperTile::Tokens>(tile + sizeof(HopperTile::Steps) + sizeof(HopperTile::Place));
  }
  HSTU_DEVICE static SequenceMask mask_of(unsigned tile) {
    return read<HopperTile::Mask>(tile + kMaskAt).mask;
  }
  HSTU_DEVICE static HopperTile::Rows rows_of(unsigned tile, int group) {
    return read<HopperTile::Rows>(tile + kRowsAt + group * sizeof(HopperTile::Rows));
  }
  HSTU_DEVICE static HopperTile::Needed needed_of(unsigned tile, int group) {
    return read<HopperTile::Needed>(tile + kNeededAt + group * sizeof(HopperTile::Needed));
  }
  HSTU_DEVICE static HopperTile::Common common_of(unsigned tile, int group) {
    return read<HopperTile::Common>(tile + kCommonAt + group * sizeof(HopperTile::Common));
  }
  HSTU_DEVICE static unsigned tile_at(unsigned base, int slot) {
    return base + S::tiles + slot * S::tile_bytes;
  }

  // Workgroups that share the keys of each tile, and which of them this is: it takes the steps
  // part, part + workgroups and so on. Read anew each time: no register is held for it.
  HSTU_DEVICE static int workgroups_of_tile() { return S::splits ? hopper::cluster_blocks() : 1; }
  HSTU_DEVICE static int part_of_tile() { return S::splits ? hopper::cluster_rank() : 0; }

  // Which 64 rows of the drawn-th tile a warpgroup computes: each in turn; of shared tiles, whose
  // sums are exchanged in the memory of these rows' queries, always the same. Without branches:
  // with one the compiler no longer knew the main loop to be uniform, which made it 10 % slower.
  HSTU_DEVICE static int group_of(int warpgroup, unsigned drawn) {
    if (!S::turns) return warpgroup;
    const unsigned moves = static_cast<unsigned>(workgroups_of_tile() == 1) * drawn;
    return static_cast<int>((warpgroup + moves * (S::warpgroups - 1)) % S::warpgroups);
  }

  // All threads: the barriers in shared memory, also of the other workgroup of a tile, are ready.
  HSTU_DEVICE static void meet() {
    if (workgroups_of_tile() > 1)
      hopper::cluster_barrier();
    else
      nvidia::barrier();
  }

  // ---- the scheduling warp: names and describes tiles ----
  // The first is `name`, which `schedule` found.
  HSTU_DEVICE static void schedule(const HopperArguments& arguments, char* shared,
                                   HopperSchedule<C>& schedule, TileName name) {
    const ForwardArguments& a = arguments.forward;
    const unsigned base = nvidia::shared_address(shared);
    const int lane = HopperTileLayer<C>::lane();
    for (unsigned drawn = 0;; ++drawn) {
      const unsigned slot = drawn % S::tile_slots;
      HopperTile& t = *reinterpret_cast<HopperTile*>(shared + S::tiles + slot * S::tile_bytes);
      hopper::wait(base + S::tile_empty + 8 * slot, drawn / S::tile_slots % 2 ^ 1);
      if (name.tile >= 0)
        describe<C>(t, a, name, schedule.cut, lane);
      else if (lane == 3)
        t.steps.count = -1;
      // Every lane for itself: lane 3 and lanes 0 to 2 wrote.
      hopper::arrive(base + S::tile_full + 8 * slot);
      if (name.tile < 0) break;
      // Until load() says that it is time, or memory for the next is free.
      if (S::apart)
        hopper::wait(base + S::tile_empty + 8 * ((drawn + 1) % S::tile_slots),
                     (drawn + 1) / S::tile_slots % 2 ^ 1);
      else
        hopper::wait(base + S::tile_taken, drawn % 2);
      unsigned next = 0;
      if (lane == 0 && workgroups_of_tile() == 1) next = hopper::add_to(arguments.counters, 1);
      const unsigned parts = workgroups_of_tile();
      unsigned number;
      if (parts == 1) {
        number =
            static_cast<unsigned>(hopper::of_lane(static_cast<int>(next), 0)) + hopper::blocks();
      } else {
        number = HopperSchedule<C>::number_of_pair(drawn + 1, nvidia::block() / parts,
                                                   hopper::blocks() / parts);
      }
      name = schedule.find(a, number);
    }
    // The last workgroup to end leaves the counters as it found them.
    if (lane == 0 && workgroups_of_tile() == 1) {
      const unsigned ended = hopper::add_to(arguments.counters + 1, 1);
      if (ended + 1 == static_cast<unsigned>(hopper::blocks())) {
        arguments.counters[0] = 0;
        arguments.counters[1] = 0;
        hopper::device_fence();
      }
    }
  }

  // ---- one loading lane: queries ----
  HSTU_DEVICE static void load_queries(const HopperArguments& arguments, char* shared) {
    const unsigned base = nvidia::shared_address(shared);
    const unsigned long long pass = hopper::pass_through_l2();
    for (unsigned drawn = 0;; ++drawn) {
      const unsigned slot = drawn % S::tile_slots;
      hopper::wait(base + S::tile_full + 8 * slot, drawn / S::tile_slots % 2);
      const unsigned tile = tile_at(base, slot);
      if (steps_of(tile).count < 0) break;
      const HopperTile::Place place = place_of(tile);
      const int first_row = tokens_of(tile).first_q + place.first_row;
      // The rows of each warpgroup as soon as it needs no older queries.
#pragma unroll 1
      for (int warpgroup = 0; warpgroup < S::warpgroups; ++warpgroup)
        load_rows(arguments, base, tile, drawn, warpgroup, first_row, place, pass);
      if (drawn == 0) hopper::arrive(base + S::q_asked);
      hopper::arrive(base + S::tile_empty + 8 * slot);
    }
  }

  // The queries of one warpgroup, into memory that those of an earlier tile have left. The tile's
  // begin at token `first_row`.
  HSTU_DEVICE static void load_rows(const HopperArguments& arguments, unsigned base, unsigned tile,
                                    unsigned drawn, int warpgroup, int first_row,
                                    const HopperTile::Place& place, unsigned long long policy) {
    const int group = group_of(warpgroup, drawn);
    const unsigned buffer = drawn % S::q_buffers;
    const unsigned barrier = 8 * (buffer * S::warpgroups + warpgroup);
    hopper::wait(base + S::q_empty + barrier, drawn / S::q_buffers % 2 ^ 1);
    if (needed_of(tile, group).exists == 0) {
      hopper::arrive(base + S::q_full + barrier);
      return;
    }
    hopper::arrive_expect(base + S::q_full + barrier, S::q_bytes / S::warpgroups);
#pragma unroll
    for (int panel = 0; panel < S::qk_panels; ++panel)
      hopper::copy_box(base + S::q + buffer * S::q_bytes + panel * S::q_panel_bytes +
                           warpgroup * 64 * S::row_bytes,
                       &arguments.q, panel * 64, first_row + group * 64, place.head,
                       C::jagged ? 0 : place.batch, base + S::q_full + barrier, policy);
  }

  // ---- one loading lane of each warpgroup, where they are apart ----
  HSTU_DEVICE static void load_apart(const HopperArguments& arguments, char* shared,
                                     int warpgroup) {
    const unsigned base = nvidia::shared_address(shared);
    const unsigned long long keep = hopper::keep_in_l2(), pass = hopper::pass_through_l2();
    HopperRing<S::ring> stage;
    for (unsigned drawn = 0;; ++drawn) {
      const unsigned slot = drawn % S::tile_slots;
      hopper::wait(base + S::tile_full + 8 * slot, drawn / S::tile_slots % 2);
      const unsigned tile = tile_at(base, slot);
      if (steps_of(tile).count < 0) break;
      const HopperTile::Steps steps = steps_of(tile, group_of(warpgroup, drawn));
      const HopperTile::Place place = place_of(tile);
      const HopperTile::Tokens tokens = tokens_of(tile);
      load_rows(arguments, base, tile, drawn, warpgroup, tokens.first_q + place.first_row, place,
                pass);
      hopper::arrive(base + S::tile_empty + 8 * slot);
      for (int step = 0; step < steps.count; ++step, stage.advance())
        load_step(arguments, base, warpgroup * S::ring + stage.at, stage.round,
                  tokens.first_kv + first_key<C>(steps, step), place.head,
                  C::jagged ? 0 : place.batch, keep);
    }
  }

  // ---- another: keys and values ----
  HSTU_DEVICE static void load(const HopperArguments& arguments, char* shared) {
    const unsigned base = nvidia::shared_address(shared);
    const unsigned long long keep = hopper::keep_in_l2();
    HopperRing<S::tile_slots> slot;
    HopperRing<S::stages> stage;
    for (;; slot.advance()) {
      hopper::wait(base + S::tile_full + 8 * slot.at, slot.round);
      const unsigned tile = tile_at(base, slot.at);
      const HopperTile::Steps steps = steps_of(tile);
      if (steps.count < 0) break;
      const HopperTile::Place place = place_of(tile);
      const int first_kv = tokens_of(tile).first_kv;
      hopper::arrive(base + S::tile_empty + 8 * slot.at);
      const int parts = workgroups_of_tile();
      // The next tile is drawn when the end of this one's keys is in sight: who has a long tile
      // leaves others the rest. Which tile a pair has next is known, it may be described at once.
      const int draw_from = parts > 1 ? 0 : max_of(steps.count - S::steps_to_draw, 0);
      bool drawn = false;
      for (int step = part_of_tile();; step += parts, stage.advance()) {
        if (!drawn && step >= draw_from) {
          hopper::arrive(base + S::tile_taken);
          drawn = true;
        }
        if (step >= steps.count) break;
        // At the start all workgroups ask for more than memory gives in their first 5,000 clocks:
        // the first queries before the second step.
        if (stage.at == 1) hopper::wait(base + S::q_asked, 0);
        load_step(arguments, base, stage.at, stage.round, first_kv + first_key<C>(steps, step),
                  place.head, C::jagged ? 0 : place.batch, keep);
      }
    }
  }

  // Into the step's place in memory, when its round comes.
  HSTU_DEVICE static void load_step(const HopperArguments& arguments, unsigned base, int place,
                                    unsigned round, int token, int head, int batch,
                                    unsigned long long policy) {
    const unsigned k_full = base + S::k_full + 8 * place, v_full = base + S::v_full + 8 * place;
    hopper::wait(base + S::k_empty + 8 * place, round ^ 1);
    hopper::arrive_expect(k_full, S::k_bytes);
#pragma unroll
    for (int panel = 0; panel < S::qk_panels; ++panel)
      hopper::copy_box(base + S::k + place * S::k_bytes + panel * S::panel_bytes, &arguments.k,
                       panel * 64, token, head, batch, k_full, policy);
    hopper::wait(base + S::v_empty + 8 * place, round ^ 1);
    hopper::arrive_expect(v_full, S::v_bytes);
#pragma unroll
    for (int panel = 0; panel < S::v_panels; ++panel)
      hopper::copy_box(base + S::v + place * S::v_bytes + panel * S::panel_bytes, &arguments.v,
                       panel * 64, token, head, batch, v_full, policy);
  }
};

}  // namespace hstu
