// SPDX-License-Identifier: Apache-2.0
// What the module exports.
#include "cache/remote_module.hpp"

extern "C" __attribute__((visibility("default"))) const hstu::cache::RemoteModule*
hstu_jit_remote_module() {
  static const hstu::cache::RemoteModule module = {hstu::cache::kRemoteModuleAbi, HSTU_JIT_VERSION,
                                                   HSTU_JIT_REMOTE_TRANSPORTS,
                                                   &hstu::cache::make_transport};
  return &module;
}
