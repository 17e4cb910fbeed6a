// SPDX-License-Identifier: Apache-2.0
// Where compilers and the worker lie on this machine. Looks at files only: loads and starts
// nothing.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "compile/compile.hpp"

namespace hstu::jit {

// Existing libraries or programs of a driver, the preferred first. The HSTU_JIT_* variable of the
// driver, when set, is the only candidate (none when it names nothing).
std::vector<std::string> compiler_candidates(Driver driver);

// What to install or set when there is none.
std::string how_to_get(Driver driver);

// Folders the loader of the system below `root` ("": this one) looks for libraries in, there or
// not.
std::vector<std::string> system_library_folders(const std::string& root = "");

// The worker: HSTU_JIT_WORKER, beside this program or library, one folder up (test programs of a
// build tree), ../libexec/hstu-jit. Errors: kCompile.
Result<std::string> find_worker();

}  // namespace hstu::jit
