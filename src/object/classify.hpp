// SPDX-License-Identifier: Apache-2.0
// What an instruction does, from its mnemonic: one table per instruction set.
#pragma once

#include <string_view>

namespace hstu::jit::object {

enum class InstructionSet { amd, nvidia, host };

// "matrix", "valu", "salu", "transcendental", "lds_read", "lds_write", "lds_atomic", "cross_lane",
// "global_read", "global_write", "global_atomic", "scalar_memory", "scratch", "barrier",
// "waitcnt", "branch", "agpr_move", "other". NVIDIA's modifiers (".F32") may follow the mnemonic.
const char* instruction_class(InstructionSet set, std::string_view mnemonic);

}  // namespace hstu::jit::object
