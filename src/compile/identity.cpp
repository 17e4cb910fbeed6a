// SPDX-License-Identifier: Apache-2.0
#include "compile/identity.hpp"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/digest.hpp"
#include "base/file.hpp"

namespace hstu::jit {
namespace {

bool read_at(int fd, void* into, size_t size, uint64_t at) {
  return ::pread(fd, into, size, static_cast<off_t>(at)) == static_cast<ssize_t>(size);
}

std::optional<std::string> build_id_in_notes(const std::string& notes) {
  for (size_t at = 0; at + sizeof(Elf64_Nhdr) <= notes.size();) {
    Elf64_Nhdr note;
    std::memcpy(&note, notes.data() + at, sizeof note);
    const size_t name = at + sizeof note;
    const size_t content = name + ((size_t{note.n_namesz} + 3) & ~size_t{3});
    const size_t end = content + ((size_t{note.n_descsz} + 3) & ~size_t{3});
    if (end > notes.size()) break;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
        std::memcmp(notes.data() + name, "GNU", 4) == 0) {
      std::string hex;
      for (size_t i = 0; i < note.n_descsz; ++i) {
        hex += fmt::format("{:02x}", static_cast<unsigned char>(notes[content + i]));
      }
      return hex;
    }
    at = end;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> file_build_id(const std::string& path) {
  struct Closer {
    int fd;
    ~Closer() {
      if (fd >= 0) ::close(fd);
    }
  } const file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  Elf64_Ehdr header;
  if (file.fd < 0 || !read_at(file.fd, &header, sizeof header, 0) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_phentsize != sizeof(Elf64_Phdr)) {
    return std::nullopt;
  }
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    if (!read_at(file.fd, &segment, sizeof segment, header.e_phoff + i * sizeof segment)) break;
    if (segment.p_type != PT_NOTE || segment.p_filesz > (1u << 20)) continue;
    std::string notes(segment.p_filesz, '\0');
    if (!read_at(file.fd, notes.data(), notes.size(), segment.p_offset)) break;
    if (auto id = build_id_in_notes(notes)) return id;
  }
  return std::nullopt;
}

std::string file_identity(const std::string& path) {
  if (auto id = file_build_id(path)) return *id;
  const Result<std::string> bytes = read_file(path, uint64_t{1} << 30);
  return bytes.ok() ? "sha256:" + sha256_hex(*bytes) : std::string();
}

std::vector<std::string> loaded_compiler_libraries() {
  std::vector<std::string> paths;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* user) {
        const std::string path = info->dlpi_name ? info->dlpi_name : "";
        const std::string name = path.substr(path.rfind('/') + 1);
        for (const char* part : {"hiprtc", "amdhip64", "comgr", "LLVM", "clang", "lld", "nvrtc"}) {
          if (name.find(part) == std::string::npos) continue;
          static_cast<std::vector<std::string>*>(user)->push_back(path);
          break;
        }
        return 0;
      },
      &paths);
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string file_stamp(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return {};
  return fmt::format("{} {} {}.{:09} {}", path, info.st_size, info.st_mtim.tv_sec,
                     info.st_mtim.tv_nsec, file_build_id(path).value_or("-"));
}

}  // namespace hstu::jit
