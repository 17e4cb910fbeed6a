// SPDX-License-Identifier: Apache-2.0
// Two workgroups of a cluster share a tile: each has worked through every second step of its keys.
// They trade halves of the output's columns through each other's shared memory, add, and write half
// each. Under softmax also the maxima and sums of their rows, as what one has summed up is relative
// to its own maxima.
#pragma once

#include "attention/arguments.h"
#include "attention/hopper_activation.h"
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
  using Rows = typename HopperActivation<C>::Rows;
  static constexpr bool softmax = C::activation == Activation::softmax;

  // Sends the other its half of the columns' sums and adds what it sends of this one's, which then
  // stands first in o; rows become those of both. fresh: o was never begun.
  HSTU_DEVICE static void add_other_half(float (&o)[T::o_count], Rows& rows, bool fresh,
                                         unsigned base, unsigned q_at, int group, unsigned parity) {
    constexpr int half = T::o_count / 2;
    constexpr int bytes = 128 * (half * 4 + (softmax ? 16 : 0));
    const int part = L::part_of_tile();
    const unsigned full = base + S::sum_full + 8 * group, empty = base + S::sum_empty + 8 * group;
    // The queries of this warpgroup are no longer needed: their memory takes the other's sums.
    if (T::lane() == 0) hopper::arrive_at_rank(hopper::at_rank(empty, part ^ 1));
    if (hopper::thread_again() % 128 == 0) hopper::arrive_expect(full, bytes);
    hopper::wait_of_cluster(empty, parity);
    const unsigned thread_at = hopper::thread_again() % 128 * 16;
    const unsigned mine = q_at + group * 64 * S::row_bytes + thread_at;
    // Where the queries of the warpgroup would be that has no rows of shared tiles.
    const unsigned mine_rows =
        q_at + kHopperSharedGroups * 64 * S::row_bytes + group * 128 * 16 + thread_at;
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
    if (softmax)
      hopper::send(hopper::at_rank(mine_rows, part ^ 1), rows.max[0], rows.max[1], rows.sum[0],
                   rows.sum[1], their_full);
    hopper::wait_of_cluster(full, parity);
    // What either's sums are multiplied with.
    float own_factor[2] = {1.0f, 1.0f}, other_factor[2] = {1.0f, 1.0f};
    if (softmax) {
      const nvidia::Quad x = nvidia::load_shared(mine_rows);
      const float max[2] = {__uint_as_float(x.x), __uint_as_float(x.y)};
      const float sum[2] = {__uint_as_float(x.z), __uint_as_float(x.w)};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float both = larger(rows.max[i], max[i]);
        if (both != -infinity()) {
          own_factor[i] = nvidia::exp2(rows.max[i] - both);
          other_factor[i] = nvidia::exp2(max[i] - both);
        }
        rows.max[i] = both;
        rows.sum[i] = rows.sum[i] * own_factor[i] + sum[i] * other_factor[i];
      }
    }
#pragma unroll
    for (int i = 0; i < half / 4; ++i) {
      const nvidia::Quad x = nvidia::load_shared(mine + i / 4 * S::q_panel_bytes + i % 4 * 2048);
      const float other[4] = {__uint_as_float(x.x), __uint_as_float(x.y), __uint_as_float(x.z),
                              __uint_as_float(x.w)};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float& sum = o[4 * i + e];
        sum = softmax ? sum * own_factor[e / 2] + other[e] * other_factor[e / 2] : sum + other[e];
      }
    }
  }

  // Writes the half that now stands first in o.
  HSTU_DEVICE static void write_half(const ForwardArguments& a, const float (&o)[T::o_count],
                                     const float (&factor)[2], unsigned tile, int group) {
    constexpr int width = S::splits ? S::v_width / 2 : 32;
    const HopperTile::Place place = L::place_of(tile);
    const int row = place.first_row + 64 * group;
    const int rows = L::needed_of(tile, group).exists;
    const int column = L::part_of_tile() * width;
    unsigned short* to =
        a.o + place.batch * a.o_strides.batch +
        static_cast<long long>(L::tokens_of(tile).first_q + row) * a.o_strides.seq +
        place.head * a.o_strides.head + column;
    T::template store<width>(o, true, factor, to, C::head_dim_v - column, a.o_strides.seq, rows);
  }
};

}  // namespace hstu
