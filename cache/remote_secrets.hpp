// SPDX-License-Identifier: Apache-2.0
// Tokens and headers, from the environment or from files that only their owner should read.
#pragma once

#include <string>

#include "base/result.hpp"
#include "cache/remote.hpp"
#include "cache/remote_transport.hpp"

namespace hstu::cache {

// Reads the files of the options anew. Errors: kCache for a file that cannot be read, kUsage for
// one whose content cannot be meant; they name the file and the line and nothing of its content.
hstu::jit::Result<Credentials> load_credentials(const RemoteOptions& options);

// One line when a file of secrets may be read or changed by everybody; "" when all is well.
std::string secrets_warning(const RemoteOptions& options);

}  // namespace hstu::cache
