// SPDX-License-Identifier: Apache-2.0
#include "cache/bundle.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <optional>
#include <thread>

#include "base/digest.hpp"
#include "base/processors.hpp"
#include "base/text.hpp"
#include "cache/bundle_manifest.hpp"
#include "cache/bundle_tar.hpp"
#include "cache/entry.hpp"
#include "cache/folder.hpp"

namespace hstu::cache {
namespace {

using hstu::jit::Error;
using hstu::jit::ErrorKind;
using hstu::jit::printable;
using hstu::jit::Result;
using hstu::jit::Status;

constexpr size_t kShownPath = 300;
constexpr std::string_view kPin = "@sha256:";

Error unusable(const std::string& path, std::string_view reason, std::string_view advice) {
  return Error{
      ErrorKind::kCache,
      fmt::format("cannot use bundle {}: {}; {}", printable(path, kShownPath), reason, advice), "",
      ""};
}

constexpr std::string_view kFetchAgain = "fetch or make it again";

Lookup miss(MissReason reason, std::string explanation) {
  Lookup lookup;
  lookup.reason = reason;
  lookup.explanation = std::move(explanation);
  return lookup;
}

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }

  // `size` bytes from `at` on, less when the file ends before. Not mapped: a file cut while it is
  // in use must not end the program. Not sought: descriptors are shared with forked children.
  Result<std::string> read(uint64_t at, uint64_t size) const {
    std::string bytes;
    if (Status s = read(at, size, &bytes); !s.ok()) return std::move(s).error();
    return bytes;
  }
  // The same into a string whose memory is used again.
  Status read(uint64_t at, uint64_t size, std::string* into) const {
    std::string& bytes = *into;
    bytes.resize(static_cast<size_t>(size));
    size_t used = 0;
    while (used < bytes.size()) {
      const ssize_t got =
          ::pread(fd_, bytes.data() + used, bytes.size() - used, static_cast<off_t>(at + used));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return Error{ErrorKind::kFailed, std::strerror(errno), "", ""};
      if (got == 0) break;
      used += static_cast<size_t>(got);
    }
    bytes.resize(used);
    return {};
  }

 private:
  int fd_;
};

bool all_zero(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](char c) { return c == '\0'; });
}

// "" when a file like this may be believed without a pin.
std::string distrust(const struct stat& info) {
  if (!trusted_owner(info.st_uid)) {
    return fmt::format("it belongs to user {}, who is not trusted here", info.st_uid);
  }
  if ((info.st_mode & 022) != 0) return "others may write to it";
  return {};
}

struct PinnedPath {
  std::string path, pin;
};

