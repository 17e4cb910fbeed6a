// SPDX-License-Identifier: Apache-2.0
// Manifest -> the kernels to have: each once, however many specs share it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "compile/compile.hpp"
#include "prewarm/manifest.hpp"
#include "target/target.hpp"

namespace hstu::jit {

// Problems times targets that a manifest may ask for.
constexpr size_t kMaxRequests = size_t{1} << 16;

// Who asked: for reports.
struct Asker {
  std::string label;
  std::string pointer;
};

struct KernelJob {
  std::string request;  // 64 hex digits, unique in a list
  std::string entry;    // name of the kernel
  Target target;
  Problem problem;  // of the first asker: every asker's problem has this kernel
  int priority = 0;
  std::vector<Asker> askers;
};

// A spec that has no kernel on a target, and why (kUnsupported).
struct RefusedJob {
  Asker asker;
  std::string target;
  Error error;
};

struct JobList {
  std::vector<std::string> targets;  // canonical names, in the order asked for
  std::vector<KernelJob> jobs;       // higher priority first, then in the order of the manifest
  std::vector<RefusedJob> refused;   // in the order of the manifest
};

// `only`: the targets wanted now. They take the place of the manifest's; entries with targets of
// their own are made for those of them that are wanted. Empty: what the manifest says, and where it
// says nothing the spec's own target. Pure: reads no cache and asks no compiler.
// Errors: kUnsupported for a name that is no target, kSpec where no target is named at all, or more
// is asked for than kMaxRequests.
Result<JobList> expand(const Manifest& manifest, const std::vector<std::string>& only,
                       const CompileOptions& options);

// Part `index` of `count` for one of several machines: no two parts share a kernel, all parts
// together are the list, and each has as many of a target as any other, one more or less. Does not
// depend on priorities or the order of the manifest.
struct Shard {
  size_t index = 0;  // from 0
  size_t count = 1;
};
void keep_shard(JobList& list, const Shard& shard);

// "i/n" with i from 0, or, for arrays of jobs: "slurm" (SLURM_ARRAY_TASK_ID, _MIN, _COUNT; the ids
// must follow each other), "kubernetes/n" (JOB_COMPLETION_INDEX of an indexed Job with n
// completions). Errors: kUsage.
Result<Shard> parse_shard(std::string_view text);

}  // namespace hstu::jit
