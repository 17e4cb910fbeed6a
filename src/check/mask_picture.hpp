// SPDX-License-Identifier: Apache-2.0
// Mask pictures: text for short sequences, PNG for any, and the JSON of `hstu-jit mask --json`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "spec/geometry.hpp"

namespace hstu::jit {

struct MaskPictureOptions {
  int64_t batch_index = 0;
  int tile_m = 0, tile_n = 0;  // overlay of tile classes when both are positive
  bool color = false;          // terminal colours
};

// Rows of 0/1 (one string per query).
std::vector<std::string> mask_rows(const Geometry& geometry, int64_t b);

// One character a pair (c, h, t: a visible context, history, target key; '.': hidden) up to
// kMaskTextLimit tokens; beyond, one a block of pairs (the share visible, ' ' to '9', '#' for all).
// Below it, with an overlay, one letter a tile: s(kip), f(ull), p(artial).
inline constexpr int kMaskTextLimit = 100;
std::string mask_text(const Geometry& geometry, const MaskPictureOptions& options);

struct Color {
  uint8_t r, g, b;
  bool operator==(const Color&) const = default;
};

// The picture: a strip along the top (keys) and the left (queries) coloured by region, then the
// mask from (origin, origin) on, `scale` pixels a pair or `block` pairs a pixel, at most
// kMaskPngLimit pixels a side; a pixel is as strong as the share of its pairs that is visible. The
// overlay frames each tile of at least four pixels in the colour of its class.
struct MaskPngLayout {
  int scale = 1;   // pixels per pair
  int block = 1;   // pairs per pixel; scale or block is 1
  int origin = 0;  // of the mask, both ways
  int width = 0, height = 0;
};
inline constexpr int kMaskPngLimit = 2000;
inline constexpr Color kHiddenColor{238, 238, 238};
inline constexpr Color kContextColor{230, 159, 0};
inline constexpr Color kHistoryColor{0, 114, 178};
inline constexpr Color kTargetColor{0, 158, 115};
inline constexpr Color kSkipColor{176, 176, 176};
inline constexpr Color kFullColor{20, 20, 20};
inline constexpr Color kPartialColor{200, 40, 40};
MaskPngLayout mask_png_layout(int seqlen_q, int seqlen_kv);

// Errors: kUsage for a batch index that does not exist or a sequence without pairs, kFailed when
// the file cannot be written.
Status write_mask_png(const Geometry& geometry, const MaskPictureOptions& options,
                      const std::string& path);

// Schema hstu-jit/mask/1; rows only up to 4 million cells in all, or when forced (then up to 1e9).
std::string mask_json(const Geometry& geometry, bool force_rows);

// int8 0/1, [batch, heads, max_seqlen_q, max_seqlen_kv], zero outside each sequence. Errors:
// kFailed when it would pass 4 GiB (naming the bytes) or cannot be written; no partial file is
// left.
Status write_mask_file(const Problem& problem, const Geometry& geometry, const std::string& path);

}  // namespace hstu::jit
