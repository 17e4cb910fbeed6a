// SPDX-License-Identifier: Apache-2.0
// Files: whole reads, atomic writes, private temporary folders. Every system call is looked at.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.hpp"

namespace hstu::jit {

// Regular files only, at most `limit` bytes. Errors: kFailed with the path and the system's reason.
Result<std::string> read_file(const std::string& path, uint64_t limit = uint64_t{1} << 34);

// The same from a folder that others may write to: no link, of a trusted owner (base/trust.hpp),
// and neither group nor others may write to it.
Result<std::string> read_trusted_file(const std::string& path, uint64_t limit);

// Temporary file in the same folder, write, fsync, rename, fsync of the folder; nothing is left
// behind on failure. Symbolic links to files are followed; devices and pipes are written in place.
Status write_file_atomic(const std::string& path, std::string_view bytes, unsigned mode = 0644);

// The same, but whatever has this name is replaced, a link included (folders are not: an error).
// The temporary file is called ".tmp-...", for those who sweep what a killed program left.
Status replace_file_atomic(const std::string& path, std::string_view bytes, unsigned mode = 0644);

// mkdir -p; new folders get `mode`.
Status make_directories(const std::string& path, unsigned mode = 0755);

// A folder of this user's own under a place everybody may write to (its parent exists): made with
// 0700 and refused when somebody else made it, when it is a link, or when others may write to it.
Status make_private_folder(const std::string& path);

}  // namespace hstu::jit
