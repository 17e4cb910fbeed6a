// SPDX-License-Identifier: Apache-2.0
// Which registers an instruction reads and writes, from the text of its operands.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "object/listing.hpp"

namespace hstu::jit::object {

// Registers by number: VGPRs 0-255, AGPRs 256-511, SGPRs from 512, then the named ones.
enum : uint16_t {
  kFirstAgpr = 256,
  kFirstSgpr = 512,
  kVcc = 640,
  kExec,
  kM0,
  kScc,
  kRegisterCount
};

struct Operands {
  std::vector<uint16_t> reads, writes;  // no duplicates within one operand; implicit ones included
};

Operands operands_of(const ListedInstruction& instruction);

// Bytes one lane moves with an LDS, global, buffer, flat or scratch instruction: "ds_read_b128" 16.
// 0 when the mnemonic does not say.
int bytes_per_lane(std::string_view mnemonic);

}  // namespace hstu::jit::object
