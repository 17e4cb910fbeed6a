// SPDX-License-Identifier: Apache-2.0
// HSTU attention forward for gfx950 (CDNA4): the one kernel of its code object.
// Device words come first.
// clang-format off
#include "tile/device.h"

#include "base/types.h"

#include "attention/arguments.h"
#include "attention/config.h"
#include "attention/forward_cdna4.h"
#include "tile/cdna4.h"
// clang-format on

HSTU_KERNEL(hstu::Config::waves * 64, hstu::Config::waves_per_simd)
void HSTU_ENTRY(hstu::ForwardArguments arguments) {
  HSTU_LDS(lds, hstu::Tile<hstu::Config>::lds_bytes);
  hstu::forward_cdna4<hstu::Config>(arguments, lds);
}
