// SPDX-License-Identifier: Apache-2.0
// Moves between lanes through the crossbar of the LDS; no memory is touched.
#pragma once

#include "sim/isa/instruction.hpp"

namespace hstu::jit::sim {

void ds_permute(Wave& w, const Instruction& i);
void ds_bpermute(Wave& w, const Instruction& i);
void ds_bpermute_fetch(Wave& w, const Instruction& i);  // from inactive lanes, too
void ds_swizzle(Wave& w, const Instruction& i);

}  // namespace hstu::jit::sim
