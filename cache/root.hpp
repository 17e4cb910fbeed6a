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

// A folder of this user's own under a place everybody may write to: made with 0700 and refused when
// somebody else made it, when it is a link, or when others may write to it.
hstu::jit::Status make_private_folder(const std::string& path);

}  // namespace hstu::cache
