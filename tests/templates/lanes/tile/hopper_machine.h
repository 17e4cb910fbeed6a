// SPDX-License-Identifier: Apache-2.0
// Stands in for templates/tile/hopper_machine.h: the operations between the lanes of a warp.
#pragma once

#include "attention/arguments.h"
#include "tile/nvidia_machine.h"

namespace hstu::hopper {

inline int sum_of_lanes(int x) {
  return lanes::exchange(x, [](const int* v) {
    int sum = 0;
    for (int l = 0; l < 32; ++l) sum += v[l];
    return sum;
  });
}
inline int max_of_lanes(int x) {
  return lanes::exchange(x, [](const int* v) {
    int max = v[0];
    for (int l = 1; l < 32; ++l) max = v[l] > max ? v[l] : max;
    return max;
  });
}
inline unsigned lanes_where(bool x) {
  return static_cast<unsigned>(lanes::exchange(x, [](const int* v) {
    unsigned mask = 0;
    for (int l = 0; l < 32; ++l) mask |= static_cast<unsigned>(v[l]) << l;
    return static_cast<int>(mask);
  }));
}
inline int of_lane(int x, int from) {
  return lanes::exchange(x, [from](const int* v) { return v[from]; });
}
inline int count_bits(unsigned x) { return __builtin_popcount(x); }
inline int first_bit(unsigned x) { return __builtin_ffs(static_cast<int>(x)) - 1; }
inline unsigned bits(int first, int end) {
  unsigned x = 0;
  for (int i = first; i < end && i < 32; ++i) x |= 1u << i;
  return x;
}
inline int launched = 132;  // workgroups
inline int blocks() { return launched; }
inline void warp_barrier() {
  lanes::exchange(0, [](const int*) { return 0; });
}

}  // namespace hstu::hopper
