// SPDX-License-Identifier: Apache-2.0
// Masks as text and JSON.
#include "check/mask_picture.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "check/coverage.hpp"

namespace hstu::jit {
namespace {

int64_t count_visible(const Geometry& geometry, const SequenceMask& m) {
  int64_t pairs = 0;
  for (int i = 0; i < m.seqlen_q; ++i) {
    const RowKeys keys = row_keys(geometry.features, m, i);
    pairs += std::max(keys.end - keys.begin, 0) + (keys.diagonal ? 1 : 0);
  }
  return pairs;
}

int context_len_of(const Geometry& geometry, int64_t b) {
  return geometry.groups[geometry.sequences[b].group].context_len;
}

constexpr const char* kRegionNames[3] = {"context", "history", "target"};
constexpr char kRegionLetters[3] = {'c', 'h', 't'};
constexpr const char* kRegionColors[3] = {"\x1b[30;43m", "\x1b[97;44m", "\x1b[30;42m"};
constexpr const char* kDim = "\x1b[2m";
constexpr const char* kReset = "\x1b[0m";

// Appends characters, changing the terminal's colour only where it differs.
class Painter {
 public:
  Painter(std::string& out, bool color) : out_(out), color_(color) {}
  void put(char c, const char* color) {
    if (color_ && color != current_) {
      if (current_) out_ += kReset;
      if (color) out_ += color;
      current_ = color;
    }
    out_ += c;
  }
  void end_line() { put('\n', nullptr); }

