// SPDX-License-Identifier: Apache-2.0
// Masks as PNG.
#include <fmt/format.h>
#include <png.h>

#include <cmath>
#include <cstring>

#include "base/file.hpp"
#include "check/coverage.hpp"
#include "check/mask_picture.hpp"

namespace hstu::jit {
namespace {

constexpr Color kWhite{255, 255, 255};
constexpr Color kRegionColors[3] = {kContextColor, kHistoryColor, kTargetColor};

Color region_color(Region region) { return kRegionColors[static_cast<int>(region)]; }

class Canvas {
 public:
  Canvas(int width, int height)
      : width_(width), height_(height), pixels_(static_cast<size_t>(width) * height, kWhite) {}
  void fill(int x, int y, int width, int height, Color color) {
    for (int row = std::max(y, 0); row < std::min(y + height, height_); ++row)
      for (int column = std::max(x, 0); column < std::min(x + width, width_); ++column)
        pixels_[static_cast<size_t>(row) * width_ + column] = color;
  }
  void frame(int x, int y, int width, int height, int thickness, Color color) {
    fill(x, y, width, thickness, color);
    fill(x, y + height - thickness, width, thickness, color);
    fill(x, y, thickness, height, color);
    fill(x + width - thickness, y, thickness, height, color);
  }
  Result<std::string> encode() const {
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    image.width = static_cast<png_uint_32>(width_);
    image.height = static_cast<png_uint_32>(height_);
    image.format = PNG_FORMAT_RGB;
    std::string bytes(PNG_IMAGE_PNG_SIZE_MAX(image), '\0');
    png_alloc_size_t size = bytes.size();
    if (!png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels_.data(), 0, nullptr))
      return Error{ErrorKind::kFailed, fmt::format("cannot encode the picture: {}", image.message),
                   "", ""};
    bytes.resize(size);
    return bytes;
  }

 private:
  static_assert(sizeof(Color) == 3);
  int width_, height_;
  std::vector<Color> pixels_;
};

// Colour of a block of which `counts` pairs of each region are visible, out of `pairs`.
Color shade(const std::array<int64_t, 3>& counts, int64_t pairs) {
  double r = 0, g = 0, b = 0;
  int64_t hidden = pairs;
  const auto add = [&](Color color, int64_t count) {
    const double share = static_cast<double>(count) / static_cast<double>(pairs);
    r += share * color.r;
    g += share * color.g;
    b += share * color.b;
  };
  for (int region = 0; region < 3; ++region) {
    add(kRegionColors[region], counts[region]);
    hidden -= counts[region];
  }
  add(kHiddenColor, hidden);
  const auto byte = [](double value) { return static_cast<uint8_t>(std::lround(value)); };
  return {byte(r), byte(g), byte(b)};
}

class Picture {
 public:
  Picture(const Geometry& geometry, int64_t b)
      : geometry_(geometry),
        mask_(geometry.mask_of(b)),
        context_(geometry.groups[geometry.sequences[b].group].context_len),
        layout_(mask_png_layout(mask_.seqlen_q, mask_.seqlen_kv)),
        canvas_(layout_.width, layout_.height) {}

  void draw_regions() {
    const int strip = layout_.origin - 4;
    for_each_block(mask_.seqlen_kv, [&](int at, int size, int first) {
      canvas_.fill(layout_.origin + at, 0, size, strip,
                   region_color(key_region(mask_, first, context_)));
    });
    for_each_block(mask_.seqlen_q, [&](int at, int size, int first) {
      canvas_.fill(0, layout_.origin + at, strip, size,
                   region_color(query_region(mask_, first, context_)));
    });
  }

  void draw_pairs() {
    // Cells large enough get a hair of background between them.
    const int gap = layout_.scale >= 8 ? 1 : 0;
    for_each_block(mask_.seqlen_q, [&](int y, int height, int first_row) {
      const int64_t rows = std::min(layout_.block, mask_.seqlen_q - first_row);
      const BlockCounts counts =
          block_counts(geometry_, mask_, context_, layout_.block, first_row / layout_.block);
      for_each_block(mask_.seqlen_kv, [&](int x, int width, int first_key) {
        const int64_t keys = std::min(layout_.block, mask_.seqlen_kv - first_key);
        canvas_.fill(layout_.origin + x, layout_.origin + y, width - gap, height - gap,
                     shade(counts[first_key / layout_.block], rows * keys));
      });
    });
  }

