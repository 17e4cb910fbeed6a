// SPDX-License-Identifier: Apache-2.0
// The instructions of gfx950 (CDNA4) beyond those of tile/amd_machine.h: loads from device memory
// straight to LDS, 16 bytes a lane, and transposing LDS reads.
#pragma once

#include "base/types.h"
#include "tile/amd_machine.h"

namespace hstu::amd {

// Starts a load of 16 bytes for every lane, at `offset` of `from` (past its end: zeros), to
// lds[to + distance + 16 * lane]; `to` is the same in all lanes. It is done when meet() says so.
// The compiler does not know of it: with the builtin it would wait for all such loads before every
// LDS read.
template <int distance>
HSTU_DEVICE void load_to_lds(const Buffer& from, unsigned offset, char* lds, int to) {
  typedef __attribute__((address_space(3))) char* Local;
  const unsigned place = (unsigned)(Local)lds + static_cast<unsigned>(to);
  // M0 needs an instruction between its writing and its use.
  asm volatile(
      "s_add_u32 m0, %0, %3\n\ts_nop 0\n\tbuffer_load_dwordx4 %1, %2, 0 offen lds" ::"s"(place),
      "v"(offset), "s"(from.descriptor), "n"(distance)
      : "memory", "scc");
}

// A barrier behind which all loads of the workgroup to LDS are done but for the last `pending` of
// each wave. What the wave itself has read from LDS it must have used before.
template <int pending>
HSTU_DEVICE void meet() {
  asm volatile("s_waitcnt vmcnt(%0)\n\ts_barrier" ::"n"(pending) : "memory");
}
// Nothing may be on its way to LDS when the wave ends.
HSTU_DEVICE void settle_loads() { asm volatile("s_waitcnt vmcnt(0)" ::: "memory"); }

// Says that x is worked out here: the optimizer moves arithmetic past branches to its use
// otherwise, and a schedule by hand with it.
HSTU_DEVICE void hold(unsigned& x) { asm volatile("" : "+v"(x)); }
HSTU_DEVICE void hold(Floats2& x) { asm volatile("" : "+v"(x)); }

// The same of an accumulator, in accumulation registers.
HSTU_DEVICE void hold_in_accumulators(Floats16& x) { asm volatile("" : "+a"(x)); }

// As buffer(), of an address whose upper 16 bits are 0, with nothing told of uniformity.
HSTU_DEVICE Buffer plain_buffer(unsigned long long address, int bytes) {
  return {{static_cast<int>(address), static_cast<int>(address >> 32), bytes, 0x00027000}};
}

// The larger of two numbers, in a form of which two become one instruction here.
HSTU_DEVICE float largest(float a, float b) {
#if __has_builtin(__builtin_elementwise_maximum)
  return __builtin_elementwise_maximum(a, b);
#else
  return a > b ? a : b;
#endif
}

// Of each 16 lanes, lane 4 r + c gives the place of 4 neighbouring elements, columns 4 c to 4 c + 3
// of row r of a 4x16 matrix; lane i receives its column i.
HSTU_DEVICE Words2 read_lds_transposed(const char* lds, int offset) {
  typedef short Shorts4 __attribute__((ext_vector_type(4)));
  typedef __attribute__((address_space(3))) char* Local;
  return __builtin_bit_cast(Words2,
                            __builtin_amdgcn_ds_read_tr16_b64_v4i16(
                                (__attribute__((address_space(3))) Shorts4*)((Local)lds + offset)));
}

}  // namespace hstu::amd
