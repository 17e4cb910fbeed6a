// SPDX-License-Identifier: Apache-2.0
// Which logits of a row a thread of a warpgroup sees, a bit each: of every eight keys it holds two
// neighbours (PTX ISA, register fragments of wgmma's D).
#pragma once

#include "base/types.h"
#include "mask/mask.h"
#include "tile/hopper_machine.h"

namespace hstu {

// The row's logits of `count` keys in this thread, the first of which is of key `first`: bit 2 n of
// key first + 8 n, bit 2 n + 1 of the next.
template <int count>
HSTU_DEVICE unsigned seen_bits(const RowKeys& keys, int row, int first) {
  static_assert(count % 8 == 0 && count <= 128);
  const auto before = [&](int key) {  // logits of keys before it
    const int x = key - first;
    return max_of(min_of((x >> 3) * 2 + min_of(x & 7, 2), count / 4), 0);
  };
  unsigned seen = hopper::bits(before(keys.begin), before(keys.end));
  const unsigned own = static_cast<unsigned>(row - first);
  if (keys.diagonal && own < count && own % 8 < 2) seen |= 1u << (own / 8 * 2 + own % 8);
  return seen;
}

}  // namespace hstu
