// SPDX-License-Identifier: Apache-2.0
// Brings K and V of one head to LDS on CDNA, in the units of Tile::Stage, with all addresses of a
// lane worked out once: what a step costs is its loads, the transposition of V, its writes, and one
// addition for each LDS address.
#pragma once

#include "base/types.h"
#include "tile/amd_machine.h"
#include "tile/cdna.h"

namespace hstu {

template <class C>
struct Feed {
  using T = Tile<C>;
  static constexpr int units = T::units;

  // Whether every wave has one unit of K and one of V, and matrix instructions enough: then a step
  // goes in pieces, without branches (piece()).
  static constexpr int pieces = 17;
  static constexpr bool in_pieces = units == 2 && T::k_units == T::threads &&
                                    T::v_units == T::threads &&
                                    amd::kProducts * T::k_chunks / 2 >= pieces;

  // What one lane has loaded of a step, on its way to LDS.
  struct Load {
    amd::Words4 chunk[units][4];
  };

  int count;     // of keys
  int v[units];  // -1: unit i is one of V, 0: of K, 1: the wave has none
  bool inside[units];
  long long base[units];  // address of key 0
  int bytes[units];       // from key to key
  // Bytes from the step's first key; where registers are short the last three follow from the
  // first.
  static constexpr int offsets = units > 1 ? 1 : 4;
  unsigned from[units][offsets];
  int at[units][4];  // where in LDS: of K row j; of V^T rows j and j + 4
  int other[units];  // from this buffer to the other

  // The first landing goes to buffer 0, the next to buffer 1, and so on, for K and V apart.
  HSTU_DEVICE explicit Feed(const typename T::Keys& keys) : count(keys.count) {
    const typename T::Stage stage;
#pragma unroll
    for (int i = 0; i < units; ++i) {
      v[i] = stage.exists[i] ? stage.v[i] : 1;
      inside[i] = stage.inside[i];
      other[i] = T::buffer_bytes;
      const typename T::Unit unit = stage.unit[i];
      const unsigned chunks = choose(i, C::head_dim_qk / 8, C::head_dim_v / 8);
      base[i] = choose(i, reinterpret_cast<long long>(keys.k), reinterpret_cast<long long>(keys.v));
      bytes[i] = static_cast<int>(choose(i, keys.k_stride, keys.v_stride)) * 2;
      // Offsets are below it: a lane without a chunk gets one past the end without a branch, which
      // would make the compiler guard all branches around it.
      const unsigned nowhere = (inside[i] & (unit.chunk < chunks)) ? 0 : T::kNowhere;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const unsigned k_row = unit.row + j * (C::tile_n / 4);
        if (j < offsets)
          from[i][j] = (choose(i, k_row, unit.row + j) * bytes[i] + unit.chunk * 16) | nowhere;
        const int k = T::k_offset(T::swapped(k_row), unit.chunk);
        const int v_t = T::k_bytes + T::v_offset(T::swapped(unit.chunk * 8 + j), unit.row / 8) +
                        unit.row / 4 % 2 * 8;
        at[i][j] = choose(i, k, v_t);
      }
    }
  }

  // The next landing goes to buffer 0 again.
  HSTU_DEVICE void rewind() {
#pragma unroll
    for (int i = 0; i < units; ++i) {
      const int back = min_of(other[i], 0);
#pragma unroll
      for (int j = 0; j < 4; ++j) at[i][j] += back;
      other[i] = T::buffer_bytes;
    }
  }

  HSTU_DEVICE void fetch(Load& load, int first_k, int first_v, bool only_k = false) const {
#pragma unroll
    for (int i = 0; i < units; ++i) {
      if (v[i] > 0 || (only_k && v[i] != 0)) continue;
      const amd::Buffer buffer = step(i, first_k, first_v);
#pragma unroll
      for (int j = 0; j < 4; ++j) fetch(load, buffer, i, j);
    }
  }
  // The step's keys, for unit i.
  HSTU_DEVICE amd::Buffer step(int i, int first_k, int first_v) const {
    const int first_key = choose(i, first_k, first_v);
    const int rows = max_of(min_of(count - first_key, C::tile_n), 0);
    const long long first = base[i] + static_cast<long long>(first_key) * bytes[i];
    return amd::buffer(reinterpret_cast<const unsigned short*>(first), rows * bytes[i]);
  }
  HSTU_DEVICE void fetch(Load& load, const amd::Buffer& buffer, int i, int j) const {
    unsigned first_row = from[i][0];
    if constexpr (offsets == 1) amd::forget(first_row);
    const unsigned row = first_row + j * choose(i, C::tile_n / 4, 1) * bytes[i];
    load.chunk[i][j] = amd::load(buffer, offsets == 4 ? from[i][j % offsets] : row);
  }

  HSTU_DEVICE void land(const Load& load, char* lds, bool only_k = false) {
#pragma unroll
    for (int i = 0; i < units; ++i) {
      if (v[i] > 0 || (only_k && v[i] != 0)) continue;
      if (v[i] != 0) {
        if (T::v_units % T::wave_width == 0 || inside[i]) {
#pragma unroll
          for (int j = 0; j < 4; ++j) land_v(load, lds, i, j);
        }
      } else if (T::k_units % T::wave_width == 0 || inside[i]) {
#pragma unroll
        for (int j = 0; j < 4; ++j) land_k(load, lds, i, j);
      }
      turn(i);
    }
  }
  HSTU_DEVICE void land_k(const Load& load, char* lds, int i, int j) const {
    amd::write_lds(lds, at[i][j], load.chunk[i][j]);
  }
  // Rows 2 j and 2 j + 1 of the transposed unit. Row d + 4 has the key of row d: it stands 8 rows
  // further, where bit 2 moved.
  HSTU_DEVICE void land_v(const Load& load, char* lds, int i, int j) const {
    const unsigned a = load.chunk[i][0][j], b = load.chunk[i][1][j];
    const unsigned c = load.chunk[i][2][j], e = load.chunk[i][3][j];
    char* to = lds + j / 2 * (8 * C::tile_n * 2);
    amd::write_lds(to, at[i][2 * j % 4], amd::Words2{amd::low_halves(a, b), amd::low_halves(c, e)});
    amd::write_lds(to, at[i][2 * j % 4 + 1],
                   amd::Words2{amd::high_halves(a, b), amd::high_halves(c, e)});
  }
  // land() and fetch(), the n-th piece.
  template <int n>
  HSTU_DEVICE void piece(Load& load, char* lds, int first_k, int first_v) {
    if constexpr (n < 4) land_k(load, lds, 0, n);
    if constexpr (n >= 4 && n < 8) land_v(load, lds, 1, n - 4);
    if constexpr (n == 8) {
      turn(0);
      turn(1);
    }
    if constexpr (n > 8 && n <= 12) fetch(load, step(0, first_k, first_v), 0, n - 9);
    if constexpr (n > 12 && n < pieces) fetch(load, step(1, first_k, first_v), 1, n - 13);
  }
  HSTU_DEVICE void turn(int i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) at[i][j] += other[i];
    other[i] = -other[i];
  }

 private:
  template <class N>
  HSTU_DEVICE N choose(int i, N of_k, N of_v) const {
    return of_k ^ ((of_k ^ of_v) & static_cast<N>(v[i]));
  }
};

}  // namespace hstu
