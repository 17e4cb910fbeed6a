// SPDX-License-Identifier: Apache-2.0
// Emulated form of templates/tile/rdna_machine.h: see there for the meaning of each function. gfx11
// unless HSTU_EMULATED_GFX12 is defined.
#pragma once

#include <cmath>
#include <cstring>

#include "base/types.h"
#include "emulator.hpp"
#include "numbers.hpp"
#include "tile/amd_vectors.h"

namespace hstu::rdna {

using amd::Words2;
using amd::Words4;
typedef unsigned Words8 __attribute__((ext_vector_type(8)));
typedef float Floats8 __attribute__((ext_vector_type(8)));

#ifdef HSTU_EMULATED_GFX12
constexpr bool kSplit = true;
typedef Words4 Operand;
#else
constexpr bool kSplit = false;
typedef Words8 Operand;
#endif

inline int thread() { return emulator::thread_index(); }
inline long long block() { return emulator::block_index(); }

template <int bytes>
char* workgroup_lds() {
  return emulator::lds();
}

inline int uniform(int x) {
  return emulator::exchange<int>("readfirstlane", x, [](const int* in, int* out, int lanes) {
    for (int l = 0; l < lanes; ++l) {
      if (in[l] != in[0]) emulator::fail("readfirstlane of a value that differs between lanes");
      out[l] = in[0];
    }
  });
}

inline void barrier() { emulator::barrier(); }

inline float exp2(float x) { return ::exp2f(x); }
inline float log2(float x) { return ::log2f(x); }
inline float rcp(float x) { return 1.0f / x; }

inline unsigned other_half(unsigned x) {
  return emulator::exchange<unsigned>("permlanex16", x,
                                      [](const unsigned* in, unsigned* out, int lanes) {
                                        for (int l = 0; l < lanes; ++l) out[l] = in[l ^ 16];
                                      });
}
inline float other_half(float x) {
  unsigned bits;
  std::memcpy(&bits, &x, 4);
  bits = other_half(bits);
  std::memcpy(&x, &bits, 4);
  return x;
}

inline bool any(bool yes) {
  return emulator::exchange<int>("any", yes ? 1 : 0, [](const int* in, int* out, int lanes) {
    int any = 0;
    for (int l = 0; l < lanes; ++l) any |= in[l];
    for (int l = 0; l < lanes; ++l) out[l] = any;
  });
}

inline unsigned low_halves(unsigned low, unsigned high) { return (low & 0xffffu) | high << 16; }
inline unsigned high_halves(unsigned low, unsigned high) {
  return low >> 16 | (high & 0xffff0000u);
}

template <Dtype type>
unsigned pack(float low, float high) {
  constexpr bool bf16 = type == Dtype::bf16;
  return emulator::bits(bf16, low) | static_cast<unsigned>(emulator::bits(bf16, high)) << 16;
}

struct MultiplyOperands {
  Operand a, b;
  Floats8 c;
};

// By the operand layouts of the ISA documents. On gfx11 both halves of the wave give the operands;
// the hardware leaves open what happens when they differ, here it is an error.
template <Dtype type>
void multiply_all(const MultiplyOperands* in, Floats8* out, int) {
  float a[16][16], b[16][16];  // row (column), k
  const auto element = [](const Operand& words, int i) {
    const unsigned word = words[i / 2];
    return emulator::value(type == Dtype::bf16,
                           static_cast<unsigned short>(i % 2 ? word >> 16 : word));
  };
  for (int l = 0; l < 32; ++l) {
    const int from = emulator::faults.wrong_lane_map ? l ^ 4 : l;
    if (!kSplit && (std::memcmp(&in[l].a, &in[l ^ 16].a, sizeof(Operand)) != 0 ||
                    std::memcmp(&in[l].b, &in[l ^ 16].b, sizeof(Operand)) != 0))
      emulator::fail("wmma: the halves of the wave give different operands");
    for (int i = 0; i < (kSplit ? 8 : 16); ++i) {
      const int k = kSplit ? 8 * (l / 16) + i : i;
      a[l % 16][k] = element(in[from].a, i);
      b[l % 16][k] = element(in[l].b, i);
    }
  }
  for (int l = 0; l < 32; ++l)
    for (int r = 0; r < 8; ++r) {
      const int row = kSplit ? 8 * (l / 16) + r : 2 * r + l / 16;
      double sum = in[l].c[r];
      for (int k = 0; k < 16; ++k) sum += static_cast<double>(a[row][k]) * b[l % 16][k];
      out[l][r] = static_cast<float>(sum);
    }
}

template <Dtype type>
void multiply(Floats8& c, Operand a, Operand b) {
  const MultiplyOperands mine{a, b, c};
  c = emulator::exchange<Floats8>("wmma", mine, multiply_all<type>);
}

inline void keep_order() {}
inline void forget(unsigned&) {}
inline void forget(int&) {}

struct Buffer {
  const char* base;
  unsigned bytes;
};

inline Buffer buffer(const unsigned short* base, int bytes) {
  if (bytes < 0) emulator::fail("buffer of %d bytes", bytes);
  return {reinterpret_cast<const char*>(base), static_cast<unsigned>(uniform(bytes))};
}

inline Words4 load(const Buffer& from, unsigned offset) {
  Words4 x = {0, 0, 0, 0};
  if (offset >= from.bytes) return x;
  emulator::check_global(from.base + offset, 16, false);
  std::memcpy(&x, from.base + offset, 16);
  return x;
}

inline void store(unsigned short* to, Words4 x) {
  emulator::check_global(to, 16, true);
  if (reinterpret_cast<unsigned long long>(to) % 16 != 0) emulator::fail("store is not aligned");
  std::memcpy(to, &x, 16);
}

inline Words4 read_lds(const char* lds, int offset) {
  Words4 x;
  emulator::check_lds(lds + offset, 16, false);
  std::memcpy(&x, lds + offset, 16);
  return x;
}
inline void write_lds(char* lds, int offset, Words4 x) {
  emulator::check_lds(lds + offset, 16, true);
  std::memcpy(lds + offset, &x, 16);
}
inline void write_lds(char* lds, int offset, Words2 x) {
  emulator::check_lds(lds + offset, 8, true);
  std::memcpy(lds + offset, &x, 8);
}

}  // namespace hstu::rdna
