// SPDX-License-Identifier: Apache-2.0
// The emulated kernels a test program is linked with, and how to run one.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace emulator {

// One kernel: its configuration, mirrored from the Config it was compiled with.
struct Kernel {
  const char* name;
  bool bf16, softmax, write_lse;
  int head_dim_qk, head_dim_v;
  bool jagged, grouped;
  bool causal, cross, local, context, minfull, targets;
  int tile_m, tile_n;
  int threads, wave_width, lds_bytes;
  void (*entry)(const void* arguments);
  bool conflict_free = false;  // its LDS layout promises no bank conflicts at these dims
  int lds_banks = 32;          // of the machine it is for
  bool asynchronous = false;   // takes HopperArguments; see emulator.hpp
  bool shares_tiles = false;   // between two workgroups of a cluster, if launched so
};

// All kernels of the program; they register themselves.
std::vector<const Kernel*>& kernels();

struct Registration {
  explicit Registration(const Kernel* kernel) { kernels().push_back(kernel); }
};

// Memory the kernel may touch. Forgotten by clear_memory().
void allow_memory(const void* begin, size_t bytes, bool writable);
void clear_memory();

// Runs `blocks` workgroups one after the other, those of a cluster together. Empty if all went
// well, else what went wrong first: a divergent rendezvous, a deadlock, a race in LDS, an access
// out of bounds.
std::string run(const Kernel& kernel, long long blocks, const void* arguments, int cluster = 1);

// LDS bank conflicts. Wide accesses go to LDS in phases of lanes. The k-th accesses that the lanes
// of a wave make from one place in the code count as one instruction; lanes may leave it out.
struct LdsReport {
  long long phases = 0;  // at least needed
  long long cycles = 0;  // needed with these addresses
};
// While not null, run() adds to it. A phase of an access of b bytes has banks * 4 / b lanes; they
// are consecutive, or (`crossed`, 16-byte accesses) the groups 0-3,20-23 4-7,16-19 8-11,28-31
// 12-15,24-27 of each half, the order reported for some machines; with 64 banks 0-3,12-15,20-27 and
// 4-11,16-19,28-31.
struct LdsRecorder {
  int banks = 32;
  bool crossed = false;
  LdsReport report;
};
extern LdsRecorder* lds_recorder;

}  // namespace emulator
