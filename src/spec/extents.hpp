// SPDX-License-Identifier: Apache-2.0
// Extents: the sizes of a problem that need no memory per sequence, checked against every limit.
#pragma once

#include <cstdint>
#include <vector>

#include "spec/geometry.hpp"

namespace hstu::jit {

struct TensorExtent {
  Strides strides{};
  int64_t elements = 0;
};

struct Extents {
  std::vector<int32_t> group_max_q;  // largest physical query length, per group
  int32_t max_seqlen_q = 0, max_seqlen_kv = 0;
  int32_t longest_q = 0;
  int64_t tokens_q = 0, tokens_kv = 0;
  bool targets = false;  // some sequence has targets
  TensorExtent q, k, v, o, lse;
};

// Errors: see make_geometry.
Result<Extents> measure(const Problem& problem);

}  // namespace hstu::jit
