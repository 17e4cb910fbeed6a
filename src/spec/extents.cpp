// SPDX-License-Identifier: Apache-2.0
#include "spec/extents.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>

#include "spec/spec_error.hpp"

namespace hstu::jit {
namespace {

// Counts stay below this, so that bytes (2 or 4 an element) and sums of a few tensors fit int64.
constexpr int64_t kMaxCount = std::numeric_limits<int64_t>::max() / 64;

// Pairs of one head: 2^60 for the longest sequence.
constexpr int64_t kMaxPairs = std::numeric_limits<int64_t>::max() / 2;

// a * b, or nothing when it passes the limit; both are >= 0.
std::optional<int64_t> times(int64_t a, int64_t b, int64_t limit = kMaxCount) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product) || product > limit) return std::nullopt;
  return product;
}

bool add_product(int64_t& sum, int64_t a, int64_t b, int64_t limit = kMaxCount) {
  const auto product = times(a, b, limit);
  if (!product || sum > limit - *product) return false;
  sum += *product;
  return true;
}

// A parsed problem always passes; one put together by hand may not.
Status check_shape(const Problem& p) {
  if (p.heads < 1 || p.heads > kMaxHeads)
    return spec_error("/heads", fmt::format("found {}; allowed 1 to {}", p.heads, kMaxHeads));
  const auto bad_dim = [](int32_t d) { return d < 8 || d > kMaxHeadDim || d % 8 != 0; };
  const char* dims = "found {}; allowed a multiple of 8 from 8 to {}";
  if (bad_dim(p.head_dim_qk))
    return spec_error("/head_dim_qk", fmt::format(fmt::runtime(dims), p.head_dim_qk, kMaxHeadDim));
  if (bad_dim(p.head_dim_v))
    return spec_error("/head_dim_v", fmt::format(fmt::runtime(dims), p.head_dim_v, kMaxHeadDim));
  if (p.batch < 0 || p.batch > kMaxBatch)
    return spec_error("/batch", fmt::format("found {}; allowed 0 to {}", p.batch, kMaxBatch));
  const auto sized = [&](const std::vector<int32_t>& list) {
    return static_cast<int64_t>(list.size()) == p.batch;
  };
  if (!sized(p.uih_q) || !sized(p.uih_kv) || !sized(p.num_targets))
    return spec_error("/batch", "the length lists of the problem do not have batch entries");
  if (p.grouped()) {
    const auto count = static_cast<int64_t>(p.groups.size());
    if (count < 2) return spec_error("/groups", "found one group; allowed two or more, or mask");
    if (p.layout == Layout::batched)
      return spec_error("/layout", "found batched; allowed jagged in group mode");
    if (p.batch % count != 0)
      return spec_error("/groups", fmt::format("found {} groups; allowed a count that divides "
                                               "batch {} evenly",
                                               count, p.batch));
  }
  return {};
}

Status check_mask_lengths(const Problem& p) {
  const auto check = [](const GroupSpec& g, const std::string& at) -> Status {
    const auto bad = [](int32_t n) { return n < 0 || n > kMaxLength; };
    for (auto [value, key] : {std::pair{g.local_len, "/local_len"},
                              {g.context_len, "/context_len"},
                              {g.minfull_len, "/minfull_len"},
                              {g.max_uih_length, "/max_uih_length"}})
      if (bad(value))
        return spec_error(at + key, fmt::format("found {}; allowed 0 to {}", value, kMaxLength));
    return {};
  };
  if (auto s = check(p.mask, "/mask"); !s.ok()) return s;
  for (size_t g = 0; g < p.groups.size(); ++g)
    if (auto s = check(p.groups[g], fmt::format("/groups/{}", g)); !s.ok()) return s;
  return {};
}

// Longest list entries and largest target count over batches [begin, end).
struct Longest {
  int64_t uih_q = 0, uih_kv = 0, targets = 0;
};

Result<Longest> longest_of(const Problem& p, int64_t begin, int64_t end) {
  Longest most;
  const auto bad = [](int32_t n) { return n < 0 || n > kMaxLength; };
  const char* range = "found {}; allowed 0 to {}";
  for (int64_t b = begin; b < end; ++b) {
    if (bad(p.uih_q[b]))
      return spec_error("/uih_lengths", fmt::format(fmt::runtime(range), p.uih_q[b], kMaxLength));
    if (bad(p.uih_kv[b]))
      return spec_error("/uih_lengths_kv",
                        fmt::format(fmt::runtime(range), p.uih_kv[b], kMaxLength));
    if (bad(p.num_targets[b]))
      return spec_error("/num_targets",
                        fmt::format(fmt::runtime(range), p.num_targets[b], kMaxLength));
    most.uih_q = std::max<int64_t>(most.uih_q, p.uih_q[b]);
    most.uih_kv = std::max<int64_t>(most.uih_kv, p.uih_kv[b]);
    most.targets = std::max<int64_t>(most.targets, p.num_targets[b]);
  }
  return most;
}

