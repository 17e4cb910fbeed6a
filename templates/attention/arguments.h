// SPDX-License-Identifier: Apache-2.0
// The one argument of every forward kernel, passed by value (GPU) or by pointer (cpu). Host and
// device include this same file, so the layout cannot drift apart.
#pragma once

namespace hstu {

// Element strides of one tensor; the last dimension (head_dim) has stride 1. In the jagged layout
// `batch` is 0 and a token's index is seq_offsets[b] + i.
struct Strides {
  long long batch;
  long long seq;
  long long head;
};

// Mask lengths and output scale of one group of sequences (one group unless in group mode).
struct GroupArguments {
  int local_len;
  int context_len;
  int minfull_len;
  float attn_scale;  // already resolved: never 0 for "default"
};

struct ForwardArguments {
  const unsigned short* q;  // [batch, seqlen_q, heads, head_dim_qk] or [1, sum, heads, head_dim_qk]
  const unsigned short* k;
  const unsigned short* v;
  unsigned short* o;
  float* lse;                    // [.., seq, heads]; null unless the kernel writes LSE
  const int* seq_offsets_q;      // batch + 1 entries; null when batched
  const int* seq_offsets_kv;     // batch + 1 entries; null when batched
  const int* num_targets;        // batch entries; null when there are none
  const GroupArguments* groups;  // one per group; null outside group mode
  Strides q_strides;
  Strides k_strides;
  Strides v_strides;
  Strides o_strides;
  Strides lse_strides;
  GroupArguments uniform;  // used outside group mode
  float alpha;             // logit scale, already resolved
  int batch;
  int heads;
  int seqlen_q;           // batched: length of every sequence; jagged: the largest query length
  int seqlen_kv;          // likewise for keys
  int batches_per_group;  // batch b belongs to group b / batches_per_group
};

// A tensor as the copy engine of NVIDIA's sm_90 knows it: opaque, encoded by the driver.
// Dimensions (innermost first) head_dim, tokens of a batch entry, heads, batch entries; the box is
// 64 elements of a number of tokens, with 128-byte swizzle, elements outside read as zero.
struct alignas(64) TensorMap {
  unsigned long long words[16];
};

// The one argument of the kernels for sm_90a.
struct HopperArguments {
  ForwardArguments forward;
  TensorMap q, k, v;  // in boxes of 64 tokens (q) and tile_n (k, v)
  TensorMap o;  // in boxes of kHopperWrittenRows tokens; unused by kernels with one query buffer
  // Two words, zero before the first launch and again after each; launches that may run at the
  // same time need their own.
  unsigned* counters;
};

}  // namespace hstu
