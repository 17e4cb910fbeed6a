// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "spec/keys.hpp"
#include "spec/parse.hpp"

namespace hstu::jit {
namespace {

using nlohmann::json;

// Above this a list ends where its last value starts to repeat, which reads back the same.
constexpr size_t kFullList = 65536;

template <typename Enum>
std::string word(const char* place, Enum value) {
  return spec_words(place)[static_cast<size_t>(value)];
}

// An empty batch has no list to show, and a batched layout takes one length.
json lengths(const std::vector<int32_t>& list, bool single) {
  if (list.empty()) return 0;
  if (single) return list.front();
  size_t count = list.size();
  if (count > kFullList)
    while (count > 1 && list[count - 1] == list[count - 2]) --count;
  return std::vector<int32_t>(list.begin(), list.begin() + static_cast<ptrdiff_t>(count));
}

json scale(double value) { return value == 0 ? json(nullptr) : json(value); }

json groups(const std::vector<GroupSpec>& list) {
  json out = json::array();
  for (const GroupSpec& g : list)
    out.push_back({{"local_len", g.local_len},
                   {"context_len", g.context_len},
                   {"minfull_len", g.minfull_len},
                   {"attn_scale", scale(g.attn_scale)},
                   {"max_uih_length", g.max_uih_length}});
  return out;
}

json data(const DataSpec& d) {
  json out{{"init", word("/data/init", d.init)}, {"seed", d.seed}, {"same_qkv", d.same_qkv}};
  if (d.init == DataSpec::Init::files)
    out["files"] = {{"q", d.q_file}, {"k", d.k_file}, {"v", d.v_file}};
  return out;
}

void add_strides(json& out, const char* tensor, const std::optional<StrideSpec>& strides) {
  if (strides) out["strides"][tensor] = {strides->batch, strides->seq, strides->head};
}

json problem_json(const Problem& p) {
  const bool batched = p.layout == Layout::batched;
  json out{{"op", spec_words("/op").front()},
           {"name", p.name},
           {"dtype", word("/dtype", p.dtype)},
           {"heads", p.heads},
           {"head_dim_qk", p.head_dim_qk},
           {"head_dim_v", p.head_dim_v},
           {"layout", word("/layout", p.layout)},
           {"batch", p.batch},
           {"uih_lengths", lengths(p.uih_q, batched)},
           {"num_targets", lengths(p.num_targets, false)},
           {"max_uih_length", p.max_uih_q},
           {"max_uih_length_kv", p.max_uih_kv},
           {"max_targets", p.max_targets},
           {"activation", word("/activation", p.activation)},
           {"alpha", scale(p.alpha)},
           {"attn_scale", scale(p.attn_scale)},
           {"training", p.training},
           {"data", data(p.data)},
           {"target", p.target},
           {"device", p.device}};
  out["mask"] = {{"causal", p.causal},
                 {"local_len", p.mask.local_len},
                 {"context_len", p.mask.context_len},
                 {"minfull_len", p.mask.minfull_len}};
  if (p.cross) out["uih_lengths_kv"] = lengths(p.uih_kv, batched);
  if (p.grouped()) out["groups"] = groups(p.groups);
  if (p.validate.enabled && p.validate.rows > 0)
    out["validate"] = {{"rows", p.validate.rows}};
  else
    out["validate"] = p.validate.enabled;
  add_strides(out, "q", p.q_strides);
  add_strides(out, "k", p.k_strides);
  add_strides(out, "v", p.v_strides);
  add_strides(out, "o", p.o_strides);
  if (p.benchmark)
    out["benchmark"] = {{"warmup", p.benchmark->warmup},
                        {"iterations", p.benchmark->iterations},
                        {"flush_l2", p.benchmark->flush_l2}};
  if (!p.dump_dir.empty()) out["output"]["dump"] = p.dump_dir;
  if (!p.mask_path.empty()) out["output"]["mask"] = p.mask_path;
  return out;
}

}  // namespace

std::string to_json(const Problem& problem, int indent) {
  // A path from a command line need not be UTF-8: such bytes are replaced, never thrown about.
  return problem_json(problem).dump(indent, ' ', false, json::error_handler_t::replace);
}

}  // namespace hstu::jit
