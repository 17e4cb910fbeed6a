// SPDX-License-Identifier: Apache-2.0
// What the scheduling warp of the Hopper kernel needs of a GPU, over 32 threads of the host that
// meet at every operation that looks at other lanes. Stands in for templates/tile/nvidia_machine.h.
#pragma once

#include <ucontext.h>

#include <functional>
#include <vector>

#include "base/types.h"

namespace hstu::lanes {

inline int lane = 0;  // whose turn it is
inline int values[32];
inline ucontext_t fibers[32], turns;
inline bool ended[32];
inline const std::function<void(int)>* work = nullptr;

inline void give_way() { swapcontext(&fibers[lane], &turns); }

// Every lane gives `mine`; all see those of all while `look` runs.
template <class Look>
int exchange(int mine, Look look) {
  values[lane] = mine;
  give_way();
  const int result = look(values);
  give_way();
  return result;
}

// Calls `function` with every lane's number, all of them side by side.
inline void warp(const std::function<void(int)>& function) {
  constexpr size_t kStack = 256 * 1024;
  std::vector<char> stacks(32 * kStack);
  work = &function;
  for (int l = 0; l < 32; ++l) {
    ended[l] = false;
    getcontext(&fibers[l]);
    fibers[l].uc_stack.ss_sp = stacks.data() + static_cast<size_t>(l) * kStack;
    fibers[l].uc_stack.ss_size = kStack;
    fibers[l].uc_link = &turns;
    makecontext(
        &fibers[l],
        [] {
          (*work)(lane);
          ended[lane] = true;
        },
        0);
  }
  for (bool all = false; !all;) {
    all = true;
    for (lane = 0; lane < 32; ++lane) {
      if (ended[lane]) continue;
      swapcontext(&turns, &fibers[lane]);
      all = all && ended[lane];
    }
  }
}

}  // namespace hstu::lanes

namespace hstu::nvidia {

struct Quad {
  unsigned x, y, z, w;
};
inline int thread() { return lanes::lane; }
inline long long block() { return 0; }
inline int uniform(int x) {
  return lanes::exchange(x, [](const int* v) { return v[0]; });
}

}  // namespace hstu::nvidia