  void draw_tiles(int tile_m, int tile_n) {
    for (int64_t i = 0; i < mask_.seqlen_q; i += tile_m) {
      const int row = static_cast<int>(i);
      const int row_end = static_cast<int>(std::min<int64_t>(mask_.seqlen_q, i + tile_m));
      const TileKeys keys = tile_keys(geometry_.features, mask_, row, row_end);
      const int y = pixel(row), height = pixel(row_end) - y;
      for (int64_t j = 0; j < mask_.seqlen_kv; j += tile_n) {
        const int key = static_cast<int>(j);
        const int key_end = static_cast<int>(std::min<int64_t>(mask_.seqlen_kv, j + tile_n));
        const int x = pixel(key), width = pixel(key_end) - x;
        if (width < 4 || height < 4) continue;
        const int thickness = min_of(width, height) >= 16 ? 2 : 1;
        const TileClass kind = classify(keys, key, key_end);
        // One pixel short, so that neighbours do not share a line.
        canvas_.frame(layout_.origin + x, layout_.origin + y, width - 1, height - 1, thickness,
                      kind == TileClass::skip   ? kSkipColor
                      : kind == TileClass::full ? kFullColor
                                                : kPartialColor);
      }
    }
  }

  Result<std::string> encode() const { return canvas_.encode(); }

 private:
  int pixel(int token) const {
    return static_cast<int>(int64_t{token} * layout_.scale / layout_.block);
  }

  // body(pixel, pixels, first token) for each block of tokens of a side.
  template <typename Body>
  void for_each_block(int tokens, Body body) const {
    for (int64_t first = 0, at = 0; first < tokens; first += layout_.block, at += layout_.scale)
      body(static_cast<int>(at), layout_.scale, static_cast<int>(first));
  }

  const Geometry& geometry_;
  SequenceMask mask_;
  int context_;
  MaskPngLayout layout_;
  Canvas canvas_;
};

}  // namespace

MaskPngLayout mask_png_layout(int seqlen_q, int seqlen_kv) {
  constexpr int kRoomy = 800;  // what a short mask is blown up to, at most 24 pixels a pair
  constexpr int kStrip = 12, kGap = 4;
  MaskPngLayout layout;
  layout.origin = kStrip + kGap;
  const int longest = max_of(max_of(seqlen_q, seqlen_kv), 1);
  const int room = kMaskPngLimit - layout.origin;
  layout.scale = std::clamp(kRoomy / longest, 1, 24);
  layout.block = ceil_div(longest, room);
  layout.width = layout.origin + ceil_div(seqlen_kv, layout.block) * layout.scale;
  layout.height = layout.origin + ceil_div(seqlen_q, layout.block) * layout.scale;
  return layout;
}

Status write_mask_png(const Geometry& geometry, const MaskPictureOptions& options,
                      const std::string& path) {
  const int64_t b = options.batch_index;
  const auto batch = static_cast<int64_t>(geometry.sequences.size());
  if (b < 0 || b >= batch)
    return Error{ErrorKind::kUsage, fmt::format("no sequence {}: the batch has {}", b, batch), "",
                 ""};
  const Geometry::Sequence& sequence = geometry.sequences[b];
  if (sequence.seqlen_q == 0 || sequence.seqlen_kv == 0)
    return Error{ErrorKind::kUsage,
                 fmt::format("sequence {} has {} queries and {} keys: nothing to draw", b,
                             sequence.seqlen_q, sequence.seqlen_kv),
                 "", ""};
  Picture picture(geometry, b);
  picture.draw_regions();
  picture.draw_pairs();
  if (options.tile_m > 0 && options.tile_n > 0) picture.draw_tiles(options.tile_m, options.tile_n);
  Result<std::string> bytes = picture.encode();
  if (!bytes) return std::move(bytes).error();
  return write_file_atomic(path, *bytes);
}

}  // namespace hstu::jit
