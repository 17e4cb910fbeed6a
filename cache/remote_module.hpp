// SPDX-License-Identifier: Apache-2.0
// The loadable module hstu-jit-remote.so, which holds libcurl and hiredis: loading them costs every
// start some twenty libraries, so only who has a remote does it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.hpp"
#include "cache/remote_transport.hpp"

namespace hstu::cache {

// Module and library are of one build; this number and the version catch most of what is not.
inline constexpr uint32_t kRemoteModuleAbi = 1;

struct RemoteModule {
  uint32_t abi;
  const char* version;
  const char* transports;  // "http https redis", for people
  std::unique_ptr<Transport> (*make)(const TransportOptions&, std::string* problem);
};

// Loads the module once and for good: HSTU_JIT_REMOTE_MODULE, else beside this library or program,
// in ../libexec/hstu-jit, or one folder up. Errors: kCache.
hstu::jit::Result<const RemoteModule*> load_remote_module();

}  // namespace hstu::cache

// The one symbol of the module.
extern "C" const hstu::cache::RemoteModule* hstu_jit_remote_module();
