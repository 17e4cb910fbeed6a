// SPDX-License-Identifier: Apache-2.0
#include "spec/parse_parts.hpp"

#include <fmt/format.h>

#include "spec/geometry.hpp"

namespace hstu::jit {
namespace {

constexpr int64_t kMaxStride = int64_t{1} << 62;
constexpr int64_t kMaxRuns = 1000000;

int32_t length(ObjectReader& reader, std::string_view key, int32_t fallback) {
  return static_cast<int32_t>(reader.integer(key, 0, kMaxLength, fallback));
}

std::string resolved(const std::string& path, const std::string& folder) {
  if (path.empty() || path.front() == '/' || folder.empty()) return path;
  return folder.back() == '/' ? folder + path : folder + '/' + path;
}

std::optional<StrideSpec> read_stride(ObjectReader& reader, std::string_view key) {
  const Value* v = reader.find(key);
  if (!v) return std::nullopt;
  const std::string at = reader.pointer(key);
  if (!v->is(Value::Kind::array) || v->items().size() != 3) {
    reader.first().refuse(at, *v, "three element strides [batch, seq, head]");
    return std::nullopt;
  }
  int64_t strides[3];
  for (size_t i = 0; i < 3; ++i)
    strides[i] =
        read_integer(reader.first(), v->items()[i], fmt::format("{}/{}", at, i), 0, kMaxStride, 0);
  return StrideSpec{strides[0], strides[1], strides[2]};
}

}  // namespace

void read_mask(ObjectReader& top, Problem& p) {
  ObjectReader mask(top.first(), top.find("mask"), top.pointer("mask"), "/mask");
  mask.refuse_unknown_keys();
  p.causal = mask.boolean("causal", true);
  p.mask.local_len = length(mask, "local_len", 0);
  p.mask.context_len = length(mask, "context_len", 0);
  p.mask.minfull_len = length(mask, "minfull_len", 0);
}

void read_groups(ObjectReader& top, Problem& p) {
  const Value* list = top.find("groups");
  if (!list) return;
  const std::string at = top.pointer("groups");
  FirstError& first = top.first();
  if (!list->is(Value::Kind::array) || list->items().empty())
    return first.refuse(at, *list, "a list of two or more groups");
  const auto count = static_cast<int64_t>(list->items().size());
  if (count == 1) return first.refuse(at, *list, "two or more groups; for a single one use mask");
  if (p.layout == Layout::batched)
    return first.fail(top.pointer("layout"), "found batched; allowed jagged in group mode");
  if (p.batch % count != 0)
    return first.refuse(at, *list, fmt::format("a count that divides batch {} evenly", p.batch));
  p.groups.reserve(list->items().size());
  for (int64_t g = 0; g < count && !first.failed(); ++g) {
    ObjectReader group(first, &list->items()[g], fmt::format("{}/{}", at, g), "/groups/*");
    group.refuse_unknown_keys();
    GroupSpec spec;
    spec.local_len = length(group, "local_len", p.mask.local_len);
    spec.context_len = length(group, "context_len", p.mask.context_len);
    spec.minfull_len = length(group, "minfull_len", p.mask.minfull_len);
    spec.attn_scale = group.scale("attn_scale", p.attn_scale);
    spec.max_uih_length = length(group, "max_uih_length", p.max_uih_q);
    p.groups.push_back(spec);
  }
}

void read_data(ObjectReader& top, const std::string& folder, Problem& p) {
  ObjectReader data(top.first(), top.find("data"), top.pointer("data"), "/data");
  data.refuse_unknown_keys();
  p.data.init = static_cast<DataSpec::Init>(data.word("init", 0));
  p.data.seed = data.unsigned_integer("seed", p.data.seed);
  p.data.same_qkv = data.boolean("same_qkv", false);
  const bool from_files = p.data.init == DataSpec::Init::files;
  const Value* given = data.find("files");
  if (from_files && !given)
    return data.require("files", "an object with the paths q, k and v, as init is files");
  if (!from_files && given)
    return data.first().fail(data.pointer("files"),
                             "found paths though init is not files; allowed with \"init\": "
                             "\"files\" only");
  if (!from_files) return;
  if (p.data.same_qkv)
    return data.first().fail(data.pointer("same_qkv"),
                             "found true; allowed false when init is "
                             "files");
  ObjectReader files(top.first(), given, data.pointer("files"), "/data/files");
  files.refuse_unknown_keys();
  const auto path = [&](std::string_view key) {
    files.require(key, "the path of a raw little-endian file");
    return resolved(files.text(key, "", false), folder);
  };
  p.data.q_file = path("q");
  p.data.k_file = path("k");
  p.data.v_file = path("v");
}

void read_validate(ObjectReader& top, Problem& p) {
  const Value* v = top.find("validate");
  if (!v) return;
  if (v->is(Value::Kind::boolean)) {
    p.validate.enabled = v->boolean;
    return;
  }
  if (!v->is(Value::Kind::object))
    return top.first().refuse(top.pointer("validate"), *v, "true, false or {\"rows\": n}");
  ObjectReader rows(top.first(), v, top.pointer("validate"), "/validate");
  rows.refuse_unknown_keys();
  rows.require("rows", fmt::format("an integer from 1 to {}", kMaxLength));
  p.validate.rows = rows.integer("rows", 1, kMaxLength, 0);
}

void read_strides(ObjectReader& top, Problem& p) {
  ObjectReader strides(top.first(), top.find("strides"), top.pointer("strides"), "/strides");
  strides.refuse_unknown_keys();
  p.q_strides = read_stride(strides, "q");
  p.k_strides = read_stride(strides, "k");
  p.v_strides = read_stride(strides, "v");
  p.o_strides = read_stride(strides, "o");
}

void read_benchmark(ObjectReader& top, Problem& p) {
  const Value* v = top.find("benchmark");
  if (!v) return;
  ObjectReader benchmark(top.first(), v, top.pointer("benchmark"), "/benchmark");
  benchmark.refuse_unknown_keys();
  BenchmarkSpec spec;
  spec.warmup = static_cast<int>(benchmark.integer("warmup", 0, kMaxRuns, spec.warmup));
  spec.iterations = static_cast<int>(benchmark.integer("iterations", 1, kMaxRuns, spec.iterations));
  spec.flush_l2 = benchmark.boolean("flush_l2", spec.flush_l2);
  p.benchmark = spec;
}

void read_output(ObjectReader& top, const std::string& folder, Problem& p) {
  ObjectReader output(top.first(), top.find("output"), top.pointer("output"), "/output");
  output.refuse_unknown_keys();
  p.dump_dir = resolved(output.text("dump", "", false), folder);
  p.mask_path = resolved(output.text("mask", "", false), folder);
}

}  // namespace hstu::jit
