// SPDX-License-Identifier: Apache-2.0
// tools/test-rocm-matrix.sh over programs that only pretend: what it skips, and what it fails for.
#include <fmt/format.h>

#include <cstdlib>
#include <string>

#include "base/file.hpp"
#include "base/subprocess.hpp"
#include "base/temp_dir.hpp"
#include "catch.hpp"

using namespace hstu::jit;

namespace {

// A build folder whose hstu-jit lists `devices` and ends every run with `code`.
ProcessResult matrix_with(const std::string& devices, int code,
                          const std::string& parts = "compile,table,specs") {
  const auto folder = TempDir::create("matrix-test");
  REQUIRE(folder.ok());
  const auto program = [&](const char* name, const std::string& body) {
    REQUIRE(write_file_atomic(folder->path() + "/" + name, "#!/bin/sh\n" + body, 0755).ok());
  };
  program("hstu-jit", fmt::format("case $1 in\n"
                                  "compile) echo '9 bytes for gfx90a in k.o (compiled in 1 ms by "
                                  "hipRTC 5.2.21153, clang)';;\n"
                                  "devices) cat <<'END'\nsim: 6 simulated targets\n{}\nEND\n;;\n"
                                  "run) echo 'hstu-jit: this is why'; exit {};;\n"
                                  "*) exit 99;;\nesac\n",
                                  devices, code));
  program("hstu-jit-matrix",
          "echo 'gfx90a      3 kernels, 0 failed: at least 8 matrix instructions'\n");
  program("hstu-jit-kernel-table", "echo row\n");
  ProcessOptions options;
  options.argv = {HSTU_ROOT "/tools/test-rocm-matrix.sh",
                  "--only",
                  "5.2.3",
                  "--target",
                  "gfx90a",
                  "--parts",
                  parts};
  options.environment = {{fmt::format("PATH={}", std::getenv("PATH")), "HOME=" + folder->path(),
                          "HSTU_BUILD_DIR=" + folder->path()}};
  const auto ran = run_process(options);
  REQUIRE(ran.ok());
  CHECK_FALSE(ran->timed_out);
  return *ran;
}

const char* const kUsable = "  sim:gfx90a  Simulated MI210, 104 CUs, 8 GB";
const char* const kUnusable =
    "  sim:gfx90a  Simulated MI210, 104 CUs, 8 GB, cannot be used: no llvm-objdump";

}  // namespace

TEST_CASE("ROCm matrix: a usable device that runs nothing is a failure, whatever it says") {
  for (const int code : {1, 4, 5, 6, 7, 9}) {
    const ProcessResult ran = matrix_with(kUsable, code);
    INFO(ran.output << ran.errors);
    CHECK(ran.exit_code == 1);
    CHECK_THAT(ran.output, ContainsSubstring("FAILED: ROCm 5.2.3, sim:gfx90a, quickstart.json"));
    CHECK_THAT(ran.output, ContainsSubstring(fmt::format("exit code {}", code)));
    CHECK(ran.output.find("SKIPPED") == std::string::npos);
  }
}

TEST_CASE("ROCm matrix: passes count, and only an unusable device is skipped") {
  const ProcessResult passed = matrix_with(kUsable, 0);
  INFO(passed.output << passed.errors);
  CHECK(passed.exit_code == 0);
  CHECK_THAT(passed.output, ContainsSubstring("spec files, 0 failed"));
  const ProcessResult unusable = matrix_with(kUnusable, 0);
  CHECK(unusable.exit_code == 0);
  CHECK_THAT(unusable.output, ContainsSubstring("SKIPPED: simulation of gfx90a: no llvm-objdump"));
  const ProcessResult unknown = matrix_with("  sim:gfx9  other", 0);
  CHECK_THAT(unknown.output, ContainsSubstring("SKIPPED: simulation of gfx90a: "));
}

TEST_CASE("ROCm matrix: parts run alone") {
  const ProcessResult compile = matrix_with(kUsable, 4, "compile");
  INFO(compile.output << compile.errors);
  CHECK(compile.exit_code == 0);
  CHECK_THAT(compile.output, ContainsSubstring("3 kernels, 0 failed"));
  CHECK(compile.output.find("row") == std::string::npos);
  const ProcessResult table = matrix_with(kUsable, 4, "table");
  CHECK(table.exit_code == 0);
  CHECK_THAT(table.output, ContainsSubstring("\nrow\n"));
  CHECK(table.output.find("kernels, 0 failed") == std::string::npos);
  CHECK(matrix_with(kUsable, 4, "table,specs").exit_code == 1);
  CHECK(matrix_with(kUsable, 0, "specs").exit_code == 0);
  for (const char* nonsense : {"", "all", "specs,", "compile specs"})
    CHECK(matrix_with(kUsable, 0, nonsense).exit_code == 2);
}
