// SPDX-License-Identifier: Apache-2.0
// Two workgroups of a cluster share a tile: each has worked through every second step of its keys.
// They trade halves of the output's columns through each other's shared memory, add, and write half
// each.
#pragma once

#include "attention/arguments.h"
#include "attention/hopper_load.h"
#include "attention/hopper_tile.h"
#include "base/types.h"
#include "tile/hopper.h"

namespace hstu {

template <class C>
struct HopperPair {
  using S = HopperShape<C>;
  using T = HopperTileLayer<C>;
  using L = HopperLoad<C>;

  // Sends the other its half of the columns' sums and adds what it sends of this one's, which then
  // stands first in o. fresh: o was never begun.
  HSTU_DEVICE static void add_other_half(float (&o)[T::o_count], bool fresh, unsigned base,
                                         unsigned q_at, int group, unsigned parity) {
    constexpr int half = T::o_count / 2;
    const int part = L::part_of_tile();
    const unsigned full = base + S::sum_full + 8 * group, empty = base + S::sum_empty + 8 * group;
    // The queries of this warpgroup are no longer needed: their memory takes the other's sums.
    if (T::lane() == 0) hopper::arrive_at_rank(hopper::at_rank(empty, part ^ 1));
    if (hopper::thread_again() % 128 == 0) hopper::arrive_expect(full, 128 * half * 4);
    hopper::wait_of_cluster(empty, parity);
    const unsigned mine = q_at + group * 64 * S::row_bytes + hopper::thread_again() % 128 * 16;
    const unsigned theirs = hopper::at_rank(mine, part ^ 1);
    const unsigned their_full = hopper::at_rank(full, part ^ 1);
#pragma unroll
    for (int i = 0; i < half / 4; ++i) {
      float x[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float low = o[4 * i + e], high = o[half + 4 * i + e];
        x[e] = fresh ? 0.0f : part == 0 ? high : low;
        o[4 * i + e] = fresh ? 0.0f : part == 0 ? low : high;
      }
      hopper::send(theirs + i / 4 * S::q_panel_bytes + i % 4 * 2048, x[0], x[1], x[2], x[3],
                   their_full);
    }
    hopper::wait_of_cluster(full, parity);
#pragma unroll
    for (int i = 0; i < half / 4; ++i) {
      const nvidia::Quad x = nvidia::load_shared(mine + i / 4 * S::q_panel_bytes + i % 4 * 2048);
      o[4 * i] += __uint_as_float(x.x);
      o[4 * i + 1] += __uint_as_float(x.y);
      o[4 * i + 2] += __uint_as_float(x.z);
      o[4 * i + 3] += __uint_as_float(x.w);
    }
  }

  // Writes the half that now stands first in o.
  HSTU_DEVICE static void write_half(const ForwardArguments& a, const float (&o)[T::o_count],
                                     unsigned tile, int group) {
    constexpr int width = S::splits ? S::v_width / 2 : 32;
    const HopperTile::Place place = L::place_of(tile);
    const int row = place.first_row + 64 * group;
    const int rows = L::needed_of(tile, group).exists;
    const int column = L::part_of_tile() * width;
    const float factor[2] = {place.attn_scale, place.attn_scale};
    unsigned short* to =
        a.o + place.batch * a.o_strides.batch +
        static_cast<long long>(L::tokens_of(tile).first_q + row) * a.o_strides.seq +
        place.head * a.o_strides.head + column;
    T::template store<width>(o, true, factor, to, C::head_dim_v - column, a.o_strides.seq, rows);
  }
};

}  // namespace hstu
