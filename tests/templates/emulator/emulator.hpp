// SPDX-License-Identifier: Apache-2.0
// Runs a GPU kernel's own source on the CPU: every GPU thread is a fiber, the threads of a wave
// meet at cross-lane operations, those of a workgroup at barriers. This header is what an emulated
// machine (include/tile/*_machine.h) is written over; kernels.hpp is what tests use.
//
// How to add a machine
//   1. Put every instruction the tile layer needs behind small functions of one header, say
//      templates/tile/nvidia_machine.h, and write the tile layer over them.
//   2. Put a file of the same name and functions in include/tile/, written over this header; the
//      include path makes it win. An operation that looks at other lanes is one exchange():
//        struct In { ... }; struct Out { ... };
//        inline Out mma(In mine) {
//          return emulator::exchange<Out>("mma", mine, [](const In* in, Out* out, int lanes) {
//            ... compute out[lane] of all lanes from in[lane] of all lanes ...
//          });
//        }
//      exchange<float>("shuffle", x, ...) does shuffles, votes, permutes; barrier() is
//      __syncthreads(). All lanes of the wave must come to the same exchange(), which is checked.
//      Accesses to LDS and global memory call check_lds() and check_global() before they copy.
//   3. Add configurations to CMakeLists.txt: emulated_kernel(<name> KERNEL attention/<entry file>
//      WAVE <width> ...).
#pragma once

#include <functional>

namespace emulator {

// Where the running lane is.
int thread_index();  // in the workgroup
int wave_number();   // among those of all workgroups that run together
int wave_width();
long long block_index();
char* lds();  // LDS of the workgroup, filled with NaN patterns before each workgroup
inline int lane_index() { return thread_index() % wave_width(); }

// Waits for all lanes of the workgroup.
void barrier();

// Reports an error of the kernel and ends the run. Does not return.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

// LDS accesses: inside the workgroup's LDS, aligned to `bytes`, and no other wave touches the same
// words between the same two barriers unless both only read. Waves of asynchronous kernels have
// other ways to wait for each other: what comes of them is seen in their results.
void check_lds(const void* address, int bytes, bool write);
// Global accesses: inside one tensor that the test has announced.
void check_global(const void* address, int bytes, bool write);

// ---- asynchronous kernels: waves run in random order, units beside them at random times ----
// Something that lanes wait for one by one.
struct Event {
  unsigned long long signals = 0;
};
void await(Event& event, const char* name);  // until the next signal
void signal(Event& event);
// Work of such a unit, in no order with other work: at some time, at the latest when no lane can go
// on. Work left when the workgroup ends is an error.
// Done for the workgroup of the lane that asked for it, whose lds() it sees.
int later(std::function<void()> work);
void now(int work);  // at once, unless it has been done
long long launched_blocks();
long long workgroups_begun();     // by this program: another one for each
unsigned random();                // the same numbers in each run of a program
void barrier(int id, int lanes);  // of so many lanes of the workgroup
// Workgroups of a cluster run together.
int cluster_size();
int cluster_rank();
char* lds_of(int rank);
void cluster_barrier();

// Deliberate faults, so that tests can show that they would be noticed.
struct Faults {
  int dropped_barrier = -1;     // this barrier (counted from 0 in every workgroup) does not wait
  bool wrong_lane_map = false;  // matrix instructions of a machine swap two lanes of an operand
  int dropped_arrival = -1;  // this arrival at a barrier in LDS, counted likewise, does not count
  bool uncounted_copies = false;  // such barriers do not wait for copies
};
extern Faults faults;

using Collective = void (*)(const void* in, void* out, int lanes, const void* function);
void collective(const char* name, const void* in, int in_size, void* out, int out_size,
                Collective compute, const void* function);

// The cross-lane rendezvous: every lane of the wave gives `mine`; when the last one has come,
// compute(in, out, lanes) fills the results of all lanes.
template <class Out, class In>
Out exchange(const char* name, const In& mine, void (*compute)(const In*, Out*, int)) {
  Out result;
  collective(
      name, &mine, sizeof(In), &result, sizeof(Out),
      [](const void* in, void* out, int lanes, const void* function) {
        (*static_cast<void (*const*)(const In*, Out*, int)>(function))(
            static_cast<const In*>(in), static_cast<Out*>(out), lanes);
      },
      &compute);
  return result;
}

template <class Out, class In, class F>
Out exchange(const char* name, const In& mine, F compute) {
  return exchange<Out, In>(name, mine, static_cast<void (*)(const In*, Out*, int)>(compute));
}

}  // namespace emulator
