// SPDX-License-Identifier: Apache-2.0
#include "reference/reference.hpp"

#include <bit>
#include <cmath>
#include <limits>

namespace hstu::jit {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

double half_to_double(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  double magnitude = 0;
  if (exponent == 31)
    magnitude = mantissa == 0 ? std::numeric_limits<double>::infinity()
                              : std::numeric_limits<double>::quiet_NaN();
  else if (exponent == 0)
    magnitude = mantissa * 0x1p-24;
  else
    magnitude = (1024 + mantissa) * std::bit_cast<double>(uint64_t(exponent - 25 + 1023) << 52);
  return bits & 0x8000 ? -magnitude : magnitude;
}

}  // namespace

double to_double(uint16_t bits, Dtype dtype) {
  if (dtype == Dtype::bf16) return std::bit_cast<float>(uint32_t{bits} << 16);
  return half_to_double(bits);
}

// Batched tensors have no offsets: their sequences start at multiples of the batch stride.
int64_t query_offset(const Geometry& geometry, const Strides& strides, int64_t b, int64_t i,
                     int64_t h) {
  const int64_t first = geometry.seq_offsets_q.empty() ? 0 : geometry.sequences[b].first_q;
  return b * strides.batch + (first + i) * strides.seq + h * strides.head;
}

int64_t key_offset(const Geometry& geometry, const Strides& strides, int64_t b, int64_t j,
                   int64_t h) {
  const int64_t first = geometry.seq_offsets_kv.empty() ? 0 : geometry.sequences[b].first_kv;
  return b * strides.batch + (first + j) * strides.seq + h * strides.head;
}

ReferenceRow reference_row(const Problem& problem, const Geometry& geometry,
                           const HostTensors& tensors, int64_t b, int32_t i, int32_t h) {
  const SequenceMask mask = geometry.mask_of(b);
  const double alpha = geometry.alpha;
  const double attn_scale = geometry.groups[geometry.sequences[b].group].attn_scale;
  const uint16_t* q = tensors.q.data() + query_offset(geometry, geometry.q, b, i, h);

  // Logits of the visible keys.
  std::vector<int32_t> keys;
  std::vector<double> logits;
  for (int32_t j = 0; j < mask.seqlen_kv; ++j) {
    if (!visible(geometry.features, mask, i, j)) continue;
    const uint16_t* k = tensors.k.data() + key_offset(geometry, geometry.k, b, j, h);
    double dot = 0;
    for (int32_t d = 0; d < problem.head_dim_qk; ++d)
      dot += to_double(q[d], problem.dtype) * to_double(k[d], problem.dtype);
    keys.push_back(j);
    logits.push_back(alpha * dot);
  }

  // Weights.
  ReferenceRow row{std::vector<double>(problem.head_dim_v, 0.0), kMinusInfinity};
  std::vector<double> weights(keys.size(), 0.0);
  if (problem.activation == Activation::silu) {
    for (size_t n = 0; n < keys.size(); ++n)
      weights[n] = attn_scale * logits[n] / (1 + std::exp(-logits[n]));
  } else {
    double largest = kMinusInfinity;
    for (double s : logits) largest = s > largest || std::isnan(s) ? s : largest;
    if (largest == kMinusInfinity) return row;
    double sum = 0;
    for (double s : logits) sum += std::exp(s - largest);
    for (size_t n = 0; n < keys.size(); ++n)
      weights[n] = attn_scale * std::exp(logits[n] - largest) / sum;
    row.lse = largest + std::log(sum);
  }

  for (size_t n = 0; n < keys.size(); ++n) {
    const uint16_t* v = tensors.v.data() + key_offset(geometry, geometry.v, b, keys[n], h);
    for (int32_t d = 0; d < problem.head_dim_v; ++d)
      row.o[d] += weights[n] * to_double(v[d], problem.dtype);
  }
  return row;
}

}  // namespace hstu::jit
