// SPDX-License-Identifier: Apache-2.0
// Tile layer for NVIDIA GPUs from sm_80 on: mma.sync with operands fed by ldmatrix out of shared
// memory that cp.async fills. Strides and base pointers must be multiples of 8 elements (16 bytes).
//
// Lane l of a warp stands at row group g = l / 4 and column pair q = l % 4 of every 16x8
// accumulator: it holds rows g and g + 8, columns 2q and 2q + 1. The logits of two neighbouring
// 16x8 tiles have exactly the layout of the 16x16 left operand of the second product, so P never
// leaves its lane.
//
// Shared memory: per buffer a K tile and a V tile, row-major in 16-byte chunks, rows an odd number
// of chunks apart. Eight consecutive rows then start in eight different bank groups, which is all
// that ldmatrix needs to be free of conflicts, and every address is a lane constant plus an
// immediate.
#pragma once

#include "base/types.h"
#include "tile/nvidia_machine.h"
#include "tile/tile.h"

namespace hstu {

template <class C>
struct Tile {
  static constexpr int wave_width = 32;
  static constexpr int rows_per_wave = C::tile_m / C::waves;
  static constexpr int row_tiles = rows_per_wave / 16;
  // Q, O and what a row remembers stay in registers; the logits of one part take what is left of
  // 255. Where even that does not do, some of Q is parked in shared memory.
  static constexpr int resident = row_tiles * (C::head_dim_qk / 4 + C::head_dim_v / 2 + 8);
  static constexpr int part_keys = min_of(C::tile_n, resident >= 144 ? 16 : 64 / row_tiles);
  static constexpr int parked = row_tiles > 1 && resident > 176 ? min_of(3, C::head_dim_qk / 16)
                                                                : 0;
  static constexpr int parts = C::tile_n / part_keys;
  static constexpr int key_tiles = part_keys / 8;
  static constexpr int elements = row_tiles * key_tiles * 4;
  static constexpr int row_slots = 2 * row_tiles;
  static_assert(C::tile_m == C::waves * row_tiles * 16, "a warp takes multiples of 16 rows");
  static_assert(C::tile_n % part_keys == 0 && part_keys % 16 == 0, "keys come in multiples of 16");
  static_assert(C::head_dim_qk % 8 == 0 && C::head_dim_v % 8 == 0, "head dims: multiples of 8");

  static constexpr int threads = C::waves * wave_width;
  static constexpr int k_chunks = C::head_dim_qk / 8;
  static constexpr int v_chunks = C::head_dim_v / 8;
  static constexpr int k_pitch = (k_chunks | 1) * 16;  // bytes between rows
  static constexpr int v_pitch = (v_chunks | 1) * 16;
  static constexpr int v_offset = C::tile_n * k_pitch;
  static constexpr int buffer_bytes = C::tile_n * (k_pitch + v_pitch);
  static constexpr int kept_chunks = k_chunks - 2 * parked;
  static constexpr int first_parked = k_chunks / 2 * 2 - 2 * parked;  // chunk
  static constexpr int q_offset = 2 * buffer_bytes;
  static constexpr int lds_bytes = q_offset + parked * row_tiles * threads * 16;
  // What a kernel may declare statically; more has to be given at launch.
  static constexpr bool dynamic_lds = lds_bytes > 48 * 1024;

  HSTU_DEVICE static int lane() { return nvidia::thread() % wave_width; }
  HSTU_DEVICE static int group() { return lane() / 4; }
  HSTU_DEVICE static int pair() { return lane() % 4 * 2; }

  HSTU_DEVICE static long long block() { return nvidia::block(); }
  HSTU_DEVICE static int wave() { return nvidia::uniform(nvidia::thread() / wave_width); }
  HSTU_DEVICE static int row(int slot) { return 8 * slot + group(); }
  HSTU_DEVICE static constexpr int slot(int e) { return e / (key_tiles * 4) * 2 + e % 4 / 2; }
  HSTU_DEVICE static int key(int e) { return e / 4 % key_tiles * 8 + e % 2 + pair(); }

  // Chunk c of rows 16m + g and 16m + 8 + g: at[m][c][0] and at[m][c][1]; an odd last chunk follows
  // the others, parked pairs of chunks are left out.
  struct Q {
    unsigned at[row_tiles][kept_chunks][2];
  };
  struct O {
    float at[row_tiles][v_chunks][4];
  };
  struct Stage {};
  struct Keys {
    const unsigned short *k, *v;
    long long k_stride, v_stride;
    int count;
  };

