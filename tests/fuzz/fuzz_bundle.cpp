// SPDX-License-Identifier: Apache-2.0
// libFuzzer: any bytes as a bundle; as the manifest of an otherwise good one, or a piece of it; as
// changes to a good bundle.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/digest.hpp"
#include "cache/bundle.hpp"
#include "cache/bundle_manifest.hpp"
#include "cache/bundle_tar.hpp"
#include "cache/entry.hpp"

namespace {

using namespace hstu::cache;

void expect(bool good) {
  if (!good) std::abort();
}

// A file in memory that may be opened by its path.
class Scratch {
 public:
  Scratch() : fd_(::memfd_create("bundle", MFD_CLOEXEC)) {
    expect(fd_ >= 0 && ::fchmod(fd_, 0600) == 0);
    path_ = "/proc/self/fd/" + std::to_string(fd_);
  }
  const std::string& put(const std::string& bytes) {
    expect(::ftruncate(fd_, 0) == 0);
    expect(::pwrite(fd_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
    return path_;
  }

 private:
  int fd_;
  std::string path_;
};

Artifact kernel(int i) {
  Artifact made;
  made.ingredients = {{"target", "gfx90a"}, {"entry", "k" + std::to_string(i)}};
  made.key = {request_digest(made.ingredients), std::string(64, 'c')};
  made.payload = std::string(100 + static_cast<size_t>(i) * 200, 'p');
  return made;
}

const std::string& good_bundle() {
  static const std::string bytes = [] {
    BundleNotes notes;
    notes.producer = "fuzz";
    notes.requested = {R"({"a": [1, 2.5, null, true, "x"]})"};
    notes.failed = {{"s", "t", "r"}};
    std::vector<BundleEntry> entries;
    std::string body;
    std::map<std::string, std::string> sorted;
    for (int i = 0; i < 3; ++i) {
      const Artifact one = kernel(i);
      sorted[entry_name(one.key)] = *encode_entry(one);
    }
    for (const auto& [name, encoded] : sorted) {
      BundleEntry entry = *describe_entry(encoded);
      entry.sha256 = hstu::jit::sha256_hex(encoded);
      entries.push_back(entry);
      body += tar_header(name, encoded.size()) + encoded;
      body.resize(padded(body.size()), '\0');
    }
    std::string manifest = *manifest_text(notes, entries);
    std::string archive = tar_header(kManifestMember, manifest.size()) + manifest;
    archive.resize(padded(archive.size()), '\0');
    return archive + body + std::string(kTarEnd, '\0');
  }();
  return bytes;
}

// Whatever opens must be sound: its layout is that of its manifest, and nothing crashes.
void use(const std::string& path, size_t size) {
  const auto bundle = Bundle::open(path);
  if (!bundle.ok()) {
    expect(bundle.error().message.find('\n') == std::string::npos);
    expect(bundle.error().kind == hstu::jit::ErrorKind::kCache);
    return;
  }
  const BundleManifest& manifest = bundle->manifest();
  expect(bundle_size(bundle->manifest_bytes()->size(), manifest.entries) == size);
  for (const BundleEntry& entry : manifest.entries) {
    const Lookup found = bundle->lookup(entry.key, true);
    expect(found.hit == (found.reason == MissReason::none));
    if (found.hit) expect(found.artifact.key.request == entry.key.request);
    if (!found.hit) expect(!found.explanation.empty());
  }
  (void)bundle->verify(Bundle::Depth::entries);
}

// An archive of this manifest and of the members it asks for, as far as it is one.
void use_manifest(Scratch& scratch, const std::string& text) {
  std::string archive = tar_header(kManifestMember, text.size()) + text;
  archive.resize(padded(archive.size()), '\0');
  const auto manifest = parse_manifest(text);
  if (manifest.ok()) {
    // What was read can be written and read again.
    const auto again = manifest_text({manifest->producer, manifest->requested, manifest->failed},
                                     manifest->entries);
    expect(again.ok());
    const auto back = parse_manifest(*again);
    expect(back.ok() && back->entries.size() == manifest->entries.size());
    const auto twice =
        manifest_text({back->producer, back->requested, back->failed}, back->entries);
    expect(twice.ok() && *twice == *again);
    for (const BundleEntry& entry : manifest->entries) {
      if (entry.size > 100000) return;
      archive += tar_header(entry_name(entry.key), entry.size) +
                 std::string(static_cast<size_t>(padded(entry.size)), '\0');
    }
  }
  archive += std::string(kTarEnd, '\0');
  use(scratch.put(archive), archive.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Scratch scratch;
  if (size == 0) return 0;
  const std::string rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0: {
      use(scratch.put(rest), rest.size());
      break;
    }
    case 1:
      use_manifest(scratch, rest);
      break;
    case 2: {  // a good manifest with a piece of it replaced: where, how much, by what
      if (rest.size() < 3) return 0;
      const std::string& good = good_bundle();
      std::string text = good.substr(kTarBlock, *tar_size(good.substr(0, kTarBlock)));
      const size_t at = (static_cast<unsigned char>(rest[0]) * size_t{256} +
                         static_cast<unsigned char>(rest[1])) %
                        text.size();
      use_manifest(scratch, text.replace(at, static_cast<unsigned char>(rest[2]), rest.substr(3)));
      break;
    }
    default: {  // three bytes a change: where and what
      std::string bytes = good_bundle();
      for (size_t i = 0; i + 3 <= rest.size() && i < 60; i += 3) {
        const size_t at = static_cast<unsigned char>(rest[i]) * size_t{256} +
                          static_cast<unsigned char>(rest[i + 1]);
        bytes[at % bytes.size()] ^= rest[i + 2];
      }
      use(scratch.put(bytes), bytes.size());
      break;
    }
  }
  return 0;
}