// `longest` replaced by the override, which must cover it.
Status override_length(int64_t& longest, int32_t value, const std::string& pointer) {
  if (value == 0) return {};
  if (value < longest)
    return spec_error(pointer, fmt::format("found {}; allowed 0 or at least the longest entry, {}",
                                           value, longest));
  longest = value;
  return {};
}

Error too_long(const char* pointer, int64_t length) {
  return spec_error(pointer, fmt::format("found a physical length of {} (uih + context + targets); "
                                         "allowed at most {}: too large",
                                         length, kMaxLength));
}

// The largest physical lengths, of each group and of the whole problem.
Status measure_maxima(const Problem& p, Extents& out) {
  const int64_t count = p.grouped() ? static_cast<int64_t>(p.groups.size()) : 1;
  const int64_t per_group = p.batch / count;
  for (int64_t g = 0; g < count; ++g) {
    auto found = longest_of(p, g * per_group, (g + 1) * per_group);
    if (!found.ok()) return std::move(found).error();
    Longest most = *found;
    out.targets = out.targets || most.targets > 0;
    const GroupSpec& group = p.grouped() ? p.groups[g] : p.mask;
    const int32_t max_q = p.grouped() ? group.max_uih_length : p.max_uih_q;
    // A group without a length of its own takes the top level's: name the key that was written.
    const std::string at = p.grouped() && max_q != p.max_uih_q
                               ? fmt::format("/groups/{}/max_uih_length", g)
                               : "/max_uih_length";
    if (auto s = override_length(most.uih_q, max_q, at); !s.ok()) return s;
    const int32_t max_kv = p.max_uih_kv != 0 || p.cross ? p.max_uih_kv : max_q;
    if (auto s = override_length(most.uih_kv, max_kv, "/max_uih_length_kv"); !s.ok()) return s;
    int64_t targets = most.targets;
    if (auto s = override_length(targets, p.max_targets, "/max_targets"); !s.ok()) return s;
    if (p.grouped()) targets = most.targets;

    const int64_t longest_q = most.uih_q + group.context_len + targets;
    const int64_t longest_kv = most.uih_kv + group.context_len + (p.cross ? 0 : targets);
    if (longest_q > kMaxLength) return too_long("/uih_lengths", longest_q);
    if (longest_kv > kMaxLength)
      return too_long(p.cross ? "/uih_lengths_kv" : "/max_uih_length_kv", longest_kv);
    out.group_max_q.push_back(static_cast<int32_t>(longest_q));
    out.max_seqlen_q = std::max(out.max_seqlen_q, static_cast<int32_t>(longest_q));
    out.max_seqlen_kv = std::max(out.max_seqlen_kv, static_cast<int32_t>(longest_kv));
  }
  if (p.layout == Layout::batched && !p.cross && out.max_seqlen_kv != out.max_seqlen_q)
    return spec_error("/max_uih_length_kv",
                      fmt::format("found {}; allowed the query side's maximum, or 0, in batched "
                                  "self attention",
                                  p.max_uih_kv));
  return {};
}

// Tokens of the whole batch and the size of the dense attention matrix.
Status measure_tokens(const Problem& p, Extents& out) {
  int64_t pairs = 0;
  bool fits = true;
  if (p.layout == Layout::batched) {
    out.longest_q = p.batch > 0 ? out.max_seqlen_q : 0;
    out.tokens_q = p.batch * out.max_seqlen_q;  // 2^24 * 2^30
    out.tokens_kv = p.batch * out.max_seqlen_kv;
    fits = add_product(pairs, out.tokens_q, out.max_seqlen_kv, kMaxPairs);
  } else {
    for (int64_t b = 0; b < p.batch; ++b) {
      const int64_t extra = p.group_of(b).context_len;
      const int64_t q = p.uih_q[b] + extra + p.num_targets[b];
      const int64_t kv = p.uih_kv[b] + extra + (p.cross ? 0 : p.num_targets[b]);
      out.longest_q = std::max(out.longest_q, static_cast<int32_t>(q));
      out.tokens_q += q;
      out.tokens_kv += kv;
      fits = fits && add_product(pairs, q, kv, kMaxPairs);
    }
    const char* sum =
        "found {} tokens in all (uih + context + targets); allowed at most {} in the "
        "jagged layout: too large";
    if (out.tokens_q > kMaxJaggedTokens)
      return spec_error("/uih_lengths",
                        fmt::format(fmt::runtime(sum), out.tokens_q, kMaxJaggedTokens));
    if (out.tokens_kv > kMaxJaggedTokens)
      return spec_error("/uih_lengths_kv",
                        fmt::format(fmt::runtime(sum), out.tokens_kv, kMaxJaggedTokens));
  }
  if (!fits)
    return spec_error("/batch",
                      "found more query-key pairs than 64 bits count; allowed fewer or "
                      "shorter sequences: too large");
  return {};
}