Result<PinnedPath> split_pin(const std::string& text) {
  const size_t at = text.rfind(kPin);
  if (at == std::string::npos) return PinnedPath{text, ""};
  PinnedPath split{text.substr(0, at), text.substr(at + kPin.size())};
  std::transform(split.pin.begin(), split.pin.end(), split.pin.begin(), [](char c) {
    return c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  if (!is_digest(split.pin)) {
    return Error{ErrorKind::kUsage,
                 fmt::format("the pin of bundle {} is not @sha256: and 64 hex digits",
                             printable(text, kShownPath)),
                 "", ""};
  }
  return split;
}

}  // namespace

std::string entry_name(const Key& key) {
  return fmt::format("objects/{}/{}.{}.hko", key.request.substr(0, 2), key.request,
                     key.toolchain.substr(0, 12));
}

struct Bundle::State {
  State(std::string given, int fd) : path(std::move(given)), file(fd) {}

  std::string path;
  File file;
  std::string digest;
  uint64_t manifest_size = 0;
  BundleManifest manifest;
  std::vector<uint64_t> offsets;  // of the entries' bytes

  Error refuse(std::string_view reason, std::string_view advice = kFetchAgain) const {
    return unusable(path, reason, advice);
  }
  Status read_manifest(const std::string& pin, uint64_t file_size);
  Status check_layout(uint64_t file_size);
  struct Fault {
    MissReason reason = MissReason::none;
    std::string problem;  // "" when the bytes are those of the manifest
  };
  Fault find(size_t index, std::string* bytes) const;
  Lookup lookup(size_t index, const Key& key) const;
  std::string check(size_t index, Depth depth, std::string* buffer) const;
};

Status Bundle::State::read_manifest(const std::string& pin, uint64_t file_size) {
  Result<std::string> header = file.read(0, kTarBlock);
  if (!header.ok()) return refuse(header.error().message);
  const std::optional<uint64_t> size = tar_size(*header);
  // The name and magic first: what is no bundle at all should be called that.
  const std::string difference = tar_difference(*header, kManifestMember, size.value_or(0));
  if (!difference.empty()) return refuse("it is not a bundle: " + difference);
  if (*size > kMaxManifest) return refuse("its manifest is larger than 64 MiB");
  if (kTarBlock + padded(*size) + kTarEnd > file_size) return refuse("it is cut in its manifest");
  Result<std::string> text = file.read(kTarBlock, *size);
  if (!text.ok()) return refuse(text.error().message);
  if (text->size() != *size) return refuse("it is cut in its manifest");
  manifest_size = *size;
  digest = hstu::jit::sha256_hex(*text);
  if (!pin.empty() && digest != pin) {
    return refuse(fmt::format("its digest is sha256:{}, the pin says sha256:{}", digest, pin),
                  "it is not the bundle that was pinned: fetch that one or correct the pin");
  }
  Result<BundleManifest> parsed = parse_manifest(*text);
  if (!parsed.ok()) return refuse("its manifest is refused: " + parsed.error().message);
  manifest = std::move(*parsed);
  return {};
}

// The manifest tells every byte of the file but the entries' own.
Status Bundle::State::check_layout(uint64_t file_size) {
  uint64_t end = kTarBlock + manifest_size;
  offsets.reserve(manifest.entries.size());
  for (const BundleEntry& entry : manifest.entries) {
    const std::string name = entry_name(entry.key);
    const uint64_t gap = padded(end) - end;
    Result<std::string> block = file.read(end, gap + kTarBlock);
    if (!block.ok()) return refuse(block.error().message);
    if (block->size() < gap + kTarBlock) return refuse(fmt::format("it is cut before {}", name));
    const std::string_view view = *block;
    if (!all_zero(view.substr(0, gap))) {
      return refuse(fmt::format("there are stray bytes before {}", name));
    }
    const std::string difference = tar_difference(view.substr(gap), name, entry.size);
    if (!difference.empty()) return refuse(difference);
    offsets.push_back(padded(end) + kTarBlock);
    end = offsets.back() + entry.size;
    if (end + kTarEnd > file_size) return refuse(fmt::format("it is cut in {}", name));
  }
  const uint64_t expected = padded(end) + kTarEnd;
  if (file_size != expected) {
    return refuse(fmt::format("it has {} bytes, its manifest says {}", file_size, expected));
  }
  Result<std::string> rest = file.read(end, expected - end);
  if (!rest.ok()) return refuse(rest.error().message);
  if (rest->size() != expected - end || !all_zero(*rest)) {
    return refuse("there are stray bytes after the last entry");
  }
  return {};
}

Bundle::State::Fault Bundle::State::find(size_t index, std::string* bytes) const {
  const BundleEntry& entry = manifest.entries[index];
  const auto failed = [&](MissReason reason, std::string_view what) {
    return Fault{reason, fmt::format("{} in bundle {} {}", entry_name(entry.key),
                                     printable(path, kShownPath), what)};
  };
  if (const Status s = file.read(offsets[index], entry.size, bytes); !s.ok()) {
    return failed(MissReason::unreadable, "cannot be read: " + s.error().message);
  }
  if (bytes->size() != entry.size) {
    return failed(MissReason::corrupt, "is cut: the file got shorter while in use");
  }
  if (hstu::jit::sha256_hex(*bytes) != entry.sha256) {
    return failed(MissReason::corrupt, "is damaged: its SHA-256 is not the manifest's");
  }
  return {};
}

Lookup Bundle::State::lookup(size_t index, const Key& key) const {
  const BundleEntry& entry = manifest.entries[index];
  std::string bytes;
  Fault fault = find(index, &bytes);
  if (fault.reason != MissReason::none) return miss(fault.reason, std::move(fault.problem));
  DecodedEntry decoded = decode_entry(bytes);
  if (decoded.fault != EntryFault::none) {
    return miss(
        decoded.fault == EntryFault::other_version ? MissReason::unreadable : MissReason::corrupt,
        fmt::format("{} in bundle {} is not used: {}", entry_name(entry.key),
                    printable(path, kShownPath), decoded.problem));
  }
  if (decoded.artifact.key.request != entry.key.request ||
      decoded.artifact.key.toolchain != entry.key.toolchain) {
    return miss(MissReason::corrupt,
                fmt::format("{} in bundle {} holds the entry of another key", entry_name(entry.key),
                            printable(path, kShownPath)));
  }
  Lookup result;
  result.hit = true;
  result.artifact = std::move(decoded.artifact);
  if (entry.key.toolchain != key.toolchain) result.explanation = "made by another toolchain";
  return result;
}

std::string Bundle::State::check(size_t index, Depth depth, std::string* buffer) const {
  Fault fault = find(index, buffer);
  if (fault.reason != MissReason::none) return std::move(fault.problem);
  if (depth == Depth::digests) return {};
  const BundleEntry& entry = manifest.entries[index];
  const auto bad = [&](std::string_view what) {
    return fmt::format("{} in bundle {} {}", entry_name(entry.key), printable(path, kShownPath),
                       what);
  };
  const Result<BundleEntry> described = describe_entry(*buffer);
  if (!described.ok()) return bad("is not an entry: " + described.error().message);
  if (described->key.request != entry.key.request ||
      described->key.toolchain != entry.key.toolchain) {
    return bad("holds the entry of another key");
  }
  if (described->target != entry.target || described->name != entry.name) {
    return bad("has another target or name than the manifest says");
  }
  return {};
}

Bundle::Bundle(std::unique_ptr<const State> state) : state_(std::move(state)) {}
Bundle::Bundle(Bundle&&) noexcept = default;
Bundle& Bundle::operator=(Bundle&&) noexcept = default;
Bundle::~Bundle() = default;

Result<Bundle> Bundle::open(const std::string& path_and_pin, Trust trust) {
  Result<PinnedPath> split = split_pin(path_and_pin);
  if (!split.ok()) return std::move(split).error();
  const std::string& path = split->path;
  // O_NONBLOCK: a FIFO must not make us wait.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return unusable(path, std::strerror(errno), "check the path and its permissions");
  auto state = std::make_unique<State>(path, fd);

  struct stat info {};
  if (::fstat(fd, &info) != 0) return state->refuse(std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return state->refuse("it is not a regular file", "check the path");
  if (split->pin.empty() && trust == Trust::checked) {
    if (const std::string reason = distrust(info); !reason.empty()) {
      return state->refuse(
          reason, "pin its digest (FILE@sha256:HEX), or give it to root and chmod go-w it");
    }
  }
  const auto size = static_cast<uint64_t>(info.st_size);
  if (size > kMaxBundle) return state->refuse("it is larger than 8 GiB", "split it");
  if (size < kTarBlock) return state->refuse("it is too short for a bundle");
  if (Status s = state->read_manifest(split->pin, size); !s.ok()) return std::move(s).error();
  if (Status s = state->check_layout(size); !s.ok()) return std::move(s).error();
  return Bundle(std::move(state));
}

Lookup Bundle::lookup(const Key& key, bool any_toolchain) const {
  const bool no_toolchain = any_toolchain && key.toolchain.empty();
  if (!is_digest(key.request) || (!is_digest(key.toolchain) && !no_toolchain)) {
    return miss(MissReason::absent, "the key is not made of two digests");
  }
  const std::vector<BundleEntry>& entries = state_->manifest.entries;
  const auto begin = std::lower_bound(entries.begin(), entries.end(), key.request,
                                      [](const BundleEntry& entry, const std::string& wanted) {
                                        return entry.key.request < wanted;
                                      });
  const auto end = std::find_if(begin, entries.end(), [&](const BundleEntry& entry) {
    return entry.key.request != key.request;
  });
  if (begin == end) {
    return miss(MissReason::absent, fmt::format("bundle {} has no entry with this key",
                                                printable(state_->path, kShownPath)));
  }
  const auto index = [&](auto at) { return static_cast<size_t>(at - entries.begin()); };
  const auto own = std::find_if(
      begin, end, [&](const BundleEntry& entry) { return entry.key.toolchain == key.toolchain; });
  Lookup result = own != end
                      ? state_->lookup(index(own), key)
                      : miss(MissReason::toolchain,
                             fmt::format("the entry in bundle {} was made by another toolchain",
                                         printable(state_->path, kShownPath)));
  if (result.hit || !any_toolchain) return result;
  for (auto at = begin; at != end; ++at) {
    if (at == own) continue;
    Lookup other = state_->lookup(index(at), key);
    if (other.hit) return other;
    if (own == end) result = std::move(other);
  }
  return result;
}

Result<std::string> Bundle::bytes(const BundleEntry& entry) const {
  const std::vector<BundleEntry>& entries = state_->manifest.entries;
  const auto at = std::lower_bound(entries.begin(), entries.end(), entry_name(entry.key),
                                   [](const BundleEntry& candidate, const std::string& wanted) {
                                     return entry_name(candidate.key) < wanted;
                                   });
  if (at == entries.end() || entry_name(at->key) != entry_name(entry.key)) {
    return state_->refuse("it has no such entry", "open it again");
  }
  std::string bytes;
  const State::Fault fault = state_->find(static_cast<size_t>(at - entries.begin()), &bytes);
  if (fault.reason != MissReason::none) {
    return Error{ErrorKind::kCache, fmt::format("{}; {}", fault.problem, kFetchAgain), "", ""};
  }
  return bytes;
}

const BundleManifest& Bundle::manifest() const { return state_->manifest; }
const std::string& Bundle::digest() const { return state_->digest; }
const std::string& Bundle::path() const { return state_->path; }

Result<std::string> Bundle::manifest_bytes() const {
  Result<std::string> text = state_->file.read(kTarBlock, state_->manifest_size);
  if (!text.ok()) return state_->refuse(text.error().message);
  if (hstu::jit::sha256_hex(*text) != state_->digest) {
    return state_->refuse("its manifest changed while it was in use");
  }
  return text;
}

std::vector<Bundle::Problem> Bundle::verify(Depth depth) const {
  const size_t count = state_->manifest.entries.size();
  std::vector<std::string> reasons(count);
  std::atomic<size_t> next{0};
  const auto work = [&] {
    std::string buffer;
    for (size_t i = next++; i < count; i = next++) {
      try {
        reasons[i] = state_->check(i, depth, &buffer);
      } catch (const std::exception& error) {  // memory: nothing may leave a thread
        reasons[i] = error.what();
      }
    }
  };
  std::vector<std::thread> helpers;
  for (int i = 1; i < std::min(4, hstu::jit::usable_processors()) && helpers.size() + 1 < count;
       ++i) {
    try {
      helpers.emplace_back(work);
    } catch (const std::exception&) {  // no thread to be had: this one does the work
      break;
    }
  }
  work();
  for (std::thread& helper : helpers) helper.join();

  std::vector<Problem> problems;
  for (size_t i = 0; i < count; ++i) {
    if (!reasons[i].empty()) problems.push_back({i, std::move(reasons[i])});
  }
  return problems;
}

std::vector<std::string> split_bundle_list(std::string_view list) {
  std::vector<std::string> parts;
  bool joined = false;  // the last part ended in "@sha256": its digest follows
  while (true) {
    const size_t colon = list.find(':');
    const std::string_view part = list.substr(0, colon);
    if (joined) {
      parts.back() += ':';
      parts.back() += part;
      joined = false;
    } else if (!part.empty()) {
      parts.emplace_back(part);
      joined = colon != std::string_view::npos && part.size() > 7 &&
               part.substr(part.size() - 7) == kPin.substr(0, 7);
    }
    if (colon == std::string_view::npos) return parts;
    list.remove_prefix(colon + 1);
  }
}

}  // namespace hstu::cache
