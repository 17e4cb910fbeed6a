// SPDX-License-Identifier: Apache-2.0
// kernel.cpp for the Hopper kernels, which take HopperArguments.
#include "attention/forward_hopper.hip"
#include "kernels.hpp"

namespace {

using C = hstu::Config;

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
    C::waves * 32,
    32,
    hstu::hopper_shared_bytes(C::tile_m, C::tile_n, C::head_dim_qk, C::head_dim_v, C::stages,
                              C::q_buffers),
    [](const void* arguments) {
      HSTU_ENTRY(*static_cast<const hstu::HopperArguments*>(arguments));
    },
    false,
    32,
    true,
    hstu::HopperShape<C>::splits,
};
const emulator::Registration registration(&kernel);

}  // namespace
