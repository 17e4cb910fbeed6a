// SPDX-License-Identifier: Apache-2.0
// The HSTU mask, once for every kernel, for the host and for the reference: which keys a query row
// sees, as a predicate and as an interval, and what that makes of a tile of rows.
//
// Token order: query side and self-attention key side [context | history | targets]; the key side
// of cross attention has no targets. Queries and keys are aligned at the end of their non-target
// parts.
#pragma once

#include "base/types.h"

namespace hstu {

// Which parts of the mask exist at all. A kernel passes a constant, so absent parts vanish.
struct MaskFeatures {
  bool causal;
  bool cross;
  bool local;    // local_len > 0 somewhere
  bool context;  // context_len > 0 somewhere
  bool minfull;  // minfull_len > 0 somewhere (no effect without local)
  bool targets;  // some sequence has targets
};

// The numbers of one sequence after clamping. All lengths are below 2^30.
struct SequenceMask {
  int seqlen_q;  // physical lengths
  int seqlen_kv;
  int rows;        // non-target query rows (context + history)
  int keys;        // non-target keys
  int shift;       // keys - rows: row i stands at key position i + shift
  int window;      // distance a row sees back (and ahead, if not causal); meaningless if !local
  int wide_begin;  // rows from here on are free of the window; seqlen_q if there are none
  int context;     // effective number of context tokens
  bool local;      // this sequence has a window
};

HSTU_HOST_DEVICE constexpr SequenceMask resolve_mask(MaskFeatures f, int seqlen_q, int seqlen_kv,
                                                     int num_targets, int local_len,
                                                     int context_len, int minfull_len) {
  SequenceMask m{};
  const int targets = f.targets ? num_targets : 0;
  m.seqlen_q = seqlen_q;
  m.seqlen_kv = seqlen_kv;
  m.rows = seqlen_q - targets;
  m.keys = f.cross ? seqlen_kv : m.rows;
  m.shift = f.cross ? m.keys - m.rows : 0;
  m.local = f.local && local_len > 0;
  m.context = f.context ? context_len : 0;
  m.wide_begin = seqlen_q;
  if (m.local) {
    m.window = min_of(local_len, min_of(m.rows, m.keys));
    const int wide = f.minfull ? min_of(minfull_len, m.rows) : 0;
    if (wide > 0) m.wide_begin = m.rows - wide;
    m.context = min_of(m.context, m.rows - wide);
  }
  return m;
}

// Keys a row sees: [begin, end), plus its own position when `diagonal` (a target row's own key).
struct RowKeys {
  int begin;
  int end;
  bool diagonal;
};

// True if query row i sees key j; 0 <= i < seqlen_q, 0 <= j < seqlen_kv. Written from positions and
// distances, independently of row_keys below; tests hold the two against each other.
HSTU_HOST_DEVICE constexpr bool visible(MaskFeatures f, const SequenceMask& m, int i, int j) {
  const bool target_key = !f.cross && j >= m.keys;
  if (i < m.context && !target_key) return true;
  const int row_position = i >= m.rows     ? m.keys
                           : i < m.context ? m.context - 1 + m.shift
                                           : i + m.shift;
  const int key_position = target_key ? m.keys : j < m.context ? m.context - 1 : j;
  const int distance = row_position - key_position;
  const bool unbounded = !m.local || i >= m.wide_begin;
  if (f.causal) return (distance > 0 || i + m.shift == j) && (unbounded || distance <= m.window);
  const int span = distance < 0 ? -distance : distance;
  if (!f.cross && distance == 0 && i != j) return false;
  return unbounded || span <= m.window;
}

// The keys of row i as an interval (and the diagonal), 0 <= i < seqlen_q.
HSTU_HOST_DEVICE constexpr RowKeys row_keys(MaskFeatures f, const SequenceMask& m, int i) {
  const bool bounded = f.local && m.local && !(f.minfull && i >= m.wide_begin);
  // The context block stands one slot before the history: a window that reaches it shows it whole.
  if (f.targets && i >= m.rows) {
    const bool all = !bounded || m.keys - m.context + 1 <= m.window;
    return {all ? 0 : m.keys - m.window, m.keys, !f.cross};
  }
  if (f.context && i < m.context) {
    const bool sees_targets =
        !f.causal && !f.cross && (!m.local || m.keys - m.context + 1 <= m.window);
    return {0, sees_targets ? m.seqlen_kv : m.keys, false};
  }
  const int p = i + m.shift;
  if (f.causal) {
    if (f.cross && p < m.context) return {max_of(p, 0), max_of(p + 1, 0), false};
    const bool to_start = !bounded || p - m.context + 1 <= m.window;
    return {to_start ? 0 : p - m.window, p + 1, false};
  }
  if (!bounded) return {0, m.seqlen_kv, false};
  if (f.cross && p < m.context) {
    if (m.context - 1 - p > m.window) return {0, 0, false};
    return {0, max_of(m.context, min_of(m.keys, p + m.window + 1)), false};
  }
  const bool to_start = p - m.context + 1 <= m.window;
  const bool to_end = m.keys - p <= m.window;
  return {to_start ? 0 : p - m.window, to_end ? m.seqlen_kv : p + m.window + 1, false};
}

// What the rows [row_begin, row_end) of one tile see together.
//   [begin, end)            hull: no key outside it, the diagonal aside, is seen by any row
//   [full_begin, full_end)  seen by every row: key tiles inside need no mask code
//   [diagonal_begin, diagonal_end)  own keys of the target rows among them
struct TileKeys {
  int begin, end;
  int full_begin, full_end;
  int diagonal_begin, diagonal_end;
};

enum class TileClass { skip, full, partial };

HSTU_HOST_DEVICE constexpr void add_row(TileKeys& t, MaskFeatures f, const SequenceMask& m, int i,
                                        int row_begin, int row_end) {
  if (i < row_begin || i >= row_end) return;
  const RowKeys r = row_keys(f, m, i);
  if (r.begin < r.end) {
    t.begin = min_of(t.begin, r.begin);
    t.end = max_of(t.end, r.end);
  }
  t.full_begin = max_of(t.full_begin, r.begin);
  t.full_end = min_of(t.full_end, r.end);
}

// Rows at or past seqlen_q are ignored. Between the places where row_keys changes its form both
// ends only grow with the row, so the rows on either side of each such place decide.
HSTU_HOST_DEVICE constexpr TileKeys tile_keys(MaskFeatures f, const SequenceMask& m, int row_begin,
                                              int row_end) {
  row_end = min_of(row_end, m.seqlen_q);
  TileKeys t{m.seqlen_kv, 0, 0, m.seqlen_kv, 0, 0};
  if (row_begin >= row_end) return {0, 0, 0, 0, 0, 0};
  add_row(t, f, m, row_begin, row_begin, row_end);
  add_row(t, f, m, row_end - 1, row_begin, row_end);
  if (f.context) {
    add_row(t, f, m, m.context - 1, row_begin, row_end);
    add_row(t, f, m, m.context, row_begin, row_end);
  }
  if (f.cross) {
    add_row(t, f, m, -m.shift - 1, row_begin, row_end);
    add_row(t, f, m, -m.shift, row_begin, row_end);
    add_row(t, f, m, m.context - m.shift - 1, row_begin, row_end);
    add_row(t, f, m, m.context - m.shift, row_begin, row_end);
  }
  if (f.minfull) {
    add_row(t, f, m, m.wide_begin - 1, row_begin, row_end);
    add_row(t, f, m, m.wide_begin, row_begin, row_end);
  }
  if (f.targets) {
    add_row(t, f, m, m.rows - 1, row_begin, row_end);
    add_row(t, f, m, m.rows, row_begin, row_end);
    if (!f.cross && row_end > m.rows) {
      t.diagonal_begin = max_of(row_begin, m.rows);
      t.diagonal_end = row_end;
    }
  }
  if (t.begin >= t.end) t.begin = t.end = 0;
  if (t.full_begin >= t.full_end) t.full_begin = t.full_end = 0;
  return t;
}

// Class of the key tile [key_begin, key_end) (clipped to seqlen_kv) for those rows. `full` promises
// that every row sees every key; a tile called `partial` may turn out to hold no visible pair.
HSTU_HOST_DEVICE constexpr TileClass classify(const TileKeys& t, int key_begin, int key_end) {
  if (key_begin >= t.full_begin && key_end <= t.full_end) return TileClass::full;
  const bool main = key_begin < t.end && key_end > t.begin;
  const bool diagonal = key_begin < t.diagonal_end && key_end > t.diagonal_begin;
  return main || diagonal ? TileClass::partial : TileClass::skip;
}

}  // namespace hstu
