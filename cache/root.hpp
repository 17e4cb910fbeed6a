// SPDX-License-Identifier: Apache-2.0
// Where the cache lies: the search for a folder that serves.
#pragma once

#include <string>

#include "base/result.hpp"
#include "cache/store.hpp"

namespace hstu::cache {

struct Root {
  std::string path;     // "" when memory only
  std::string why;      // why this one
  std::string warning;  // one line when a wish could not be met
};

// By the rules of Store::Options. Errors: kCache when an explicit root cannot be used.
hstu::jit::Result<Root> find_root(const Store::Options& options);

}  // namespace hstu::cache
