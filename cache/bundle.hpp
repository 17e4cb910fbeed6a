// SPDX-License-Identifier: Apache-2.0
// Bundles: many entries of the kernel cache in one reproducible file. See BUNDLES.md.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "cache/store.hpp"

namespace hstu::cache {

inline constexpr uint64_t kMaxBundle = uint64_t{8} << 30;     // bytes of a bundle
inline constexpr uint64_t kMaxManifest = uint64_t{64} << 20;  // bytes of its manifest

struct BundleEntry {
  Key key;
  std::string target, name;  // of the entry's ingredients "target" and "entry", "" without
  uint64_t size = 0;         // bytes of the entry, as encode_entry() makes it
  std::string sha256;        // of those bytes, 64 hex digits
};

// A requested spec that gave no entry. Texts of people: UTF-8, made one line.
struct BundleFailure {
  std::string spec;    // how the manifest of the prewarm names it (name, file, JSON pointer)
  std::string target;  // "" when it failed for every target
  std::string reason;
};

// What a writer tells beside the entries.
struct BundleNotes {
  std::string producer;                // program and version, e.g. "hstu-jit 0.1.0"
  std::vector<std::string> requested;  // one JSON value (text) for each requested spec and target
  std::vector<BundleFailure> failed;
};

struct BundleManifest {
  std::string producer;
  std::vector<BundleEntry> entries;    // by key, then toolchain; no two of one name
  std::vector<std::string> requested;  // sorted JSON texts
  std::vector<BundleFailure> failed;   // sorted
};

// "objects/ab/<request>.<toolchain 12>.hko": the member of an entry, and its path under v1/ of a
// store. The key must be made of two digests.
std::string entry_name(const Key& key);

// An open bundle. Reads are const and may come from many threads; the file may be replaced by
// rename while it is open, and one that is cut or changed in place gives misses.
class Bundle {
 public:
  // "k.hjb" or "k.hjb@sha256:HEX". With a pin the manifest must have this SHA-256; without one the
  // file must belong to this user, root or one of HSTU_JIT_TRUSTED_UIDS and be writable by nobody
  // else. Reads the manifest and checks the whole layout against it, byte by byte but for the
  // entries' own bytes, which are checked when they are used. Errors: kCache, one line with the
  // file and what to do; kUsage for a pin that is no digest.
  // Trust::any leaves the question of owner and mode out, for those who only look.
  enum class Trust { checked, any };
  static hstu::jit::Result<Bundle> open(const std::string& path_and_pin,
                                        Trust trust = Trust::checked);

  Bundle(Bundle&&) noexcept;
  Bundle& operator=(Bundle&&) noexcept;
  ~Bundle();

  // Never fails; the bytes are checked against the manifest and by decode_entry. With
  // `any_toolchain` (bundles are normally asked so) the entry of another toolchain also answers,
  // and `key.toolchain` may be "".
  Lookup lookup(const Key& key, bool any_toolchain) const;
  // The bytes of an entry of manifest().entries, checked against its SHA-256. Errors: kCache.
  hstu::jit::Result<std::string> bytes(const BundleEntry& entry) const;

  const BundleManifest& manifest() const;
  const std::string& digest() const;  // SHA-256 of manifest.json, 64 hex digits
  const std::string& path() const;    // as given, without the pin
  // The bytes of manifest.json again. Errors: kCache when the file was cut or changed.
  hstu::jit::Result<std::string> manifest_bytes() const;

  // One that is not as the manifest says.
  struct Problem {
    size_t entry = 0;  // index into manifest().entries
    std::string reason;
  };
  // digests: the bytes of every entry have their SHA-256, so that this file holds what its writer
  // wrote. entries: every entry also decodes and is what the manifest says of it. Uses up to four
  // of this process's processors.
  enum class Depth { digests, entries };
  std::vector<Problem> verify(Depth depth = Depth::entries) const;

 private:
  struct State;
  explicit Bundle(std::unique_ptr<const State> state);
  std::unique_ptr<const State> state_;
};

// The elements of HSTU_JIT_BUNDLES, "a.hjb:b.hjb@sha256:HEX": split at colons that are no part of a
// pin, empty ones left out.
std::vector<std::string> split_bundle_list(std::string_view list);

// Writes bundles: the same entries and notes give the same bytes, in whatever order they came.
class BundleWriter {
 public:
  explicit BundleWriter(BundleNotes notes) : notes_(std::move(notes)) {}

  // An entry as encode_entry() made it; kept in memory until write(). One that is there already
  // with the same bytes counts once. Errors: kCache when it does not decode or another entry with
  // this key and toolchain is there.
  hstu::jit::Status add(std::string encoded);
  // An entry of a store, read now and again by write().
  hstu::jit::Status add(const Store& store, const Key& key);
  // An entry of a bundle, read by write(). The bundle must live until then.
  hstu::jit::Status add(const Bundle& bundle, const BundleEntry& entry);

  size_t size() const { return items_.size(); }

  // Published whole or not at all: temporary file in the same folder, fsync, rename, fsync of the
  // folder. Whatever file had this name is replaced. Gives the digest (64 hex digits). Errors:
  // kCache for more than 8 GiB, notes that are not JSON or UTF-8, entries that changed meanwhile,
  // full disks; nothing is left behind.
  hstu::jit::Result<std::string> write(const std::string& path) const;

 private:
  using Read = std::function<hstu::jit::Result<std::string>()>;
  struct Item {
    BundleEntry entry;
    Read read;
  };
  hstu::jit::Status insert(BundleEntry entry, Read read);

  BundleNotes notes_;
  std::map<std::string, Item> items_;  // by entry_name
};

// BundleWriter in one call.
hstu::jit::Result<std::string> write_bundle(const std::string& path,
                                            const std::vector<std::string>& encoded,
                                            const BundleNotes& notes);

// All entries and notes of some bundles, e.g. those of the shards of a job, in one. Errors: kCache
// when two have other bytes for one key and toolchain, unless `prefer` says whose to take.
enum class Prefer { none, first, last };
hstu::jit::Result<std::string> merge_bundles(const std::vector<const Bundle*>& bundles,
                                             const std::string& path, const std::string& producer,
                                             Prefer prefer = Prefer::none);

// Every entry verified and published to the store, each atomically.
struct InstallReport {
  size_t installed = 0;
  size_t present = 0;                     // the store had them already
  std::vector<Bundle::Problem> problems;  // damaged, or not published: the reason says which
};
// Errors: kCache when the store is not writable at all, or may not hold as much.
hstu::jit::Result<InstallReport> install_bundle(const Bundle& bundle, const Store& store);

// The operator's own check of a bundle, e.g. "minisign -Vm {manifest} -x {bundle}.minisig -p
// k.pub": split into words at spaces (quotes as in a shell, but no shell runs), {manifest} is a
// private copy of manifest.json and {bundle} the path; exit code 0 accepts. Errors: kCache when it
// refuses, hangs or cannot be run; kUsage for a command that cannot be split or does not name
// {manifest}.
hstu::jit::Status run_verify_command(const Bundle& bundle, const std::string& command,
                                     int timeout_ms = 60000);

// For whoever serves from a bundle: Bundle::open, then the check of HSTU_JIT_BUNDLE_VERIFY where
// that is set, once per process for each manifest.
hstu::jit::Result<Bundle> open_trusted_bundle(const std::string& path_and_pin);

}  // namespace hstu::cache
