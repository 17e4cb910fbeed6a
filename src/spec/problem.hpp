// SPDX-License-Identifier: Apache-2.0
// Problem: one attention problem as the spec states it, with lists extended and sizes checked, but
// before anything a target decides.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/types.h"  // hstu::Dtype, hstu::Activation (templates/)

namespace hstu::jit {

enum class Layout { batched, jagged };

struct GroupSpec {
  int32_t local_len = 0;
  int32_t context_len = 0;
  int32_t minfull_len = 0;
  double attn_scale = 0;       // 0: default of the group
  int32_t max_uih_length = 0;  // 0: from the lists

  friend bool operator==(const GroupSpec&, const GroupSpec&) = default;
};

struct DataSpec {
  enum class Init { normal, uniform, files };
  Init init = Init::normal;
  uint64_t seed = 13579;
  bool same_qkv = false;
  std::string q_file, k_file, v_file;  // resolved against the spec's folder

  friend bool operator==(const DataSpec&, const DataSpec&) = default;
};

struct ValidateSpec {
  bool enabled = true;
  int64_t rows = 0;  // 0: every row; else sampled rows per head, boundary rows always

  friend bool operator==(const ValidateSpec&, const ValidateSpec&) = default;
};

struct BenchmarkSpec {
  int warmup = 3;
  int iterations = 10;
  bool flush_l2 = true;

  friend bool operator==(const BenchmarkSpec&, const BenchmarkSpec&) = default;
};

struct StrideSpec {  // element strides; last dimension has stride 1
  int64_t batch = 0, seq = 0, head = 0;

  friend bool operator==(const StrideSpec&, const StrideSpec&) = default;
};

struct Problem {
  std::string name;
  Dtype dtype = Dtype::bf16;
  int32_t heads = 0;
  int32_t head_dim_qk = 0;
  int32_t head_dim_v = 0;
  Layout layout = Layout::jagged;
  int64_t batch = 0;
  // UIH lengths and target counts, extended to `batch` entries (batched: all equal).
  std::vector<int32_t> uih_q;
  std::vector<int32_t> uih_kv;       // self attention: equal to uih_q
  std::vector<int32_t> num_targets;  // zeros when absent
  bool cross = false;
  int32_t max_uih_q = 0;  // 0: from the lists
  int32_t max_uih_kv = 0;
  int32_t max_targets = 0;
  bool causal = true;
  GroupSpec mask;                 // outside group mode
  std::vector<GroupSpec> groups;  // group mode: two or more, fall-backs already applied
  Activation activation = Activation::silu;
  double alpha = 0;       // 0: 1/sqrt(head_dim_qk)
  double attn_scale = 0;  // 0: 1/max_seqlen_q under SiLU, 1 under softmax
  bool training = false;  // softmax also returns LSE
  DataSpec data;
  std::string target = "auto";
  std::string device = "auto";
  ValidateSpec validate;
  std::optional<StrideSpec> q_strides, k_strides, v_strides, o_strides;
  std::optional<BenchmarkSpec> benchmark;
  std::string dump_dir;   // output.dump
  std::string mask_path;  // output.mask

  bool grouped() const { return !groups.empty(); }
  bool writes_lse() const { return activation == Activation::softmax && training; }
  const GroupSpec& group_of(int64_t b) const {
    return grouped() ? groups[b / (batch / static_cast<int64_t>(groups.size()))] : mask;
  }

  friend bool operator==(const Problem&, const Problem&) = default;
};

}  // namespace hstu::jit
