// SPDX-License-Identifier: Apache-2.0
// The contract of the tile layer: what a machine family provides so that the attention algorithm in
// attention/forward_gpu.h is written once. tile/cdna.h, tile/rdna.h and tile/nvidia.h implement it
// as `template <class C> struct Tile`, C being the generated Config. Only this layer knows lanes,
// LDS layouts and instructions.
//
//   // Shape of the work
//   static constexpr int wave_width;      lanes of a wave
//   static constexpr int rows_per_wave;   query rows of one wave: C::tile_m / C::waves
//   static constexpr int parts;           a step of C::tile_n keys is computed in this many parts
//   static constexpr int part_keys;       C::tile_n / parts
//   static constexpr int elements;        logits of one part that one lane holds
//   static constexpr int row_slots;       different rows among them
//   static constexpr int lds_bytes;       LDS of a workgroup
//
//   // Where this lane stands
//   static long long block();             workgroup index
//   static int wave();                    wave of the workgroup; uniform over the wave
//   static int row(int slot);             row of a slot, relative to the wave's first row
//   static constexpr int slot(int e);     slot of logit e
//   static int key(int e);                key of logit e, relative to the part's first key
//
//   // Data
//   struct Q;       query fragment of the wave's rows, all of head_dim_qk (zero beyond it)
//   struct O;       fp32 output accumulator of the wave's rows, all of head_dim_v
//   struct Stage;   what one lane carries between fetch and land (registers, or nothing)
//   struct Keys { const unsigned short *k, *v; long long k_stride, v_stride; int count; };
//                   one head of one sequence: row j at k + j * k_stride; rows >= count do not exist
//   static void load_q(Q&, const unsigned short* rows, long long stride, int count);
//                   rows past `count` read as zero, never from memory
//   static void zero(O&);
//   static void fetch(Stage&, char* lds, const Keys&, int first_key, int buffer);
//                   starts loading keys [first_key, first_key + tile_n); missing rows become zero
//   static void land(Stage&, char* lds, int buffer);
//                   after land() and barrier() every wave may read `buffer` (0 or 1)
//   static void barrier();
//   static void logits(float (&s)[elements], const Q&, const char* lds, int buffer, int part);
//                   s = q . k, unscaled
//   static void accumulate(O&, const float (&p)[elements], const char* lds, int buffer, int part);
//                   o += round_to_io_dtype(p) . v, round to nearest even
//   static float row_max(float);          over all lanes that share the slot's row
//   static float row_sum(float);
//   static void scale(O&, int slot, float factor);
//   static void store(const O&, const float (&factor)[row_slots], unsigned short* rows,
//                     long long stride, int count);      rows past `count` are not written
//   static bool first_of_row(int slot);   true in exactly one lane per row (writes the row's LSE)
//   static float exp2(float), log2(float), rcp(float);   fast forms, 1 ulp or so
//
// Double buffering: the skeleton calls fetch(b), land(b), barrier, fetch(1 - b), compute on b, and
// so on, with one barrier per step; a buffer is refilled only after a barrier that follows its last
// reading.
#pragma once

#include "base/types.h"
