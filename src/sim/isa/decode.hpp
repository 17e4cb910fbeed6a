// SPDX-License-Identifier: Apache-2.0
// From a listing to instructions that can be executed.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "object/listing.hpp"
#include "sim/isa/instruction.hpp"
#include "sim/machine.hpp"

namespace hstu::jit::sim {

// In the order of the listing; `index` and branch targets count its lines. What cannot be read (an
// unknown mnemonic, operand or modifier) becomes an instruction that faults when it is executed,
// with the reason in `problem`: a listing also shows constants and padding that nothing runs.
std::vector<Instruction> decode(const Listing& listing, const Machine& machine);

// One instruction out of its context, for tests: no branches.
Instruction decode_line(std::string_view mnemonic, std::string_view operands,
                        const Machine& machine);

// Counts of s_waitcnt in `bits` of its operand; kNoWait where one is not waited for.
constexpr uint32_t kNoWait = 0xff;
constexpr int kVmShift = 0, kLgkmShift = 8;

}  // namespace hstu::jit::sim
