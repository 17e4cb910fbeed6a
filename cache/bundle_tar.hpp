// SPDX-License-Identifier: Apache-2.0
// The one kind of tar member a bundle has: plain ustar, no owner, no time, fixed mode.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hstu::cache {

inline constexpr uint64_t kTarBlock = 512;
inline constexpr uint64_t kTarEnd = 2 * kTarBlock;  // two zero blocks
inline constexpr std::string_view kManifestMember = "manifest.json";

// `size` on to the next whole block.
constexpr uint64_t padded(uint64_t size) { return (size + kTarBlock - 1) / kTarBlock * kTarBlock; }

// The header block of a regular file. The name has at most 100 bytes, the size 33 bits.
std::string tar_header(std::string_view name, uint64_t size);

// The size in a header block when that is eleven octal digits, which is all ustar allows.
std::optional<uint64_t> tar_size(std::string_view block);

// Why `block` is not tar_header(name, size), in words; "" when it is.
std::string tar_difference(std::string_view block, std::string_view name, uint64_t size);

}  // namespace hstu::cache
