// SPDX-License-Identifier: Apache-2.0
// Compilers of another system: a chroot or an unpacked image may hold a newer ROCm, whose libraries
// need the C library they were built with. The worker then runs under that system's own loader,
// which needs no root rights, and every path is one that can be looked at from here.
#pragma once

#include <string>
#include <vector>

#include "compile/job.hpp"

namespace hstu::jit {

// The folder that is "/" to this library: the nearest above it with a program loader other than
// ours. "" for a library of this system, and for one that is not there.
std::string system_root_of(const std::string& library);

// How the worker is started for this job. Libraries of another system are run under its loader,
// with its library folders before ours; a worker that is a script starts itself.
std::vector<std::string> worker_command(const std::string& worker, const Job& job);

}  // namespace hstu::jit
