// SPDX-License-Identifier: Apache-2.0
// Prints the identity of the toolchain of a target: a process without any memory but the folder's.
#include <cstdio>

#include "compile/compile.hpp"
#include "target/target.hpp"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const hstu::jit::Result<hstu::jit::Target> target = hstu::jit::find_target(argv[1]);
  if (!target.ok()) return 4;
  const auto toolchain = hstu::jit::find_toolchain(*target, argv[2]);
  if (!toolchain.ok()) {
    std::fprintf(stderr, "%s\n", toolchain.error().message.c_str());
    return 5;
  }
  std::printf("%s", toolchain->id.c_str());
  return 0;
}
