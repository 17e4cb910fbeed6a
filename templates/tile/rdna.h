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
// Matrix instructions take their operands from LDS kReadAhead instructions ahead of use; the order
// in the source is kept. With 4 to 8 waves a SIMD one instruction ahead spans 128 clocks or more.
// Where Q and the output do not fit the registers, the last operands of Q wait in LDS.
//
// Clocks of a SIMD per wave and 32 keys without mask code, bf16 SiLU at head dim 128, counted from
// the compiled loop at 32 (gfx1100) and 16 (gfx1201) clocks a WMMA: matrix 1024 and 512, vector 205
// and 130, transcendental 128 and 128, LDS 544 and 288. The matrix unit limits; it is busy 83 and
// 80 % of the time even if no vector instruction runs beside it.
//
// Needs: k_stride and v_stride from head_dim to 2^23 elements, all strides and base addresses
// multiples of 16 bytes.
#pragma once

#include "base/types.h"
#include "tile/rdna_layout.h"
#include "tile/rdna_machine.h"
#include "tile/tile.h"

namespace hstu {

template <class C>
struct Tile {
  static constexpr int wave_width = 32;
  static constexpr int rows_per_wave = 16;
  static constexpr int row_slots = 1;

  static constexpr int threads = C::waves * wave_width;
  static constexpr int k_chunks = round_up(C::head_dim_qk, 16) / 8;  // of 16 bytes, of a row of K
  static constexpr int v_tiles = ceil_div(C::head_dim_v, 16);
  static constexpr int q_operands = k_chunks / 2;

  // Registers that Q and the output would take, those they may take at this occupancy (the others
  // hold logits, operands on their way, the next keys, addresses), and how many operands of Q wait
  // in LDS for that reason: at most every other one.
  static constexpr int operand_registers = sizeof(rdna::Operand) / 4;
  static constexpr int resident = q_operands * operand_registers + v_tiles * 8;
  static constexpr int room = C::waves_per_simd <= 6           ? 176
                              : rdna::kSplit || C::tile_n > 16 ? 136
                                                               : 112;
  static constexpr int parked =
      resident <= room ? 0 : min_of(q_operands / 2, ceil_div(resident - room, operand_registers));
  static constexpr int kept = q_operands - parked;
  // Where few registers are left, addresses are worked out where they are used.
  static constexpr bool tight = resident - parked * operand_registers > 184;
  // Operands on their way from LDS. With 8 waves a SIMD one spans 8 matrix instructions.
  static constexpr int kReadAhead =
      tight || (C::waves_per_simd > 6 && resident - parked * operand_registers > 104) ? 1 : 2;
  HSTU_DEVICE static constexpr bool is_parked(int j) { return j % 2 == 1 && j / 2 < parked; }
  // Its place among the kept ones.
  HSTU_DEVICE static constexpr int kept_place(int j) { return j - min_of(j / 2, parked); }

  static constexpr int part_keys = min_of(C::tile_n, resident > 112 ? 16 : 32);
  static constexpr int parts = C::tile_n / part_keys;
  static constexpr int key_tiles = part_keys / 16;
  static constexpr int elements = 8 * key_tiles;

  // LDS: K and V^T twice, then the parked operands of Q: 512 bytes each and wave.
  using K = rdna::KLayout<k_chunks, C::tile_n>;
  using V = rdna::VLayout<v_tiles, C::tile_n, rdna::kSplit>;
  static constexpr int buffer_bytes = K::bytes + V::bytes;
  static constexpr int q_offset = 2 * buffer_bytes;
  static constexpr int lds_bytes = q_offset + C::waves * parked * 512;
  static constexpr bool dynamic_lds = false;

  static_assert(C::tile_m == C::waves * rows_per_wave);
  static_assert(C::head_dim_qk % 8 == 0 && C::head_dim_v % 8 == 0);

  struct Q {
    rdna::Operand at[max_of(kept, 1)];
  };
  struct O {
    rdna::Floats8 tile[v_tiles];  // [r]: element 16 i + 8 h + r of row lane % 16
  };
  struct Keys {
    const unsigned short *k, *v;
    long long k_stride, v_stride;
    int count;
  };

  // A lane loads units of 4 chunks: of K, one chunk of 4 rows; of V, one chunk of 4 keys that stand
  // side by side in V^T. A wave loads K or V, not both.
  static constexpr int groups = C::tile_n / 4;
  static constexpr int k_units = round_up(k_chunks * groups, wave_width);
  static constexpr int v_units = 2 * v_tiles * groups;
  static constexpr int units = ceil_div(k_units + v_units, threads);  // of a lane
  struct Stage {
    rdna::Words4 at[units][4];
    // The unit's first key (or nowhere) and column in memory, and its place in LDS.
    int first[units], column[units], place[units];
    bool of_k[units], exists[units];

