// SPDX-License-Identifier: Apache-2.0
// Mask pictures: text for short sequences, PNG for any, and the JSON of `hstu-jit mask --json`.
#pragma once

#include <string>

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
std::string mask_text(const Geometry& geometry, const MaskPictureOptions& options);
Status write_mask_png(const Geometry& geometry, const MaskPictureOptions& options,
                      const std::string& path);
// Schema hstu-jit/mask/1; rows only up to 4 million cells in all, or when forced.
std::string mask_json(const Geometry& geometry, bool force_rows);

}  // namespace hstu::jit
