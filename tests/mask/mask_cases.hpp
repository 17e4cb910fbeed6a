// SPDX-License-Identifier: Apache-2.0
// Parameters of one mask, and the mask written down twice more, from the rules alone: by clamped
// ids, and (self attention) spelled out region by region. Nothing here uses templates/mask.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <string>

struct MaskCase {
  bool causal = true, cross = false;
  int local_len = 0, context_len = 0, minfull_len = 0, targets = 0;
  int uih_q = 0, uih_kv = 0;

  int seqlen_q() const { return uih_q + context_len + targets; }
  int seqlen_kv() const { return cross ? uih_kv + context_len : seqlen_q(); }
  std::string text() const {
    return std::string(cross ? "cross" : "self") + (causal ? " causal" : " full") +
           " local=" + std::to_string(local_len) + " context=" + std::to_string(context_len) +
           " minfull=" + std::to_string(minfull_len) + " targets=" + std::to_string(targets) +
           " uih=" + std::to_string(uih_q) + "/" + std::to_string(uih_kv);
  }
};

// The effective lengths. The order matters: wide rows first, then the context.
struct Effective {
  int q, k;           // non-target lengths
  int wide, context;  // wide history rows, context tokens
  int window;
  bool local;
};

inline Effective effective(const MaskCase& c) {
  Effective e{};
  e.q = c.seqlen_q() - c.targets;
  e.k = c.cross ? c.seqlen_kv() : e.q;
  e.local = c.local_len > 0;
  e.context = c.context_len;
  if (e.local) {
    e.wide = e.q > c.minfull_len ? c.minfull_len : e.q;
    e.window = std::min({c.local_len, e.q, e.k});
    e.context = std::min(c.context_len, e.q - e.wide);
  }
  return e;
}

inline bool visible_by_ids(const MaskCase& c, int i, int j) {
  const Effective e = effective(c);
  const int shift = e.k - e.q;
  const bool contextual = e.context > 0;
  const int fold = contextual ? e.context - 1 : 0;
  const int top = e.k - fold;
  int row = std::min(i + shift - fold, top);
  int column = std::min(j - fold, top);
  if (contextual) {
    row = std::max(row, shift);
    column = std::max(column, 0);
  }
  if (contextual && row == shift && column < top) return true;
  const int distance = row - column;
  const bool free = !e.local || (e.wide > 0 && row >= top - e.wide);
  if (c.causal) return (distance > 0 || i + shift == j) && (free || distance <= e.window);
  if (!c.cross) return (distance != 0 || i == j) && (free || std::abs(distance) <= e.window);
  return free || std::abs(distance) <= e.window;
}

// Self attention by kind of row and key, as one would explain it.
inline bool visible_spelled_out(const MaskCase& c, int i, int j) {
  const Effective e = effective(c);
  const int u = e.q, w = e.window;
  const bool all = !e.local;
  const bool wide = e.local && e.wide > 0 && i >= u - e.wide;
  const bool target_key = j >= u, context_key = j < e.context;
  if (i >= u) {  // target row
    if (target_key) return i == j;
    if (all || e.wide > 0) return true;
    return context_key ? u - e.context + 1 <= w : u - j <= w;
  }
  if (i < e.context) {  // context row
    if (!target_key) return true;
    return !c.causal && (all || u - e.context + 1 <= w);
  }
  if (target_key) return !c.causal && (all || wide || u - i <= w);
  if (context_key) return all || wide || i - e.context + 1 <= w;
  if (c.causal && j > i) return false;
  return all || wide || std::abs(i - j) <= w;
}
