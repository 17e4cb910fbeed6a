// SPDX-License-Identifier: Apache-2.0
// What the rows of a warpgroup see of a step's keys, and the hiding of the rest.
#pragma once

#include "attention/hopper_bits.h"
#include "attention/hopper_load.h"
#include "attention/hopper_tile.h"
#include "base/types.h"
#include "mask/mask.h"
#include "tile/hopper.h"

namespace hstu {

// Keys [low, high) of [first, end) that some of the rows see; low >= high: none.
struct HopperSpan {
  int low, high;
};
template <class C>
HSTU_DEVICE HopperSpan seen_span(const HopperTile::Rows& keys, int first, int end) {
  HopperSpan r{max_of(first, keys.begin), min_of(end, keys.end)};
  if (r.low >= r.high) r = {end, first};
  if (C::targets && !C::cross && first < keys.diagonal_end && end > keys.diagonal_begin) {
    r.low = min_of(r.low, max_of(first, keys.diagonal_begin));
    r.high = max_of(r.high, min_of(end, keys.diagonal_end));
  }
  return {nvidia::uniform(r.low), nvidia::uniform(r.high)};
}

// What a thread's two rows see.
template <class C>
struct HopperSeen {
  using T = HopperTileLayer<C>;
  using L = HopperLoad<C>;
  static constexpr MaskFeatures features{C::causal,  C::cross,   C::local,
                                         C::context, C::minfull, C::targets};
  static constexpr bool softmax = C::activation == Activation::softmax;

  unsigned seen[2];  // bits of either row's logits

  // Of `count` keys from `first` on.
  template <int count>
  HSTU_DEVICE static HopperSeen of(unsigned tile, int group, int first) {
    const SequenceMask mask = L::mask_of(tile);
    const int first_row = L::place_of(tile).first_row + 64 * group;
    HopperSeen r;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = first_row + T::row(i);
      const RowKeys keys =
          row < mask.seqlen_q ? row_keys(features, mask, row) : RowKeys{0, 0, false};
      r.seen[i] = seen_bits<count>(keys, row, first + T::key(0));
    }
    return r;
  }

  // Hides what the rows do not see of logits [from, to).
  HSTU_DEVICE void hide(float* s, int from, int to) const {
#pragma unroll
    for (int e = from; e < to; ++e)
      if ((seen[T::slot(e)] & 1u << (e / 4 * 2 + e % 2)) == 0) s[e] = softmax ? -infinity() : 0.0f;
  }
};

}  // namespace hstu
