// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>

#include "base/digest.hpp"
#include "base/text.hpp"
#include "cache/bundle.hpp"
#include "cache/bundle_file.hpp"
#include "cache/bundle_manifest.hpp"
#include "cache/bundle_tar.hpp"

namespace hstu::cache {
namespace {

using hstu::jit::Error;
using hstu::jit::ErrorKind;
using hstu::jit::printable;
using hstu::jit::Result;
using hstu::jit::Status;

constexpr size_t kShownPath = 300;

Error refuse(std::string reason) { return Error{ErrorKind::kCache, std::move(reason), "", ""}; }

std::string shown(const std::string& path) { return printable(path, kShownPath); }

}  // namespace

Status BundleWriter::insert(BundleEntry entry, Read read) {
  std::string name = entry_name(entry.key);
  const auto [at, fresh] = items_.try_emplace(std::move(name), Item{entry, std::move(read)});
  if (!fresh && at->second.entry.sha256 != entry.sha256) {
    return refuse(fmt::format("two entries for {} have different bytes: SHA-256 {} and {}",
                              at->first, at->second.entry.sha256, entry.sha256));
  }
  return {};
}

Status BundleWriter::add(std::string encoded) {
  Result<BundleEntry> entry = describe_entry(encoded);
  if (!entry.ok()) {
    return std::move(entry).error().with_context("an entry for the bundle is not whole");
  }
  entry->sha256 = hstu::jit::sha256_hex(encoded);
  const auto kept = std::make_shared<const std::string>(std::move(encoded));
  return insert(std::move(*entry), [kept] { return Result<std::string>(*kept); });
}

Status BundleWriter::add(const Bundle& bundle, const BundleEntry& entry) {
  const Result<std::string> encoded = bundle.bytes(entry);
  if (!encoded.ok()) return encoded.error();
  Result<BundleEntry> described = describe_entry(*encoded);
  // What a manifest says falsely of an entry does not go into another one.
  if (!described.ok() || entry_name(described->key) != entry_name(entry.key) ||
      described->key.toolchain != entry.key.toolchain) {
    return refuse(
        fmt::format("{} in bundle {} is not the entry its manifest says{}{}; fetch or "
                    "make it again",
                    entry_name(entry.key), shown(bundle.path()), described.ok() ? "" : ": ",
                    described.ok() ? "" : described.error().message));
  }
  described->sha256 = entry.sha256;
  return insert(std::move(*described), [&bundle, entry] { return bundle.bytes(entry); });
}

Result<std::string> BundleWriter::write(const std::string& path) const {
  const auto failed = [&](const Error& error) {
    return refuse(fmt::format("cannot write bundle {}: {}", shown(path), error.message));
  };
  std::vector<BundleEntry> entries;
  entries.reserve(items_.size());
  for (const auto& [name, item] : items_) entries.push_back(item.entry);
  const Result<std::string> manifest = manifest_text(notes_, entries);
  if (!manifest.ok()) return failed(manifest.error());
  const uint64_t size = bundle_size(manifest->size(), entries);
  if (size > kMaxBundle) {
    return failed(refuse(
        fmt::format("it would have {} bytes, more than 8 GiB; make several (HSTU_JIT_BUNDLES takes "
                    "a list)",
                    size)));
  }

  Result<NewFile> file = NewFile::create(path);
  if (!file.ok()) return std::move(file).error();
  const auto put = [&](std::string_view name, std::string_view bytes) {
    std::string member = tar_header(name, bytes.size());
    member += bytes;
    member.resize(kTarBlock + padded(bytes.size()), '\0');
    return file->write(member);
  };
  if (Status s = put(kManifestMember, *manifest); !s.ok()) return std::move(s).error();
  for (const auto& [name, item] : items_) {
    const Result<std::string> bytes = item.read();
    if (!bytes.ok()) return failed(bytes.error());
    if (bytes->size() != item.entry.size || hstu::jit::sha256_hex(*bytes) != item.entry.sha256) {
      return failed(refuse(fmt::format("{} changed while it was written; do it again", name)));
    }
    if (Status s = put(name, *bytes); !s.ok()) return std::move(s).error();
  }
  if (Status s = file->write(std::string(kTarEnd, '\0')); !s.ok()) return std::move(s).error();
  if (Status s = file->commit(); !s.ok()) return std::move(s).error();
  return hstu::jit::sha256_hex(*manifest);
}

Result<std::string> write_bundle(const std::string& path, const std::vector<std::string>& encoded,
                                 const BundleNotes& notes) {
  BundleWriter writer(notes);
  for (const std::string& bytes : encoded) {
    if (Status s = writer.add(bytes); !s.ok()) {
      return std::move(s).error().with_context(fmt::format("cannot write bundle {}", shown(path)));
    }
  }
  return writer.write(path);
}

Result<std::string> merge_bundles(const std::vector<const Bundle*>& bundles,
                                  const std::string& path, const std::string& producer,
                                  Prefer prefer) {
  struct Chosen {
    const Bundle* bundle;
    const BundleEntry* entry;
  };
  std::map<std::string, Chosen> chosen;
  BundleNotes notes;
  notes.producer = producer;
  for (const Bundle* bundle : bundles) {
    const BundleManifest& manifest = bundle->manifest();
    notes.requested.insert(notes.requested.end(), manifest.requested.begin(),
                           manifest.requested.end());
    notes.failed.insert(notes.failed.end(), manifest.failed.begin(), manifest.failed.end());
    for (const BundleEntry& entry : manifest.entries) {
      const auto [at, fresh] = chosen.try_emplace(entry_name(entry.key), Chosen{bundle, &entry});
      if (fresh || at->second.entry->sha256 == entry.sha256 || prefer == Prefer::first) continue;
      if (prefer == Prefer::none) {
        return refuse(fmt::format(
            "cannot merge into {}: {} has other bytes in {} than in {}; choose by --prefer first "
            "or --prefer last",
            shown(path), at->first, shown(bundle->path()), shown(at->second.bundle->path())));
      }
      at->second = {bundle, &entry};
    }
  }
  BundleWriter writer(std::move(notes));
  for (const auto& [name, from] : chosen) {
    if (Status s = writer.add(*from.bundle, *from.entry); !s.ok()) {
      return std::move(s).error().with_context(fmt::format("cannot merge into {}", shown(path)));
    }
  }
  return writer.write(path);
}

}  // namespace hstu::cache
