// SPDX-License-Identifier: Apache-2.0
// Tile layer for NVIDIA's sm_90a: one warpgroup loads, the others compute 64 query rows each with
// wgmma. K and V stand in shared memory in panels of 64 columns, rows of 128 bytes, in the copy
// engine's 128-byte swizzle; head dims that are no multiple of 64 read zeros there.
#pragma once

#include "base/types.h"
#include "tile/hopper_machine.h"
#include "tile/hopper_shape.h"
#include "tile/hopper_wgmma.h"

namespace hstu {

// Sizes of the workgroup, its shared memory and its registers.
template <class C>
struct HopperShape {
  static constexpr int warpgroups = C::waves / 4 - 1;  // that compute
  static constexpr int threads = C::waves * 32;
  static constexpr int row_bytes = 128;                         // of a panel
  static constexpr int k_steps = ceil_div(C::head_dim_qk, 16);  // of Q K^T
  static constexpr int v_width = round_up(C::head_dim_v, 32);   // columns of O computed
  static constexpr int qk_panels = ceil_div(C::head_dim_qk, 64);
  static constexpr int v_panels = ceil_div(C::head_dim_v, 64);
  static constexpr int q_panel_bytes = C::tile_m * row_bytes;
  static constexpr int panel_bytes = C::tile_n * row_bytes;
  static constexpr int q_bytes = qk_panels * q_panel_bytes;
  static constexpr int k_bytes = qk_panels * panel_bytes;
  static constexpr int v_bytes = v_panels * panel_bytes;
  static constexpr bool apart = C::apart;
  static constexpr int stages = C::stages;                           // of all warpgroups
  static constexpr int ring = apart ? stages / warpgroups : stages;  // of one
  static constexpr int q_buffers = C::q_buffers;
  // Described tiles. Where these are of one step, whoever had more of them in advance would leave
  // others nothing at the end.
  static constexpr int tile_slots = apart ? 2 : kHopperTileSlots;

  // Steps that are still to be loaded of a tile when the next one is drawn: as long as it takes to
  // draw, describe and load its queries, about 6,000 clocks, of which the steps in memory are a
  // part. Found by trying: fewer leave warpgroups waiting, more leave the end uneven.
  static constexpr int steps_to_draw = stages + 2;

  // Keys of one product where a mask cuts through: half a step of 128.
  static constexpr int part_keys = C::tile_n % 64 == 0 ? 64 : C::tile_n;
  static_assert(C::tile_n <= 2 * part_keys);

  // Offsets in shared memory
  static constexpr int q = 0;
  static constexpr int k = q + q_buffers * q_bytes;
  static constexpr int v = k + stages * k_bytes;
  static constexpr int tiles = v + stages * v_bytes;
  static constexpr int tile_bytes = kHopperTileBytes;
  static constexpr int barriers = tiles + tile_slots * tile_bytes;
  static constexpr int q_full = barriers;
  static constexpr int q_empty = q_full + 8 * q_buffers * warpgroups;
  static constexpr int k_full = q_empty + 8 * q_buffers * warpgroups;
  static constexpr int k_empty = k_full + 8 * stages;
  static constexpr int v_full = k_empty + 8 * stages;
  static constexpr int v_empty = v_full + 8 * stages;
  static constexpr int tile_full = v_empty + 8 * stages;
  static constexpr int tile_empty = tile_full + 8 * tile_slots;
  static constexpr int tile_taken = tile_empty + 8 * tile_slots;
  static constexpr int q_asked = tile_taken + 8;
  static constexpr int sum_full = q_asked + 8;
  static constexpr int sum_empty = sum_full + 8 * warpgroups;
  static constexpr int end = sum_empty + 8 * warpgroups;
  static constexpr int spare = (kHopperTileSlots - tile_slots) * (tile_bytes + 2 * 8);
  static_assert(end + spare + 1024 == hopper_shared_bytes(C::tile_m, C::tile_n, C::head_dim_qk,
                                                          C::head_dim_v, C::stages, C::q_buffers));

  // Whether a finished tile's output goes through the memory of its queries, from where the copy
  // engine writes it: not where the next tile's queries wait for that memory.
  static constexpr bool staged = q_buffers > 1 &&
                                 hopper_output_fits_queries(C::head_dim_qk, C::head_dim_v);
  static constexpr bool early = !staged;