    HSTU_DEVICE Stage() {
#pragma unroll
      for (int i = 0; i < units; ++i) {
        const int wave_first = wave() * wave_width + i * threads;
        of_k[i] = wave_first < k_units;
        int index = wave_first + lane(), group, chunk;
        bool inside;
        if (of_k[i]) {  // neighbouring lanes read along a row
          group = index / k_chunks;
          chunk = index % k_chunks;
          exists[i] = index < k_chunks * groups;
          inside = chunk < C::head_dim_qk / 8;
          first[i] = group;
          place[i] = (K::base(group) ^ K::twist(chunk)) + K::shift(chunk);
        } else {  // ... or down the keys, so that the transposed writes have no conflicts
          index -= k_units;
          group = index % groups;
          chunk = index / groups;
          exists[i] = index < v_units;
          inside = chunk < C::head_dim_v / 8;
          first[i] = rdna::kSplit ? 4 * group : group / 4 * 16 + group % 2 * 8 + group / 2 % 2;
          place[i] = K::bytes + V::base(chunk / 2, chunk % 2, group / 2) + group % 2 * 8;
        }
        column[i] = chunk * 16;
        if (!inside || !exists[i]) first[i] = -1;
      }
    }
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
    char* lds = rdna::workgroup_lds<lds_bytes>();
#pragma unroll
    for (int j = 0; j < q_operands; ++j)
      if (!is_parked(j)) q.at[kept_place(j)] = load_operand(from, offset, 2 * j);
#pragma unroll
    for (int p = 0; p < parked; ++p) {  // the half-waves write one chunk each
      const int chunk = 2 * (2 * p + 1) + half();
      rdna::write_lds(
          lds, parking(p, lane()) + half() * 256,
          rdna::load(from, chunk < C::head_dim_qk / 8 ? offset + chunk * 16 : kNowhere));
    }
  }

  HSTU_DEVICE static void zero(O& o) {
#pragma unroll
    for (int i = 0; i < v_tiles; ++i) o.tile[i] = static_cast<rdna::Floats8>(0.0f);
  }

  HSTU_DEVICE static void fetch(Stage& stage, char*, const Keys& keys, int first_key, int) {
    const int rows = max_of(min_of(keys.count - first_key, C::tile_n), 0);
#pragma unroll
    for (int i = 0; i < units; ++i) {
      const bool of_k = stage.of_k[i];
      const long long stride = of_k ? keys.k_stride : keys.v_stride;
      const int bytes = static_cast<int>(stride) * 2;
      const rdna::Buffer from =
          rdna::buffer((of_k ? keys.k : keys.v) + first_key * stride, rows * bytes);
      const int step = (of_k ? groups : rdna::kSplit ? 1 : 2) * bytes;
      unsigned offset = stage.first[i] < 0 ? kNowhere : stage.first[i] * bytes + stage.column[i];
      rdna::forget(offset);  // 3 additions a step rather than 3 registers
#pragma unroll
      for (int j = 0; j < 4; ++j) stage.at[i][j] = rdna::load(from, offset + j * step);
    }
  }

  HSTU_DEVICE static void land(Stage& stage, char* lds, int buffer) {
#pragma unroll
    for (int i = 0; i < units; ++i) {
      const auto& from = stage.at[i];
      int at = buffer * buffer_bytes + stage.place[i];
      rdna::forget(at);
      if (!stage.exists[i]) continue;
      if (stage.of_k[i]) {
#pragma unroll
        for (int j = 0; j < 4; ++j)
          rdna::write_lds(lds, (at ^ K::row_twist(j * groups)) + K::row_shift(j * groups), from[j]);
      } else {
#pragma unroll
        for (int d = 0; d < 8; d += 2) {
          const unsigned a = from[0][d / 2], b = from[1][d / 2];
          const unsigned c = from[2][d / 2], e = from[3][d / 2];
          const rdna::Words2 even = {rdna::low_halves(a, b), rdna::low_halves(c, e)};
          const rdna::Words2 odd = {rdna::high_halves(a, b), rdna::high_halves(c, e)};
          rdna::write_lds(lds, (at ^ V::twist(d)) + d * V::d_shift, even);
          rdna::write_lds(lds, (at ^ V::twist(d + 1)) + (d + 1) * V::d_shift, odd);
        }
      }
    }
  }

  HSTU_DEVICE static void barrier() { rdna::barrier(); }

