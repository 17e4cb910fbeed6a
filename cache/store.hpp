// SPDX-License-Identifier: Apache-2.0
// The kernel cache: a content-addressed store of artifacts. Knows keys and bytes, nothing of HSTU.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "cache/lock.hpp"

namespace hstu::cache {

// What an artifact answers to. `request` is a digest over content only; `toolchain` names the
// compiler that made it (or would make it).
struct Key {
  std::string request;    // 64 hex digits
  std::string toolchain;  // 64 hex digits
};

// Ordered name/text pairs whose canonical, length-prefixed list is hashed into Key::request and
// stored in clear, so that a miss can say which ingredient differs from the nearest entry.
using Ingredients = std::vector<std::pair<std::string, std::string>>;
std::string request_digest(const Ingredients& ingredients);

struct Artifact {
  Key key;
  Ingredients ingredients;
  std::string metadata;  // JSON of the producer: entry, target, resources, times
  std::string payload;
};

// foreign_owner: it belongs to somebody who is not trusted, or others may write to it.
// unreachable: a remote that gave no answer.
enum class MissReason {
  none,
  absent,
  toolchain,
  corrupt,
  foreign_owner,
  unreadable,
  disabled,
  unreachable
};
const char* miss_reason_name(MissReason reason);

struct Lookup {
  bool hit = false;
  Artifact artifact;
  MissReason reason = MissReason::none;
  std::string explanation;  // one line for people; names the differing ingredient where known
};

// sealed: read only here; the caller makes a miss an error.
enum class Mode { read_write, read_only, off, sealed };
// "rw", "ro", "off", "sealed" (as in HSTU_JIT_CACHE_MODE). Errors: kUsage.
hstu::jit::Result<Mode> parse_mode(std::string_view text);

inline constexpr uint64_t kUnlimited = UINT64_MAX;
inline constexpr uint64_t kDefaultSizeLimit = uint64_t{2} << 30;

class Statistics;

class Store {
 public:
  struct Options {
    std::string root;            // empty: found by the rules below
    bool explicit_root = false;  // root came from --cache-dir: failing to use it is an error
    Mode mode = Mode::read_write;
    uint64_t size_limit = 0;  // bytes of all entries; 0: HSTU_JIT_CACHE_SIZE, else 2 GiB
  };

  // Root, first that works: given root > HSTU_JIT_CACHE_DIR > $XDG_CACHE_HOME/hstu-jit (absolute) >
  // $HOME/.cache/hstu-jit > home of the password file (not "/") > $TMPDIR or /tmp, hstu-jit-UID >
  // memory only. Errors: kCache when an explicit root cannot be used.
  static hstu::jit::Result<Store> open(const Options& options);
  Store();  // off, without a folder

  const std::string& root() const { return root_; }        // "" when memory only
  const std::string& root_reason() const { return why_; }  // why this root
  const std::string& warning() const { return warning_; }  // one line when no directory serves

  // Never fails: anything odd on disk is quarantined and reported as a miss with its reason.
  // With `any_toolchain`, an entry made by another toolchain also answers (the newest first), and
  // `key.toolchain` may be "".
  // A hit older than an hour gets a new time stamp: what is used stays longest.
  Lookup lookup(const Key& key, bool any_toolchain = false) const;
  // The same for who waited for another's compile: a miss is not counted a second time.
  Lookup lookup_again(const Key& key) const;
  // The same without a trace: no time stamp, no quarantine, no count.
  Lookup peek(const Key& key, bool any_toolchain = false) const;
  // The checked bytes of an entry, as they lie on disk. Errors: kCache with the miss's explanation.
  hstu::jit::Result<std::string> lookup_bytes(const Key& key, bool any_toolchain = false) const;

  // For a miss of reason absent: which ingredient differs from the nearest entry. One line, "" when
  // there is nothing to compare with. Reads at most the 200 newest entries: for people, not for
  // the fast path. Never fails.
  std::string explain_absence(const Ingredients& wanted) const;

  // Where the entry of a key lies, "" when memory only.
  std::string entry_path(const Key& key) const;

  // Atomic: temporary file in the same directory, fsync, rename, fsync of the directory. A failure
  // (full disk, unwritable folder) is returned and leaves nothing behind; callers warn and go on.
  // Does nothing when the mode or the lack of a folder says so. Now and then it also removes what
  // was not used for longest, down to the size limit.
  hstu::jit::Status publish(const Artifact& artifact) const;

  // Counters of this store ("local.hit" ...), open to the other layers too; saved to the cache
  // folder when the last copy of this store goes, and at a publish every ten minutes.
  Statistics& statistics() const;
  uint64_t size_limit() const;  // kUnlimited: none
  Mode mode() const { return mode_; }

  // Serialises compiles of one key across processes for as long as it lives. Only saves work: when
  // the lock cannot be had in time the caller compiles anyway.
  using CompileLock = NodeLock;
  CompileLock lock(const Key& key, int timeout_ms) const;

 private:
  struct State;
  Lookup find(const Key& key, bool any_toolchain, bool leave_a_trace, std::string* bytes) const;
  void collect_now_and_then(uint64_t published) const;

  std::string root_, why_, warning_;
  Mode mode_ = Mode::off;
  std::shared_ptr<State> state_;
};

}  // namespace hstu::cache
