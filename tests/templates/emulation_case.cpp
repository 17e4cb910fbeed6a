// SPDX-License-Identifier: Apache-2.0
#include "emulation_case.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "attention/arguments.h"
#include "check/check.hpp"
#include "emulated_map.hpp"
#include "spec/geometry.hpp"
#include "tile/hopper_shape.h"

namespace hstu::test {
namespace {

constexpr uint16_t kPoison = 0x7fff;  // NaN in fp16 and in bf16

// A tensor that ends, or begins, right at memory that cannot be touched: once, or `copies` times
// `apart` bytes from each other.
class GuardedTensor {
 public:
  GuardedTensor(const void* data, size_t bytes, bool writable, bool at_end, int copies = 1,
                size_t apart = 0)
      : bytes_(bytes) {
    const size_t pages = (bytes + kPage - 1) / kPage * kPage;
    mapped_ = (copies - 1) * apart + pages + 3 * kPage;
    base_ = static_cast<char*>(
        mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (base_ == MAP_FAILED) throw std::bad_alloc();
    data_ = base_ + kPage + (at_end ? pages - bytes : 0);
    for (int c = 0; c < copies; ++c) {
      char* copy = data_ + c * apart;
      char* first = base_ + (copy - base_) / kPage * kPage;
      if (bytes == 0) continue;
      mprotect(first, (copy - first + bytes + kPage - 1) / kPage * kPage, PROT_READ | PROT_WRITE);
      std::memcpy(copy, data, bytes);
      emulator::allow_memory(copy, bytes, writable);
    }
  }
  ~GuardedTensor() { munmap(base_, mapped_); }
  GuardedTensor(const GuardedTensor&) = delete;
  GuardedTensor& operator=(const GuardedTensor&) = delete;

  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  template <class T>
  std::vector<T> content() const {
    return std::vector<T>(as<T>(), as<T>() + bytes_ / sizeof(T));
  }

 private:
  static constexpr size_t kPage = 4096;
  size_t bytes_, mapped_;
  char *base_, *data_;
};

template <class T>
size_t bytes_of(const std::vector<T>& v) {
  return v.size() * sizeof(T);
}

std::string describe(const emulator::Kernel& kernel, const jit::Problem& p) {
  std::string groups;
  for (const jit::GroupSpec& g : p.groups)
    groups += fmt::format(" ({},{},{})", g.local_len, g.context_len, g.minfull_len);
  return fmt::format(
      "{}: batch {} heads {} uih {} kv {} targets {} local {} context {} minfull {} groups{} "
      "strides {}",
      kernel.name, p.batch, p.heads, p.uih_q, p.uih_kv, p.num_targets, p.mask.local_len,
      p.mask.context_len, p.mask.minfull_len, groups, p.q_strides.has_value());
}

// Elements of the output that are no element of the tensor must be as they were.
std::string check_gaps(const jit::Problem& p, const jit::Geometry& g,
                       const std::vector<uint16_t>& o) {
  std::vector<bool> inside(o.size(), false);
  for (size_t b = 0; b < g.sequences.size(); ++b)
    for (int i = 0; i < g.sequences[b].seqlen_q; ++i)
      for (int h = 0; h < p.heads; ++h)
        for (int d = 0; d < p.head_dim_v; ++d)
          inside[jit::query_offset(g, g.o, static_cast<int64_t>(b), i, h) + d] = true;
  for (size_t e = 0; e < o.size(); ++e)
    if (!inside[e] && o[e] != kPoison) return fmt::format("wrote element {} between strides", e);
  return "";
}

// The tensors as the copy engine is told of them.
HopperArguments hopper_arguments(const emulator::Kernel& kernel, const jit::Geometry& g,
                                 const ForwardArguments& a) {
  HopperArguments out{};
  out.forward = a;
  const auto put = [&](const unsigned short* base, const Strides& s, int dim, int64_t tokens,
                       int box, TensorMap& map) {
    emulator::put({const_cast<unsigned short*>(base),
                   {dim, tokens, a.heads, kernel.jagged ? 1 : a.batch},
                   {s.seq, s.head, s.batch},
                   box},
                  map.words);
  };
  int64_t queries = 0, keys = 0;
  for (const auto& s : g.sequences) queries += s.seqlen_q, keys += s.seqlen_kv;
  if (!kernel.jagged) queries = g.longest_q, keys = g.max_seqlen_kv;
  put(a.q, a.q_strides, kernel.head_dim_qk, queries, 64, out.q);
  put(a.k, a.k_strides, kernel.head_dim_qk, keys, kernel.tile_n, out.k);
  put(a.v, a.v_strides, kernel.head_dim_v, keys, kernel.tile_n, out.v);
  put(a.o, a.o_strides, kernel.head_dim_v, queries, kHopperWrittenRows, out.o);
  return out;
}

}  // namespace

jit::Problem random_problem(const emulator::Kernel& k, std::mt19937& random) {
  const auto pick = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  const auto one_in = [&](int n) { return pick(1, n) == 1; };
  jit::Problem p;
  p.dtype = k.bf16 ? Dtype::bf16 : Dtype::fp16;
  p.activation = k.softmax ? Activation::softmax : Activation::silu;
  p.training = k.write_lse;
  p.layout = k.jagged ? jit::Layout::jagged : jit::Layout::batched;
  p.head_dim_qk = k.head_dim_qk;
  p.head_dim_v = k.head_dim_v;
  p.causal = k.causal;
  p.cross = k.cross;
  p.heads = pick(1, 2);
  p.batch = k.grouped ? 4 : pick(1, 3);
  const auto length = [&]() -> int {
    switch (pick(0, 7)) {
      case 0:
        return 0;
      case 1:
        return 1;
      case 2:
        return k.tile_m + pick(-1, 40);
      case 3:
        return k.tile_n * pick(1, 2);
      default:
        return pick(2, 3 * k.tile_n);
    }
  };
  const auto group = [&] {
    jit::GroupSpec g;
    if (k.local && !one_in(4)) g.local_len = one_in(4) ? pick(100, 400) : pick(1, 70);
    if (k.context && !one_in(4)) g.context_len = one_in(3) ? pick(40, 90) : pick(1, 12);
    if (k.minfull && !one_in(3)) g.minfull_len = one_in(4) ? 1000 : pick(1, 60);
    return g;
  };
  const int same = length();  // batched: one length, and the same overall for every sequence
  for (int64_t b = 0; b < p.batch; ++b) {
    p.uih_q.push_back(k.jagged ? length() : same);
    p.num_targets.push_back(!k.targets || one_in(4) ? 0 : one_in(4) ? pick(40, 100) : pick(1, 9));
  }
  const int same_kv = length();
  for (int64_t b = 0; b < p.batch; ++b)
    p.uih_kv.push_back(!k.cross ? p.uih_q[b] : k.jagged ? length() : same_kv);
  p.mask = group();
  if (k.grouped) p.groups = {group(), group()};
  if (one_in(3)) {
    const auto strides = [&](int dim) {
      jit::StrideSpec s;
      s.head = dim + 8 * pick(0, 2);
      s.seq = s.head * p.heads + 8 * pick(0, 3);
      return s;
    };
    p.q_strides = strides(p.head_dim_qk);
    p.k_strides = strides(p.head_dim_qk);
    p.v_strides = strides(p.head_dim_v);
    p.o_strides = strides(p.head_dim_v);
    // Batch strides of the batched layout: room for the longest sequence.
    if (!k.jagged)
      for (auto* s : {&*p.q_strides, &*p.k_strides, &*p.v_strides, &*p.o_strides})
        s->batch = s->seq * (same + same_kv + 500) + 8;
  }
  p.data.seed = random();
  return p;
}

std::string run_case(const emulator::Kernel& kernel, const jit::Problem& problem,
                     int64_t head_stride) {
  const auto wrong = [&](const std::string& what) {
    return describe(kernel, problem) + ": " + what;
  };
  const auto geometry = jit::make_geometry(problem);
  if (!geometry) return wrong("no geometry: " + geometry.error().message);
  const auto tensors = jit::make_tensors(problem, *geometry);
  if (!tensors) return wrong("no tensors: " + tensors.error().message);

  const bool at_end = problem.data.seed % 2 == 0;
  emulator::clear_memory();
  const std::vector<uint16_t> poison(geometry->o_elements, kPoison);
  const std::vector<float> lse_poison(geometry->lse_elements, __builtin_nanf(""));
  // A far head stride: head h is read and written in copy h of the dense tensor.
  const int copies = head_stride ? problem.heads : 1;
  const auto apart = [&](const Strides& s) {
    return head_stride ? static_cast<size_t>(head_stride - s.head) * sizeof(uint16_t) : 0;
  };
  const auto tensor = [&](const std::vector<uint16_t>& data, const Strides& s, bool writable) {
    return std::make_unique<GuardedTensor>(data.data(), bytes_of(data), writable, at_end, copies,
                                           apart(s));
  };
  const auto q = tensor(tensors->q, geometry->q, false);
  const auto k = tensor(tensors->k, geometry->k, false);
  const auto v = tensor(tensors->v, geometry->v, false);
  const auto o = tensor(poison, geometry->o, true);
  const GuardedTensor lse(lse_poison.data(), bytes_of(lse_poison), true, at_end);
  std::vector<int> targets;
  for (const auto& s : geometry->sequences) targets.push_back(s.targets);

  ForwardArguments a{};
  a.q = q->as<unsigned short>();
  a.k = k->as<unsigned short>();
  a.v = v->as<unsigned short>();
  a.o = o->as<unsigned short>();
  if (kernel.write_lse) a.lse = lse.as<float>();
  if (kernel.jagged) {
    a.seq_offsets_q = geometry->seq_offsets_q.data();
    a.seq_offsets_kv = geometry->seq_offsets_kv.data();
  }
  if (kernel.targets) a.num_targets = targets.data();
  if (kernel.grouped) {
    a.groups = geometry->groups.data();
    a.batches_per_group = static_cast<int>(problem.batch / std::ssize(problem.groups));
  } else {
    a.uniform = geometry->groups[0];
  }
  a.q_strides = geometry->q;
  a.k_strides = geometry->k;
  a.v_strides = geometry->v;
  a.o_strides = geometry->o;
  if (head_stride)
    a.q_strides.head = a.k_strides.head = a.v_strides.head = a.o_strides.head = head_stride;
  a.lse_strides = geometry->lse;
  a.alpha = geometry->alpha;
  a.batch = static_cast<int>(problem.batch);
  a.heads = problem.heads;
  a.seqlen_q = geometry->longest_q;
  a.seqlen_kv = geometry->max_seqlen_kv;
  const long long blocks =
      problem.batch * problem.heads * ceil_div(geometry->longest_q, kernel.tile_m);
  HopperArguments hopper = hopper_arguments(kernel, *geometry, a);
  unsigned counters[2] = {0, 0};
  hopper.counters = counters;
  // Workgroups of the Hopper kernels stay, and draw tiles, or two of them share each.
  const bool pairs = kernel.shares_tiles && problem.data.seed % 3 == 0 && blocks > 0;
  const std::string error = !kernel.asynchronous ? emulator::run(kernel, blocks, &a)
                            : pairs              ? emulator::run(kernel, 4, &hopper, 2)
                                    : emulator::run(kernel, std::min(blocks, 3LL), &hopper);
  if (!error.empty()) return wrong(error);
  if (counters[0] != 0 || counters[1] != 0) return wrong("counters were left behind");

  auto output = o->content<uint16_t>();
  for (size_t b = 0; b < geometry->sequences.size() && copies > 1; ++b)
    for (int i = 0; i < geometry->sequences[b].seqlen_q; ++i)
      for (int h = 1; h < problem.heads; ++h) {
        const int64_t at = jit::query_offset(*geometry, geometry->o, static_cast<int64_t>(b), i, h);
        const auto* copy = o->as<uint16_t>() + h * (head_stride - geometry->o.head);
        std::copy(copy + at, copy + at + problem.head_dim_v, output.begin() + at);
      }
  const std::string gaps = check_gaps(problem, *geometry, output);
  if (!gaps.empty()) return wrong(gaps);
  const jit::Comparison c =
      jit::compare(problem, *geometry, *tensors, output, lse.content<float>(), kernel.tile_m, {});
  return c.pass ? "" : wrong(c.summary);
}

}  // namespace hstu::test
