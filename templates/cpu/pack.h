// SPDX-License-Identifier: Apache-2.0
// The form operands take in scratch. Everything is 32-bit lanes: one fp32 value, or two
// neighbouring bf16 values (along the summed dimension) where the level multiplies such pairs. A
// left operand is row-major lanes; a right operand is panels of kLanes columns, each
// [depth][kLanes] lanes, which is also the form an AMX tile wants.
//
// fp16 on AMX: a value of 11 significant bits is the exact sum of two bf16 parts; a product is then
// three products of parts (the fourth is below 2^-16 of the whole).
#pragma once

#include "cpu/convert.h"

namespace hstu {

#if defined(__AMX_BF16__) && defined(__AMX_TILE__)
constexpr bool kAmx = true;
#else
constexpr bool kAmx = false;
#endif
#if defined(__AVX512BF16__)
constexpr bool kBf16Pairs = true;
#else
constexpr bool kBf16Pairs = false;
#endif

template <Dtype D>
struct Packing {
  static constexpr bool pairs = kAmx || (kBf16Pairs && D == Dtype::bf16);
  static constexpr int per_lane = pairs ? 2 : 1;
  static constexpr int parts = kAmx && D == Dtype::fp16 ? 2 : 1;
  static constexpr int depth_step = kAmx ? 32 : per_lane;  // summed dimensions are padded to this

  static constexpr int vector_elements = kLanes * per_lane;

  // kLanes lanes of a row, of which the first Count elements exist (all when Count is larger).
  template <int Count>
  static HSTU_INLINE void load_lanes(const unsigned short* from, VectorU (&out)[parts]) {
    alignas(64) unsigned short padded[vector_elements];
    if constexpr (Count < vector_elements) {
      for (int i = 0; i < vector_elements; ++i) padded[i] = i < Count ? from[i] : 0;
      from = padded;
    }
    if constexpr (!pairs) {
      out[0] = (VectorU)to_float<D>(load<VectorH>(from));
    } else if constexpr (parts == 1) {
      out[0] = load<VectorU>(from);
    } else {
      split(to_float<D>(load<VectorH>(from)), to_float<D>(load<VectorH>(from + kLanes)), out);
    }
  }

  // 2 * kLanes (pairs) or kLanes values as lanes of a left operand, high parts first.
  static HSTU_INLINE void split(VectorF low, VectorF high, VectorU (&out)[parts]) {
#if defined(__AVX512BF16__)
    out[0] = bf16_pair(low, high);
    if constexpr (parts == 2) {
      const VectorH low_bf16 = from_float<Dtype::bf16>(low);
      const VectorH high_bf16 = from_float<Dtype::bf16>(high);
      out[1] =
          bf16_pair(low - to_float<Dtype::bf16>(low_bf16), high - to_float<Dtype::bf16>(high_bf16));
    }
#else
    (void)low, (void)high, (void)out;
#endif
  }

