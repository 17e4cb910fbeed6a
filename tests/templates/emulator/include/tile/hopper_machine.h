// SPDX-License-Identifier: Apache-2.0
// Emulated form of templates/tile/hopper_machine.h, by the definitions of the PTX manual: barriers
// in shared memory with their phases and counts, tensor copies that land at random times and in any
// order, in the 128-byte swizzle, clusters of two workgroups.
#pragma once

#include <map>
#include <vector>

#include "attention/arguments.h"
#include "base/types.h"
#include "emulated_map.hpp"
#include "tile/nvidia_machine.h"

namespace hstu::hopper {

// ---- barriers in shared memory ------------------------------------------------------------------
struct Barrier {
  int expected = 0, pending = 0;
  long long bytes = 0;  // of copies that this phase waits for
  unsigned phase = 0;
  emulator::Event event;
};
struct Barriers {
  long long workgroup = 0;
  int arrivals = 0;
  std::map<std::pair<int, unsigned>, Barrier> of;  // by rank in the cluster and address
};
inline Barriers& barriers() {
  static Barriers b;
  if (b.workgroup != emulator::workgroups_begun()) b = {emulator::workgroups_begun(), 0, {}};
  return b;
}
inline Barrier& barrier_at(unsigned address, int rank = emulator::cluster_rank()) {
  const auto found = barriers().of.find({rank, address});
  if (found == barriers().of.end()) emulator::fail("barrier %u was not made", address);
  return found->second;
}
inline void barrier_init(unsigned barrier, int arrivals) {
  emulator::check_lds(emulator::lds() + barrier, 8, true);
  if (arrivals < 1) emulator::fail("a barrier of %d arrivals", arrivals);
  const std::pair place(emulator::cluster_rank(), barrier);
  if (!barriers().of.emplace(place, Barrier{arrivals, arrivals, 0, 0, {}}).second)
    emulator::fail("barrier %u is made twice", barrier);
}
inline void barrier_init_fence() {}
inline void end_phase(Barrier& b) {
  if (b.pending > 0 || b.bytes != 0) return;
  b.pending = b.expected;
  ++b.phase;
  emulator::signal(b.event);
}
inline void arrive_at(unsigned barrier, int rank) {
  Barrier& b = barrier_at(barrier, rank);
  if (barriers().arrivals++ == emulator::faults.dropped_arrival) return;
  if (b.pending <= 0) emulator::fail("more arrivals at barrier %u than it counts", barrier);
  --b.pending;
  end_phase(b);
}
inline void arrive(unsigned barrier) { arrive_at(barrier, emulator::cluster_rank()); }
inline void arrive_expect(unsigned barrier, int bytes) {
  if (!emulator::faults.uncounted_copies) barrier_at(barrier).bytes += bytes;
  arrive(barrier);
}
inline void wait(unsigned barrier, unsigned parity) {
  Barrier& b = barrier_at(barrier);
  while (b.phase % 2 == parity % 2) emulator::await(b.event, "barrier in LDS");
}

// Bytes have come that a phase waits for, or will wait for.
inline void count_bytes(unsigned barrier, int rank, int bytes) {
  if (emulator::faults.uncounted_copies) return;
  Barrier& b = barrier_at(barrier, rank);
  b.bytes -= bytes;
  end_phase(b);
}

// ---- tensor copies ------------------------------------------------------------------------------
inline unsigned swizzled(unsigned address) { return address ^ (address >> 7 & 7) << 4; }

// The place of element `element` of a row in the tensor; null outside.
inline unsigned short* place_of(const emulator::Map& map, int element, int token, int head,
                                int batch) {
  if (element < 0 || element >= map.extents[0] || token < 0 || token >= map.extents[1] ||
      head < 0 || head >= map.extents[2] || batch < 0 || batch >= map.extents[3])
    return nullptr;
  return map.base + element + token * map.strides[0] + head * map.strides[1] +
         batch * map.strides[2];
}
inline void copy_box(unsigned to, const TensorMap* tensor, int element, int token, int head,
                     int batch, unsigned barrier, unsigned long long) {
  const emulator::Map map = emulator::map_in(tensor->words);
  if (to % 1024 != 0) emulator::fail("a box to %u, no multiple of 1024", to);
  barrier_at(barrier);
  emulator::later([=] {
    for (int row = 0; row < map.box_tokens; ++row) {
      for (int chunk = 0; chunk < 8; ++chunk) {
        char* at = emulator::lds() + swizzled(to + row * 128 + chunk * 16);
        emulator::check_lds(at, 16, true);
        const unsigned short* from = place_of(map, element + chunk * 8, token + row, head, batch);
        if (from != nullptr) {
          emulator::check_global(from, 16, false);
          std::memcpy(at, from, 16);
        } else {
          std::memset(at, 0, 16);
        }
      }
    }
    count_bytes(barrier, emulator::cluster_rank(), map.box_tokens * 128);
  });
}

inline std::vector<int>& boxes_written() {
  static std::vector<int> lists[32];  // one lane of a warp writes
  return lists[emulator::wave_number()];
}
inline void write_box(const TensorMap* tensor, int element, int token, int head, int batch,
                      unsigned from) {
  const emulator::Map map = emulator::map_in(tensor->words);
  boxes_written().push_back(emulator::later([=] {
    for (int row = 0; row < map.box_tokens; ++row) {
      for (int chunk = 0; chunk < 8; ++chunk) {
        const char* at = emulator::lds() + swizzled(from + row * 128 + chunk * 16);
        unsigned short* to = place_of(map, element + chunk * 8, token + row, head, batch);
        if (to == nullptr) continue;
        emulator::check_lds(at, 16, false);
        emulator::check_global(to, 16, true);
        std::memcpy(to, at, 16);
      }
    }
  }));
}
inline void boxes_commit() {}
inline void boxes_read() {
  for (const int box : boxes_written()) emulator::now(box);
  boxes_written().clear();
}
inline void prefetch_map(const TensorMap*) {}
inline unsigned long long keep_in_l2() { return 0; }
inline unsigned long long pass_through_l2() { return 0; }

// ---- warpgroups ---------------------------------------------------------------------------------
template <int registers>
void give_registers() {}
template <int registers>
void take_registers() {}
inline void product_fence() {}
inline void product_commit() {}
void finish_products();  // tile/hopper_wgmma.h
template <int pending>
void product_wait() {
  static_assert(pending == 0);
  finish_products();
}
template <int count>
void pin(float*) {}
template <int count>
void pin(unsigned*) {}
template <int count>
void define(float* x) {
  for (int i = 0; i < count; ++i) x[i] = __builtin_nanf("");
}
inline void warpgroup_barrier(int id) { emulator::barrier(id, 128); }
inline void proxy_fence() {}

inline unsigned long long along_k(unsigned address) {
  return (address & 0x3ffffu) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
inline unsigned long long along_n(unsigned address, int panel_bytes) {
  return (address & 0x3ffffu) >> 4 | static_cast<unsigned long long>(panel_bytes >> 4) << 16 |
         64ull << 32 | 1ull << 62;
}

// ---- clusters -----------------------------------------------------------------------------------
inline int cluster_blocks() { return emulator::cluster_size(); }
inline int cluster_rank() { return emulator::cluster_rank(); }
inline void cluster_barrier() { emulator::cluster_barrier(); }
inline unsigned at_rank(unsigned address, int rank) {
  if (rank < 0 || rank >= cluster_blocks()) emulator::fail("no rank %d in the cluster", rank);
  return address | static_cast<unsigned>(rank + 1) << 20;
}
inline int rank_of(unsigned remote) { return static_cast<int>(remote >> 20) - 1; }
inline unsigned address_of(unsigned remote) { return remote & 0xfffffu; }
inline void arrive_at_rank(unsigned remote) { arrive_at(address_of(remote), rank_of(remote)); }
inline void wait_of_cluster(unsigned barrier, unsigned parity) { wait(barrier, parity); }
inline void send(unsigned remote, float a, float b, float c, float d, unsigned barrier) {
  emulator::check_lds(emulator::lds() + address_of(remote), 16, true);  // as large there
  emulator::later([=] {
    const float words[4] = {a, b, c, d};
    std::memcpy(emulator::lds_of(rank_of(remote)) + address_of(remote), words, 16);
    count_bytes(address_of(barrier), rank_of(barrier), 16);
  });
}

// ---- lanes --------------------------------------------------------------------------------------
inline float tanh(float x) { return std::tanh(x); }
inline int thread_again() { return nvidia::thread(); }
inline float multiply_add(float a, float b, float c) { return std::fma(a, b, c); }
inline int sum_of_lanes(int x) {
  return emulator::exchange<int>("sum", x, [](const int* in, int* out, int lanes) {
    int sum = 0;
    for (int l = 0; l < lanes; ++l) sum += in[l];
    for (int l = 0; l < lanes; ++l) out[l] = sum;
  });
}
inline int max_of_lanes(int x) {
  return emulator::exchange<int>("max", x, [](const int* in, int* out, int lanes) {
    int most = in[0];
    for (int l = 1; l < lanes; ++l) most = max_of(most, in[l]);
    for (int l = 0; l < lanes; ++l) out[l] = most;
  });
}
inline unsigned lanes_where(bool x) {
  return emulator::exchange<unsigned>("vote", x, [](const bool* in, unsigned* out, int lanes) {
    unsigned mask = 0;
    for (int l = 0; l < lanes; ++l) mask |= static_cast<unsigned>(in[l]) << l;
    for (int l = 0; l < lanes; ++l) out[l] = mask;
  });
}
inline int of_lane(int x, int lane) {
  struct In {
    int x, lane;
  };
  return emulator::exchange<int>("shuffle", In{x, lane}, [](const In* in, int* out, int lanes) {
    for (int l = 0; l < lanes; ++l) out[l] = in[in[l].lane & 31].x;
  });
}
inline int count_bits(unsigned x) { return __builtin_popcount(x); }
inline int first_bit(unsigned x) { return __builtin_ffs(static_cast<int>(x)) - 1; }
inline unsigned bits(int first, int end) {
  unsigned x = 0;
  for (int i = first; i < end && i < 32; ++i) x |= 1u << i;
  return x;
}
inline unsigned shuffle_xor(unsigned x, int mask) {
  struct In {
    unsigned x;
    int mask;
  };
  return emulator::exchange<unsigned>("shuffle", In{x, mask},
                                      [](const In* in, unsigned* out, int lanes) {
                                        for (int l = 0; l < lanes; ++l)
                                          out[l] = in[l ^ in[l].mask].x;
                                      });
}
inline void warp_barrier() {
  emulator::exchange<int>("warp barrier", 0, [](const int*, int* out, int lanes) {
    for (int l = 0; l < lanes; ++l) out[l] = 0;
  });
}
inline int blocks() { return static_cast<int>(emulator::launched_blocks()); }
inline unsigned add_to(unsigned* counter, unsigned x) {
  const unsigned old = *counter;
  *counter += x;
  return old;
}
inline void device_fence() {}

struct MatrixRows {
  unsigned row, y[4];
};
inline void store_matrices(unsigned row, const unsigned (&y)[4]) {
  emulator::check_lds(emulator::lds() + row, 16, true);
  emulator::exchange<int>("stmatrix", MatrixRows{row, {y[0], y[1], y[2], y[3]}},
                          [](const MatrixRows* in, int* out, int lanes) {
                            for (int l = 0; l < lanes; ++l) {
                              out[l] = 0;
                              for (int m = 0; m < 4; ++m)
                                std::memcpy(emulator::lds() + in[8 * m + l / 4].row + l % 4 * 4,
                                            &in[l].y[m], 4);
                            }
                          });
}
inline void store_quad(unsigned short* to, const nvidia::Quad& q) {
  emulator::check_global(to, 16, true);
  std::memcpy(to, &q, 16);
}
inline void store_quad_in_loop(unsigned short* to, const nvidia::Quad& q) { store_quad(to, q); }
inline char* dynamic_shared() { return emulator::lds(); }

}  // namespace hstu::hopper

inline float __uint_as_float(unsigned x) {
  float y;
  std::memcpy(&y, &x, 4);
  return y;
}
