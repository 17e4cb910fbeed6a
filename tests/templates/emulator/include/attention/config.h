// SPDX-License-Identifier: Apache-2.0
// The configuration of one emulated kernel, from the definitions of its compile command.
#pragma once

#include "base/types.h"

#ifndef HSTU_TEST_FEATURES
#define HSTU_TEST_FEATURES ""
#endif

namespace hstu {

// True if the comma-separated list of features holds `word`.
constexpr bool test_feature(const char* word) {
  for (const char* at = HSTU_TEST_FEATURES; *at;) {
    const char* w = word;
    while (*at && *at != ',' && *at == *w) ++at, ++w;
    if (!*w && (!*at || *at == ',')) return true;
    while (*at && *at++ != ',') {
    }
  }
  return false;
}

struct Config {
  static constexpr Dtype dtype = test_feature("fp16") ? Dtype::fp16 : Dtype::bf16;
  static constexpr int head_dim_qk = HSTU_TEST_QK;
  static constexpr int head_dim_v = HSTU_TEST_V;
  static constexpr Activation activation =
      test_feature("softmax") ? Activation::softmax : Activation::silu;
  static constexpr bool write_lse = test_feature("lse");
  static constexpr bool jagged = test_feature("jagged");
  static constexpr bool grouped = test_feature("grouped");
  static constexpr bool causal = test_feature("causal");
  static constexpr bool cross = test_feature("cross");
  static constexpr bool local = test_feature("local");
  static constexpr bool context = test_feature("context");
  static constexpr bool minfull = test_feature("minfull");
  static constexpr bool targets = test_feature("targets");
  static constexpr int tile_m = HSTU_TEST_TILE_M;
  static constexpr int tile_n = HSTU_TEST_TILE_N;
  static constexpr int waves = HSTU_TEST_WAVES;
  static constexpr int waves_per_simd = 2;
#ifdef HSTU_TEST_STAGES
  static constexpr int stages = HSTU_TEST_STAGES;
  static constexpr int q_buffers = HSTU_TEST_Q_BUFFERS;
  static constexpr bool apart = test_feature("apart");
#endif
};

}  // namespace hstu

#define HSTU_TEST_JOIN_(a, b) a##b
#define HSTU_TEST_JOIN(a, b) HSTU_TEST_JOIN_(a, b)
#define HSTU_ENTRY HSTU_TEST_JOIN(hstu_forward_, HSTU_TEST_NAME)