  HSTU_DEVICE static void load_q(Q& q, const unsigned short* rows, long long stride, int count) {
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
      const int row0 = row(2 * m), row1 = row(2 * m + 1);
      const unsigned short* from0 = rows + row0 * stride + pair();
      const unsigned short* from1 = rows + row1 * stride + pair();
      const auto word = [&](int c, int i) {
        const int r = i ? row1 : row0;
        return r < count ? nvidia::load_pair((i ? from1 : from0) + 8 * c) : 0u;
      };
#pragma unroll
      for (int t = 0; t < parked; ++t) {
        const int c = first_parked + 2 * t;
        nvidia::store_shared(parking(m, t),
                             {word(c, 0), word(c, 1), word(c + 1, 0), word(c + 1, 1)});
      }
#pragma unroll
      for (int i = 0; i < kept_chunks; ++i) {
        const int c = i < first_parked ? i : k_chunks - 1;
        q.at[m][i][0] = word(c, 0);
        q.at[m][i][1] = word(c, 1);
      }
    }
  }

  HSTU_DEVICE static void zero(O& o) {
#pragma unroll
    for (int m = 0; m < row_tiles; ++m)
#pragma unroll
      for (int n = 0; n < v_chunks; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) o.at[m][n][i] = 0.0f;
  }

  HSTU_DEVICE static void fetch(Stage&, char* lds, const Keys& keys, int first_key, int buffer) {
    const unsigned to = nvidia::shared_address(lds) + static_cast<unsigned>(buffer * buffer_bytes);
    const int count = keys.count - first_key;
    copy_rows<k_chunks, k_pitch>(to, keys.k + first_key * keys.k_stride, keys.k_stride, count);
    copy_rows<v_chunks, v_pitch>(to + v_offset, keys.v + first_key * keys.v_stride, keys.v_stride,
                                 count);
  }

  HSTU_DEVICE static void land(Stage&, char*, int) { nvidia::copies_wait(); }
  HSTU_DEVICE static void barrier() { nvidia::barrier(); }

  HSTU_DEVICE static void logits(float (&s)[elements], const Q& q, const char* lds, int buffer,
                                 int part) {
    // Matrices of one load: keys 0-7 and 8-15 of a pair of tiles, each at two neighbouring chunks.
    const unsigned tile = nvidia::shared_address(lds) +
                          static_cast<unsigned>(buffer * buffer_bytes + part * part_keys * k_pitch);
    const unsigned from = tile + (lane() / 16 * 8 + lane() % 8) * k_pitch + lane() / 8 % 2 * 16;
    float c[row_tiles][key_tiles][4];
#pragma unroll
    for (int m = 0; m < row_tiles; ++m)
#pragma unroll
      for (int n = 0; n < key_tiles; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) c[m][n][i] = 0.0f;
#pragma unroll
    for (int d = 0; d + 1 < k_chunks; d += 2) {
      nvidia::Quad a[row_tiles];
#pragma unroll
      for (int m = 0; m < row_tiles; ++m) {
        if (d < first_parked)
          a[m] = {q.at[m][d][0], q.at[m][d][1], q.at[m][d + 1][0], q.at[m][d + 1][1]};
        else
          a[m] = nvidia::load_shared(parking(m, (d - first_parked) / 2));
      }
#pragma unroll
      for (int n = 0; n < key_tiles; n += 2) {
        unsigned b[4];
        nvidia::load_matrices(b, from + n * 8 * k_pitch + d * 16);
#pragma unroll
        for (int m = 0; m < row_tiles; ++m) {
          nvidia::multiply_add<C::dtype>(c[m][n], a[m], b[0], b[1]);
          nvidia::multiply_add<C::dtype>(c[m][n + 1], a[m], b[2], b[3]);
        }
      }
    }
    if constexpr (k_chunks % 2 == 1) {
      constexpr int d = k_chunks - 1;
#pragma unroll
      for (int n = 0; n < key_tiles; n += 2) {
        unsigned b[2];
        nvidia::load_matrices(b, tile + (n * 8 + lane() % 16) * k_pitch + d * 16);
#pragma unroll
        for (int m = 0; m < row_tiles; ++m) {
          const auto& a = q.at[m][kept_chunks - 1];
          nvidia::multiply_add<C::dtype>(c[m][n], a[0], a[1], b[0]);
          nvidia::multiply_add<C::dtype>(c[m][n + 1], a[0], a[1], b[1]);
        }
      }
    }
#pragma unroll
    for (int e = 0; e < elements; ++e) s[e] = c[e / (key_tiles * 4)][e / 4 % key_tiles][e % 4];
  }