  // Whether warpgroups change places from tile to tile, so that none always has the rows that see
  // the most keys: of short steps, where the gain (1 to 4 %) is more than it costs. Apart, the
  // first of them would have no rows in a sequence's short tile.
  static constexpr bool turns = apart || (warpgroups == 3 && C::tile_n <= 64);

  static constexpr bool splits = hopper_shares_tiles(apart, C::activation == Activation::softmax,
                                                     C::head_dim_qk, C::head_dim_v, C::tile_m);

  // Registers a thread: the file's 65536 less what the loading warpgroup keeps.
  static constexpr int loader_registers = 56;
  static constexpr int registers = warpgroups == 3 ? 152 : warpgroups == 2 ? 224 : 240;

  // Whether logits, probabilities and output fit together, so that the products of one step may
  // still run when those of the next are queued: whose V then needs a place of its own.
  static constexpr bool late =
      ring > 1 && C::tile_n / 2 + C::tile_n / 4 + v_width / 2 <= registers - 32;

  static_assert(C::tile_m == 64 * warpgroups, "a warpgroup computes 64 rows");
  static_assert(C::tile_n % 16 == 0 && C::tile_n <= 256, "keys of a step");
  static_assert(ring >= 1 && (!apart || stages % warpgroups == 0));
  static_assert(warpgroups >= 1 && warpgroups <= 3);
};

// One warpgroup's products and its part of the registers.
template <class C>
struct HopperTileLayer {
  using S = HopperShape<C>;
  static constexpr int s_count = C::tile_n / 2;
  static constexpr int o_count = S::v_width / 2;

  HSTU_DEVICE static int lane() { return nvidia::thread() % 32; }
  // Rows of a thread within its warpgroup's 64: row(0) and row(1).
  HSTU_DEVICE static int row(int slot) {
    return nvidia::thread() % 128 / 32 * 16 + lane() / 4 + 8 * slot;
  }
  HSTU_DEVICE static constexpr int slot(int e) { return e / 2 % 2; }
  HSTU_DEVICE static int key(int e) { return e / 4 * 8 + lane() % 4 * 2 + e % 2; }

  // s = q . k for `keys` keys; q and k are descriptors of the first 16 head dims.
  template <int keys>
  HSTU_DEVICE static void logits(float* s, unsigned long long q, unsigned long long k) {
#pragma unroll
    for (int d = 0; d < S::k_steps; ++d) {
      const unsigned long long step = d % 4 * 2;
      hopper::Product<keys, C::dtype>::shared(s, q + step + d / 4 * (S::q_panel_bytes >> 4),
                                              k + step + d / 4 * (S::panel_bytes >> 4), d > 0);
    }
    hopper::product_commit();
  }

  // o = or += p . v for 16 keys; v describes their rows.
  HSTU_DEVICE static void accumulate(float* o, const unsigned* p, unsigned long long v, int add) {
    hopper::Product<S::v_width, C::dtype>::registers(o, p, v, add);
  }

  // Zeroes rows [first, end) of V: those past the sequence's end belong to its neighbour, whose P
  // is zero here, but 0 * infinity is not.
  HSTU_DEVICE static void clear_rows(char* v, int first, int end) {
    // Eight threads a row of a panel: 16 rows at a time.
    const int thread = nvidia::thread() % 128;
#pragma unroll 1
    for (int row = first + thread / 8; row < end; row += 16) {
#pragma unroll
      for (int panel = 0; panel < S::v_panels; ++panel)
        nvidia::store_shared(nvidia::shared_address(v) + panel * S::panel_bytes +
                                 row * S::row_bytes + thread % 8 * 16,
                             {0, 0, 0, 0});
    }
    hopper::proxy_fence();
    hopper::warpgroup_barrier(1 + nvidia::thread() / 128);
  }

