// SPDX-License-Identifier: Apache-2.0
// The tile layer on gfx950 (CDNA4): a wave computes 32 query rows with 32x32x16 matrix
// instructions, S^T = K Q^T and O^T = V^T P^T as in tile/cdna.h. K and V go to LDS without passing
// through registers, V as it lies in memory: it is transposed on its way out.
//
// A load puts 64 chunks of 16 bytes, one of each lane, into consecutive places of LDS. What stands
// where is therefore decided by which chunk a lane asks for:
// - rows of K are permuted (bits 2 and 3 of the row swapped), so that accumulator registers
//   8J .. 8J+7 of lane half h are the keys 16J + 8h .. 16J + 8h + 7, the operand of the second
//   product; chunks of a row are exchanged by a key made of the row's low bits, so that the 16
//   lanes of a phase of a 16-byte read meet all 64 banks;
// - blocks of 64 bytes of a row of V are exchanged by a key made of the row's low two bits: the 32
//   lanes of a phase of the transposing read take one block of each of 4 rows.
//
// Needs: k_stride and v_stride from head_dim to 2^23 elements, all strides and base addresses
// multiples of 16 bytes.
#pragma once

#include "base/types.h"
#include "tile/amd_machine.h"
#include "tile/cdna4_machine.h"
#include "tile/tile.h"

namespace hstu {

template <class C>
struct Tile {
  static constexpr int wave_width = 64;
  static constexpr int rows_per_wave = 32;
  static constexpr int part_keys = 32;
  static constexpr int parts = C::tile_n / part_keys;
  static constexpr int elements = 16;
  static constexpr int row_slots = 1;

  // Chunks of a row in LDS; at least two products' worth of K, for a read to have a slot before it.
  static constexpr int k_chunks = max_of(round_up(C::head_dim_qk, 16), 32) / 8;
  static constexpr int v_chunks = round_up(C::head_dim_v, 32) / 8;
  static constexpr int k_row_bytes = k_chunks * 16;
  static constexpr int v_row_bytes = v_chunks * 16;
  static constexpr int k_bytes = C::tile_n * k_row_bytes;
  static constexpr int v_bytes = C::tile_n * v_row_bytes;
  // Steps in LDS: one being read, one complete, the others on their way. All of K, then all of V.
  static constexpr int buffers = parts == 1 ? 4 : 3;
  static constexpr int lds_bytes = buffers * (k_bytes + v_bytes);

  static constexpr int k_slots = k_chunks / 2;  // matrix instructions of a part's logits
  static constexpr int v_tiles = v_chunks / 4;  // output tiles of 32 elements
  static constexpr int v_slots = 2 * v_tiles;

  static_assert(parts == 1 || parts == 2);
  static_assert(C::tile_m == C::waves * rows_per_wave);
  static_assert(C::head_dim_qk % 8 == 0 && C::head_dim_v % 8 == 0);

  struct Q {
    amd::Words4 chunk[k_slots];  // elements 16 j + 8 h .. + 7 of row lane % 32
  };
  struct O {
    amd::Floats16 tile[v_tiles];  // [r]: element 32 i + 16 (r / 8) + 8 h + r % 8 of that row
  };

  HSTU_DEVICE static int lane() { return amd::thread() % wave_width; }
  HSTU_DEVICE static int half() { return lane() / 32; }
  HSTU_DEVICE static long long block() { return amd::block(); }
  HSTU_DEVICE static int wave() { return amd::uniform(amd::thread() / wave_width); }
  HSTU_DEVICE static int row(int) { return lane() % 32; }
  HSTU_DEVICE static constexpr int slot(int) { return 0; }
  HSTU_DEVICE static int key(int e) { return 16 * (e / 8) + e % 8 + 8 * half(); }

  // ---- Layout in LDS
  HSTU_DEVICE static constexpr int swapped(int row) {
    return (row & ~12) | (row >> 1 & 4) | (row << 1 & 8);
  }
  // The largest power of two that divides `count`, as its exponent, but not above `most`.
  HSTU_DEVICE static constexpr int twos(int count, int most) {
    int bits = 0;
    while (bits < most && count % (2 << bits) == 0) ++bits;
    return bits;
  }
  static constexpr int k_bits = twos(k_chunks, 4);
  static constexpr int k_pairs = 1 << (k_bits - 1);  // different addresses of a lane's reads
  HSTU_DEVICE static constexpr int k_key(int row) {
    return row >> (4 - k_bits) & ((1 << k_bits) - 1);
  }
  static constexpr int v_bits = twos(v_tiles, 2);
  static constexpr int v_pairs = 1 << v_bits;
  HSTU_DEVICE static constexpr int v_key(int row) {
    return row >> (2 - v_bits) & ((1 << v_bits) - 1);
  }

  // Where this lane reads chunk j of K, j < k_pairs; further ones follow at multiples of
  // k_pairs * 32 bytes.
  HSTU_DEVICE static int k_address(int j) {
    const int row = lane() % 32;
    return row * k_row_bytes + ((2 * j + half()) ^ k_key(row)) * 16;
  }
  HSTU_DEVICE static constexpr int k_place(int part, int j) {
    return part * part_keys * k_row_bytes + j / k_pairs * k_pairs * 32;
  }
  // And the first half of an operand of output tile i, i < v_pairs. Columns in the order of
  // swapped(): accumulator registers are neighbouring elements of an output row.
  HSTU_DEVICE static int v_address(int i) {
    const int l = lane(), row = l / 4 % 4, column = l % 4;
    return (8 * half() + row) * v_row_bytes + (i ^ v_key(row)) * 64 + l / 16 % 2 * 32 +
           ((column & 1) << 1 | column >> 1) * 8;
  }
  // Keys 16 j .. 16 j + 15 of a part, of output tile i.
  HSTU_DEVICE static constexpr int v_place(int part, int j, int i) {
    return (part * part_keys + 16 * j) * v_row_bytes + i / v_pairs * v_pairs * 64;
  }
  HSTU_DEVICE static amd::Words4 read_v(const char* lds, int address) {
    const amd::Words2 a = amd::read_lds_transposed(lds, address);
    const amd::Words2 b = amd::read_lds_transposed(lds + 4 * v_row_bytes, address);
    return {a.x, a.y, b.x, b.y};
  }

