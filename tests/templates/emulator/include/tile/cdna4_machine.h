// SPDX-License-Identifier: Apache-2.0
// Emulated form of templates/tile/cdna4_machine.h: see there for the meaning of each function.
//
// A load to LDS writes at some time between its start and the wave's wait for it. A kernel is
// emulated with the latest (the default: who reads too early sees the old bytes) or, with
// HSTU_EMULATED_EAGER_LOADS, with the earliest (who starts a load too early destroys what others
// still read).
#pragma once

#include <deque>

#include "tile/amd_machine.h"

namespace hstu::amd {

struct PendingLoad {
  Buffer from;
  unsigned offset;
  char* to;
};

// Of the running lane.
inline std::deque<PendingLoad>& pending_loads() {
  static std::deque<PendingLoad> of_lane[1024];
  return of_lane[emulator::thread_index()];
}

inline void finish_load(const PendingLoad& p) {
  const Words4 x = load(p.from, p.offset);
  emulator::check_lds(p.to, 16, true);
  std::memcpy(p.to, &x, 16);
}

template <int distance>
HSTU_DEVICE void load_to_lds(const Buffer& from, unsigned offset, char* lds, int to) {
  char* place = lds + uniform(to) + distance + emulator::lane_index() * 16;
  const PendingLoad p{from, offset, place};
#ifdef HSTU_EMULATED_EAGER_LOADS
  finish_load(p);
#else
  pending_loads().push_back(p);
#endif
}

inline void wait_for_loads(int pending) {
  std::deque<PendingLoad>& loads = pending_loads();
  for (; static_cast<int>(loads.size()) > pending; loads.pop_front()) finish_load(loads.front());
}
template <int pending>
HSTU_DEVICE void meet() {
  wait_for_loads(pending);
  emulator::barrier();
}
HSTU_DEVICE void settle_loads() { wait_for_loads(0); }

HSTU_DEVICE void hold(unsigned&) {}
HSTU_DEVICE void hold(Floats2&) {}

HSTU_DEVICE void hold_in_accumulators(Floats16&) {}

HSTU_DEVICE float largest(float a, float b) { return a > b ? a : b; }

HSTU_DEVICE Buffer plain_buffer(unsigned long long address, int bytes) {
  if (address >> 48 != 0) emulator::fail("buffer at a place that does not fit its descriptor");
  return buffer(reinterpret_cast<const unsigned short*>(address), bytes);
}

HSTU_DEVICE Words2 read_lds_transposed(const char* lds, int offset) {
  Words2 mine;
  emulator::check_lds(lds + offset, 8, false);
  std::memcpy(&mine, lds + offset, 8);
  return emulator::exchange<Words2>(
      "read_lds_transposed", mine, [](const Words2* in, Words2* out, int lanes) {
        for (int l = 0; l < lanes; ++l) {
          const int first = l / 16 * 16, column = l % 16;
          unsigned e[4];
          for (int row = 0; row < 4; ++row) {
            const unsigned word = in[first + 4 * row + column / 4][column % 4 / 2];
            e[row] = column % 2 != 0 ? word >> 16 : word & 0xffffu;
          }
          out[l] = Words2{e[0] | e[1] << 16, e[2] | e[3] << 16};
        }
      });
}

}  // namespace hstu::amd
