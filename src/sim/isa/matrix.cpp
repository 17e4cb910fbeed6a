// SPDX-License-Identifier: Apache-2.0
#include "sim/isa/matrix.hpp"

#include <cmath>

#include "sim/clones.hpp"
#include "sim/isa/tables.hpp"
#include "sim/isa/vector_tables.hpp"

namespace hstu::jit::sim {

int element_bits(Element element) {
  switch (element) {
    case Element::f64:
      return 64;
    case Element::f32:
    case Element::xf32:
      return 32;
    case Element::f16:
    case Element::bf16:
      return 16;
    case Element::fp8:
    case Element::bf8:
    case Element::i8:
      return 8;
    case Element::fp6:
    case Element::bf6:
      return 6;
    case Element::fp4:
    case Element::i4:
      return 4;
  }
  return 0;
}

AccumulatorPlace accumulator_place(const MatrixShape& s, int block, int row, int column) {
  const int packet = s.a == Element::f64 ? 1 : 4;
  if (s.m == 4) {
    // Blocks lie side by side in the lanes; what lanes are left take the rows.
    const int groups = 64 / (s.n * s.blocks);
    return {row / groups, column + s.n * (block + s.blocks * (row % groups))};
  }
  const int groups = 64 / s.n;
  const int within = row % (packet * groups);
  return {block * (s.m / groups) + packet * (row / (packet * groups)) + within % packet,
          column + s.n * (within / packet)};
}

namespace {

// N is a constant so that a row of sums stays in registers while k runs.
template <int N, bool fused>
HSTU_SIM_CLONES void multiply(int rows, int k, u32* const* sum, const float* a, const float* b) {
  for (int i = 0; i < rows; ++i) {
    float acc[N];
    for (int j = 0; j < N; ++j) acc[j] = to_float(sum[i][j]);
    for (int t = 0; t < k; ++t) {
      const float x = a[t * rows + i];
      const float* y = b + t * N;
      for (int j = 0; j < N; ++j) acc[j] = fused ? std::fma(x, y[j], acc[j]) : x * y[j] + acc[j];
    }
    for (int j = 0; j < N; ++j) sum[i][j] = to_bits(acc[j]);
  }
}

template <int N>
void multiply_columns(const RowProduct& p, bool fused) {
  if (fused) {
    multiply<N, true>(p.rows, p.k, p.sum, p.a, p.b);
  } else {
    multiply<N, false>(p.rows, p.k, p.sum, p.a, p.b);
  }
}

HSTU_SIM_CLONES void widen_f16(const Row& from, u32 shift, float* out) {
  for (int l = 0; l < kMaxLanes; ++l) out[l] = f16_to_f32(from.lane[l] >> shift & 0xffff);
}
HSTU_SIM_CLONES void widen_bf16(const Row& from, u32 shift, float* out) {
  for (int l = 0; l < kMaxLanes; ++l) out[l] = to_float(from.lane[l] >> shift << 16);
}
// Ten bits of mantissa, rounded to nearest even.
HSTU_SIM_CLONES void round_xf32(const Row& from, float* out) {
  for (int l = 0; l < kMaxLanes; ++l) {
    const u32 x = from.lane[l], rounded = (x + 0xfffu + (x >> 13 & 1)) & ~0x1fffu;
    out[l] = to_float((x & 0x7f800000u) == 0x7f800000u ? x : rounded);
  }
}

const SmallFormat& format_of(Element element, bool fnuz) {
  switch (element) {
    case Element::bf8:
      return fnuz ? kBf8Fnuz : kBf8;
    case Element::fp6:
      return kFp6;
    case Element::bf6:
      return kBf6;
    case Element::fp4:
      return kFp4;
    default:
      return fnuz ? kFp8Fnuz : kFp8;
  }
}

}  // namespace

void multiply_rows(const RowProduct& product, bool fused) {
  switch (product.columns) {
    case 4:
      return multiply_columns<4>(product, fused);
    case 16:
      return multiply_columns<16>(product, fused);
    case 32:
      return multiply_columns<32>(product, fused);
  }
}

void widen_lanes(Element element, const Row* const* registers, int at, bool fnuz, float* out) {
  const int bits = element_bits(element), first = at * bits;
  const Row& row = *registers[first / 32];
  const auto shift = static_cast<u32>(first % 32);
  switch (element) {
    case Element::f32:
      for (int l = 0; l < kMaxLanes; ++l) out[l] = to_float(row.lane[l]);
      return;
    case Element::xf32:
      return round_xf32(row, out);
    case Element::f16:
      return widen_f16(row, shift, out);
    case Element::bf16:
      return widen_bf16(row, shift, out);
    default:
      break;
  }
  // Six bits may lie across two registers.
  const Row& next = *registers[(first + bits - 1) / 32];
  const SmallFormat& format = format_of(element, fnuz);
  float values[256];
  for (int code = 0; code < 1 << bits; ++code) {
    values[code] = small_to_f32(format, static_cast<u32>(code));
  }
  for (int l = 0; l < kMaxLanes; ++l) {
    const u64 pair = row.lane[l] | u64{next.lane[l]} << 32;
    out[l] = values[pair >> shift & ((1u << bits) - 1)];
  }
}

uint32_t matrix_passes(const Opcode& opcode, uint32_t gfx) {
  const bool wmma = std::string_view(opcode.mnemonic).substr(0, 6) == "v_wmma";
  return wmma ? wmma_passes(opcode.argument, gfx) : mfma_passes(opcode.argument, gfx);
}

std::span<const Opcode> matrix_opcodes() {
  static const std::vector<Opcode> kAll = joined({mfma_opcodes(), wmma_opcodes()});
  return kAll;
}

}  // namespace hstu::jit::sim
