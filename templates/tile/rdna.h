// SPDX-License-Identifier: Apache-2.0
// The tile layer on RDNA3 and RDNA4: a wave computes 16 query rows with 16x16x16 WMMA.
//
// Logits are computed transposed, S^T = K Q^T, and O^T = V^T P^T, so that a lane holds logits of
// one query row only. On gfx12 they are the second product's operand without leaving the lane. On
// gfx11 a lane holds every other key and needs its partner's: the operand then lists the 8 even
// keys of 16 before the 8 odd ones, and V^T stands in LDS in that order too. Rows of V^T stand in
// the order that makes a lane's accumulators neighbouring elements of an output row: 16-byte
// stores.
//
// Needs: k_stride and v_stride from head_dim to 2^23 elements, all strides and base addresses
// multiples of 16 bytes.
#pragma once

#include "base/types.h"
#include "tile/rdna_machine.h"
#include "tile/tile.h"

namespace hstu {

template <class C>
struct Tile {
  static constexpr int wave_width = 32;
  static constexpr int rows_per_wave = 16;
  static constexpr int part_keys = min_of(C::tile_n, 32);
  static constexpr int parts = C::tile_n / part_keys;
  static constexpr int key_tiles = part_keys / 16;
  static constexpr int elements = 8 * key_tiles;
  static constexpr int row_slots = 1;

  static constexpr int threads = C::waves * wave_width;
  static constexpr int k_chunks = round_up(C::head_dim_qk, 16) / 8;  // of 16 bytes, of a row of K
  static constexpr int v_tiles = ceil_div(C::head_dim_v, 16);
  static constexpr int v_chunks = 2 * v_tiles;

  // LDS, twice: K as tile_n rows of `k_chunks` chunks, V^T as 16 v_tiles rows of tile_n keys. Rows
  // are an odd number of chunks apart: 8 lanes that read one chunk of 8 rows meet no common bank.
  static constexpr int k_pitch = (k_chunks | 1) * 16;  // bytes
  static constexpr int v_pitch = (C::tile_n / 8 | 1) * 16;
  static constexpr int v_offset = C::tile_n * k_pitch;
  static constexpr int buffer_bytes = v_offset + 16 * v_tiles * v_pitch;
  static constexpr int lds_bytes = 2 * buffer_bytes;
  static constexpr bool dynamic_lds = false;

  static_assert(C::tile_n % 16 == 0 && (C::tile_n & (C::tile_n - 1)) == 0 && C::tile_n <= 64);
  static_assert(C::tile_m == C::waves * rows_per_wave);
  static_assert(C::head_dim_qk % 8 == 0 && C::head_dim_v % 8 == 0);

  struct Q {
    rdna::Operand at[k_chunks / 2];
  };
  struct O {
    rdna::Floats8 tile[v_tiles];  // [r]: element 16 i + 8 h + r of row lane % 16
  };
  struct Keys {
    const unsigned short *k, *v;
    long long k_stride, v_stride;
    int count;
  };

  // How the workgroup's lanes divide `rows` rows of `chunks` chunks: `width` neighbouring lanes
  // take a row, a power of two, so that a lane keeps its chunk and its rows are a constant apart.
  template <int chunks, int rows>
  struct Division {
    static constexpr int up_to_power(int n) {
      int power = 1;
      while (power < n) power *= 2;
      return power;
    }
    static constexpr int width = up_to_power(chunks);
    static constexpr int step = threads / width;        // rows
    static constexpr int count = ceil_div(rows, step);  // places of a lane
    static_assert(threads % width == 0, "a workgroup takes whole rows");
    HSTU_DEVICE static int row(int i) { return rdna::thread() / width + i * step; }
    HSTU_DEVICE static int chunk() { return rdna::thread() % width; }
    HSTU_DEVICE static bool exists(int i) {
      return (chunks == width || chunk() < chunks) && ((i + 1) * step <= rows || row(i) < rows);
    }
  };
  // A lane loads single chunks of K, and units of V: one chunk of 4 keys, to be transposed.
  using DivisionK = Division<k_chunks, C::tile_n>;
  using DivisionV = Division<v_chunks, C::tile_n / 4>;
  struct Stage {
    rdna::Words4 k[DivisionK::count];
    rdna::Words4 v[DivisionV::count][4];
  };

  HSTU_DEVICE static int lane() { return rdna::thread() % wave_width; }
  HSTU_DEVICE static int half() { return lane() / 16; }
  HSTU_DEVICE static long long block() { return rdna::block(); }
  HSTU_DEVICE static int wave() { return rdna::uniform(rdna::thread() / wave_width); }
  HSTU_DEVICE static int row(int) { return lane() % 16; }
  HSTU_DEVICE static constexpr int slot(int) { return 0; }
  HSTU_DEVICE static int key(int e) {
    return e / 8 * 16 + (rdna::kSplit ? e % 8 + 8 * half() : e % 8 * 2 + half());
  }

