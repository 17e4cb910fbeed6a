// SPDX-License-Identifier: Apache-2.0
// CPU levels: the named instruction sets the `cpu` target is compiled for. A level is part of the
// target's name ("cpu:x86-64-v4+amx"), hence of every key, and is checked again before loading.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hstu::jit {

// Every level there is, per family from the weakest to the strongest: "x86-64-v2" ... "armv8.2".
std::vector<std::string> cpu_levels();

// The strongest level this processor and its operating system can run: CPUID (or the auxiliary
// vector), the register state the kernel saves, and the permission to use the AMX tiles. Asks for
// that permission where the processor has tiles (enable_amx).
std::string detect_cpu_level();

// Options for g++ (12 or newer) and clang++ (14 or newer) that select the level of a target name
// ("cpu:x86-64-v3") or of a bare level name. Empty if the level is unknown.
std::vector<std::string> cpu_level_flags(std::string_view target_name);

// Whether code compiled for that target or level runs in this process.
bool cpu_level_runs_here(std::string_view target_name);

// Asks the operating system to let this process use the AMX tile registers; true if it may. The
// permission is per process and lasts; threads started before and after may both use the tiles.
bool enable_amx();

}  // namespace hstu::jit
