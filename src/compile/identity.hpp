// SPDX-License-Identifier: Apache-2.0
// Who a compiler is: build ids of the files it consists of.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace hstu::jit {

// GNU build id of an ELF file in hex; nothing when it has none or is no ELF file.
std::optional<std::string> file_build_id(const std::string& path);

// The build id, else "sha256:" and the digest of the content; "" when the file cannot be read.
std::string file_identity(const std::string& path);

// Paths of the compiler libraries (HIP, comgr, LLVM, NVRTC) loaded in this process.
std::vector<std::string> loaded_compiler_libraries();

// "path size mtime build-id": changes when the file does. "" when it cannot be looked at.
std::string file_stamp(const std::string& path);

}  // namespace hstu::jit
