// SPDX-License-Identifier: Apache-2.0
// The rows of reference_row() at a cost proportional to the visible pairs: keys come from
// row_keys(), are converted once for many rows, and the loops vectorise. Tests hold both against
// each other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/reference.hpp"

namespace hstu::jit {

class ReferenceRows {
 public:
  // Converts the keys and values that `rows` of sequence b, head h see. The arguments must outlive
  // this object. Throws std::bad_alloc.
  ReferenceRows(const Problem& problem, const Geometry& geometry, const HostTensors& tensors,
                int64_t b, int32_t h, std::span<const int32_t> rows);

  // Row i, one of `rows`. The result is valid until the next call.
  const ReferenceRow& row(int32_t i);

 private:
  void add_scores(const RowKeys& keys);
  double weights_of_scores();  // scores_ become weights; returns the LSE (softmax)

  const Problem& problem_;
  const Geometry& geometry_;
  const HostTensors& tensors_;
  const int64_t b_;
  const int32_t h_;
  const SequenceMask mask_;
  int32_t first_key_ = 0;  // the keys converted: [first_key_, first_key_ + key_count_)
  int64_t key_count_ = 0;
  std::vector<float> keys_;     // [head_dim_qk][key_count_]: a row's scores vectorise over keys
  std::vector<float> values_;   // [key_count_][head_dim_v]
  std::vector<double> query_;   // [head_dim_qk]
  std::vector<double> scores_;  // of the row's interval, then of its diagonal
  ReferenceRow row_;
};

}  // namespace hstu::jit
