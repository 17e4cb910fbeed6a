// SPDX-License-Identifier: Apache-2.0
// Where K and V^T of one step stand in LDS on RDNA machines. Plain arithmetic on constants and one
// lane's place, free of bank conflicts: LDS has 32 banks, so the 8 lanes of a phase of 16-byte
// accesses (16 lanes of 8 bytes) have to meet all eight 16-byte columns of its 128-byte lines.
//
// Nothing is padded. Chunks (16 bytes, 8 elements) change places within a row by an exclusive or
// with a key of their row, so an address is a base of the lane, an exclusive or with a constant and
// an immediate offset.
#pragma once

#include "base/types.h"

namespace hstu::rdna {

// K: tile_n rows of `chunks` chunks. Chunk c of row r stands at place c ^ key(r) of its row.
template <int chunks, int tile_n>
struct KLayout {
  static_assert(chunks % 2 == 0);
  static constexpr int bytes = tile_n * chunks * 16;
  // Chunks that may change places: rows begin at multiples of so many columns.
  static constexpr int group = chunks % 8 == 0 ? 8 : chunks % 4 == 0 ? 4 : 2;

  HSTU_HOST_DEVICE static constexpr int key(int row) { return row / (8 / group) % group; }
  // Byte of chunk 0 of a row. Chunk c is at base ^ twist(c), plus shift(c).
  HSTU_HOST_DEVICE static constexpr int base(int row) { return row * chunks * 16 + key(row) * 16; }
  HSTU_HOST_DEVICE static constexpr int twist(int chunk) { return chunk % group * 16; }
  HSTU_HOST_DEVICE static constexpr int shift(int chunk) { return chunk / group * group * 16; }
  // The same chunk `rows` rows further, a power of two that is above the row number or a multiple
  // of 8: again a twist and a shift.
  HSTU_HOST_DEVICE static constexpr int row_twist(int rows) { return key(rows) * 16; }
  HSTU_HOST_DEVICE static constexpr int row_shift(int rows) { return rows * chunks * 16; }
};

// V^T: tiles of 16 rows of tile_n keys. A row is element 8 upper + d of its tile's 16 elements of
// V, d < 8. Either a lane's row is given by (upper, d) = (m % 2, m / 2), m = lane % 16 (gfx11), or
// (m / 8, m % 8) (gfx12, `split`). The lanes that write vary the keys (4 at a time), then `upper`,
// then the tile.
template <int tiles, int tile_n, bool split>
struct VLayout {
  static_assert(tile_n == 16 || tile_n == 32 || tile_n == 64);
  // 64 keys fill a line; of 32 keys, both `upper`s share one; of 16, those of 2 neighbouring tiles.
  static constexpr int line_tiles = tile_n == 16 ? 2 : 1;
  static constexpr int bytes = ceil_div(tiles, line_tiles) * line_tiles * 32 * tile_n;

  // Byte of 8 keys (`chunk`) of the row. Exact for d = 0; otherwise ^ twist(d), + 128 d.
  HSTU_HOST_DEVICE static constexpr int base(int tile, int upper, int chunk) {
    const int first = tile_shift(tile) + chunk * 16;
    if (tile_n == 64) return (first + 1024 * upper) ^ (split ? 0 : 16 * upper);
    if (tile_n == 32) return first + 64 * upper;
    return (first + 32 * upper) ^ tile_twist(tile);
  }
  HSTU_HOST_DEVICE static constexpr int twist(int d) {
    if (tile_n == 64) return split ? 16 * d : 32 * (d & 3);
    if (tile_n == 32) return 64 * (d >> 2) + 16 * (d & 3);
    return 32 * (d >> 2) + 64 * (d & 1) + 16 * (d >> 1 & 1);
  }
  static constexpr int d_shift = 128;
  // From tile 0 to another tile, and from chunk 0 to another chunk: ^ twist, + shift.
  HSTU_HOST_DEVICE static constexpr int tile_twist(int tile) { return tile % line_tiles * 64; }
  HSTU_HOST_DEVICE static constexpr int tile_shift(int tile) {
    return tile / line_tiles * line_tiles * 32 * tile_n;
  }
  HSTU_HOST_DEVICE static constexpr int chunk_twist(int chunk) { return chunk * 16; }
};

}  // namespace hstu::rdna
