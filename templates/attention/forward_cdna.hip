// SPDX-License-Identifier: Apache-2.0
// HSTU attention forward for CDNA machines: the one kernel of its code object.
#include "tile/device.h"

#include "base/types.h"

#include "attention/arguments.h"
#include "attention/config.h"
#include "attention/forward_cdna.h"
#include "tile/cdna.h"

HSTU_KERNEL(hstu::Config::waves * 64, hstu::Config::waves_per_simd)
void HSTU_ENTRY(hstu::ForwardArguments arguments) {
  HSTU_LDS(lds, hstu::Tile<hstu::Config>::lds_bytes);
  hstu::forward_cdna<hstu::Config>(arguments, lds);
}