 private:
  std::string& out_;
  bool color_;
  const char* current_ = nullptr;
};

// One character a pair, with bars between the regions of keys and lines between those of queries.
void draw_pairs(const Geometry& geometry, int64_t b, bool color, std::string& out) {
  const SequenceMask m = geometry.mask_of(b);
  const int context = context_len_of(geometry, b);
  const std::vector<std::string> rows = mask_rows(geometry, b);
  const auto border = [&](int n, int keys) { return n > 0 && (n == context || n == keys); };
  for (int i = 0; i < m.seqlen_q; ++i) {
    if (border(i, m.rows)) {
      out += std::string(14, ' ');
      for (int j = 0; j < m.seqlen_kv; ++j) out += border(j, m.keys) ? "+-" : "-";
      out += '\n';
    }
    const Region query = query_region(m, i, context);
    const bool named = i == 0 || query != query_region(m, i - 1, context);
    out += fmt::format("  {:<7} {:>3} ", named ? kRegionNames[static_cast<int>(query)] : "", i);
    Painter painter(out, color);
    for (int j = 0; j < m.seqlen_kv; ++j) {
      if (border(j, m.keys)) painter.put('|', nullptr);
      const int region = static_cast<int>(key_region(m, j, context));
      if (rows[i][j] == '1')
        painter.put(kRegionLetters[region], kRegionColors[region]);
      else
        painter.put('.', kDim);
    }
    painter.end_line();
  }
}

// One character a block: ' ' for nothing, a digit for tenths, '#' for all of its pairs.
void draw_blocks(const Geometry& geometry, int64_t b, int block, bool color, std::string& out) {
  const SequenceMask m = geometry.mask_of(b);
  const int context = context_len_of(geometry, b);
  for (int64_t y = 0; y * block < m.seqlen_q; ++y) {
    const int first = static_cast<int>(y * block);
    const int64_t height = std::min(block, m.seqlen_q - first);
    const BlockCounts counts = block_counts(geometry, m, context, block, static_cast<int>(y));
    out += fmt::format("  {:<7} {:>9} ",
                       kRegionNames[static_cast<int>(query_region(m, first, context))], first);
    Painter painter(out, color);
    for (size_t x = 0; x < counts.size(); ++x) {
      const int64_t width = std::min<int64_t>(block, m.seqlen_kv - static_cast<int64_t>(x) * block);
      const auto& n = counts[x];
      const int64_t seen = n[0] + n[1] + n[2];
      const auto most = std::max_element(n.begin(), n.end()) - n.begin();
      const char shade = seen == 0 ? ' '
                         : seen == width * height
                             ? '#'
                             : static_cast<char>('0' + seen * 10 / (width * height));
      painter.put(shade, seen == 0 ? nullptr : kRegionColors[most]);
    }
    painter.end_line();
  }
}

void draw_tiles(const Geometry& geometry, const SequenceMask& m, int tile_m, int tile_n,
                std::string& out) {
  const int64_t columns = (int64_t{m.seqlen_kv} + tile_n - 1) / tile_n;
  if (columns > 2 * kMaskTextLimit) {
    out += fmt::format("tiles of {} x {}: {} columns are too many for text\n", tile_m, tile_n,
                       columns);
    return;
  }
  out +=
      fmt::format("tiles of {} queries x {} keys (s skip, f full, p partial):\n", tile_m, tile_n);
  for (int64_t y = 0; y * tile_m < m.seqlen_q; ++y) {
    const int first = static_cast<int>(y * tile_m);
    const int last = static_cast<int>(std::min<int64_t>(m.seqlen_q, int64_t{first} + tile_m));
    const TileKeys keys = tile_keys(geometry.features, m, first, last);
    out += fmt::format("{:>13} ", first);
    for (int64_t x = 0; x < columns; ++x) {
      const int begin = static_cast<int>(x * tile_n);
      const int end = static_cast<int>(std::min<int64_t>(m.seqlen_kv, int64_t{begin} + tile_n));
      const TileClass kind = classify(keys, begin, end);
      out += kind == TileClass::skip ? 's' : kind == TileClass::full ? 'f' : 'p';
    }
    out += '\n';
  }
}

}  // namespace

std::vector<std::string> mask_rows(const Geometry& geometry, int64_t b) {
  const SequenceMask m = geometry.mask_of(b);
  std::vector<std::string> rows;
  for (int i = 0; i < m.seqlen_q; ++i) {
    std::string row(m.seqlen_kv, '0');
    const RowKeys keys = row_keys(geometry.features, m, i);
    for (int j = keys.begin; j < keys.end; ++j) row[j] = '1';
    if (keys.diagonal) row[i] = '1';
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string mask_text(const Geometry& geometry, const MaskPictureOptions& options) {
  const int64_t b = options.batch_index;
  if (b < 0 || b >= static_cast<int64_t>(geometry.sequences.size()))
    return fmt::format("no sequence {}: the batch has {}\n", b, geometry.sequences.size());
  const SequenceMask m = geometry.mask_of(b);
  const int64_t pairs = count_visible(geometry, m);
  const int64_t dense = int64_t{m.seqlen_q} * m.seqlen_kv;
  std::string out = fmt::format("sequence {}: {} queries (rows) x {} keys, {} visible pairs", b,
                                m.seqlen_q, m.seqlen_kv, pairs);
  if (dense > 0)
    out +=
        fmt::format(" ({:.4g} %)", 100 * static_cast<double>(pairs) / static_cast<double>(dense));
  out += '\n';
  const int longest = std::max(m.seqlen_q, m.seqlen_kv);
  if (longest <= kMaskTextLimit) {
    out += "keys: c context, h history, t target, . hidden\n";
    draw_pairs(geometry, b, options.color, out);
  } else {
    const int block = ceil_div(longest, kMaskTextLimit);
    out += fmt::format(
        "one character per {0} x {0} pairs: digits are tenths visible, # all of them\n", block);
    draw_blocks(geometry, b, block, options.color, out);
  }
  if (options.tile_m > 0 && options.tile_n > 0 && dense > 0)
    draw_tiles(geometry, m, options.tile_m, options.tile_n, out);
  return out;
}

std::string mask_json(const Geometry& geometry, bool force_rows) {
  constexpr int64_t kCells = 4'000'000, kForcedCells = 1'000'000'000;
  const int64_t cells = dense_pairs(geometry);
  const bool with_rows = cells <= (force_rows ? kForcedCells : kCells);
  nlohmann::ordered_json json = {{"schema", "hstu-jit/mask/1"}};
  json["batches"] = nlohmann::ordered_json::array();
  for (size_t b = 0; b < geometry.sequences.size(); ++b) {
    const SequenceMask m = geometry.mask_of(static_cast<int64_t>(b));
    nlohmann::ordered_json batch = {{"seqlen_q", m.seqlen_q},
                                    {"seqlen_kv", m.seqlen_kv},
                                    {"visible_pairs", count_visible(geometry, m)}};
    if (with_rows) batch["rows"] = mask_rows(geometry, static_cast<int64_t>(b));
    json["batches"].push_back(std::move(batch));
  }
  if (!with_rows)
    json["note"] = fmt::format("rows left out: {} cells, more than {}", cells,
                               force_rows ? kForcedCells : kCells);
  return json.dump();
}

}  // namespace hstu::jit
