// SPDX-License-Identifier: Apache-2.0
// The tile layer on CDNA: a wave computes 32 query rows with 32x32 matrix instructions.
//
// Logits are computed transposed, S^T = K Q^T, and O^T = V^T P^T. A lane then holds logits of one
// query row only, and they are the second product's operand without leaving the lane, because rows
// of K and of V^T stand in LDS in an order (bits 2 and 3 of the row swapped) that makes accumulator
// registers 8J .. 8J+7 of lane half h the keys 16J + 8h .. 16J + 8h + 7. The same order on V^T
// makes them neighbouring elements of an output row: 16-byte stores.
//
// Needs: k_stride and v_stride from head_dim to 2^23 elements, all strides and base addresses
// multiples of 16 bytes, waves a power of two not above 8.
#pragma once

#include "base/types.h"
#include "tile/amd_machine.h"
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

  // LDS, twice: K as tile_n rows of `k_chunks` 16-byte chunks, V^T as `v_rows` rows of tile_n keys.
  static constexpr int k_chunks = round_up(C::head_dim_qk, 16) / 8;
  static constexpr int v_rows = round_up(C::head_dim_v, 32);
  static constexpr int k_bytes = C::tile_n * k_chunks * 16;
  static constexpr int v_bytes = v_rows * C::tile_n * 2;
  static constexpr int buffer_bytes = k_bytes + v_bytes;
  static constexpr int lds_bytes = 2 * buffer_bytes;

  // At most 128 registers for vectors: addresses are worked out at each step, loads stay near use.
  static constexpr bool tight = amd::kSeparateAccumulators || C::waves_per_simd > 2;

  static_assert(C::tile_n % 32 == 0 && (C::tile_n & (C::tile_n - 1)) == 0);
  static_assert(C::tile_m == C::waves * rows_per_wave);
  static_assert(C::head_dim_qk % 8 == 0 && C::head_dim_v % 8 == 0);

  struct Q {
    amd::Words4 chunk[k_chunks / 2];  // elements 16 j + 8 h .. + 7 of row lane % 32
  };
  struct O {
    amd::Floats16 tile[v_rows / 32];  // [r]: element 32 i + 16 (r / 8) + 8 h + r % 8 of that row
  };

  HSTU_DEVICE static int lane() { return amd::thread() % wave_width; }
  HSTU_DEVICE static int half() { return lane() / 32; }
  // The lane, for addresses: see `tight`.
  HSTU_DEVICE static unsigned address_lane() {
    unsigned l = lane();
    if constexpr (tight) amd::forget(l);
    return l;
  }
  HSTU_DEVICE static long long block() { return amd::block(); }
  HSTU_DEVICE static int wave() { return amd::uniform(amd::thread() / wave_width); }
  HSTU_DEVICE static int row(int) { return lane() % 32; }
  HSTU_DEVICE static constexpr int slot(int) { return 0; }
  HSTU_DEVICE static int key(int e) { return 16 * (e / 8) + e % 8 + 8 * half(); }

  // ---- Staging. A unit is 4 chunks that one lane loads: of K, 4 rows tile_n / 4 apart; of V, 4
  // neighbouring keys, to be transposed. Units of K come first, padded to whole waves, so that a
  // wave never mixes both.
  static constexpr int threads = C::waves * wave_width;
  static constexpr int k_units = C::tile_n / 4 * k_chunks;
  static constexpr int v_units = C::tile_n / 4 * (v_rows / 8);
  static constexpr int v_first = round_up(k_units, wave_width);
  static constexpr int all_units = v_first + round_up(v_units, wave_width);
  static constexpr int units = ceil_div(all_units, threads);  // of a lane

  // Where a unit stands in the tile.
  struct Unit {
    unsigned row, chunk;  // first key, and 16-byte chunk of the head dimension
  };
  HSTU_DEVICE static Unit k_unit(unsigned u) { return {u / k_chunks, u % k_chunks}; }
  // 16 neighbouring lanes write V^T without bank conflict: 8 chunks of 2 key groups, or 4 of 4.
  HSTU_DEVICE static Unit v_unit(unsigned u) {
    constexpr unsigned chunks = v_rows / 8;
    const unsigned rest = u / 16;
    if constexpr (chunks % 8 == 0) {
      constexpr unsigned blocks = chunks / 8;
      return {4 * (u / 8 % 2 + 2 * (rest / blocks)), u % 8 + 8 * (rest % blocks)};
    } else {
      constexpr unsigned groups = C::tile_n / 16;
      const unsigned g = rest % groups;
      return {4 * (u / 4 % 2 + 4 * (u / 8 % 2) + 2 * (g % 2) + 8 * (g / 2)),
              u % 4 + 4 * (rest / groups)};
    }
  }

  // What a lane loads, worked out once: the compiler does not move uniform() out of loops.
  struct Stage {
    int v[units];        // -1: unit i is one of V, 0: of K; the same in the whole wave
    bool exists[units];  // some lane of the wave has a unit i; likewise
    Unit unit[units];
    bool inside[units];  // this lane has one
    amd::Words4 chunk[units][4];

    HSTU_DEVICE Stage() {
      const int first = amd::uniform(amd::thread() / wave_width) * wave_width;
#pragma unroll
      for (int i = 0; i < units; ++i) {
        const bool is_v = (i + 1) * threads > v_first &&
                          (i * threads >= v_first || i * threads + first >= v_first);
        v[i] = is_v ? -1 : 0;
        if ((i + 1) * threads > v_first && i * threads < v_first) v[i] = amd::uniform(v[i]);
        exists[i] = (i + 1) * threads <= all_units || i * threads + first < all_units;
        const unsigned u = i * threads + amd::thread() - (is_v ? v_first : 0);
        unit[i] = is_v ? v_unit(u) : k_unit(u);
        inside[i] = u < (is_v ? v_units : k_units);
      }
    }
    HSTU_DEVICE Unit place(int i) const {
      Unit u = unit[i];
      if constexpr (tight) {
        amd::forget(u.row);
        amd::forget(u.chunk);
      }
      return u;
    }
    // k or v, by arithmetic: a choice by a condition from outside the loop becomes a vector
    // instruction in LLVM 15.
    template <class N>
    HSTU_DEVICE N choose(int i, N of_k, N of_v) const {
      return of_k ^ ((of_k ^ of_v) & static_cast<N>(v[i]));
    }
  };
  struct Keys {
    const unsigned short *k, *v;
    long long k_stride, v_stride;
    int count;
  };

  // Bits 2 and 3 of a row swapped: where a row stands in LDS, and back.
  HSTU_DEVICE static constexpr int swapped(int row) {
    return (row & ~12) | (row >> 1 & 4) | (row << 1 & 8);
  }

  // K in LDS: chunks of a row are exchanged by a key made of the row's low bits, so that lanes that
  // read one chunk of neighbouring rows in one phase meet different banks.
  static constexpr int line_bits = amd::kLdsLineBits;
  static constexpr int chunk_bits() {
    int bits = 0;
    while (bits < line_bits && k_chunks % (2 << bits) == 0) ++bits;
    return bits;
  }
  static constexpr int k_bits = chunk_bits();  // 2^k_bits divides k_chunks
  HSTU_DEVICE static int k_key(int row) {
    return row >> (line_bits - k_bits) & ((1 << k_bits) - 1);
  }
  HSTU_DEVICE static int k_offset(int row, int chunk) {
    return (row * k_chunks + (chunk ^ k_key(row))) * 16;
  }

  // V^T in LDS, in lines of 8 chunks: one row of 64 keys (or half a row of 128), or two rows of 32
  // keys that differ in bit 2. The key serves both the reads (bits 0 to 2 of the row vary in a
  // phase) and the transposing writes (bits 2, 4 and 5 vary).
  HSTU_DEVICE static int v_key(int row) {
    const int low = row ^ row >> 4;  // bits 0 and 1: row bits 0 ^ 4 and 1 ^ 5
    if constexpr (C::tile_n == 32) return low & 3;
    return (row >> 2 & 1) | (low & 2) | (low & 1) << 2;
  }
  HSTU_DEVICE static int v_offset(int row, int chunk) {
    if constexpr (C::tile_n == 32)
      return ((row >> 3 << 2 | (row & 3)) * 8 + ((row & 4) | (chunk ^ v_key(row)))) * 16;
    return (row * (C::tile_n / 8) + (chunk ^ v_key(row))) * 16;
  }

  HSTU_DEVICE static void load_q(Q& q, const unsigned short* rows, long long stride, int count) {
    const int bytes = static_cast<int>(stride) * 2;
    const amd::Buffer from = amd::buffer(rows, count * bytes);
    const unsigned offset = row(0) * bytes + half() * 16;
#pragma unroll
    for (int j = 0; j < k_chunks / 2; ++j) {
      const bool inside = (2 * j + 2) * 8 <= C::head_dim_qk || half() == 0;
      q.chunk[j] = amd::load(from, inside ? offset + j * 32 : kNowhere);
    }
#pragma unroll
    for (int j = 0; j < k_chunks / 2; ++j) amd::await(q.chunk[j]);
  }

  HSTU_DEVICE static void negate(Q& q) {
#pragma unroll
    for (int j = 0; j < k_chunks / 2; ++j) q.chunk[j] ^= 0x80008000u;
  }

  HSTU_DEVICE static void zero(O& o) {
    // A zero of its own: gfx908 would keep 16 registers of zeros to share with every product.
    float nothing = 0.0f;
    if constexpr (amd::kSeparateAccumulators) amd::forget(nothing);
#pragma unroll
    for (int i = 0; i < v_rows / 32; ++i) o.tile[i] = static_cast<amd::Floats16>(nothing);
    settle(o);
  }
  HSTU_DEVICE static void settle(O& o) {
    if constexpr (C::waves_per_simd == 1 || amd::kSeparateAccumulators) {
#pragma unroll
      for (int i = 0; i < v_rows / 32; ++i) amd::keep_in_accumulators(o.tile[i]);
    }
  }

  HSTU_DEVICE static void fetch(Stage& stage, char*, const Keys& keys, int first_key, int) {
    const int rows = max_of(min_of(keys.count - first_key, C::tile_n), 0);
#pragma unroll
    for (int i = 0; i < units; ++i) {
      if (!stage.exists[i]) continue;
      const int bytes = static_cast<int>(stage.choose(i, keys.k_stride, keys.v_stride)) * 2;
      const long long base =
          stage.choose(i, reinterpret_cast<long long>(keys.k), reinterpret_cast<long long>(keys.v));
      const amd::Buffer from = amd::buffer(
          reinterpret_cast<const unsigned short*>(base + static_cast<long long>(first_key) * bytes),
          rows * bytes);
      const Unit unit = stage.place(i);
      const unsigned chunks = stage.choose(i, C::head_dim_qk / 8, C::head_dim_v / 8);
      const bool inside = stage.inside[i] && unit.chunk < chunks;
      const unsigned offset = inside ? unit.row * bytes + unit.chunk * 16 : kNowhere;
      const unsigned step = stage.choose(i, C::tile_n / 4, 1) * bytes;
#pragma unroll
      for (int j = 0; j < 4; ++j) stage.chunk[i][j] = amd::load(from, offset + j * step);
    }
  }

  HSTU_DEVICE static void land(Stage& stage, char* lds, int buffer) {
#pragma unroll
    for (int i = 0; i < units; ++i) {
      if (!stage.exists[i]) continue;
      const Unit unit = stage.place(i);
      if (stage.v[i]) {
        if (v_units % wave_width == 0 || stage.inside[i])
          land_v(stage.chunk[i], lds, buffer * buffer_bytes + k_bytes, unit);
      } else if (k_units % wave_width == 0 || stage.inside[i]) {
        land_k(stage.chunk[i], lds, buffer * buffer_bytes, unit);
      }
    }
  }

  HSTU_DEVICE static void land_k(const amd::Words4 (&chunk)[4], char* lds, int base, Unit unit) {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      amd::write_lds(lds, base + k_offset(swapped(unit.row + j * (C::tile_n / 4)), unit.chunk),
                     chunk[j]);
  }

  HSTU_DEVICE static void land_v(const amd::Words4 (&chunk)[4], char* lds, int base, Unit unit) {
    const int at = base + unit.row / 4 % 2 * 8;  // 4 keys are half a chunk of V^T
#pragma unroll
    for (int d = 0; d < 8; d += 2) {
      const unsigned a = chunk[0][d / 2], b = chunk[1][d / 2];
      const unsigned c = chunk[2][d / 2], e = chunk[3][d / 2];
      const amd::Words2 even = {amd::low_halves(a, b), amd::low_halves(c, e)};
      const amd::Words2 odd = {amd::high_halves(a, b), amd::high_halves(c, e)};
      const int first = unit.chunk * 8 + d;
      amd::write_lds(lds, at + v_offset(swapped(first), unit.row / 8), even);
      amd::write_lds(lds, at + v_offset(swapped(first + 1), unit.row / 8), odd);
    }
  }

  HSTU_DEVICE static void barrier() { amd::barrier(); }

  // ---- Products. Reads are a few lane addresses plus constants: of the chunk index only the bits
  // that a key can change go into the address.
  HSTU_DEVICE static void logits(float (&s)[elements], const Q& q, const char* lds, int buffer,
                                 int part) {
    constexpr int pairs = 1 << (k_bits - 1);
    const char* base = lds + buffer * buffer_bytes + part * (part_keys * k_chunks * 16);
    const unsigned l = address_lane();
    amd::Floats16 c = static_cast<amd::Floats16>(0.0f);
#pragma unroll
    for (int j = 0; j < k_chunks / 2; ++j) {
      if (tight && j % 4 == 0) amd::keep_order();
      const int lane_offset = k_offset(l % 32, 2 * (j % pairs) + l / 32);
      amd::multiply<C::dtype>(c, amd::read_lds(base, lane_offset + j / pairs * pairs * 32),
                              q.chunk[j]);
    }
#pragma unroll
    for (int e = 0; e < elements; ++e) s[e] = c[e];
  }

  HSTU_DEVICE static void accumulate(O& o, const float (&p)[elements], const char* lds, int buffer,
                                     int part) {
    constexpr int pairs = C::tile_n == 32 ? 2 : 4;  // of chunks in a line
    const char* base = lds + buffer * buffer_bytes + k_bytes + part / 2 * 128;
    const unsigned l = address_lane();
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if (tight) amd::keep_order();
      amd::Words4 b;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        b[i] = amd::pack<C::dtype>(p[8 * j + 2 * i], p[8 * j + 2 * i + 1]);
#pragma unroll
      for (int i = 0; i < v_rows / 32; ++i) {
        // Bit 5 of the row flips bit 1 of the chunk: the neighbouring pair's address.
        const int pair = (part % 2 * 2 + j) % pairs ^ i % 2;
        const int lane_offset = v_offset(l % 32, 2 * pair + l / 32);
        amd::multiply<C::dtype>(o.tile[i],
                                amd::read_lds(base, lane_offset + i * (32 * C::tile_n * 2)), b);
      }
    }
    settle(o);
  }

  HSTU_DEVICE static float row_max(float x) { return larger(x, amd::other_half(x)); }
  HSTU_DEVICE static float row_sum(float x) { return x + amd::other_half(x); }

  // Most of the time no row's maximum has grown.
  HSTU_DEVICE static void scale(O& o, int, float factor) {
    if (!amd::any(factor != 1.0f)) return;
    settle(o);
#pragma unroll
    for (int i = 0; i < v_rows / 32; ++i) {
      amd::keep_order();
      o.tile[i] *= factor;
    }
    amd::keep_order();
    settle(o);
  }

  HSTU_DEVICE static void store(const O& o, const float (&factor)[row_slots], unsigned short* rows,
                                long long stride, int count) {
    if (row(0) >= count) return;
    unsigned short* to = rows + row(0) * stride + half() * 8;
#pragma unroll
    for (int i = 0; i < v_rows / 32; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        amd::Words4 x;
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          x[e] = amd::pack<C::dtype>(o.tile[i][8 * j + 2 * e] * factor[0],
                                     o.tile[i][8 * j + 2 * e + 1] * factor[0]);
        }
        const int d = 32 * i + 16 * j;  // of half 0
        if (d + 16 <= C::head_dim_v || d + 8 * half() + 8 <= C::head_dim_v) amd::store(to + d, x);
      }
    }
  }

  HSTU_DEVICE static bool first_of_row(int) { return half() == 0; }

  HSTU_DEVICE static float exp2(float x) { return amd::exp2(x); }
  HSTU_DEVICE static float log2(float x) { return amd::log2(x); }
  HSTU_DEVICE static float rcp(float x) { return amd::rcp(x); }

  static constexpr unsigned kNowhere = 0x80000000u;  // past the end of any buffer
};

}  // namespace hstu
