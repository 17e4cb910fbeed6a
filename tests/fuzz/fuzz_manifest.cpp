// SPDX-License-Identifier: Apache-2.0
// Any bytes are a valid manifest or a one-line error; a valid one stays within its bounds, and its
// kernels are dealt to shards without loss. Seeds: cache/manifests.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>

#include "prewarm/jobs.hpp"
#include "prewarm/manifest.hpp"

namespace {

using namespace hstu::jit;

void expect(bool holds, const char* what, const std::string& text) {
  if (holds) return;
  std::fprintf(stderr, "%s\n%s\n", what, text.c_str());
  std::abort();
}

void expect_error(const Error& e) {
  bool one_line = !e.message.empty() && e.message.size() < 2000;
  for (const char c : e.message)
    one_line = one_line && static_cast<unsigned char>(c) >= 0x20 && c != 0x7f;
  expect(one_line, "not one line", e.message);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  // The first file holds a spec, the others what the manifest holds, which may be one.
  const ReadFile read = [text](const std::string& path) -> Result<std::string> {
    if (path.size() % 2 == 0) return std::string(text);
    return std::string(R"({"op": "hstu_attention", "heads": 1, "head_dim_qk": 64,
                           "uih_lengths": [3, 4], "mask": {"causal": true}})");
  };
  const Result<Manifest> manifest = parse_manifest(text, "folder", read);
  if (!manifest.ok()) {
    expect(manifest.error().kind == ErrorKind::kSpec, "not kSpec", manifest.error().message);
    expect_error(manifest.error());
    return 0;
  }
  expect(manifest->specs.size() <= kMaxManifestSpecs, "too many specs", "");
  expect(manifest->warnings.size() <= 32, "too many warnings", "");
  for (const ManifestSpec& spec : manifest->specs) {
    expect(spec.priority >= 0 && spec.priority <= kMaxPriority, "priority", spec.label);
    expect(!spec.label.empty() && !spec.pointer.empty(), "no place", "");
  }
  // Planning is no parser's business and slow: few are enough.
  if (manifest->specs.size() > 16) return 0;
  for (const ManifestSpec& spec : manifest->specs)
    if (spec.problem.batch > 4096) return 0;
  Result<JobList> list = expand(*manifest, {"gfx90a"}, {});
  if (!list.ok()) {
    expect_error(list.error());
    return 0;
  }
  std::set<std::string> all, seen;
  for (const KernelJob& job : list->jobs)
    expect(all.insert(job.request).second, "a kernel twice", job.entry);
  for (size_t i = 0; i < 3; ++i) {
    JobList part = *list;
    keep_shard(part, {i, 3});
    for (const KernelJob& job : part.jobs)
      expect(seen.insert(job.request).second, "in two shards", job.entry);
  }
  expect(seen == all, "in no shard", "");
  return 0;
}