  HSTU_DEVICE static void logits(float (&s)[elements], const Q& q, const char* lds, int buffer,
                                 int part) {
    constexpr int count = q_operands * key_tiles, ahead = min_of(kReadAhead, count);
    const int l = address_lane();
    int base = K::base(l % 16) + buffer * buffer_bytes;
    if (rdna::kSplit) base ^= l / 16 * 16;
    rdna::forget(base);
    const int parked_base = parking(0, l) + (rdna::kSplit ? l / 16 * 256 : 0);
    const auto read_k = [&](int i) {  // product i: columns i / key_tiles of keys i % key_tiles
      const int j = i / key_tiles, n = part * key_tiles + i % key_tiles;
      const int shift = K::shift(2 * j) + K::row_shift(16 * n);
      return read_operand(lds, (base ^ K::twist(2 * j)) + shift,
                          (base ^ K::twist(2 * j + 1)) + shift);
    };
    const auto read_q = [&](int p) {
      return read_operand(lds, parked_base + p * 512, parked_base + p * 512 + 256);
    };
    rdna::Floats8 c[key_tiles];
#pragma unroll
    for (int n = 0; n < key_tiles; ++n) c[n] = static_cast<rdna::Floats8>(0.0f);
    rdna::Operand k[ahead], parked_q;
    if (parked > 0) parked_q = read_q(0);
#pragma unroll
    for (int i = 0; i < ahead; ++i) k[i] = read_k(i);
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const int j = i / key_tiles, n = i % key_tiles;
      rdna::keep_order();
      rdna::multiply<C::dtype>(c[n], k[i % ahead], is_parked(j) ? parked_q : q.at[kept_place(j)]);
      rdna::keep_order();
      if (is_parked(j) && n == key_tiles - 1 && j / 2 + 1 < parked) parked_q = read_q(j / 2 + 1);
      if (i + ahead < count) k[i % ahead] = read_k(i + ahead);
    }
#pragma unroll
    for (int e = 0; e < elements; ++e) s[e] = c[e / 8][e % 8];
  }

  HSTU_DEVICE static void accumulate(O& o, const float (&p)[elements], const char* lds, int buffer,
                                     int part) {
    constexpr int count = v_tiles * key_tiles, ahead = min_of(kReadAhead, count);
    const int l = address_lane(), m = l % 16;
    const int upper = rdna::kSplit ? m / 8 : m % 2, d = rdna::kSplit ? m % 8 : m / 2;
    int base = (V::base(0, upper, 0) ^ V::twist(d)) + d * V::d_shift + buffer * buffer_bytes;
    if (rdna::kSplit) base ^= V::chunk_twist(l / 16);
    rdna::forget(base);
    const auto read_v = [&](int i) {  // product i: tile i % v_tiles of keys i / v_tiles
      const int n = part * key_tiles + i / v_tiles, t = i % v_tiles;
      const int twist = V::chunk_twist(2 * n) ^ V::tile_twist(t);
      const int shift = K::bytes + V::tile_shift(t);
      return read_operand(lds, (base ^ twist) + shift, (base ^ twist ^ V::chunk_twist(1)) + shift);
    };
    rdna::Operand v[ahead], b;
#pragma unroll
    for (int i = 0; i < ahead; ++i) v[i] = read_v(i);
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const int n = i / v_tiles;
      rdna::keep_order();
      if (i % v_tiles == 0) {
        rdna::Words4 own;
#pragma unroll
        for (int w = 0; w < 4; ++w)
          own[w] = rdna::pack<C::dtype>(p[8 * n + 2 * w], p[8 * n + 2 * w + 1]);
        b = all_keys(own);
      }
      rdna::multiply<C::dtype>(o.tile[i % v_tiles], v[i % ahead], b);
      rdna::keep_order();
      if (i + ahead < count) v[i % ahead] = read_v(i + ahead);
    }
  }

  HSTU_DEVICE static float row_max(float x) { return larger(x, rdna::other_half(x)); }
  HSTU_DEVICE static float row_sum(float x) { return x + rdna::other_half(x); }

  // Softmax: the largest logit of a row seldom grows after its first keys.
  HSTU_DEVICE static void scale(O& o, int, float factor) {
    if (!rdna::any(factor != 1.0f)) return;
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

  // Where this lane's row of a parked operand begins: its 16 rows of chunk 0, then those of
  // chunk 1.
  HSTU_DEVICE static int parking(int p, int l) {
    return q_offset + (wave() * parked + p) * 512 + l % 16 * 16;
  }
  HSTU_DEVICE static int address_lane() {
    int l = lane();
    if (tight) rdna::forget(l);
    return l;
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

  // The operand of two chunks; a split one is the half's own chunk, at `first`.
  template <class Operand = rdna::Operand>
  HSTU_DEVICE static Operand read_operand(const char* lds, int first, int second) {
    if constexpr (sizeof(Operand) == sizeof(rdna::Words4))
      return rdna::read_lds(lds, first);
    else
      return joined(rdna::read_lds(lds, first), rdna::read_lds(lds, second));
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