  // Lanes holding element j of `first` and of `second` (two rows along the summed dimension).
  static HSTU_INLINE void interleave(VectorH first, VectorH second, VectorU (&out)[parts]) {
    if constexpr (parts == 1) {
      out[0] = widen(first) | widen(second) << 16;
    } else {
      const VectorF a = to_float<D>(first), b = to_float<D>(second);
      const VectorH high_a = from_float<Dtype::bf16>(a), high_b = from_float<Dtype::bf16>(b);
      out[0] = widen(high_a) | widen(high_b) << 16;
      const VectorH low_a = from_float<Dtype::bf16>(a - to_float<Dtype::bf16>(high_a));
      const VectorH low_b = from_float<Dtype::bf16>(b - to_float<Dtype::bf16>(high_b));
      out[1] = widen(low_a) | widen(low_b) << 16;
    }
  }
};

// Left operand: `rows` rows of Dim elements to [padded_rows][Depth] lanes, the rest zero. Parts lie
// part_stride lanes apart.
template <Dtype D, int Dim, int Depth>
inline void pack_left(const unsigned short* from, long long row_stride, int rows, int padded_rows,
                      unsigned* to, long part_stride) {
  using P = Packing<D>;
  constexpr int whole = Dim / P::vector_elements * kLanes;  // lanes of whole vectors
  VectorU lanes[P::parts];
  for (int r = 0; r < padded_rows; ++r) {
    for (int p = 0; p < P::parts; ++p)
      for (int d = 0; d < Depth; ++d)
        if (r >= rows || d >= whole) to[p * part_stride + long{r} * Depth + d] = 0;
    if (r >= rows) continue;
    const unsigned short* row = from + r * row_stride;
    for (int d = 0; d < whole; d += kLanes) {
      P::template load_lanes<P::vector_elements>(row + d * P::per_lane, lanes);
      for (int p = 0; p < P::parts; ++p)
        store(to + p * part_stride + long{r} * Depth + d, lanes[p]);
    }
    if constexpr (whole * P::per_lane < Dim) {
      P::template load_lanes<Dim - whole * P::per_lane>(row + whole * P::per_lane, lanes);
      for (int p = 0; p < P::parts; ++p)
        for (int i = 0; i < min_of(kLanes, Depth - whole); ++i)
          to[p * part_stride + long{r} * Depth + whole + i] = lanes[p][i];
    }
  }
}

// kLanes rows x kLanes lanes of a right operand; Count elements of a row exist, Kept lanes are
// written.
template <Dtype D, int Count, int Kept>
HSTU_INLINE void pack_block(const unsigned short* from, long long row_stride, int rows,
                            unsigned* to, long part_stride) {
  using P = Packing<D>;
  VectorU block[P::parts][kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    VectorU lanes[P::parts]{};
    if (i < rows) P::template load_lanes<Count>(from + i * row_stride, lanes);
#pragma GCC unroll 2
    for (int p = 0; p < P::parts; ++p) block[p][i] = lanes[p];
  }
#pragma GCC unroll 2
  for (int p = 0; p < P::parts; ++p) {
    transpose(block[p]);
#pragma GCC unroll 16
    for (int i = 0; i < Kept; ++i) store(to + p * part_stride + i * kLanes, block[p][i]);
  }
}

// Right operand with columns = rows of `from` (keys), summed over Dim: [panel][Depth][kLanes],
// panels Panel lanes apart.
template <Dtype D, int Dim, int Depth, int Panel>
inline void pack_transposed(const unsigned short* from, long long row_stride, int rows,
                            int padded_rows, unsigned* to, long part_stride) {
  using P = Packing<D>;
  constexpr int whole = Dim / P::vector_elements * kLanes;
  constexpr int tail = Dim - whole * P::per_lane;
  for (int r = 0; r < padded_rows; r += kLanes) {
    const unsigned short* row = from + r * row_stride;
    unsigned* panel = to + long{r / kLanes} * Panel;
    const int left = rows - r;
    for (int d = 0; d < whole; d += kLanes) {
      // The constant lets the compiler drop the tests of the usual case.
      if (left >= kLanes)
        pack_block<D, P::vector_elements, kLanes>(row + d * P::per_lane, row_stride, kLanes,
                                                  panel + d * kLanes, part_stride);
      else
        pack_block<D, P::vector_elements, kLanes>(row + d * P::per_lane, row_stride, left,
                                                  panel + d * kLanes, part_stride);
    }
    if constexpr (tail > 0)
      pack_block<D, tail, min_of(kLanes, Depth - whole)>(row + whole * P::per_lane, row_stride,
                                                         left, panel + whole * kLanes, part_stride);
  }
}

// kLanes columns of two rows (one row without pairs).
template <Dtype D, int Count>
HSTU_INLINE void pack_columns(const unsigned short* row, long long row_stride, int rows,
                              unsigned* to, long part_stride) {
  using P = Packing<D>;
  VectorH values[2]{};
  for (int i = 0; i < P::per_lane; ++i) {
    if (i >= rows) continue;
    if constexpr (Count >= kLanes) {
      values[i] = load<VectorH>(row + i * row_stride);
    } else {
      alignas(32) unsigned short padded[kLanes] = {};
      for (int c = 0; c < Count; ++c) padded[c] = row[i * row_stride + c];
      values[i] = load<VectorH>(padded);
    }
  }
  if constexpr (P::pairs) {
    VectorU lanes[P::parts];
    P::interleave(values[0], values[1], lanes);
    for (int p = 0; p < P::parts; ++p) store(to + p * part_stride, lanes[p]);
  } else {
    store(to, (VectorU)to_float<D>(values[0]));
  }
}

// Right operand summed over rows of `from` (keys), columns = its Dim elements:
// [panel][depth][kLanes], of which padded_rows / per_lane lanes of depth are written.
template <Dtype D, int Dim, int DimPadded, int Panel>
inline void pack_rows(const unsigned short* from, long long row_stride, int rows, int padded_rows,
                      unsigned* to, long part_stride) {
  using P = Packing<D>;
  constexpr int whole = Dim / kLanes * kLanes;
  for (int r = 0; r < padded_rows; r += P::per_lane) {
    const unsigned short* row = from + r * row_stride;
    unsigned* at = to + long{r / P::per_lane} * kLanes;
    const int left = rows - r;
    for (int c = 0; c < whole; c += kLanes) {
      if (left >= P::per_lane)
        pack_columns<D, kLanes>(row + c, row_stride, P::per_lane, at + long{c / kLanes} * Panel,
                                part_stride);
      else
        pack_columns<D, kLanes>(row + c, row_stride, left, at + long{c / kLanes} * Panel,
                                part_stride);
    }
    if constexpr (whole < Dim)
      pack_columns<D, Dim - whole>(row + whole, row_stride, left, at + long{whole / kLanes} * Panel,
                                   part_stride);
    for (int c = round_up(Dim, kLanes); c < DimPadded; c += kLanes)
      for (int p = 0; p < P::parts; ++p)
        store(at + p * part_stride + long{c / kLanes} * Panel, VectorU{});
  }
}

}  // namespace hstu