  HSTU_DEVICE static void load_q(Q& q, const unsigned short* rows, long long stride, int count) {
    const int bytes = static_cast<int>(stride) * 2;
    const rdna::Buffer from = rdna::buffer(rows, count * bytes);
    const unsigned offset = row(0) * bytes;
#pragma unroll
    for (int j = 0; j < k_chunks / 2; ++j) {
      q.at[j] = load_operand(from, offset, 2 * j);
    }
  }

  HSTU_DEVICE static void zero(O& o) {
#pragma unroll
    for (int i = 0; i < v_tiles; ++i) o.tile[i] = static_cast<rdna::Floats8>(0.0f);
  }

  HSTU_DEVICE static void fetch(Stage& stage, char*, const Keys& keys, int first_key, int) {
    const int rows = max_of(min_of(keys.count - first_key, C::tile_n), 0);
    const int k_bytes = static_cast<int>(keys.k_stride) * 2;
    const int v_bytes = static_cast<int>(keys.v_stride) * 2;
    const rdna::Buffer k = rdna::buffer(keys.k + first_key * keys.k_stride, rows * k_bytes);
    const rdna::Buffer v = rdna::buffer(keys.v + first_key * keys.v_stride, rows * v_bytes);
#pragma unroll
    for (int i = 0; i < DivisionK::count; ++i) {
      const int row = DivisionK::row(i), chunk = DivisionK::chunk();
      const bool inside = DivisionK::exists(i) && chunk < C::head_dim_qk / 8;
      stage.k[i] = rdna::load(k, inside ? row * k_bytes + chunk * 16 : kNowhere);
    }
#pragma unroll
    for (int i = 0; i < DivisionV::count; ++i) {
      const int group = DivisionV::row(i), chunk = DivisionV::chunk();
      const bool inside = DivisionV::exists(i) && chunk < C::head_dim_v / 8;
      // Keys at 4 neighbouring places of V^T.
      const int first = rdna::kSplit ? 4 * group : group / 4 * 16 + group % 2 * 8 + group / 2 % 2;
      const unsigned offset = inside ? first * v_bytes + chunk * 16 : kNowhere;
#pragma unroll
      for (int j = 0; j < 4; ++j)
        stage.v[i][j] = rdna::load(v, offset + j * (rdna::kSplit ? 1 : 2) * v_bytes);
    }
  }

  HSTU_DEVICE static void land(Stage& stage, char* lds, int buffer) {
    const int base = buffer * buffer_bytes;
#pragma unroll
    for (int i = 0; i < DivisionK::count; ++i)
      if (DivisionK::exists(i))
        rdna::write_lds(lds, base + DivisionK::row(i) * k_pitch + DivisionK::chunk() * 16,
                        stage.k[i]);
#pragma unroll
    for (int i = 0; i < DivisionV::count; ++i) {
      if (!DivisionV::exists(i)) continue;
      const int group = DivisionV::row(i), chunk = DivisionV::chunk();
      const auto& from = stage.v[i];
      const int tile = chunk / 2;
      const int at = base + v_offset + tile * 16 * v_pitch + (group / 2 ^ (tile & swizzle)) * 16 +
                     group % 2 * 8;
#pragma unroll
      for (int d = 0; d < 8; d += 2) {
        const unsigned a = from[0][d / 2], b = from[1][d / 2];
        const unsigned c = from[2][d / 2], e = from[3][d / 2];
        const rdna::Words2 even = {rdna::low_halves(a, b), rdna::low_halves(c, e)};
        const rdna::Words2 odd = {rdna::high_halves(a, b), rdna::high_halves(c, e)};
        rdna::write_lds(lds, at + v_row(chunk % 2, d) * v_pitch, even);
        rdna::write_lds(lds, at + v_row(chunk % 2, d + 1) * v_pitch, odd);
      }
    }
  }

  HSTU_DEVICE static void barrier() { rdna::barrier(); }

  HSTU_DEVICE static void logits(float (&s)[elements], const Q& q, const char* lds, int buffer,
                                 int part) {
    const char* base = lds + buffer * buffer_bytes + part * part_keys * k_pitch;
    const int from = lane() % 16 * k_pitch;
    rdna::Floats8 c[key_tiles];
#pragma unroll
    for (int n = 0; n < key_tiles; ++n) c[n] = static_cast<rdna::Floats8>(0.0f);
#pragma unroll
    for (int j = 0; j < k_chunks / 2; ++j) {
      if (j % 2 == 0) rdna::keep_order();  // operands of 2 steps read ahead are enough
#pragma unroll
      for (int n = 0; n < key_tiles; ++n)
        rdna::multiply<C::dtype>(c[n], read_operand(base, from + n * 16 * k_pitch + 2 * j * 16, 16),
                                 q.at[j]);
    }
#pragma unroll
    for (int e = 0; e < elements; ++e) s[e] = c[e / 8][e % 8];
  }

