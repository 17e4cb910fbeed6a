// SPDX-License-Identifier: Apache-2.0
// HSTU attention forward for NVIDIA's sm_90a, compiled through hipRTC's NVRTC mapping. Launched
// with as many workgroups as the device has multiprocessors, or fewer.
#include "attention/arguments.h"
#include "attention/config.h"
#include "attention/forward_hopper.h"
#include "tile/device.h"

HSTU_KERNEL(hstu::Config::waves * 32, hstu::Config::waves_per_simd)
void HSTU_ENTRY(const __grid_constant__ hstu::HopperArguments arguments) {
  hstu::forward_hopper<hstu::Config>(arguments);
}
