// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/env.hpp"
#include "base/file.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"

namespace hstu::jit::cli {
namespace {

constexpr size_t kMaxSpecBytes = size_t{64} << 20;

Result<std::string> read_standard_input() {
  std::string text;
  char buffer[65536];
  for (;;) {
    const ssize_t n = read(STDIN_FILENO, buffer, sizeof buffer);
    if (n == 0) return text;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      return Error{ErrorKind::kFailed,
                   fmt::format("cannot read standard input: {}", std::strerror(errno)), "", ""};
    text.append(buffer, static_cast<size_t>(n));
    if (text.size() > kMaxSpecBytes)
      return Error{ErrorKind::kSpec,
                   fmt::format("the spec on standard input passes {} bytes", kMaxSpecBytes), "",
                   ""};
  }
}

}  // namespace

Status print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    return Error{ErrorKind::kFailed,
                 fmt::format("cannot write to standard output: {}", std::strerror(errno)), "", ""};
  return {};
}

std::string error_json(const Error& error) {
  nlohmann::ordered_json j;
  j["kind"] = error_kind_name(error.kind);
  j["pointer"] = error.pointer;
  j["message"] = error.message;
  if (!error.detail.empty()) j["detail"] = error.detail;
  return j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

int report(const Error& error, const Common& common, const char* schema) {
  fmt::print(stderr, "hstu-jit: {}\n", error.message);
  if (!error.detail.empty()) fmt::print(stderr, "{}\n", error.detail);
  if (common.json)
    (void)print(fmt::format("{{\"schema\": \"{}\", \"error\": {}}}\n", schema, error_json(error)));
  return exit_code(error.kind);
}

Result<ParsedSpec> load_spec(const std::string& path) {
  if (path == "-") {
    Result<std::string> text = read_standard_input();
    if (!text) return std::move(text).error();
    return parse_spec(*text, ".");
  }
  Result<std::string> text = read_file(path, kMaxSpecBytes);
  if (!text) {
    Error error = std::move(text).error();
    error.kind = ErrorKind::kSpec;
    return error;
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  Result<ParsedSpec> spec = parse_spec(*text, folder.empty() ? "." : folder);
  if (!spec) return std::move(spec).error().with_context(path);
  return spec;
}

void apply_overrides(Problem& problem, const Common& common) {
  if (!common.target.empty()) problem.target = common.target;
  if (!common.device.empty()) problem.device = common.device;
}

Result<EngineOptions> engine_options(const Common& common) {
  EngineOptions options;
  options.cache_dir = common.cache_dir;
  options.bundles = common.bundles;
  Result<cache::Mode> mode = cache::parse_mode(get_env("HSTU_JIT_CACHE_MODE").value_or("rw"));
  if (!mode) return std::move(mode).error().with_context("HSTU_JIT_CACHE_MODE");
  options.cache_mode = *mode;
  Result<CompileOptions> compile = compile_options_from_environment();
  if (!compile) return std::move(compile).error();
  options.compile = std::move(*compile);
  return options;
}

}  // namespace hstu::jit::cli