  HSTU_DEVICE static void accumulate(O& o, const float (&p)[elements], const char* lds, int buffer,
                                     int part) {
    const char* base = lds + buffer * buffer_bytes + v_offset;
    const int from = lane() % 16 * v_pitch;
#pragma unroll
    for (int n = 0; n < key_tiles; ++n) {
      rdna::keep_order();
      rdna::Words4 own;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        own[i] = rdna::pack<C::dtype>(p[8 * n + 2 * i], p[8 * n + 2 * i + 1]);
      const rdna::Operand b = all_keys(own);
      const int chunk = (part * part_keys + 16 * n) / 8;
#pragma unroll
      for (int i = 0; i < v_tiles; ++i) {
        const int first = chunk ^ (i & swizzle), second = (chunk + 1) ^ (i & swizzle);
        rdna::multiply<C::dtype>(
            o.tile[i],
            read_operand(base, from + i * 16 * v_pitch + first * 16, (second - first) * 16), b);
      }
    }
  }

  HSTU_DEVICE static float row_max(float x) {
    const float y = rdna::other_half(x);
    return x > y ? x : y;
  }
  HSTU_DEVICE static float row_sum(float x) { return x + rdna::other_half(x); }

  HSTU_DEVICE static void scale(O& o, int, float factor) {
#pragma unroll
    for (int i = 0; i < v_tiles; ++i) o.tile[i] *= factor;
  }

  HSTU_DEVICE static void store(const O& o, const float (&factor)[row_slots], unsigned short* rows,
                                long long stride, int count) {
    if (row(0) >= count) return;
    unsigned short* to = rows + row(0) * stride + half() * 8;
#pragma unroll
    for (int i = 0; i < v_tiles; ++i) {
      rdna::Words4 x;
#pragma unroll
      for (int e = 0; e < 4; ++e)
        x[e] = rdna::pack<C::dtype>(o.tile[i][2 * e] * factor[0], o.tile[i][2 * e + 1] * factor[0]);
      if (16 * i + 16 <= C::head_dim_v || half() == 0) rdna::store(to + 16 * i, x);
    }
  }

  HSTU_DEVICE static bool first_of_row(int) { return half() == 0; }

  HSTU_DEVICE static float exp2(float x) { return rdna::exp2(x); }
  HSTU_DEVICE static float log2(float x) { return rdna::log2(x); }
  HSTU_DEVICE static float rcp(float x) { return rdna::rcp(x); }

 private:
  static constexpr unsigned kNowhere = 0x80000000u;  // past the end of any buffer
  // Chunks of V^T are exchanged by the row's tile, which spreads the transposing writes.
  static constexpr int swizzle = min_of(C::tile_n / 8, 4) - 1;

  // Where element 8 * upper + d of 16 neighbouring ones stands in V^T: at the row whose accumulator
  // is register d of the half `upper`.
  HSTU_DEVICE static int v_row(int upper, int d) {
    return rdna::kSplit ? 8 * upper + d : 2 * d + upper;
  }

  HSTU_DEVICE static rdna::Words8 joined(rdna::Words4 a, rdna::Words4 b) {
    return {a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]};
  }

  // Chunks c and c + 1 of a row of Q.
  template <class Operand = rdna::Operand>
  HSTU_DEVICE static Operand load_operand(const rdna::Buffer& from, unsigned row, int c) {
    const auto chunk = [&](int i) {
      return rdna::load(from, i < C::head_dim_qk / 8 ? row + i * 16 : kNowhere);
    };
    if constexpr (sizeof(Operand) == sizeof(rdna::Words4))
      return chunk(c + half());
    else
      return joined(chunk(c), chunk(c + 1));
  }

  // The chunk at `offset` and the one `step` bytes on; split operands hold the half's own.
  template <class Operand = rdna::Operand>
  HSTU_DEVICE static Operand read_operand(const char* base, int offset, int step) {
    if constexpr (sizeof(Operand) == sizeof(rdna::Words4))
      return rdna::read_lds(base, offset + half() * step);
    else
      return joined(rdna::read_lds(base, offset), rdna::read_lds(base, offset + step));
  }

  // From the lane's own 8 probabilities to the operand for all 16 keys.
  template <class Operand = rdna::Operand>
  HSTU_DEVICE static Operand all_keys(rdna::Words4 own) {
    if constexpr (sizeof(Operand) == sizeof(rdna::Words4)) {
      return own;
    } else {
      rdna::Words8 all;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const unsigned mine = own[i], other = rdna::other_half(mine);
        all[i] = half() == 0 ? mine : other;
        all[i + 4] = half() == 0 ? other : mine;
      }
      return all;
    }
  }
};

}  // namespace hstu
