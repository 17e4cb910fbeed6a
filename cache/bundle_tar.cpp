// SPDX-License-Identifier: Apache-2.0
#include "cache/bundle_tar.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.hpp"

namespace hstu::cache {
namespace {

struct Field {
  size_t at, length;
};
constexpr Field kName{0, 100}, kMode{100, 8}, kUid{108, 8}, kGid{116, 8}, kSize{124, 12},
    kTime{136, 12}, kSum{148, 8}, kType{156, 1}, kMagic{257, 8}, kMajor{329, 8}, kMinor{337, 8};

std::string_view field(std::string_view block, Field f) { return block.substr(f.at, f.length); }

// The sum of all bytes, those of the sum itself taken as spaces.
unsigned checksum(std::string_view block) {
  unsigned sum = 0;
  for (size_t i = 0; i < block.size(); ++i) {
    const bool own = i >= kSum.at && i < kSum.at + kSum.length;
    sum += own ? unsigned{' '} : static_cast<unsigned char>(block[i]);
  }
  return sum;
}

const char* kind_of(char type) {
  switch (type) {
    case '1':
      return "a hard link";
    case '2':
      return "a symbolic link";
    case '3':
    case '4':
      return "a device";
    case '5':
      return "a folder";
    case '6':
      return "a pipe";
    case 'x':
    case 'g':
      return "a pax extension";
    case 'L':
    case 'K':
      return "a GNU long name";
    case 'S':
      return "a sparse file";
    default:
      return "of an unknown type";
  }
}

}  // namespace

std::string tar_header(std::string_view name, uint64_t size) {
  std::string block(kTarBlock, '\0');
  const auto put = [&](Field f, std::string_view text) {
    block.replace(f.at, std::min(f.length, text.size()), text.substr(0, f.length));
  };
  put(kName, name);
  put(kMode, "0000644");
  put(kUid, "0000000");
  put(kGid, "0000000");
  put(kSize, fmt::format("{:011o}", size));
  put(kTime, "00000000000");
  put(kType, "0");
  put(kMagic, std::string_view("ustar\00000", 8));
  put(kMajor, "0000000");
  put(kMinor, "0000000");
  put(kSum, fmt::format("{:06o}{} ", checksum(block), '\0'));
  return block;
}

std::optional<uint64_t> tar_size(std::string_view block) {
  if (block.size() != kTarBlock) return std::nullopt;
  const std::string_view digits = field(block, kSize);
  uint64_t size = 0;
  for (const char c : digits.substr(0, 11)) {
    if (c < '0' || c > '7') return std::nullopt;
    size = size * 8 + static_cast<uint64_t>(c - '0');
  }
  if (digits[11] != '\0') return std::nullopt;
  return size;
}

std::string tar_difference(std::string_view block, std::string_view name, uint64_t size) {
  const std::string expected = tar_header(name, size);
  if (block == expected) return {};
  if (block.size() != kTarBlock) return fmt::format("it ends in the tar header of {}", name);
  if (std::all_of(block.begin(), block.end(), [](char c) { return c == '\0'; })) {
    return fmt::format("the archive ends where {} should be", name);
  }
  if (field(block, kMagic) != field(expected, kMagic)) {
    return fmt::format("there is no ustar header where {} should be", name);
  }
  std::string_view found = field(block, kName);
  found = found.substr(0, found.find('\0'));
  if (field(block, kType) != field(expected, kType)) {
    return fmt::format("member \"{}\" is {}, not a regular file", hstu::jit::printable(found, 120),
                       kind_of(block[kType.at]));
  }
  if (field(block, kName) != field(expected, kName)) {
    return fmt::format("member \"{}\" is where {} should be", hstu::jit::printable(found, 120),
                       name);
  }
  if (field(block, kSize) != field(expected, kSize)) {
    return fmt::format("the tar header of {} does not say {} bytes", name, size);
  }
  if (field(block, kSum) != fmt::format("{:06o}{} ", checksum(block), '\0')) {
    return fmt::format("the tar header of {} has a wrong checksum", name);
  }
  return fmt::format("the tar header of {} is not as bundles have it (mode, owner, time, link)",
                     name);
}

}  // namespace hstu::cache
