// SPDX-License-Identifier: Apache-2.0
// HSTU attention forward for NVIDIA GPUs from sm_80 on, compiled through hipRTC's NVRTC mapping.
#include "attention/arguments.h"
#include "attention/config.h"
#include "attention/forward_gpu.h"
#include "tile/device.h"
#include "tile/nvidia.h"

HSTU_KERNEL(hstu::Config::waves * 32, hstu::Config::waves_per_simd)
void HSTU_ENTRY(hstu::ForwardArguments arguments) {
  using Tile = hstu::Tile<hstu::Config>;
  hstu::forward_gpu<hstu::Config, Tile>(
      arguments, hstu::nvidia::workgroup_lds<Tile::lds_bytes, Tile::dynamic_lds>());
}
