// SPDX-License-Identifier: Apache-2.0
// How much of this machine a program may use.
#pragma once

namespace hstu::jit {

// Processors this process may run on: its affinity and the quota of its control group; at least 1.
int usable_processors();

}  // namespace hstu::jit
