// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/module.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "base/file.hpp"
#include "base/temp_dir.hpp"

namespace hstu::jit {
namespace {

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

// A name of the descriptor no earlier load had: the loader takes a name it has seen for the library
// it saw, and descriptor numbers come back. The serial number is spelled in "/" and "./".
std::string unique_name(int fd) {
  static std::atomic<uint64_t> loads{0};
  std::string name = "/proc/self/fd/";
  for (uint64_t serial = ++loads; serial != 0; serial >>= 1) name += serial & 1 ? "./" : "/";
  return name + fmt::format("{}", fd);
}

// The memory file serves where /proc is mounted and lets itself be mapped for execution.
void* open_from_memory(std::string_view object) {
  const int fd = memfd_create("hstu-kernel", MFD_CLOEXEC);
  if (fd < 0) return nullptr;
  void* handle = nullptr;
  if (write_all(fd, object)) handle = dlopen(unique_name(fd).c_str(), RTLD_NOW | RTLD_LOCAL);
  close(fd);
  return handle;
}

// Field offsets shared by every 64-bit ELF header.
bool is_shared_object(std::string_view object) {
  constexpr unsigned char kDynamic = 3;
  return object.size() >= 64 &&
         object.substr(0, 4) ==
             "\x7f"
             "ELF" &&
         object[4] == 2 && static_cast<unsigned char>(object[16]) == kDynamic && object[17] == 0;
}

}  // namespace

Result<CpuModule> CpuModule::load(std::string_view object) {
  if (!is_shared_object(object))
    return Error{ErrorKind::kDevice, "cpu: the code object is no 64-bit ELF shared object", "", ""};
  if (void* handle = open_from_memory(object)) return CpuModule(handle);
  Result<TempDir> folder = TempDir::create("hstu-jit-kernel-");
  if (!folder) return std::move(folder).error().with_context("cpu: cannot load a code object");
  const std::string path = folder->path() + "/kernel.so";
  if (Status s = write_file_atomic(path, object, 0700); !s)
    return std::move(s).error().with_context("cpu: cannot load a code object");
  if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return CpuModule(handle);
  const char* reason = dlerror();
  return Error{ErrorKind::kDevice,
               fmt::format("cpu: the code object does not load: {}", reason ? reason : "unknown"),
               "", ""};
}

CpuModule::~CpuModule() {
  if (handle_ != nullptr) dlclose(handle_);
}

Result<void*> CpuModule::find(const std::string& name) const {
  if (void* symbol = dlsym(handle_, name.c_str())) return symbol;
  return Error{ErrorKind::kDevice, fmt::format("cpu: the code object has no entry \"{}\"", name),
               "", ""};
}

}  // namespace hstu::jit
