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

  // kLanes lanes (kLanes * per_lane elements) of a row; `count` of the elements exist.
  static HSTU_INLINE void load_lanes(const unsigned short* from, int count, VectorU (&out)[parts]) {
    alignas(64) unsigned short padded[kLanes * per_lane];
    if (count < kLanes * per_lane) {  // head dims are multiples of 8
      for (int i = 0; i < kLanes * per_lane; ++i) padded[i] = 0;
      for (int i = 0; i < count; ++i) padded[i] = from[i];
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
HSTU_INLINE void pack_left(const unsigned short* from, long long row_stride, int rows,
                           int padded_rows, unsigned* to, long part_stride) {
  using P = Packing<D>;
  for (int r = 0; r < padded_rows; ++r) {
    for (int d = 0; d < Depth; d += kLanes) {
      VectorU lanes[P::parts]{};
      const int count = Dim - d * P::per_lane;
      if (r < rows && count > 0)
        P::load_lanes(from + r * row_stride + d * P::per_lane, count, lanes);
      // Rows are Depth lanes apart; a vector past the end of a row is cut short.
      for (int p = 0; p < P::parts; ++p) {
        unsigned* at = to + p * part_stride + long{r} * Depth + d;
        if (Depth % kLanes == 0 || d + kLanes <= Depth) {
          store(at, lanes[p]);
        } else {
          for (int i = 0; i < Depth % kLanes; ++i) at[i] = lanes[p][i];
        }
      }
    }
  }
}

// Right operand with columns = rows of `from` (keys), summed over Dim: [panel][Depth][kLanes].
template <Dtype D, int Dim, int Depth>
HSTU_INLINE void pack_transposed(const unsigned short* from, long long row_stride, int rows,
                                 int padded_rows, unsigned* to, long part_stride) {
  using P = Packing<D>;
  for (int r = 0; r < padded_rows; r += kLanes) {
    for (int d = 0; d < Depth; d += kLanes) {
      const int count = Dim - d * P::per_lane;
      VectorU block[P::parts][kLanes];
      for (int i = 0; i < kLanes; ++i) {
        VectorU lanes[P::parts]{};
        if (r + i < rows && count > 0)
          P::load_lanes(from + (r + i) * row_stride + d * P::per_lane, count, lanes);
        for (int p = 0; p < P::parts; ++p) block[p][i] = lanes[p];
      }
      const int kept = min_of(kLanes, Depth - d);
      for (int p = 0; p < P::parts; ++p) {
        transpose(block[p]);
        unsigned* at = to + p * part_stride + (long{r} * Depth + long{d} * kLanes);
        for (int i = 0; i < kept; ++i) store(at + i * kLanes, block[p][i]);
      }
    }
  }
}

// Right operand summed over rows of `from` (keys), columns = its Dim elements:
// [panel][Depth][kLanes], of which padded_rows / per_lane lanes are written.
template <Dtype D, int Dim, int DimPadded, int Depth>
HSTU_INLINE void pack_rows(const unsigned short* from, long long row_stride, int rows,
                           int padded_rows, unsigned* to, long part_stride) {
  using P = Packing<D>;
  auto values = [&](int r, int column) {
    VectorH h{};
    if (r >= rows || column >= Dim) return h;
    const unsigned short* at = from + r * row_stride + column;
    if (Dim % kLanes == 0 || column + kLanes <= Dim) return load<VectorH>(at);
    for (int i = 0; i < Dim % kLanes; ++i) h[i] = at[i];
    return h;
  };
  for (int r = 0; r < padded_rows; r += P::per_lane) {
    for (int c = 0; c < DimPadded; c += kLanes) {
      unsigned* at = to + long{c} * Depth + long{r / P::per_lane} * kLanes;
      if constexpr (P::pairs) {
        VectorU lanes[P::parts];
        P::interleave(values(r, c), values(r + 1, c), lanes);
        for (int p = 0; p < P::parts; ++p) store(at + p * part_stride, lanes[p]);
      } else {
        store(at, (VectorU)to_float<D>(values(r, c)));
      }
    }
  }
}

}  // namespace hstu
