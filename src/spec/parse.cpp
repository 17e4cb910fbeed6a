// SPDX-License-Identifier: Apache-2.0
#include "spec/parse.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/text.hpp"
#include "spec/document.hpp"
#include "spec/geometry.hpp"
#include "spec/parse_parts.hpp"
#include "spec/reader.hpp"
#include "spec/spec_error.hpp"

namespace hstu::jit {
namespace {

int32_t head_dim(ObjectReader& top, std::string_view key, int32_t fallback) {
  const auto dim = static_cast<int32_t>(top.integer(key, 8, kMaxHeadDim, fallback));
  if (dim % 8 != 0)
    top.first().fail(top.pointer(key), fmt::format("found {}; allowed a multiple of 8 from 8 to {}",
                                                   dim, kMaxHeadDim));
  return dim;
}

// Number of sequences: `batch`, else one per entry of uih_lengths.
int64_t read_batch(ObjectReader& top, int64_t room) {
  int64_t fallback = 1;
  const Value* lengths = top.find("uih_lengths");
  if (lengths && lengths->is(Value::Kind::array))
    fallback = static_cast<int64_t>(lengths->items().size());
  const int64_t batch = top.integer("batch", 0, kMaxBatch, fallback);
  if (batch <= room) return batch;
  top.first().fail(top.pointer("batch"),
                   fmt::format("found {} sequences; allowed at most {} in all problems of a file: "
                               "too large",
                               batch, kMaxBatch));
  return 0;
}

// An int, or a list extended with its last entry; absent: zeros.
std::vector<int32_t> read_lengths(ObjectReader& top, std::string_view key, const Problem& p) {
  const Value* v = top.find(key);
  FirstError& first = top.first();
  const std::string at = top.pointer(key);
  if (first.failed()) return {};  // batch may be wrong
  if (!v) return std::vector<int32_t>(p.batch);
  if (!v->is(Value::Kind::array))
    return std::vector<int32_t>(
        p.batch, static_cast<int32_t>(read_integer(first, *v, at, 0, kMaxLength, 0)));
  const auto count = static_cast<int64_t>(v->items().size());
  if (count == 0) {
    first.refuse(at, *v, "an integer, or a list of at least one");
    return {};
  }
  if (count > 1 && p.layout == Layout::batched && key != "num_targets") {
    first.refuse(at, *v, "one length in the batched layout");
    return {};
  }
  // A list of one is as good as an integer, also for an empty batch.
  if (count > std::max<int64_t>(p.batch, 1)) {
    first.refuse(at, *v, fmt::format("at most batch entries, {}", p.batch));
    return {};
  }
  std::vector<int32_t> lengths;
  lengths.reserve(p.batch);
  int32_t last = 0;
  for (int64_t i = 0; i < count && !first.failed(); ++i) {
    last = static_cast<int32_t>(
        read_integer(first, v->items()[i], fmt::format("{}/{}", at, i), 0, kMaxLength, 0));
    lengths.push_back(last);
  }
  lengths.resize(p.batch, last);
  return lengths;
}

void read_sizes(ObjectReader& top, int64_t room, Problem& p) {
  const std::string heads = fmt::format("an integer from 1 to {}", kMaxHeads);
  const std::string dim = fmt::format("a multiple of 8 from 8 to {}", kMaxHeadDim);
  top.require("heads", heads);
  top.require("head_dim_qk", dim);
  top.require("uih_lengths", "an integer, or a list of at least one");
  p.heads = static_cast<int32_t>(top.integer("heads", 1, kMaxHeads, 1));
  p.head_dim_qk = head_dim(top, "head_dim_qk", 8);
  p.head_dim_v = head_dim(top, "head_dim_v", p.head_dim_qk);
  p.layout = static_cast<Layout>(top.word("layout", static_cast<size_t>(Layout::jagged)));
  p.batch = read_batch(top, room);
  p.uih_q = read_lengths(top, "uih_lengths", p);
  p.cross = top.find("uih_lengths_kv") != nullptr;
  p.uih_kv = p.cross ? read_lengths(top, "uih_lengths_kv", p) : p.uih_q;
  p.num_targets = read_lengths(top, "num_targets", p);
  const auto override_of = [&top](std::string_view key) {
    return static_cast<int32_t>(top.integer(key, 0, kMaxLength, 0));
  };
  p.max_uih_q = override_of("max_uih_length");
  p.max_uih_kv = override_of("max_uih_length_kv");
  p.max_targets = override_of("max_targets");
}

// `room`: sequences the file may still hold.
Result<Problem> read_problem(const Value& value, const std::string& at, const std::string& folder,
                             int64_t room) {
  FirstError first;
  ObjectReader top(first, &value, at, "");
  // Another operator has other keys: look at its name before any key is called unknown.
  top.require("op", "hstu_attention");
  top.word("op", 0);
  top.refuse_unknown_keys();
  if (first.failed()) return std::move(first).error();
  Problem p;
  top.text("$schema", "", true);
  p.name = top.text("name", "", true);
  p.dtype = static_cast<Dtype>(top.word("dtype", static_cast<size_t>(Dtype::bf16)));
  read_sizes(top, room, p);
  p.activation = static_cast<Activation>(top.word("activation", 0));
  p.alpha = top.scale("alpha", 0);
  p.attn_scale = top.scale("attn_scale", 0);
  p.training = top.boolean("training", false);
  p.target = top.text("target", "auto", false);
  p.device = top.text("device", "auto", false);
  read_mask(top, p);
  read_groups(top, p);
  read_data(top, folder, p);
  read_validate(top, p);
  read_strides(top, p);
  read_benchmark(top, p);
  read_output(top, folder, p);
  if (!first.failed()) {
    Status status = check_geometry(p);
    if (!status.ok()) first.take(under_pointer(at, std::move(status).error()));
  }
  if (first.failed()) return std::move(first).error();
  return p;
}

Result<ParsedSpec> read_spec(std::string_view text, const std::string& folder) {
  auto document = parse_document(text);
  if (!document.ok()) return std::move(document).error();
  ParsedSpec spec;
  spec.suite = document->is(Value::Kind::array);
  if (!spec.suite) {
    auto problem = read_problem(*document, "", folder, kMaxBatch);
    if (!problem.ok()) return std::move(problem).error();
    spec.problems.push_back(std::move(problem).value());
    return spec;
  }
  if (document->items().empty())
    return spec_error("", "found an empty array; allowed at least one problem");
  int64_t room = kMaxBatch;
  for (size_t i = 0; i < document->items().size(); ++i) {
    auto problem = read_problem(document->items()[i], fmt::format("/{}", i), folder, room);
    if (!problem.ok()) return std::move(problem).error();
    room -= problem->batch;
    spec.problems.push_back(std::move(problem).value());
  }
  return spec;
}

}  // namespace

Result<ParsedSpec> parse_spec(std::string_view text, const std::string& folder) {
  try {
    return read_spec(text, folder);
  } catch (const std::exception& e) {  // no memory
    return spec_error("", fmt::format("found a spec that could not be read ({}); allowed a smaller "
                                      "one",
                                      printable(e.what())));
  }
}

}  // namespace hstu::jit
