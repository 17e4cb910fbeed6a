// SPDX-License-Identifier: Apache-2.0
// Compiler options: the one table of spellings.
#include <fmt/format.h>

#include <charconv>

#include "base/env.hpp"
#include "base/text.hpp"
#include "compile/compile.hpp"
#include "target/cpu_level.hpp"

namespace hstu::jit {
namespace {

// RDNA has a work-group mode in which two compute units share LDS; hipRTC and clang differ in the
// default, so it is said.
bool has_two_cu_modes(const std::string& target) {
  return target.rfind("gfx1", 0) == 0 && target.size() > 6;
}

}  // namespace

const char* driver_name(Driver driver) {
  switch (driver) {
    case Driver::hiprtc:
      return "hiprtc";
    case Driver::nvrtc:
      return "nvrtc";
    case Driver::clang:
      return "clang";
    case Driver::host:
      return "host";
  }
  return "?";
}

std::vector<std::string> canonical_options(const Target& target, Driver driver,
                                           const CompileOptions& options) {
  std::vector<std::string> list;
  switch (driver) {
    case Driver::hiprtc:
      list = {"--offload-arch=" + target.name, "-std=c++17", "-O3",
              // Noise of the embedded compiler about its own built-in header and line markers.
              "-Wno-unknown-warning-option", "-Wno-gnu-line-marker", "-Wno-pass-failed"};
      break;
    case Driver::nvrtc:
      list = {"--gpu-architecture=" + target.name, "-std=c++17"};
      break;
    case Driver::clang:
      list = {"-x", "hip", "--cuda-device-only", "--offload-arch=" + target.name, "-nogpuinc",
              "-nogpulib", "-O3", "-std=c++17", "--no-gpu-bundle-output",
              // The default cuid is a digest of the path of the source.
              "-fuse-cuid=none", "-Wno-unknown-warning-option", "-Wno-pass-failed"};
      break;
    case Driver::host:
      // ISO mode turns contraction off in g++. No build id, no symbols but the exported ones: the
      // object holds code only.
      list = {"-x",
              "c++",
              "-shared",
              "-fPIC",
              "-O3",
              "-std=c++17",
              "-fno-exceptions",
              "-fno-rtti",
              "-ffp-contract=fast",
              "-fno-math-errno",
              "-fno-trapping-math",
              "-fno-semantic-interposition",
              "-Wno-psabi",
              "-g0",
              "-s",
              "-Wl,--build-id=none"};
      for (std::string& flag : cpu_level_flags(target.name)) list.push_back(std::move(flag));
      break;
  }
  const bool amd = driver == Driver::hiprtc || driver == Driver::clang;
  if (amd && has_two_cu_modes(target.name)) list.emplace_back("-mcumode");
  list.insert(list.end(), options.extra_flags.begin(), options.extra_flags.end());
  return list;
}

Result<CompileOptions> compile_options_from_environment() {
  CompileOptions options;
  if (const auto text = get_env("HSTU_JIT_COMPILE_TIMEOUT")) {
    double seconds = 0;
    const auto [end, code] = std::from_chars(text->data(), text->data() + text->size(), seconds);
    if (code != std::errc() || end != text->data() + text->size() || !(seconds >= 0.001) ||
        !(seconds <= 86400)) {
      return Error{ErrorKind::kUsage,
                   fmt::format("HSTU_JIT_COMPILE_TIMEOUT=\"{}\" is not a number of seconds between "
                               "0.001 and 86400",
                               printable(*text)),
                   "", ""};
    }
    options.timeout = std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
  }
  options.dump_dir = get_env("HSTU_JIT_DUMP").value_or("");
  const std::string flags = get_env("HSTU_JIT_EXTRA_FLAGS").value_or("");
  for (size_t begin = 0; begin < flags.size();) {
    const size_t end = std::min(flags.find(' ', begin), flags.size());
    if (end > begin) options.extra_flags.push_back(flags.substr(begin, end - begin));
    begin = end + 1;
  }
  return options;
}

}  // namespace hstu::jit
