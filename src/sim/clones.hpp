// SPDX-License-Identifier: Apache-2.0
// HSTU_SIM_CLONES before a function that loops over lanes: compiled for AVX-512 and AVX2 too, the
// best the host has being chosen when the program starts.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    !defined(HSTU_SIM_NO_CLONES)
#define HSTU_SIM_CLONES \
  __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define HSTU_SIM_CLONES
#endif
