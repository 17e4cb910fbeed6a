// SPDX-License-Identifier: Apache-2.0
// Emulated form of templates/tile/amd_machine.h: see there for the meaning of each function.
#pragma once

#include <cmath>
#include <cstring>

#include "base/types.h"
#include "emulator.hpp"
#include "numbers.hpp"
#include "tile/amd_vectors.h"

namespace hstu::amd {

HSTU_DEVICE int thread() { return emulator::thread_index(); }
HSTU_DEVICE long long block() { return emulator::block_index(); }

HSTU_DEVICE int uniform(int x) {
  return emulator::exchange<int>("readfirstlane", x, [](const int* in, int* out, int lanes) {
    for (int l = 0; l < lanes; ++l) {
      if (in[l] != in[0]) emulator::fail("readfirstlane of a value that differs between lanes");
      out[l] = in[0];
    }
  });
}

HSTU_DEVICE void barrier() { emulator::barrier(); }
HSTU_DEVICE void lds_barrier() { emulator::barrier(); }

HSTU_DEVICE float exp2(float x) { return ::exp2f(x); }
HSTU_DEVICE float exp2_negated(float x) { return ::exp2f(-x); }
HSTU_DEVICE float log2(float x) { return ::log2f(x); }
HSTU_DEVICE float rcp(float x) { return 1.0f / x; }

HSTU_DEVICE float other_half(float x) {
  return emulator::exchange<float>("other_half", x, [](const float* in, float* out, int lanes) {
    for (int l = 0; l < lanes; ++l) out[l] = in[l ^ 32];
  });
}

HSTU_DEVICE bool any(bool yes) {
  return emulator::exchange<int>("any", yes ? 1 : 0, [](const int* in, int* out, int lanes) {
    int any = 0;
    for (int l = 0; l < lanes; ++l) any |= in[l];
    for (int l = 0; l < lanes; ++l) out[l] = any;
  });
}

HSTU_DEVICE unsigned low_halves(unsigned low, unsigned high) {
  return (low & 0xffffu) | high << 16;
}
HSTU_DEVICE unsigned high_halves(unsigned low, unsigned high) {
  return low >> 16 | (high & 0xffff0000u);
}

template <Dtype type>
HSTU_DEVICE unsigned pack(float low, float high) {
  constexpr bool bf16 = type == Dtype::bf16;
  return emulator::bits(bf16, low) | static_cast<unsigned>(emulator::bits(bf16, high)) << 16;
}

constexpr bool kDropsDenormals = true;
constexpr float kDownscale = 1.0f / 65537.0f;
HSTU_DEVICE unsigned pack_upscaled(Floats2 g) {
  const float low = g.x + __builtin_fmaf(g.x, kDownscale, -g.x);
  const float high = g.y + __builtin_fmaf(g.y, kDownscale, -g.y);
  unsigned a, b;
  std::memcpy(&a, &low, 4);
  std::memcpy(&b, &high, 4);
  // Subnormal numbers have no more places to lose.
  const auto rounded = [](float x, unsigned bits) {
    return (bits & 0xffffu) == 0 || (x < 1e-36f && x > -1e-36f);
  };
  if (!rounded(low, a) || !rounded(high, b))
    emulator::fail("pack_upscaled: %g, %g are not rounded", static_cast<double>(low),
                   static_cast<double>(high));
  return high_halves(a, b);
}
#ifdef HSTU_EMULATED_WIDE_PRODUCTS
constexpr bool kFastPack = true;
#else
constexpr bool kFastPack = false;
#endif

// Values of all 16-bit numbers.
template <Dtype type>
const float* values() {
  static const float* table = [] {
    auto* t = new float[65536];
    for (unsigned i = 0; i < 65536; ++i)
      t[i] = emulator::value(type == Dtype::bf16, static_cast<unsigned short>(i));
    return t;
  }();
  return table;
}

struct MultiplyOperands {
  Words4 a, b;
  Floats16 c;
};

// v_mfma_f32_32x32x8 `first` to `last`: lane l, h = l / 32, gives a[l % 32][4 h + i] and
// b[4 h + i][l % 32], i < 4, and holds c[8 (r / 4) + 4 h + r % 4][l % 32] in register r.
template <Dtype type, int first, int last>
void multiply_all(const MultiplyOperands* in, Floats16* out, int) {
  typedef float Row __attribute__((ext_vector_type(32)));
  Row b[16], c[32];
  float a[32][16];
  const float* value = values<type>();
  const auto element = [value](const Words4& words, int i) {
    const unsigned word = words[i / 2];
    return value[i % 2 ? word >> 16 : word & 0xffffu];
  };
  for (int l = 0; l < 64; ++l) {
    const int h = l / 32, n = l % 32;
    const int from = emulator::faults.wrong_lane_map ? l ^ 4 : l;
    for (int i = 0; i < 4; ++i)
      for (int part = first; part <= last; ++part) {
        a[n][8 * part + 4 * h + i] = element(in[from].a, 4 * part + i);
        b[8 * part + 4 * h + i][n] = element(in[l].b, 4 * part + i);
      }
    for (int r = 0; r < 16; ++r) c[8 * (r / 4) + 4 * h + r % 4][n] = in[l].c[r];
  }
  for (int m = 0; m < 32; ++m)
    for (int k = 8 * first; k < 8 * last + 8; ++k) c[m] += a[m][k] * b[k];
  for (int l = 0; l < 64; ++l)
    for (int r = 0; r < 16; ++r) out[l][r] = c[8 * (r / 4) + 4 * (l / 32) + r % 4][l % 32];
}

#ifdef HSTU_EMULATED_WIDE_PRODUCTS  // as on gfx950
constexpr int kProducts = 1;
#else
constexpr int kProducts = 2;
#endif

template <Dtype type>
HSTU_DEVICE void multiply(Floats16& c, Words4 a, Words4 b) {
  const MultiplyOperands mine{a, b, c};
  c = emulator::exchange<Floats16>("mfma", mine, multiply_all<type, 0, 1>);
}

template <Dtype type, int part>
HSTU_DEVICE void multiply_part(Floats16& c, Words4 a, Words4 b) {
  if constexpr (kProducts == 1) return multiply<type>(c, a, b);
  const MultiplyOperands mine{a, b, c};
  c = emulator::exchange<Floats16>("mfma", mine, multiply_all<type, part, part>);
}

HSTU_DEVICE void keep_in_accumulators(Floats16&) {}
HSTU_DEVICE void keep_in_place(Floats16&) {}
HSTU_DEVICE void keep_order() {}
HSTU_DEVICE void forget(unsigned&) {}
HSTU_DEVICE void forget(float&) {}
constexpr bool kSeparateAccumulators = false;

template <class A>
HSTU_DEVICE const A& argument_again(const A& a) {
  return a;
}

struct Buffer {
  const char* base;
  unsigned bytes;
};

HSTU_DEVICE Buffer buffer(const unsigned short* base, int bytes) {
  if (bytes < 0) emulator::fail("buffer of %d bytes", bytes);
  return {reinterpret_cast<const char*>(base), static_cast<unsigned>(bytes)};
}

HSTU_DEVICE Words4 load(const Buffer& from, unsigned offset) {
  Words4 x = {0, 0, 0, 0};
  if (offset >= from.bytes) return x;
  emulator::check_global(from.base + offset, 16, false);
  std::memcpy(&x, from.base + offset, 16);
  return x;
}

HSTU_DEVICE void await(Words4&) {}

HSTU_DEVICE void store(unsigned short* to, Words4 x) {
  emulator::check_global(to, 16, true);
  if (reinterpret_cast<unsigned long long>(to) % 16 != 0) emulator::fail("store is not aligned");
  std::memcpy(to, &x, 16);
}

HSTU_DEVICE Words4 read_lds(const char* lds, int offset) {
  Words4 x;
  emulator::check_lds(lds + offset, 16, false);
  std::memcpy(&x, lds + offset, 16);
  return x;
}
HSTU_DEVICE void write_lds(char* lds, int offset, Words4 x) {
  emulator::check_lds(lds + offset, 16, true);
  std::memcpy(lds + offset, &x, 16);
}
HSTU_DEVICE void write_lds(char* lds, int offset, Words2 x) {
  emulator::check_lds(lds + offset, 8, true);
  std::memcpy(lds + offset, &x, 8);
}

#ifdef HSTU_EMULATED_LDS_LINE_BITS
constexpr int kLdsLineBits = HSTU_EMULATED_LDS_LINE_BITS;
#else
constexpr int kLdsLineBits = 3;
#endif

}  // namespace hstu::amd
