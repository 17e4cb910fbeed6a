// SPDX-License-Identifier: Apache-2.0
// Emulated form of templates/tile/nvidia_machine.h, by the definitions of the PTX manual. An
// asynchronous copy takes place at the last moment allowed, when its lane waits for it, and is
// checked for races from its start on. Matrix loads must be free of bank conflicts.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/types.h"
#include "emulator.hpp"
#include "numbers.hpp"

namespace hstu::nvidia {

inline int thread() { return emulator::thread_index(); }
inline long long block() { return emulator::block_index(); }

template <int bytes, bool dynamic>
char* workgroup_lds() {
  return emulator::lds();
}

inline int uniform(int x) {
  return emulator::exchange<int>("shuffle", x, [](const int* in, int* out, int lanes) {
    for (int l = 0; l < lanes; ++l) {
      if (in[l] != in[0]) emulator::fail("a value called uniform differs between lanes");
      out[l] = in[0];
    }
  });
}

inline float shuffle_xor(float x, int mask) {
  struct In {
    float x;
    int mask;
  };
  return emulator::exchange<float>("shuffle", In{x, mask}, [](const In* in, float* out, int lanes) {
    for (int l = 0; l < lanes; ++l) out[l] = in[l ^ in[l].mask].x;
  });
}

inline void barrier() { emulator::barrier(); }

inline float exp2(float x) { return std::exp2(x); }
inline float log2(float x) { return std::log2(x); }
inline float rcp(float x) { return 1.0f / x; }

template <Dtype type>
unsigned pack(float low, float high) {
  constexpr bool bf16 = type == Dtype::bf16;
  return emulator::bits(bf16, low) | static_cast<unsigned>(emulator::bits(bf16, high)) << 16;
}

inline unsigned load_pair(const unsigned short* p) {
  emulator::check_global(p, 4, false);
  unsigned x;
  std::memcpy(&x, p, 4);
  return x;
}
inline void store_pair(unsigned short* p, unsigned x) {
  emulator::check_global(p, 4, true);
  std::memcpy(p, &x, 4);
}

inline unsigned shared_address(const char* p) { return static_cast<unsigned>(p - emulator::lds()); }

struct Quad {
  unsigned x, y, z, w;
};
inline Quad load_shared(unsigned from) {
  emulator::check_lds(emulator::lds() + from, 16, false);
  Quad q;
  std::memcpy(&q, emulator::lds() + from, 16);
  return q;
}
inline void store_shared(unsigned to, const Quad& q) {
  emulator::check_lds(emulator::lds() + to, 16, true);
  std::memcpy(emulator::lds() + to, &q, 16);
}

struct Copy {
  unsigned to;
  const unsigned short* from;  // null: zeros
  long long block;
};

inline std::vector<Copy>& pending_copies() {
  static std::vector<Copy> lists[1024];
  return lists[emulator::thread_index()];
}

inline void copy_async(unsigned to, const unsigned short* from, bool exists) {
  if (exists) {
    emulator::check_global(from, 16, false);
    if (reinterpret_cast<uintptr_t>(from) % 16 != 0)
      emulator::fail("asynchronous copy from an address that is not a multiple of 16");
  }
  emulator::check_lds(emulator::lds() + to, 16, true);
  pending_copies().push_back({to, exists ? from : nullptr, block()});
}

inline void copies_wait() {
  for (const Copy& copy : pending_copies()) {
    if (copy.block != block()) continue;  // left behind by a workgroup that did not wait
    char* to = emulator::lds() + copy.to;
    emulator::check_lds(to, 16, true);
    if (copy.from)
      std::memcpy(to, copy.from, 16);
    else
      std::memset(to, 0, 16);
  }
  pending_copies().clear();
}

template <int count>
struct Matrices {
  unsigned at[count];
};

template <int count, bool transposed>
Matrices<count> load(unsigned row) {
  if (emulator::lane_index() < 8 * count) emulator::check_lds(emulator::lds() + row, 16, false);
  return emulator::exchange<Matrices<count>>(
      transposed ? "ldmatrix.trans" : "ldmatrix", row,
      [](const unsigned* in, Matrices<count>* out, int lanes) {
        for (int m = 0; m < count; ++m) {
          uint16_t matrix[8][8];
          unsigned banks = 0;
          for (int r = 0; r < 8; ++r) {
            std::memcpy(matrix[r], emulator::lds() + in[8 * m + r], 16);
            banks |= 1u << in[8 * m + r] / 16 % 8;
          }
          if (banks != 255) emulator::fail("ldmatrix: rows of a matrix share banks");
          for (int l = 0; l < lanes; ++l) {
            const int x = l / 4, y = l % 4 * 2;
            const unsigned low = transposed ? matrix[y][x] : matrix[x][y];
            const unsigned high = transposed ? matrix[y + 1][x] : matrix[x][y + 1];
            out[l].at[m] = low | high << 16;
          }
        }
      });
}

template <int count>
void load_matrices(unsigned (&y)[count], unsigned row) {
  const Matrices<count> loaded = load<count, false>(row);
  for (int m = 0; m < count; ++m) y[m] = loaded.at[m];
}
template <int count>
void load_matrices_transposed(unsigned (&y)[count], unsigned row) {
  const Matrices<count> loaded = load<count, true>(row);
  for (int m = 0; m < count; ++m) y[m] = loaded.at[m];
}

template <int depth>  // 16 or 8 values of k
struct Operands {
  unsigned a[depth / 4], b[depth / 8];
  float c[4];
};
struct Sums {
  float c[4];
};

// A: register i of a lane holds row lane/4 + 8*(i%2), k = 2*(lane%4) + 8*(i/2) and the next.
// B: register i holds column lane/4, k = 2*(lane%4) + 8*i and the next.
// C: value i is row lane/4 + 8*(i/2), column 2*(lane%4) + i%2.
template <Dtype type, int depth>
Sums mma(const Operands<depth>& mine) {
  return emulator::exchange<Sums>("mma", mine, [](const Operands<depth>* in, Sums* out, int lanes) {
    constexpr bool bf16 = type == Dtype::bf16;
    float a[16][depth], b[depth][8];
    for (int l = 0; l < lanes; ++l) {
      const int from = emulator::faults.wrong_lane_map && l < 2 ? 1 - l : l;
      for (int half = 0; half < 2; ++half) {
        const int k = l % 4 * 2 + half, shift = 16 * half;
        for (int i = 0; i < depth / 4; ++i)
          a[l / 4 + i % 2 * 8][k + i / 2 * 8] =
              emulator::value(bf16, static_cast<uint16_t>(in[from].a[i] >> shift));
        for (int i = 0; i < depth / 8; ++i)
          b[k + 8 * i][l / 4] = emulator::value(bf16, static_cast<uint16_t>(in[l].b[i] >> shift));
      }
    }
    for (int l = 0; l < lanes; ++l)
      for (int i = 0; i < 4; ++i) {
        double sum = in[l].c[i];
        for (int k = 0; k < depth; ++k)
          sum += static_cast<double>(a[l / 4 + i / 2 * 8][k]) * b[k][l % 4 * 2 + i % 2];
        out[l].c[i] = static_cast<float>(sum);
      }
  });
}

template <Dtype type>
void multiply_add(float (&c)[4], const Quad& a, unsigned b0, unsigned b1) {
  const Sums sums = mma<type, 16>({{a.x, a.y, a.z, a.w}, {b0, b1}, {c[0], c[1], c[2], c[3]}});
  for (int i = 0; i < 4; ++i) c[i] = sums.c[i];
}

template <Dtype type>
void multiply_add(float (&c)[4], unsigned a0, unsigned a1, unsigned b0) {
  const Sums sums = mma<type, 8>({{a0, a1}, {b0}, {c[0], c[1], c[2], c[3]}});
  for (int i = 0; i < 4; ++i) c[i] = sums.c[i];
}

}  // namespace hstu::nvidia
