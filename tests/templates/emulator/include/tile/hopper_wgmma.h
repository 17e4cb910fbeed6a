// SPDX-License-Identifier: Apache-2.0
// Emulated form of templates/tile/hopper_wgmma.h. A product takes place at once or when its warp
// waits for it, as chance has it: operands that change too early, and results read too early, show.
#pragma once

#include <deque>
#include <vector>

#include "base/types.h"
#include "emulator.hpp"
#include "numbers.hpp"
#include "tile/hopper_machine.h"

namespace hstu::hopper {

// What the lanes of a warp give to one product: 16 of the warpgroup's 64 rows.
struct WarpProduct {
  float* d[32];
  unsigned a[32][4];
  unsigned long long a_at, b_at;  // descriptors
  int n, add;
  bool bf16, from_registers;
};
inline std::deque<WarpProduct>& products_under_way() {
  static std::deque<WarpProduct> queues[32];
  static long long workgroup = 0;
  if (workgroup != emulator::workgroups_begun()) {
    for (auto& queue : queues) queue.clear();
    workgroup = emulator::workgroups_begun();
  }
  return queues[emulator::wave_number()];
}

// An element of an operand that the descriptor names: of row `row` at `k`, contiguous along k; or
// of column `row`, contiguous along columns in panels.
inline float element(const WarpProduct& p, unsigned long long at, bool along_n, int row, int k) {
  const unsigned start = static_cast<unsigned>(at & 0x3fff) << 4;
  const unsigned panel = static_cast<unsigned>(at >> 16 & 0x3fff) << 4;
  const unsigned eight_rows = static_cast<unsigned>(at >> 32 & 0x3fff) << 4;
  const unsigned address =
      along_n ? start + row / 64 * panel + k / 8 * eight_rows + k % 8 * 128 + row % 64 * 2
              : start + row / 8 * eight_rows + row % 8 * 128 + k * 2;
  const char* from = emulator::lds() + swizzled(address);
  emulator::check_lds(from, 2, false);
  unsigned short bits;
  std::memcpy(&bits, from, 2);
  return emulator::value(p.bf16, bits);
}

inline void multiply(const WarpProduct& p) {
  const int first_row = emulator::thread_index() / 32 % 4 * 16;
  float a[16][16];
  for (int r = 0; r < 16; ++r) {
    for (int k = 0; k < 16; ++k) {
      if (!p.from_registers) {
        a[r][k] = element(p, p.a_at, false, first_row + r, k);
        continue;
      }
      const int lane = r % 8 * 4 + k % 8 / 2;
      const int from = emulator::faults.wrong_lane_map && lane < 2 ? 1 - lane : lane;
      const unsigned word = p.a[from][r / 8 + k / 8 * 2];
      a[r][k] = emulator::value(p.bf16, static_cast<unsigned short>(word >> k % 2 * 16));
    }
  }
  for (int n = 0; n < p.n; ++n) {
    float b[16];
    for (int k = 0; k < 16; ++k) b[k] = element(p, p.b_at, p.from_registers, n, k);
    for (int r = 0; r < 16; ++r) {
      float& d = p.d[r % 8 * 4 + n % 8 / 2][n / 8 * 4 + r / 8 * 2 + n % 2];
      double sum = p.add ? d : 0.0;
      for (int k = 0; k < 16; ++k) sum += static_cast<double>(a[r][k]) * b[k];
      d = static_cast<float>(sum);
    }
  }
}

inline void run_products() {
  for (const WarpProduct& p : products_under_way()) multiply(p);
  products_under_way().clear();
}
inline void finish_products() {
  emulator::exchange<int>("wait for products", 0, [](const int*, int* out, int lanes) {
    run_products();
    for (int l = 0; l < lanes; ++l) out[l] = 0;
  });
}

struct LaneOperands {
  float* d;
  unsigned a[4];
  unsigned long long a_at, b_at;
  int add;
};
template <int n, bool bf16, bool from_registers>
void begin_product(const LaneOperands& mine) {
  emulator::exchange<int>("wgmma", mine, [](const LaneOperands* in, int* out, int lanes) {
    WarpProduct p{};
    p.n = n;
    p.bf16 = bf16;
    p.from_registers = from_registers;
    p.a_at = in[0].a_at, p.b_at = in[0].b_at, p.add = in[0].add;
    for (int l = 0; l < lanes; ++l) {
      if (in[l].a_at != p.a_at || in[l].b_at != p.b_at || (in[l].add != 0) != (p.add != 0))
        emulator::fail("lanes of one product name different operands");
      p.d[l] = in[l].d;
      for (int i = 0; i < 4; ++i) p.a[l][i] = in[l].a[i];
      out[l] = 0;
    }
    products_under_way().push_back(p);
    if (emulator::random() % 4 == 0) run_products();
  });
}

template <int n, Dtype type>
struct Product {
  static constexpr bool bf16 = type == Dtype::bf16;
  static void shared(float* d, unsigned long long a, unsigned long long b, int add) {
    begin_product<n, bf16, false>({d, {0, 0, 0, 0}, a, b, add});
  }
  static void registers(float* d, const unsigned* a, unsigned long long b, int add) {
    begin_product<n, bf16, true>({d, {a[0], a[1], a[2], a[3]}, 0, b, add});
  }
};

}  // namespace hstu::hopper
