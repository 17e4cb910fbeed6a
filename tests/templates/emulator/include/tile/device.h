// SPDX-License-Identifier: Apache-2.0
// Emulated form of templates/tile/device.h.
#pragma once

#include "emulator.hpp"

#define __grid_constant__
#define HSTU_KERNEL(threads, waves_per_simd) extern "C"
#define HSTU_LDS(name, bytes) char* name = emulator::lds()
