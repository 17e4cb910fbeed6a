// SPDX-License-Identifier: Apache-2.0
// What the rows of a warpgroup see of a step's keys, and the hiding of the rest.
#pragma once

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

  RowKeys keys[2];
  int row[2];
  HSTU_DEVICE HopperSeen(unsigned tile, int group) {
    const SequenceMask mask = L::mask_of(tile);
    const int first_row = L::place_of(tile).first_row + 64 * group;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      row[i] = first_row + T::row(i);
      keys[i] = row[i] < mask.seqlen_q ? row_keys(features, mask, row[i]) : RowKeys{0, 0, false};
    }
  }
  // Hides what the rows do not see of the keys of elements [from, to), which start at `first`.
  // `own`: whether a target row's own key may be among them.
  template <bool own>
  HSTU_DEVICE void hide(float* s, int from, int to, int first) const {
    // Only a window, or contextual rows of cross attention, begin elsewhere than at key 0.
    constexpr bool from_start = !C::local && !(C::cross && C::context);
    const int lane_key = first + T::key(0);
#pragma unroll
    for (int e = from; e < to; ++e) {
      const int i = T::slot(e), key = lane_key + (T::key(e) - T::key(0));
      bool sees = from_start ? key < keys[i].end
                             : static_cast<unsigned>(key - keys[i].begin) <
                                   static_cast<unsigned>(keys[i].end - keys[i].begin);
      if (own) sees = sees || (keys[i].diagonal && key == row[i]);
      if (!sees) s[e] = softmax ? -infinity() : 0.0f;
    }
  }
};

}  // namespace hstu