  HSTU_DEVICE static void accumulate(O& o, const float (&p)[elements], const char* lds, int buffer,
                                     int part) {
    // Matrices of one load: keys 0-7 and 8-15 at one chunk, then both at the next chunk.
    const unsigned tile =
        nvidia::shared_address(lds) +
        static_cast<unsigned>(buffer * buffer_bytes + v_offset + part * part_keys * v_pitch);
    const unsigned from = tile + lane() % 16 * v_pitch + lane() / 16 * 16;
#pragma unroll
    for (int j = 0; j < part_keys / 16; ++j) {
      nvidia::Quad a[row_tiles];
#pragma unroll
      for (int m = 0; m < row_tiles; ++m) {
        const int e = (m * key_tiles + 2 * j) * 4;
        a[m] = {nvidia::pack<C::dtype>(p[e], p[e + 1]), nvidia::pack<C::dtype>(p[e + 2], p[e + 3]),
                nvidia::pack<C::dtype>(p[e + 4], p[e + 5]),
                nvidia::pack<C::dtype>(p[e + 6], p[e + 7])};
      }
#pragma unroll
      for (int n = 0; n + 1 < v_chunks; n += 2) {
        unsigned b[4];
        nvidia::load_matrices_transposed(b, from + j * 16 * v_pitch + n * 16);
#pragma unroll
        for (int m = 0; m < row_tiles; ++m) {
          nvidia::multiply_add<C::dtype>(o.at[m][n], a[m], b[0], b[1]);
          nvidia::multiply_add<C::dtype>(o.at[m][n + 1], a[m], b[2], b[3]);
        }
      }
      if constexpr (v_chunks % 2 == 1) {
        constexpr int n = v_chunks - 1;
        unsigned b[2];
        nvidia::load_matrices_transposed(b, tile + (j * 16 + lane() % 16) * v_pitch + n * 16);
#pragma unroll
        for (int m = 0; m < row_tiles; ++m)
          nvidia::multiply_add<C::dtype>(o.at[m][n], a[m], b[0], b[1]);
      }
    }
  }

  HSTU_DEVICE static float row_max(float x) {
    x = larger(x, nvidia::shuffle_xor(x, 1));
    return larger(x, nvidia::shuffle_xor(x, 2));
  }
  HSTU_DEVICE static float row_sum(float x) {
    x += nvidia::shuffle_xor(x, 1);
    return x + nvidia::shuffle_xor(x, 2);
  }

  HSTU_DEVICE static void scale(O& o, int slot, float factor) {
#pragma unroll
    for (int n = 0; n < v_chunks; ++n) {
      o.at[slot / 2][n][slot % 2 * 2] *= factor;
      o.at[slot / 2][n][slot % 2 * 2 + 1] *= factor;
    }
  }

  HSTU_DEVICE static void store(const O& o, const float (&factor)[row_slots], unsigned short* rows,
                                long long stride, int count) {
#pragma unroll
    for (int s = 0; s < row_slots; ++s) {
      if (row(s) >= count) continue;
      unsigned short* to = rows + row(s) * stride + pair();
#pragma unroll
      for (int n = 0; n < v_chunks; ++n) {
        const auto& at = o.at[s / 2][n];
        nvidia::store_pair(to + 8 * n, nvidia::pack<C::dtype>(at[s % 2 * 2] * factor[s],
                                                              at[s % 2 * 2 + 1] * factor[s]));
      }
    }
  }

  HSTU_DEVICE static bool first_of_row(int) { return lane() % 4 == 0; }

  HSTU_DEVICE static float exp2(float x) { return nvidia::exp2(x); }
  HSTU_DEVICE static float log2(float x) { return nvidia::log2(x); }
  HSTU_DEVICE static float rcp(float x) { return nvidia::rcp(x); }

 private:
  // Where this lane keeps its own words of a parked operand; no other lane touches them.
  HSTU_DEVICE static unsigned parking(int m, int t) {
    char* lds = nvidia::workgroup_lds<lds_bytes, dynamic_lds>();
    return nvidia::shared_address(lds) +
           static_cast<unsigned>(q_offset + ((m * parked + t) * threads + nvidia::thread()) * 16);
  }

  // Rows [0, tile_n) of one tensor to shared memory; those >= count become zero.
  template <int chunks, int pitch>
  HSTU_DEVICE static void copy_rows(unsigned to, const unsigned short* from, long long stride,
                                    int count) {
    constexpr int total = C::tile_n * chunks;
    if constexpr (threads % chunks == 0 && total % threads == 0) {  // every lane keeps its chunk
      constexpr int step = threads / chunks;
      const int row = nvidia::thread() / chunks, chunk = nvidia::thread() % chunks;
      to += row * pitch + chunk * 16;
      from += row * stride + chunk * 8;
#pragma unroll
      for (int i = 0; i < total / threads; ++i)
        nvidia::copy_async(to + i * step * pitch, from + i * step * stride, row + i * step < count);
    } else {
#pragma unroll
      for (int i = 0; i < ceil_div(total, threads); ++i) {
        const int index = nvidia::thread() + i * threads;
        const int row = index / chunks, chunk = index % chunks;
        if (total % threads != 0 && index >= total) break;
        nvidia::copy_async(to + row * pitch + chunk * 16, from + row * stride + chunk * 8,
                           row < count);
      }
    }
  }
};

}  // namespace hstu
