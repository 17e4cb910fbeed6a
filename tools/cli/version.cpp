// SPDX-License-Identifier: Apache-2.0
#include "cli/version.hpp"

#include <fmt/format.h>

#include <CLI/Version.hpp>
#include <nlohmann/json.hpp>

#include "base/digest.hpp"
#include "source/source.hpp"
#include "target/cpu_level.hpp"

namespace hstu::jit::cli {

std::string producer_text() { return "hstu-jit " HSTU_JIT_VERSION; }

std::string version_text() {
  // The templates decide what kernels come out; their digest tells two builds apart.
  std::string all;
  for (const std::string& file : template_files()) {
    all += file + "\n";
    all += template_text(file);
  }
  return fmt::format(
      "hstu-jit {} ({}, {})\n"
      "built by {} as C++{}\n"
      "fmt {}, nlohmann/json {}.{}.{}, CLI11 {}\n"
      "templates {}\n"
      "this host: cpu:{}",
      HSTU_JIT_VERSION, HSTU_JIT_GIT, HSTU_JIT_BUILD_TYPE, HSTU_JIT_CXX_ID, __cplusplus / 100 % 100,
      FMT_VERSION, NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
      NLOHMANN_JSON_VERSION_PATCH, CLI11_VERSION, sha256_hex(all).substr(0, 12),
      detect_cpu_level());
}

}  // namespace hstu::jit::cli
