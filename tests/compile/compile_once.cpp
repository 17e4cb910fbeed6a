// SPDX-License-Identifier: Apache-2.0
// compile-once SECONDS: compiles one small function with /usr/bin/g++ through the worker, in a
// process that may be killed. Exit code 0 when it gave an object.
#include <chrono>
#include <cstdlib>

#include "compile/compile.hpp"
#include "target/target.hpp"

int main(int argc, char** argv) {
  using namespace hstu::jit;
  if (argc != 2) return 2;
  Source source;
  source.body = "extern \"C\" void twice(float* p) { *p *= 2; }\n";
  source.entry = "twice";
  Toolchain toolchain;
  toolchain.driver = Driver::host;
  toolchain.library = "/usr/bin/g++";
  CompileOptions options;
  options.timeout = std::chrono::seconds(std::atoi(argv[1]));
  const Result<Target> target = find_target("cpu");
  return target.ok() && compile(source, *target, toolchain, options).ok() ? 0 : 1;
}