  // Writes o * factor as 16-byte pieces: the four lanes of a row trade words until each holds eight
  // neighbouring columns; zeros where o was never begun. Rows past `rows` (of the warpgroup's 64)
  // are left alone.
  template <int width>
  HSTU_DEVICE static void store(const float* o, bool begun, const float (&factor)[2],
                                unsigned short* to, int columns, long long stride, int rows) {
    // Worked out anew: no row is worth registers over the main loop.
    const int thread = hopper::thread_again() % 128, q = thread % 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = thread / 32 * 16 + thread % 32 / 4 + 8 * i;
      unsigned short* at = to + row * stride + 8 * q;
      const bool exists = row < rows;
#pragma unroll
      for (int n = 0; n < width; n += 32) {
        unsigned w[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float* x = o + (n / 8 + j) * 4 + 2 * i;
          w[j] = begun ? nvidia::pack<C::dtype>(x[0] * factor[i], x[1] * factor[i]) : 0;
        }
        transpose(w, q);
        if (exists && n + 8 * q < columns) hopper::store_quad(at + n, {w[0], w[1], w[2], w[3]});
      }
    }
  }

  // A tensor, and the place in it of a warpgroup's 64 rows.
  struct Box {
    const TensorMap* map;
    int token, head, batch;
  };
  // The same by way of shared memory: `staging` is where this warp's 16 rows of a tile in panels
  // begin, a multiple of 1024, which nobody else reads or writes now; it is free again when lane 0
  // has `boxes_read`.
  HSTU_DEVICE static void store_staged(const float* o, bool begun, const float (&factor)[2],
                                       unsigned staging, const Box& box, unsigned short* to,
                                       long long stride, int rows) {
    // No address is worth a register over the main loop.
    const unsigned thread = static_cast<unsigned>(hopper::thread_again()), lane = thread % 32;
    // Where the first of the matrices' rows that this lane names goes. Neighbouring 16 bytes are
    // swizzled by the row: columns further right differ by an exclusive or.
    const unsigned first = staging + lane % 16 * S::row_bytes + (lane / 16 ^ lane % 8) * 16;
#pragma unroll
    for (int j = 0; j < S::v_width / 8; j += 2) {
      unsigned w[4];
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        const float* x = o + (j + m / 2) * 4 + m % 2 * 2;
        w[m] = begun ? nvidia::pack<C::dtype>(x[0] * factor[m % 2], x[1] * factor[m % 2]) : 0;
      }
      hopper::store_matrices((first ^ j % 8 * 16) + j / 8 * S::q_panel_bytes, w);
    }
    hopper::proxy_fence();
    hopper::warp_barrier();
    const int warp_row = nvidia::uniform(static_cast<int>(thread % 128 / 32 * 16));
    rows -= warp_row;
    if (rows >= kHopperWrittenRows) {
      const int from = nvidia::uniform(static_cast<int>(staging));
      if (lane == 0) {
#pragma unroll
        for (int panel = 0; panel < S::v_panels; ++panel)
          hopper::write_box(box.map, panel * 64, box.token + warp_row, box.head, box.batch,
                            static_cast<unsigned>(from) + panel * S::q_panel_bytes);
        hopper::boxes_commit();
      }
      return;
    }
    // The rows behind the last one are another sequence's: no box.
    constexpr unsigned chunks = C::head_dim_v / 8;  // of 16 bytes in a row
    to += warp_row * stride;
#pragma unroll 1
    for (unsigned i = lane; static_cast<int>(i) < rows * static_cast<int>(chunks); i += 32) {
      const unsigned row = i / chunks, chunk = i % chunks;
      const unsigned at =
          staging + chunk / 8 * S::q_panel_bytes + row * S::row_bytes + (chunk % 8 ^ row % 8) * 16;
      hopper::store_quad_in_loop(to + row * stride + chunk * 8, nvidia::load_shared(at));
    }
  }

 private:
  // Word j of lane q of four lanes becomes word q of lane j.
  HSTU_DEVICE static void transpose(unsigned (&w)[4], int q) {
    const bool odd = q & 1, high = q & 2;
#pragma unroll
    for (int j = 0; j < 4; j += 2) {
      const unsigned got = hopper::shuffle_xor(odd ? w[j] : w[j + 1], 1);
      w[j] = odd ? got : w[j];
      w[j + 1] = odd ? w[j + 1] : got;
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const unsigned got = hopper::shuffle_xor(high ? w[j] : w[j + 2], 2);
      w[j] = high ? got : w[j];
      w[j + 2] = high ? w[j + 2] : got;
    }
  }
};

}  // namespace hstu
