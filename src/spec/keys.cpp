// SPDX-License-Identifier: Apache-2.0
#include "spec/keys.hpp"

#include <string_view>
#include <vector>

namespace hstu::jit {
namespace {

using Words = std::vector<std::string>;

const Words& top() {
  static const Words keys{"$schema",        "op",
                          "name",           "dtype",
                          "heads",          "head_dim_qk",
                          "head_dim_v",     "layout",
                          "batch",          "uih_lengths",
                          "uih_lengths_kv", "num_targets",
                          "max_uih_length", "max_uih_length_kv",
                          "max_targets",    "mask",
                          "groups",         "activation",
                          "alpha",          "attn_scale",
                          "training",       "data",
                          "target",         "device",
                          "validate",       "strides",
                          "benchmark",      "output"};
  return keys;
}
const Words& mask() {
  static const Words keys{"causal", "local_len", "context_len", "minfull_len"};
  return keys;
}
const Words& group() {
  static const Words keys{"local_len", "context_len", "minfull_len", "attn_scale",
                          "max_uih_length"};
  return keys;
}
const Words& data() {
  static const Words keys{"init", "seed", "same_qkv", "files"};
  return keys;
}
const Words& files() {
  static const Words keys{"q", "k", "v"};
  return keys;
}
const Words& validate() {
  static const Words keys{"rows"};
  return keys;
}
const Words& strides() {
  static const Words keys{"q", "k", "v", "o"};
  return keys;
}
const Words& benchmark() {
  static const Words keys{"warmup", "iterations", "flush_l2"};
  return keys;
}
const Words& output() {
  static const Words keys{"dump", "mask"};
  return keys;
}

}  // namespace

std::span<const SpecLevel> spec_levels() {
  static const std::vector<SpecLevel> levels{
      {"", top()},
      {"/mask", mask()},
      {"/groups/*", group()},
      {"/data", data()},
      {"/data/files", files()},
      {"/validate", validate()},
      {"/strides", strides()},
      {"/benchmark", benchmark()},
      {"/output", output()},
  };
  return levels;
}

std::span<const std::string> spec_keys(std::string_view place) {
  for (const SpecLevel& level : spec_levels())
    if (level.place == place) return level.keys;
  return {};
}

std::span<const std::string> spec_words(std::string_view place) {
  // In the order of the enumerations they name.
  static const Words op{"hstu_attention"}, dtype{"fp16", "bf16"}, layout{"batched", "jagged"},
      activation{"silu", "softmax"}, init{"normal", "uniform", "files"};
  if (place == "/op") return op;
  if (place == "/dtype") return dtype;
  if (place == "/layout") return layout;
  if (place == "/activation") return activation;
  if (place == "/data/init") return init;
  return {};
}

}  // namespace hstu::jit
