// SPDX-License-Identifier: Apache-2.0
#include "problem.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "attention/arguments.h"
#include "catch.hpp"

namespace hstu::test {
namespace {

constexpr uint16_t kPoison = 0xffff;   // a NaN in both types
constexpr double kBelowFloat = 1e-35;  // SiLU(-170) is no fp32 number; zero will do
constexpr size_t kGuard = 256;         // elements before and after each output

double decode(uint16_t bits, Dtype dtype) {
  const int exponent_bits = dtype == Dtype::bf16 ? 8 : 5, fraction_bits = 15 - exponent_bits;
  const int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1), bias = (1 << (exponent_bits - 1)) - 1;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1)
    return fraction ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  const double m = exponent == 0 ? fraction : fraction + (1 << fraction_bits);
  return sign * std::ldexp(m, std::max(exponent, 1) - bias - fraction_bits);
}

// Truncates: any value of the type will do for inputs.
uint16_t encode(float x, Dtype dtype) {
  uint32_t u;
  std::memcpy(&u, &x, 4);
  if (dtype == Dtype::bf16) return static_cast<uint16_t>(u >> 16);
  const uint32_t sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffff;
  if (magnitude < 0x38800000) return static_cast<uint16_t>(sign);
  return static_cast<uint16_t>(sign | (magnitude - 0x38000000) >> 13);
}

// Where everything lies. Tokens of all sequences follow each other, batched or jagged.
struct Shape {
  explicit Shape(const TestProblem& p) : problem(p) {
    for (int n : p.seqlen_q) first_q.push_back(first_q.back() + n);
    for (int n : p.seqlen_kv) first_kv.push_back(first_kv.back() + n);
    q = strides(p.config.head_dim_qk, p.seqlen_q);
    k = strides(p.config.head_dim_qk, p.seqlen_kv);
    v = strides(p.config.head_dim_v, p.seqlen_kv);
    o = strides(p.config.head_dim_v, p.seqlen_q);
    lse = strides(1, p.seqlen_q);
  }
  Strides strides(int dim, const std::vector<int>& lengths) const {
    Strides s{};
    s.head = dim + problem.padding;
    s.seq = s.head * problem.heads + problem.padding;
    s.batch = problem.config.jagged || lengths.empty() ? 0 : s.seq * lengths[0];
    return s;
  }
  size_t batch() const { return problem.seqlen_q.size(); }
  static size_t at(const Strides& s, int token, int head) {
    return static_cast<size_t>(token * s.seq + head * s.head);
  }
  const TestProblem& problem;
  std::vector<int> first_q{0}, first_kv{0};
  Strides q, k, v, o, lse;
};

std::vector<uint16_t> random_tensor(const TestProblem& p, const Strides& s, int tokens,
                                    uint64_t stream) {
  std::mt19937_64 random(p.seed * 3 + stream);
  std::normal_distribution<float> normal(0.0f, p.magnitude);
  std::vector<uint16_t> tensor(static_cast<size_t>(tokens * s.seq) + kGuard);
  for (uint16_t& x : tensor) x = encode(normal(random), p.config.dtype);
  return tensor;
}

struct Inputs {
  explicit Inputs(const Shape& s)
      : q(random_tensor(s.problem, s.q, s.first_q.back(), 0)),
        k(random_tensor(s.problem, s.k, s.first_kv.back(), 1)),
        v(random_tensor(s.problem, s.v, s.first_kv.back(), 2)) {}
  std::vector<uint16_t> q, k, v;
};

SequenceMask mask_of(const TestProblem& p, size_t b) {
  const GroupArguments& g =
      p.groups[p.config.grouped ? b / (p.seqlen_q.size() / p.groups.size()) : 0];
  return resolve_mask(p.config.mask, p.seqlen_q[b], p.seqlen_kv[b],
                      p.targets.empty() ? 0 : p.targets[b], g.local_len, g.context_len,
                      g.minfull_len);
}

template <typename T, typename IsPoison>
std::vector<T> check_written(const Shape& s, const Strides& strides, int dim,
                             const std::vector<T>& memory, IsPoison is_poison, bool written) {
  std::vector<bool> output(memory.size());
  std::vector<T> values;
  bool all = true;
  for (int token = 0; token < s.first_q.back(); ++token)
    for (int h = 0; h < s.problem.heads; ++h)
      for (int d = 0; d < dim; ++d) {
        const size_t at = kGuard + Shape::at(strides, token, h) + static_cast<size_t>(d);
        output[at] = true;
        values.push_back(memory[at]);
        if (is_poison(memory[at]) == written) all = false;
      }
  CHECK(all);
  bool untouched = true;
  for (size_t i = 0; i < memory.size(); ++i)
    if (!output[i] && !is_poison(memory[i])) untouched = false;
  CHECK(untouched);
  return values;
}

}  // namespace

