// SPDX-License-Identifier: Apache-2.0
// Whose files are believed where several users share a folder.
#pragma once

#include <sys/types.h>

#include <string>

namespace hstu::jit {

// Whether files of this user may be loaded: the user itself, root, and HSTU_JIT_TRUSTED_UIDS.
bool trusted_owner(uid_t owner);
// "" when the variable is unset or a list of numbers, else what is wrong with it.
std::string trusted_uids_problem();

}  // namespace hstu::jit
