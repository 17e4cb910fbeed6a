// SPDX-License-Identifier: Apache-2.0
#include "reference/rows.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace hstu::jit {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// scores[j] += sum_d query[d] * keys[d][j]. Four dimensions a pass, and few enough keys at a time
// that their scores stay in the first-level cache.
void dot_products(const double* query, const float* keys, int64_t stride, int32_t dims,
                  int64_t count, double* __restrict scores) {
  constexpr int64_t kBlock = 512;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, count);
    int32_t d = 0;
    for (; d + 4 <= dims; d += 4) {
      const float* k0 = keys + d * stride;
      const float* k1 = k0 + stride;
      const float* k2 = k1 + stride;
      const float* k3 = k2 + stride;
      const double q0 = query[d], q1 = query[d + 1], q2 = query[d + 2], q3 = query[d + 3];
      for (int64_t j = begin; j < end; ++j)
        scores[j] += (q0 * k0[j] + q1 * k1[j]) + (q2 * k2[j] + q3 * k3[j]);
    }
    for (; d < dims; ++d)
      for (int64_t j = begin; j < end; ++j) scores[j] += query[d] * keys[d * stride + j];
  }
}

// o[d] += sum_j weights[j] * values[j][d].
void weighted_sum(const double* weights, const float* values, int32_t dims, int64_t count,
                  double* __restrict o) {
  int64_t j = 0;
  for (; j + 4 <= count; j += 4) {
    const float* v0 = values + j * dims;
    const float* v1 = v0 + dims;
    const float* v2 = v1 + dims;
    const float* v3 = v2 + dims;
    const double w0 = weights[j], w1 = weights[j + 1], w2 = weights[j + 2], w3 = weights[j + 3];
    for (int32_t d = 0; d < dims; ++d)
      o[d] += (w0 * v0[d] + w1 * v1[d]) + (w2 * v2[d] + w3 * v3[d]);
  }
  for (; j < count; ++j)
    for (int32_t d = 0; d < dims; ++d) o[d] += weights[j] * values[j * dims + d];
}

}  // namespace

ReferenceRows::ReferenceRows(const Problem& problem, const Geometry& geometry,
                             const HostTensors& tensors, int64_t b, int32_t h,
                             std::span<const int32_t> rows)
    : problem_(problem),
      geometry_(geometry),
      tensors_(tensors),
      b_(b),
      h_(h),
      mask_(geometry.mask_of(b)),
      query_(problem.head_dim_qk) {
  int32_t begin = mask_.seqlen_kv, end = 0;
  for (int32_t i : rows) {
    const RowKeys keys = row_keys(geometry.features, mask_, i);
    if (keys.begin < keys.end) {
      begin = std::min(begin, keys.begin);
      end = std::max(end, keys.end);
    }
    if (keys.diagonal) {
      begin = std::min(begin, i);
      end = std::max(end, i + 1);
    }
  }
  first_key_ = begin;
  key_count_ = std::max(end - begin, 0);
  const int32_t dims_qk = problem.head_dim_qk, dims_v = problem.head_dim_v;
  keys_.resize(key_count_ * dims_qk);
  values_.resize(key_count_ * dims_v);
  for (int64_t n = 0; n < key_count_; ++n) {
    const uint16_t* k = tensors.k.data() + key_offset(geometry, geometry.k, b, begin + n, h);
    const uint16_t* v = tensors.v.data() + key_offset(geometry, geometry.v, b, begin + n, h);
    for (int32_t d = 0; d < dims_qk; ++d)
      keys_[d * key_count_ + n] = static_cast<float>(to_double(k[d], problem.dtype));
    for (int32_t d = 0; d < dims_v; ++d)
      values_[n * dims_v + d] = static_cast<float>(to_double(v[d], problem.dtype));
  }
}

void ReferenceRows::add_scores(const RowKeys& keys) {
  const int64_t count = std::max(keys.end - keys.begin, 0);
  scores_.assign(count + (keys.diagonal ? 1 : 0), 0.0);
  const int32_t dims = problem_.head_dim_qk;
  if (count > 0)
    dot_products(query_.data(), keys_.data() + (keys.begin - first_key_), key_count_, dims, count,
                 scores_.data());
}

double ReferenceRows::weights_of_scores() {
  const double attn_scale = geometry_.groups[geometry_.sequences[b_].group].attn_scale;
  const double alpha = geometry_.alpha;
  if (problem_.activation == Activation::silu) {
    for (double& s : scores_) {
      const double logit = alpha * s;
      s = attn_scale * logit / (1 + std::exp(-logit));
    }
    return kMinusInfinity;
  }
  double largest = kMinusInfinity;
  for (double& s : scores_) {
    s *= alpha;
    if (s > largest || std::isnan(s)) largest = s;
  }
  if (largest == kMinusInfinity) {
    scores_.clear();
    return kMinusInfinity;
  }
  double sum = 0;
  for (double& s : scores_) sum += s = std::exp(s - largest);
  for (double& s : scores_) s *= attn_scale / sum;
  return largest + std::log(sum);
}

const ReferenceRow& ReferenceRows::row(int32_t i) {
  const RowKeys keys = row_keys(geometry_.features, mask_, i);
  const uint16_t* q = tensors_.q.data() + query_offset(geometry_, geometry_.q, b_, i, h_);
  for (int32_t d = 0; d < problem_.head_dim_qk; ++d) query_[d] = to_double(q[d], problem_.dtype);
  add_scores(keys);
  if (keys.diagonal)
    dot_products(query_.data(), keys_.data() + (i - first_key_), key_count_, problem_.head_dim_qk,
                 1, &scores_.back());
  row_.o.assign(problem_.head_dim_v, 0.0);
  row_.lse = weights_of_scores();
  if (scores_.empty()) return row_;
  const int32_t dims = problem_.head_dim_v;
  const int64_t count = std::max(keys.end - keys.begin, 0);
  if (count > 0)
    weighted_sum(scores_.data(), values_.data() + (keys.begin - first_key_) * int64_t{dims}, dims,
                 count, row_.o.data());
  if (keys.diagonal)
    weighted_sum(&scores_.back(), values_.data() + (i - first_key_) * int64_t{dims}, dims, 1,
                 row_.o.data());
  return row_;
}

}  // namespace hstu::jit
