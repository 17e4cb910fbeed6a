// SPDX-License-Identifier: Apache-2.0
// What belongs to a cache folder, by name: nothing else is ever removed. And sizes as people write
// them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace hstu::cache {

// The parts of "<64 digits>.<12 digits>.hko"; false for any other name.
bool parse_entry_name(std::string_view name, std::string* request, std::string* toolchain);
bool is_pointer_name(std::string_view name);  // "<64 digits>.toolchain"
bool is_fan_out_name(std::string_view name);  // two hex digits
bool is_quarantine_name(std::string_view name);
// ".tmp-PID-NUMBER": what a writer that died left.
bool is_temporary_name(std::string_view name);

// "500M", "2G", "1048576", "64 KiB"; K, M, G and T are powers of 1024; "0" is kUnlimited.
// Errors: kUsage.
hstu::jit::Result<uint64_t> parse_size(std::string_view text);
// "1.5 MiB"
std::string size_text(uint64_t bytes);

}  // namespace hstu::cache
