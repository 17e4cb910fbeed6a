// SPDX-License-Identifier: Apache-2.0
// Failures of entry points that tests ordered.
#pragma once

#include <string_view>

namespace hstu::jit::sim {

// The code an entry point, named as its field of HipApi, has to return now; 0: none, go on.
int ordered_failure(std::string_view entry_point);

}  // namespace hstu::jit::sim
