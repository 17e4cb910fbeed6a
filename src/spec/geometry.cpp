// SPDX-License-Identifier: Apache-2.0
#include "spec/geometry.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <utility>

#include "spec/extents.hpp"

namespace hstu::jit {
namespace {

MaskFeatures features_of(const Problem& p, const Extents& extents) {
  MaskFeatures f{};
  f.causal = p.causal;
  f.cross = p.cross;
  f.targets = extents.targets;
  const auto add = [&f](const GroupSpec& g) {
    f.local = f.local || g.local_len > 0;
    f.context = f.context || g.context_len > 0;
    f.minfull = f.minfull || g.minfull_len > 0;
  };
  if (p.grouped())
    for (const GroupSpec& g : p.groups) add(g);
  else
    add(p.mask);
  f.minfull = f.minfull && f.local;  // min-full rows only lift the window
  return f;
}

float output_scale(const Problem& p, double given, int32_t max_seqlen_q) {
  if (given != 0) return static_cast<float>(given);
  if (p.activation == Activation::softmax || max_seqlen_q == 0) return 1.0f;
  return static_cast<float>(1.0 / max_seqlen_q);
}

GroupArguments arguments_of(const Problem& p, const GroupSpec& g, double scale, int32_t max_q) {
  return {g.local_len, g.context_len, g.minfull_len, output_scale(p, scale, max_q)};
}

void add_sequences(const Problem& p, Geometry& g) {
  const bool jagged = p.layout == Layout::jagged;
  const int64_t per_group = p.grouped() ? p.batch / static_cast<int64_t>(p.groups.size()) : 0;
  g.sequences.resize(p.batch);
  if (jagged) {
    g.seq_offsets_q.resize(p.batch + 1);
    g.seq_offsets_kv.resize(p.batch + 1);
  }
  int64_t first_q = 0, first_kv = 0;
  for (int64_t b = 0; b < p.batch; ++b) {
    Geometry::Sequence& s = g.sequences[b];
    s.targets = p.num_targets[b];
    s.group = p.grouped() ? static_cast<int32_t>(b / per_group) : 0;
    s.first_q = first_q;
    s.first_kv = first_kv;
    if (jagged) {
      const int32_t context = g.groups[s.group].context_len;
      s.seqlen_q = p.uih_q[b] + context + s.targets;
      s.seqlen_kv = p.uih_kv[b] + context + (p.cross ? 0 : s.targets);
      g.seq_offsets_q[b + 1] = static_cast<int32_t>(first_q + s.seqlen_q);
      g.seq_offsets_kv[b + 1] = static_cast<int32_t>(first_kv + s.seqlen_kv);
    } else {
      s.seqlen_q = g.max_seqlen_q;
      s.seqlen_kv = g.max_seqlen_kv;
    }
    first_q += s.seqlen_q;
    first_kv += s.seqlen_kv;
  }
}

int64_t keys_of_row(const MaskFeatures& f, const SequenceMask& m, int row) {
  const RowKeys r = row_keys(f, m, row);
  return std::max(0, r.end - r.begin) + (r.diagonal ? 1 : 0);
}

}  // namespace

SequenceMask Geometry::mask_of(int64_t b) const {
  const Sequence& s = sequences[b];
  const GroupArguments& g = groups[s.group];
  return resolve_mask(features, s.seqlen_q, s.seqlen_kv, s.targets, g.local_len, g.context_len,
                      g.minfull_len);
}

Result<Geometry> make_geometry(const Problem& p) {
  auto measured = measure(p);
  if (!measured.ok()) return std::move(measured).error();
  const Extents& e = *measured;

  Geometry g;
  g.max_seqlen_q = e.max_seqlen_q;
  g.max_seqlen_kv = e.max_seqlen_kv;
  g.longest_q = e.longest_q;
  g.tokens_q = e.tokens_q;
  g.tokens_kv = e.tokens_kv;
  g.features = features_of(p, e);
  g.alpha = static_cast<float>(p.alpha != 0 ? p.alpha : 1.0 / std::sqrt(double(p.head_dim_qk)));
  if (p.grouped())
    for (size_t i = 0; i < p.groups.size(); ++i)
      g.groups.push_back(arguments_of(p, p.groups[i], p.groups[i].attn_scale, e.group_max_q[i]));
  else
    g.groups.push_back(arguments_of(p, p.mask, p.attn_scale, e.max_seqlen_q));
  add_sequences(p, g);

  g.q = e.q.strides, g.q_elements = e.q.elements;
  g.k = e.k.strides, g.k_elements = e.k.elements;
  g.v = e.v.strides, g.v_elements = e.v.elements;
  g.o = e.o.strides, g.o_elements = e.o.elements;
  g.lse = e.lse.strides, g.lse_elements = e.lse.elements;
  return g;
}

int64_t visible_pairs(const MaskFeatures& f, const SequenceMask& m) {
  // Between two of these rows both ends of the interval are linear in the row (or constant): every
  // comparison and clamp of row_keys changes its outcome at one of them.
  const int64_t places[] = {m.context,
                            m.rows,
                            m.wide_begin,
                            -int64_t{m.shift},
                            int64_t{m.context} - m.shift,
                            int64_t{m.window} + m.context - m.shift,
                            int64_t{m.window} - m.shift,
                            -int64_t{m.window} - m.shift,
                            int64_t{m.context} - m.window - m.shift,
                            int64_t{m.keys} - m.window - m.shift,
                            int64_t{m.keys} - m.shift};
  std::array<int64_t, 2 + 5 * std::size(places)> cuts{0, m.seqlen_q};
  size_t count = 2;
  for (const int64_t place : places)
    for (int64_t cut = place - 2; cut <= place + 2; ++cut)
      if (cut > 0 && cut < m.seqlen_q) cuts[count++] = cut;
  std::sort(cuts.begin(), cuts.begin() + count);
  int64_t pairs = 0;
  for (size_t c = 0; c + 1 < count; ++c) {
    const int64_t rows = cuts[c + 1] - cuts[c];
    if (rows == 0) continue;
    const int64_t first = keys_of_row(f, m, static_cast<int>(cuts[c]));
    const int64_t last = keys_of_row(f, m, static_cast<int>(cuts[c + 1] - 1));
    pairs += rows * (first + last) / 2;
  }
  return pairs;
}

int64_t visible_pairs(const Geometry& g) {
  int64_t pairs = 0, previous = 0;
  for (size_t b = 0; b < g.sequences.size(); ++b) {
    const Geometry::Sequence& s = g.sequences[b];
    const bool same = b > 0 && s.seqlen_q == g.sequences[b - 1].seqlen_q &&
                      s.seqlen_kv == g.sequences[b - 1].seqlen_kv &&
                      s.targets == g.sequences[b - 1].targets &&
                      s.group == g.sequences[b - 1].group;
    if (!same) previous = visible_pairs(g.features, g.mask_of(static_cast<int64_t>(b)));
    pairs += previous;
  }
  return pairs;
}

int64_t dense_pairs(const Geometry& g) {
  int64_t pairs = 0;
  for (const Geometry::Sequence& s : g.sequences) pairs += int64_t{s.seqlen_q} * s.seqlen_kv;
  return pairs;
}

}  // namespace hstu::jit
