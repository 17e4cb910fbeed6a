// SPDX-License-Identifier: Apache-2.0
// The rows: problems and peers out of the data files.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "bench_peers.hpp"

namespace hstu::jit::bench {
namespace {

using Json = nlohmann::json;

// A number for all sequences, or one for each.
std::vector<int32_t> lengths(const Json& value, int64_t batch, int scale) {
  std::vector<int32_t> out(static_cast<size_t>(batch));
  for (size_t b = 0; b < out.size(); ++b) {
    const int32_t length = value.is_array() ? value.at(b).get<int32_t>() : value.get<int32_t>();
    out[b] = length == 0 ? 0 : std::max(1, length / scale);
  }
  return out;
}

Problem problem_of(const Json& c) {
  Problem p;
  p.heads = c.at("heads").get<int32_t>();
  p.head_dim_qk = p.head_dim_v = c.at("head_dim").get<int32_t>();
  p.batch = c.at("batch").get<int64_t>();
  p.layout = hstu::jit::Layout::jagged;
  return p;
}

// The best of the named peers that a case has.
void take_best(const Json& peer_ms, std::initializer_list<const char*> names, Row& row) {
  for (const char* name : names) {
    if (!peer_ms.contains(name)) continue;
    const double ms = peer_ms.at(name).get<double>();
    if (ms > 0 && (row.peer.empty() || ms < row.peer_ms)) row.peer = name, row.peer_ms = ms;
  }
}

Row forward_row(const Json& c, RowSet set, int scale) {
  Row row;
  Problem& p = row.problem = problem_of(c);
  const Json& targets = c.at("num_targets");
  p.num_targets = lengths(targets, p.batch, scale);
  p.mask.context_len = lengths(c.at("context_len"), 1, scale).front();
  p.uih_q = lengths(c.at("physical_lengths"), p.batch, scale);
  for (size_t b = 0; b < p.uih_q.size(); ++b)
    p.uih_q[b] = std::max(0, p.uih_q[b] - p.num_targets[b] - p.mask.context_len);
  row.max_len = c.at("max_len").get<int>() / scale;
  const int32_t most = *std::max_element(p.num_targets.begin(), p.num_targets.end());
  row.name = fmt::format("b{} d{} n{}", p.batch, p.head_dim_qk, row.max_len);
  if (most > 0) row.name += fmt::format(" t{}{}", targets.is_array() ? "<=" : "", most);
  if (p.mask.context_len > 0) row.name += fmt::format(" c{}", p.mask.context_len);
  if (c.at("physical_lengths").is_array()) row.name += " jagged";
  if (set == RowSet::softmax) {
    p.activation = Activation::softmax;
    take_best(c.at("peer_ms"), {"metasm_fa3", "sdpa_cudnn"}, row);
  } else {
    take_best(c.at("peer_ms"), {"meta_triton", "meta_triton_tma", "fb_cutlass", "meta_fa3"}, row);
  }
  row.peer_tflop = c.value("useful_tflop_per_call", 0.0);
  return row;
}

// The row and, in front of it, its causal twin where it has one.
void add_windowed_rows(const Json& c, int scale, std::vector<Row>& rows) {
  Row row;
  Problem& p = row.problem = problem_of(c);
  p.uih_q = lengths(c.at("uih"), p.batch, scale);
  p.num_targets = lengths(c.at("num_targets"), p.batch, scale);
  if (scale == 1) {
    p.max_uih_q = c.value("max_uih", 0);
    p.max_targets = c.value("max_targets", 0);
  }
  p.alpha = c.value("alpha", 0.0);
  row.max_len = *std::max_element(p.uih_q.begin(), p.uih_q.end());
  row.name = c.at("name").get<std::string>();
  if (c.at("causal_twin").get<bool>()) {
    // One twin serves all rows of its lengths.
    const auto same = [&](const Row& other) {
      return !other.windowed && other.problem.uih_q == p.uih_q &&
             other.problem.num_targets == p.num_targets;
    };
    auto twin = std::find_if(rows.begin(), rows.end(), same);
    if (twin == rows.end()) {
      rows.push_back(row);
      rows.back().name += " causal";
      twin = rows.end() - 1;
    }
    row.causal_row = static_cast<int>(twin - rows.begin());
  } else {
    row.memory_goal = true;
  }
  p.mask.local_len = std::max(1, c.at("window").get<int32_t>() / scale);
  p.mask.minfull_len = c.at("minfull").get<int32_t>() / scale;
  row.windowed = true;
  row.name += fmt::format(" w{}/{}", p.mask.local_len, p.mask.minfull_len);
  if (c.contains("meta_triton_ms")) {
    row.peer = "meta_triton";
    row.peer_ms = c.at("meta_triton_ms").get<double>();
  }
  rows.push_back(std::move(row));
}

bool full_rows(const Row& row) {
  const Problem& p = row.problem;
  return p.mask.context_len == 0 &&
         std::all_of(p.num_targets.begin(), p.num_targets.end(), [](int t) { return t == 0; }) &&
         std::all_of(p.uih_q.begin(), p.uih_q.end(), [&](int u) { return u == row.max_len; });
}

}  // namespace

double wanted_matrix_share(const Row& row) {
  const int dim = row.problem.head_dim_qk;
  if (!full_rows(row)) return 0;
  if ((dim == 128 && row.max_len == 8192) || (dim == 256 && row.max_len == 16384)) return 1;
  if ((dim == 128 || dim == 256) && row.max_len == 4096 && row.problem.batch == 32) return 0.95;
  return 0;
}

Result<Rows> read_rows(const std::string& json, RowSet set, int scale) {
  Rows out;
  try {
    const Json file = Json::parse(json);
    out.source = file.at("source").get<std::string>();
    out.device = file.at("device").get<std::string>();
    for (const Json& c : file.at("cases")) {
      if (set == RowSet::windowed) {
        add_windowed_rows(c, scale, out.rows);
        continue;
      }
      Row row = forward_row(c, set, scale);
      if (set == RowSet::softmax && row.peer.empty()) continue;  // no peer runs it
      out.rows.push_back(std::move(row));
    }
  } catch (const Json::exception& error) {
    return Error{ErrorKind::kSpec, fmt::format("the rows cannot be read: {}", error.what()), "",
                 ""};
  }
  for (size_t n = 0; n < out.rows.size(); ++n) {
    Row& row = out.rows[n];
    row.number = static_cast<int>(n);
    row.problem.uih_kv = row.problem.uih_q;
    row.problem.name = row.name;
    if (scale != 1) row.peer.clear(), row.peer_ms = row.peer_tflop = 0;
    if (set == RowSet::silu) row.matrix_goal = wanted_matrix_share(row);
    Result<Geometry> geometry = make_geometry(row.problem);
    if (!geometry) return std::move(geometry).error().with_context(row.name);
    // A row that is not the problem its peers ran would be compared with nothing.
    const double tflop = useful_flops(row.problem, *geometry) / 1e12;
    if (row.peer_tflop > 0 && std::abs(tflop - row.peer_tflop) > 1e-4 * row.peer_tflop)
      return Error{ErrorKind::kSpec,
                   fmt::format("{}: {:.6f} useful TFLOP, but its peers counted {:.6f}", row.name,
                               tflop, row.peer_tflop),
                   "", ""};
  }
  return out;
}

Result<std::vector<bool>> select_rows(const std::string& list, size_t count) {
  std::vector<bool> chosen(count, list.empty());
  const char* at = list.data();
  const char* const end = at + list.size();
  const Error bad{ErrorKind::kUsage,
                  fmt::format("--rows: found \"{}\"; allowed numbers and ranges from 0 to {}, such "
                              "as 0,3,9-11",
                              list, count - 1),
                  "", ""};
  while (at < end) {
    size_t first = 0;
    auto read = std::from_chars(at, end, first);
    if (read.ec != std::errc()) return bad;
    size_t last = first;
    if (read.ptr < end && *read.ptr == '-') {
      read = std::from_chars(read.ptr + 1, end, last);
      if (read.ec != std::errc()) return bad;
    }
    if (last < first || last >= count) return bad;
    std::fill(chosen.begin() + static_cast<long>(first),
              chosen.begin() + static_cast<long>(last) + 1, true);
    at = read.ptr;
    if (at < end && (*at++ != ',' || at == end)) return bad;
  }
  return chosen;
}

}  // namespace hstu::jit::bench
