// SPDX-License-Identifier: Apache-2.0
// The saved mask: one int8 per pair, for every sequence and head, padded to the largest lengths.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "check/mask_picture.hpp"

namespace hstu::jit {
namespace {

bool write_rows(std::FILE* file, const Problem& problem, const Geometry& geometry) {
  std::vector<char> line(geometry.max_seqlen_kv);
  if (line.empty()) return true;
  for (size_t b = 0; b < geometry.sequences.size(); ++b) {
    const SequenceMask mask = geometry.mask_of(static_cast<int64_t>(b));
    for (int32_t h = 0; h < problem.heads; ++h)
      for (int32_t i = 0; i < geometry.max_seqlen_q; ++i) {
        std::fill(line.begin(), line.end(), 0);
        if (i < mask.seqlen_q) {
          const RowKeys keys = row_keys(geometry.features, mask, i);
          for (int32_t j = keys.begin; j < keys.end; ++j) line[j] = 1;
          if (keys.diagonal) line[i] = 1;
        }
        if (std::fwrite(line.data(), 1, line.size(), file) != line.size()) return false;
      }
  }
  return true;
}

}  // namespace

Status write_mask_file(const Problem& problem, const Geometry& geometry, const std::string& path) {
  constexpr double kLimit = 4.0 * (1 << 30);
  // In double: the product may pass 2^63.
  const double bytes = static_cast<double>(problem.batch) * problem.heads * geometry.max_seqlen_q *
                       geometry.max_seqlen_kv;
  if (bytes > kLimit)
    return Error{
        ErrorKind::kFailed,
        fmt::format("the mask file '{}' would have {:.0f} bytes, above the limit of 4 GiB; "
                    "draw a picture instead",
                    path, bytes),
        "/output/mask", ""};
  const auto failure = [&](const char* what) {
    return Error{ErrorKind::kFailed,
                 fmt::format("cannot {} the mask file '{}': {}", what, path, std::strerror(errno)),
                 "/output/mask", ""};
  };
  // Beside its place, then renamed: a full disk leaves no half of a mask.
  const std::string partial = path + ".partial";
  std::FILE* file = std::fopen(partial.c_str(), "wb");
  if (!file) return failure("create");
  const bool written = write_rows(file, problem, geometry);
  const int write_errno = errno;
  const bool closed = std::fclose(file) == 0;
  if (written && closed && std::rename(partial.c_str(), path.c_str()) == 0) return {};
  if (!written) errno = write_errno;
  const Error error = failure("write");
  std::remove(partial.c_str());
  return error;
}

}  // namespace hstu::jit
