// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "object/inspect.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto info = hstu::jit::read_object({reinterpret_cast<const char*>(data), size});
  if (info) {
    (void)hstu::jit::to_json(*info);
    (void)hstu::jit::to_text(*info);
  } else if (info.error().message.find('\n') != std::string::npos) {
    __builtin_trap();  // errors are one line, whatever the file names its parts
  }
  return 0;
}