TestRun launch(jit::Device& device, jit::DeviceKernel& kernel, const TestProblem& problem) {
  const Shape s(problem);
  const Inputs in(s);
  const size_t tokens = static_cast<size_t>(s.first_q.back());
  std::vector<uint16_t> o(tokens * static_cast<size_t>(s.o.seq) + 2 * kGuard, kPoison);
  const float poison = -12345.0f;
  std::vector<float> lse(tokens * static_cast<size_t>(s.lse.seq) + 2 * kGuard, poison);

  ForwardArguments a{};
  a.q = in.q.data(), a.k = in.k.data(), a.v = in.v.data(), a.o = o.data() + kGuard;
  if (problem.config.write_lse) a.lse = lse.data() + kGuard;
  a.q_strides = s.q, a.k_strides = s.k, a.v_strides = s.v, a.o_strides = s.o;
  a.lse_strides = s.lse;
  if (problem.config.jagged) a.seq_offsets_q = s.first_q.data();
  if (problem.config.jagged) a.seq_offsets_kv = s.first_kv.data();
  if (!problem.targets.empty()) a.num_targets = problem.targets.data();
  if (problem.config.grouped)
    a.groups = problem.groups.data();
  else
    a.uniform = problem.groups[0];
  a.alpha = problem.alpha;
  a.batch = static_cast<int>(s.batch());
  a.heads = problem.heads;
  for (int n : problem.seqlen_q) a.seqlen_q = std::max(a.seqlen_q, n);
  for (int n : problem.seqlen_kv) a.seqlen_kv = std::max(a.seqlen_kv, n);
  a.batches_per_group = static_cast<int>(s.batch() / problem.groups.size());
  jit::LaunchGrid grid;
  grid.grid = int64_t{a.batch} * a.heads * ceil_div(a.seqlen_q, problem.config.tile_m);
  REQUIRE(device.launch(kernel, grid, &a, sizeof a, nullptr).ok());

  TestRun run;
  run.o = check_written(
      s, s.o, problem.config.head_dim_v, o, [](uint16_t x) { return x == kPoison; }, true);
  run.lse = check_written(
      s, s.lse, 1, lse, [&](float x) { return x == poison; }, problem.config.write_lse);
  return run;
}

std::string disagreement(const TestProblem& p, const TestRun& run) {
  const Shape s(p);
  const Inputs in(s);
  const Dtype dtype = p.config.dtype;
  const int dim_qk = p.config.head_dim_qk, dim_v = p.config.head_dim_v;
  const bool softmax = p.config.activation == Activation::softmax;
  const double rtol = dtype == Dtype::bf16 ? 2e-2 : 4e-3;
  const double bound = dtype == Dtype::bf16 ? 5e-3 : 1e-3;
  double error2 = 0, norm2 = 0;
  auto doubles = [&](const std::vector<uint16_t>& tensor) {
    std::vector<double> out(tensor.size());
    for (size_t i = 0; i < tensor.size(); ++i) out[i] = decode(tensor[i], dtype);
    return out;
  };
  const std::vector<double> q = doubles(in.q), k = doubles(in.k), v = doubles(in.v);
  for (size_t b = 0; b < s.batch(); ++b) {
    const SequenceMask mask = mask_of(p, b);
    const GroupArguments& group =
        p.groups[p.config.grouped ? b / (s.batch() / p.groups.size()) : 0];
    for (int h = 0; h < p.heads; ++h)
      for (int i = 0; i < p.seqlen_q[b]; ++i) {
        const double* qi = q.data() + Shape::at(s.q, s.first_q[b] + i, h);
        std::vector<double> logits, o(static_cast<size_t>(dim_v));
        std::vector<int> keys;
        double top = -std::numeric_limits<double>::infinity(), total = 0;
        for (int j = 0; j < p.seqlen_kv[b]; ++j) {
          if (!visible(p.config.mask, mask, i, j)) continue;
          const double* kj = k.data() + Shape::at(s.k, s.first_kv[b] + j, h);
          double dot = 0;
          for (int d = 0; d < dim_qk; ++d) dot += qi[d] * kj[d];
          logits.push_back(dot * p.alpha);
          keys.push_back(j);
          top = std::max(top, logits.back());
        }
        for (size_t n = 0; n < keys.size(); ++n) {
          const double x = logits[n];
          const double w = softmax ? std::exp(x - top) : x / (1 + std::exp(-x));
          total += w;
          const double* vj = v.data() + Shape::at(s.v, s.first_kv[b] + keys[n], h);
          for (int d = 0; d < dim_v; ++d) o[static_cast<size_t>(d)] += w * vj[d];
        }
        const double factor = !softmax     ? group.attn_scale
                              : total == 0 ? 0.0
                                           : group.attn_scale / total;
        double rms = 0;
        for (double& x : o) x *= factor, rms += x * x / dim_v;
        const double atol =
            rtol * std::sqrt(rms) + (dtype == Dtype::fp16 ? std::ldexp(1.0, -24) : kBelowFloat);
        const size_t row = static_cast<size_t>((s.first_q[b] + i) * p.heads + h);
        for (int d = 0; d < dim_v; ++d) {
          const double r = o[static_cast<size_t>(d)];
          const double got =
              decode(run.o[row * static_cast<size_t>(dim_v) + static_cast<size_t>(d)], dtype);
          error2 += (got - r) * (got - r), norm2 += r * r;
          if (!(std::abs(got - r) <= atol + rtol * std::abs(r)) || (keys.empty() && got != 0))
            return fmt::format("o of sequence {} head {} row {} column {}: {} not {}", b, h, i, d,
                               got, r);
        }
        if (p.config.write_lse) {
          const double r =
              keys.empty() ? -std::numeric_limits<double>::infinity() : top + std::log(total);
          const double got = run.lse[row];
          if (!(got == r || std::abs(got - r) <= 1e-4 + 1e-4 * std::abs(r)))
            return fmt::format("lse of sequence {} head {} row {}: {} not {}", b, h, i, got, r);
        }
      }
  }
  if (!(error2 <= bound * bound * norm2))
    return fmt::format("relative Frobenius error {}", std::sqrt(error2 / norm2));
  return "";
}

}  // namespace hstu::test