struct Shape {  // extents of one tensor, slowest first; its last dimension has stride 1
  int64_t batch, seq, heads, dim;
};

// Dense or given strides, and the elements from the first to the last one touched. `distinct`: no
// two elements may share a place (what a kernel writes).
Result<TensorExtent> measure_tensor(const Shape& s, const std::optional<StrideSpec>& given,
                                    bool jagged, bool distinct, const char* pointer) {
  const Error too_large = spec_error(pointer,
                                     "found more elements than 64 bits count; allowed "
                                     "fewer or shorter sequences: too large");
  TensorExtent t;
  const int64_t row = s.heads * s.dim;  // 65536 * 256
  if (given) {
    if (given->batch < 0 || given->seq < 0 || given->head < 0)
      return spec_error(pointer, "found a negative stride; allowed 0 or more");
    t.strides = {jagged ? 0 : given->batch, given->seq, given->head};
  } else {
    const auto per_batch = times(s.seq, row);
    if (!per_batch) return too_large;
    t.strides = {jagged ? 0 : *per_batch, row, s.dim};
  }
  struct Axis {
    int64_t extent, stride;
  };
  std::array<Axis, 4> axes{
      {{s.batch, t.strides.batch}, {s.seq, t.strides.seq}, {s.heads, t.strides.head}, {s.dim, 1}}};
  for (const Axis& axis : axes)
    if (axis.extent == 0) return t;
  std::sort(axes.begin(), axes.end(),
            [](const Axis& a, const Axis& b) { return a.stride < b.stride; });
  int64_t last = 0;  // offset of the last element over the axes so far
  for (const Axis& axis : axes) {
    if (distinct && axis.extent > 1 && axis.stride <= last)
      return spec_error(pointer, fmt::format("found a stride of {}; allowed more than {}, or "
                                             "elements of the tensor overlap",
                                             axis.stride, last));
    if (!add_product(last, axis.extent - 1, axis.stride)) return too_large;
  }
  t.elements = last + 1;
  return t;
}

Status measure_tensors(const Problem& p, Extents& out) {
  const bool jagged = p.layout == Layout::jagged;
  const int64_t batch = jagged ? 1 : p.batch;
  const int64_t seq_q = jagged ? out.tokens_q : out.max_seqlen_q;
  const int64_t seq_kv = jagged ? out.tokens_kv : out.max_seqlen_kv;
  const Shape q{batch, seq_q, p.heads, p.head_dim_qk}, k{batch, seq_kv, p.heads, p.head_dim_qk},
      v{batch, seq_kv, p.heads, p.head_dim_v}, o{batch, seq_q, p.heads, p.head_dim_v},
      lse{batch, seq_q, p.heads, 1};
  struct Item {
    TensorExtent& extent;
    const Shape& shape;
    const std::optional<StrideSpec>& given;
    bool distinct;
    const char* pointer;  // what to change: the strides, or the batch where there are none
  };
  const std::optional<StrideSpec> none;
  for (const Item& i : {Item{out.q, q, p.q_strides, false, "/strides/q"},
                        {out.k, k, p.k_strides, false, "/strides/k"},
                        {out.v, v, p.v_strides, false, "/strides/v"},
                        {out.o, o, p.o_strides, true, "/strides/o"},
                        {out.lse, lse, none, true, "/batch"}}) {
    auto extent =
        measure_tensor(i.shape, i.given, jagged, i.distinct, i.given ? i.pointer : "/batch");
    if (!extent.ok()) return std::move(extent).error();
    i.extent = *extent;
  }
  return {};
}

}  // namespace

Result<Extents> measure(const Problem& p) {
  Extents out;
  for (auto step : {check_shape, check_mask_lengths})
    if (auto s = step(p); !s.ok()) return std::move(s).error();
  for (auto step : {measure_maxima, measure_tokens, measure_tensors})
    if (auto s = step(p, out); !s.ok()) return std::move(s).error();
  return out;
}

Status check_geometry(const Problem& problem) {
  auto extents = measure(problem);
  if (!extents.ok()) return std::move(extents).error();
  return {};
}

}  // namespace hstu::jit
