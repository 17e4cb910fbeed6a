// SPDX-License-Identifier: Apache-2.0
// Compiled once per configuration by clang, with include/ before templates/ on the include path:
//   HSTU_TEST_KERNEL  the entry file, e.g. "attention/forward_cdna.hip"
//   HSTU_TEST_NAME    the configuration's name; HSTU_TEST_WAVE the lanes of a wave
//   hstu              renamed per configuration, so that many fit in one program
#include HSTU_TEST_KERNEL

#include "kernels.hpp"

namespace {

using C = hstu::Config;
using T = hstu::Tile<C>;

#define HSTU_STRING_(x) #x
#define HSTU_STRING(x) HSTU_STRING_(x)

const emulator::Kernel kernel = {
    HSTU_STRING(HSTU_TEST_NAME),
    C::dtype == hstu::Dtype::bf16,
    C::activation == hstu::Activation::softmax,
    C::write_lse,
    C::head_dim_qk,
    C::head_dim_v,
    C::jagged,
    C::grouped,
    C::causal,
    C::cross,
    C::local,
    C::context,
    C::minfull,
    C::targets,
    C::tile_m,
    C::tile_n,
    C::waves* HSTU_TEST_WAVE,
    HSTU_TEST_WAVE,
    T::lds_bytes,
    [](const void* arguments) {
      HSTU_ENTRY(*static_cast<const hstu::ForwardArguments*>(arguments));
    },
    hstu::test_feature("conflict_free"),
    hstu::test_feature("banks64") ? 64 : 32,
};
const emulator::Registration registration(&kernel);

static_assert(T::wave_width == HSTU_TEST_WAVE);
static_assert(C::tile_m == C::waves * T::rows_per_wave);
static_assert(C::tile_n == T::parts * T::part_keys);
static_assert(T::rows_per_wave * T::part_keys == T::wave_width * T::elements);

}  // namespace
