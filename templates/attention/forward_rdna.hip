// SPDX-License-Identifier: Apache-2.0
// HSTU attention forward for RDNA3 and RDNA4 machines: the one kernel of its code object.
#include "tile/device.h"

#include "base/types.h"

#include "attention/arguments.h"
#include "attention/config.h"
#include "attention/forward_gpu.h"
#include "tile/rdna.h"

HSTU_KERNEL(hstu::Config::waves * 32, hstu::Config::waves_per_simd)
void HSTU_ENTRY(hstu::ForwardArguments arguments) {
  using Tile = hstu::Tile<hstu::Config>;
  hstu::forward_gpu<hstu::Config, Tile>(arguments, hstu::rdna::workgroup_lds<Tile::lds_bytes>());
}
