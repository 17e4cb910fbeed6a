// SPDX-License-Identifier: Apache-2.0
// Geometry: every length, offset, stride and scale that follows from a Problem.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/arguments.h"  // templates/
#include "base/result.hpp"
#include "mask/mask.h"  // templates/
#include "spec/problem.hpp"

namespace hstu::jit {

struct Geometry {
  struct Sequence {
    int32_t seqlen_q = 0;  // physical: uih + context + targets
    int32_t seqlen_kv = 0;
    int32_t targets = 0;
    int32_t group = 0;
    int64_t first_q = 0;  // index of its first token: b * max_seqlen_q, or the jagged offset
    int64_t first_kv = 0;
  };
  std::vector<Sequence> sequences;
  std::vector<int32_t> seq_offsets_q;  // batch + 1; empty when batched
  std::vector<int32_t> seq_offsets_kv;
  std::vector<GroupArguments> groups;  // lengths and resolved attn_scale; one entry if not grouped
  float alpha = 0;                     // resolved
  int32_t max_seqlen_q = 0;            // physical maxima, overrides included
  int32_t max_seqlen_kv = 0;
  int32_t longest_q = 0;  // longest actual query length: what the grid is sized by
  int64_t tokens_q = 0;   // rows of q and o (batched: batch * max_seqlen_q)
  int64_t tokens_kv = 0;
  Strides q{}, k{}, v{}, o{}, lse{};  // element strides, dense C-order unless the spec gives them
  // From the first to the last element touched; lse is sized even where it is not written.
  int64_t q_elements = 0, k_elements = 0, v_elements = 0, o_elements = 0, lse_elements = 0;
  MaskFeatures features{};  // structure over all sequences and groups

  SequenceMask mask_of(int64_t b) const;
};

// Limits every target shares; the parser and make_geometry refuse what passes them.
constexpr int32_t kMaxLength = (1 << 30) - 1;     // physical length of one sequence
constexpr int64_t kMaxJaggedTokens = 2147483647;  // offsets are int32
constexpr int64_t kMaxBatch = int64_t{1} << 24;
constexpr int32_t kMaxHeads = 65536;
constexpr int32_t kMaxHeadDim = 256;  // and a multiple of 8

// Formulas: physical length = uih + context + targets (keys of cross attention: uih_kv + context);
// default attn_scale = 1 / largest physical query length of the group (SiLU), 1 (softmax). The
// largest length of a group is its max_uih_length (or its longest uih) + its context + its largest
// target count; max_targets has no part in group mode. Batched: every sequence has the largest
// physical length, so a sequence with fewer targets has a longer history.
// Errors: kSpec when a length passes 2^30 or the jagged token sum passes 2^31 - 1, when an override
// is smaller than the lengths it covers, when strides overlap or are too small, when a count of
// elements or pairs would not fit 64 bits.
Result<Geometry> make_geometry(const Problem& problem);

// The errors of make_geometry, without building it (no memory that grows with the batch).
Status check_geometry(const Problem& problem);

// Pairs (row, key) the mask keeps, summed over sequences, for one head. Exact; the rows between two
// places where the mask changes its form are summed in one step, so the cost does not grow with the
// lengths.
int64_t visible_pairs(const Geometry& geometry);
// The same for one sequence.
int64_t visible_pairs(const MaskFeatures& features, const SequenceMask& mask);
// Dense pairs: sum of seqlen_q * seqlen_kv, for one head.
int64_t dense_pairs(const Geometry& geometry);

}  // namespace hstu::jit
