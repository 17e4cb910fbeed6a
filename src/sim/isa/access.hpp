// SPDX-License-Identifier: Apache-2.0
// What vector loads, stores and atomics have in common, whatever their addressing: moving data
// between registers and memory, with every address checked and counted.
#pragma once

#include <cstdint>

#include "sim/lds.hpp"
#include "sim/outstanding.hpp"
#include "sim/wave.hpp"

namespace hstu::jit::sim {

// The data of an access; the argument of a memory opcode.
enum Data : int16_t {
  kU8,
  kI8,
  kU16,
  kI16,  // extended to 32 bits by loads
  kB32,
  kB64,
  kB96,
  kB128,
  kU8Low,
  kI8Low,
  kB16Low,  // d16: the low half of a register, the rest kept
  kU8High,
  kI8High,
  kB16High,  // d16_hi
};
struct DataShape {
  uint8_t bytes, registers;
  bool sign;
  enum Half : uint8_t { whole, low, high } half;
};
const DataShape& shape_of(int16_t data);

// Where each lane goes. Dword d of lane l is at address[l] + d * dword_stride (4 but for swizzled
// buffers and scratch); the first `valid[l]` dwords (1 for narrower data) are in range, the others
// read 0 and are not written.
struct Places {
  uint64_t lanes = 0;  // active
  uint32_t dword_stride = 4;
  bool clipped = false;  // some `valid` is not all
  uint64_t address[kMaxLanes];
  uint8_t valid[kMaxLanes];
  const Operand* source = nullptr;  // of the address, for messages
};

// Moves `places` through global memory (scratch of the wave, too). `data` is the first register's
// operand.
void load_memory(Wave& w, const Operand& data, const DataShape& shape, const Places& places,
                 Queue queue);
void store_memory(Wave& w, const Operand& data, const DataShape& shape, const Places& places);
// The LDS address in M0: 16 bits, 18 where the LDS is larger.
inline uint32_t lds_base(Wave& w) {
  return w.scalar_at(kM0) & (w.machine().lds_bytes > 65536 ? 0x3ffffu : 0xffffu);
}
// Loads that go to LDS: lane l's data to `lds_base` + l * its size.
void load_to_lds(Wave& w, const DataShape& shape, const Places& places, uint32_t lds_base);

// Fails the wave unless lane `lane` may touch the bytes.
bool check_global(Wave& w, const Places& places, int lane, uint64_t address, uint32_t bytes,
                  bool write);
void count_global(Wave& w, const Places& places, const DataShape& shape, bool write);

// ---- LDS.
// Checks and notes the use; false after failing the wave.
bool use_lds(Wave& w, const Operand& source, int lane, LdsUse how, uint64_t address,
             uint32_t bytes);
// Adds an access of `bytes` bytes per lane to the counts of bank conflicts.
void count_lds(Wave& w, const uint32_t* address, uint64_t lanes, int bytes, LdsUse how);
// Reads `bytes` bytes of each lane; false after a fault.
bool read_lds(Wave& w, const uint32_t* address, uint64_t lanes, int bytes, const Operand& source,
              uint32_t (*value)[4]);
// Whole loads and stores, counted; the caller notes them as outstanding.
void load_lds(Wave& w, const Operand& data, const DataShape& shape, const uint32_t* address,
              uint64_t lanes, const Operand& source, Queue queue);
void store_lds(Wave& w, const Operand& data, const DataShape& shape, const uint32_t* address,
               uint64_t lanes, const Operand& source);

// ---- Moving a lane's value between memory and registers.
// Puts `count` dwords of each of `lanes`, as loaded, into registers.
void put_loaded(Wave& w, const Operand& data, const DataShape& shape, uint64_t lanes,
                const uint32_t (*value)[4], Queue queue);

}  // namespace hstu::jit::sim
