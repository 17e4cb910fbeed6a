// SPDX-License-Identifier: Apache-2.0
// What the memory files share: address spaces, scratch, atomics.
#pragma once

#include <vector>

#include "sim/isa/access.hpp"

namespace hstu::jit::sim {

enum class Space : uint8_t { flat, global, scratch };

// Turns lane addresses (bytes of each lane's scratch) into memory addresses; false after failing.
bool place_in_scratch(Wave& w, const DataShape& shape, Places& p);
bool check_scratch(Wave& w, const Places& p, int lane, uint32_t at, uint32_t bytes, uint32_t size);

// Runs an atomic of `p`'s lanes; those of `lds_lanes` are LDS addresses. `result` takes the old
// values when it is not null. The data of a compare-and-swap is followed by what is compared.
template <typename T>
void run_atomic(Wave& w, const Instruction& i, const Operand& data, const Operand* result,
                const Places& p, uint64_t lds_lanes);

Execute global_atomic_32();
Execute global_atomic_64();
Execute flat_atomic_32();
Execute flat_atomic_64();
Execute buffer_atomic_32();
Execute buffer_atomic_64();
void add_atomic_opcodes(std::vector<Opcode>& list);
void add_buffer_opcodes(std::vector<Opcode>& list);

}  // namespace hstu::jit::sim