  // ---- Staging: a step is k_loads + v_loads loads of a wave, dealt out to the waves in rounds.
  static constexpr int k_loads = C::tile_n * k_chunks / wave_width;
  static constexpr int v_loads = C::tile_n * v_chunks / wave_width;
  static constexpr int loads = k_loads + v_loads;
  static constexpr int rounds = ceil_div(loads, C::waves);
  static_assert(C::tile_n * k_chunks % wave_width == 0);

  // Loads of a step that a wave has at least, and of them those after its last one of K.
  static constexpr int least = loads / C::waves;
  static constexpr int least_v = max_of(least - ceil_div(k_loads, C::waves), 0);

  struct Keys {
    const unsigned short *k, *v;
    long long k_stride, v_stride;
    int count;
  };
  struct Stage {
    unsigned offset[rounds];  // of this lane's chunk, in the step's rows of K or V
    int place;                // of this wave's first load in a buffer

    HSTU_DEVICE Stage(const Keys& keys) {
      const int w = wave();
      place = w * (wave_width * 16);
#pragma unroll
      for (int r = 0; r < rounds; ++r) {
        const int load = r * C::waves + w;
        const bool of_v = load >= k_loads;
        const int u = (load - (of_v ? k_loads : 0)) * wave_width + lane();
        const int k_row = u / k_chunks, v_row = u / v_chunks;
        const int k_chunk = u % k_chunks ^ k_key(k_row);
        const int v_chunk = u % v_chunks ^ v_key(v_row) * 4;
        const int row = of_v ? v_row : swapped(k_row), chunk = of_v ? v_chunk : k_chunk;
        const int stride = static_cast<int>(of_v ? keys.v_stride : keys.k_stride) * 2;
        offset[r] = chunk < (of_v ? C::head_dim_v : C::head_dim_qk) / 8
                        ? static_cast<unsigned>(row * stride + chunk * 16)
                        : kNowhere;
      }
    }
    // Round r of a step's loads, K to buffer k_buffer + `k_more` and V to v_buffer + `v_more`.
    template <int r, int k_buffer, int v_buffer>
    HSTU_DEVICE void load(const amd::Buffer& k, const amd::Buffer& v, char* lds, int k_more = 0,
                          int v_more = 0) const {
      constexpr int first = r * C::waves, behind = first * (wave_width * 16);
      const int w = place / (wave_width * 16);
      if (first + C::waves > loads && first + w >= loads) return;
      if (first + C::waves <= k_loads || (first < k_loads && first + w < k_loads))
        amd::load_to_lds<k_buffer * k_bytes + behind>(k, offset[r], lds, place + k_more * k_bytes);
      else
        amd::load_to_lds<buffers * k_bytes - k_bytes + v_buffer * v_bytes + behind>(
            v, offset[r], lds, place + v_more * v_bytes);
    }
  };

  // ---- Registers
  HSTU_DEVICE static void load_q(Q& q, const unsigned short* rows, long long stride, int count) {
    const int bytes = static_cast<int>(stride) * 2;
    const amd::Buffer from = amd::buffer(rows, count * bytes);
    const unsigned offset = row(0) * bytes + half() * 16;
#pragma unroll
    for (int j = 0; j < k_slots; ++j) {
      const bool inside = (2 * j + 1 + half()) * 8 <= C::head_dim_qk;
      q.chunk[j] = amd::load(from, inside ? offset + j * 32 : kNowhere);
    }
#pragma unroll
    for (int j = 0; j < k_slots; ++j) amd::await(q.chunk[j]);
  }
  HSTU_DEVICE static void negate(Q& q) {
#pragma unroll
    for (int j = 0; j < k_slots; ++j) q.chunk[j] ^= 0x80008000u;
  }
  HSTU_DEVICE static void zero(O& o) {
#pragma unroll
    for (int i = 0; i < v_tiles; ++i) o.tile[i] = static_cast<amd::Floats16>(0.0f);
  }

  HSTU_DEVICE static float row_max(float x) { return larger(x, amd::other_half(x)); }
  HSTU_DEVICE static float row_sum(float x) { return x + amd::other_half(x); }

  HSTU_DEVICE static void store(const O& o, float factor, unsigned short* rows, long long stride,
                                int count) {
    if (row(0) >= count) return;
    unsigned short* to = rows + row(0) * stride + half() * 8;
#pragma unroll
    for (int i = 0; i < v_tiles; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        amd::Words4 x;
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          x[e] = amd::pack<C::dtype>(o.tile[i][8 * j + 2 * e] * factor,
                                     o.tile[i][8 * j + 2 * e + 1] * factor);
        }
        const int d = 32 * i + 16 * j;  // of half 0
        if (d + 16 <= C::head_dim_v || d + 8 * half() + 8 <= C::head_dim_v) amd::store(to + d, x);
      }
    }
  }
  HSTU_DEVICE static bool first_of_row(int) { return half() == 0; }
  HSTU_DEVICE static float log2(float x) { return amd::log2(x); }

  static constexpr unsigned kNowhere = 0x80000000u;  // past the end of any buffer
};

}  // namespace hstu
