// SPDX-License-Identifier: Apache-2.0
// The remote layer of the kernel cache: entries on a web server or a Redis that a fleet already
// runs. See REMOTE.md for servers, variables and what happens when they fail.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "cache/store.hpp"

namespace hstu::cache {

class Transport;

struct RemoteOptions {
  // http, https, redis or rediss; user info is a credential, a query stays behind every object's
  // path. Empty: there is no remote.
  std::string url;
  bool read_write = false;  // publish too

  // Secrets. Files are read anew for every request, so that they may be replaced while we run.
  std::string token;         // HTTP: "Authorization: Bearer"; Redis: the password
  std::string token_file;    // the same from a file
  std::string headers_file;  // HTTP: lines "Name: value"
  std::string ca_file;       // certificates to trust instead of the system's

  int connect_timeout_ms = 1000;
  int timeout_ms = 10000;      // one lookup or one publish with all their requests
  int first_pause_ms = 30000;  // without a request after a failure; doubles up to the longest
  int longest_pause_ms = 600000;
  uint64_t entry_limit = uint64_t{64} << 20;  // larger ones are neither fetched nor sent
  uint32_t ttl_seconds = 0;                   // Redis: entries expire after that; 0: never
};

// From HSTU_JIT_REMOTE and its companions. Errors: kUsage for a value that cannot be meant. No
// message holds a secret.
hstu::jit::Result<RemoteOptions> remote_options_from_environment();

// Since open(). `misses` is indexed by MissReason.
struct RemoteStatistics {
  static constexpr size_t kReasons = 16;
  uint64_t lookups = 0, hits = 0;
  std::array<uint64_t, kReasons> misses{};
  uint64_t requests = 0;         // that went out, of lookups and publishes
  uint64_t failed_requests = 0;  // of them, without a usable answer
  uint64_t withheld = 0;         // lookups and publishes answered at once, a failure being fresh
  uint64_t bytes_read = 0, bytes_written = 0;  // of entries
  uint64_t publishes = 0, publish_failures = 0;
};

// Thread-safe; no lock is held over a request, and each request has a connection of its own, so
// that a child after fork() shares nothing with its parent. Warnings go to the log, one for each
// cause in this process; none of them holds user info, query, token or header.
class Remote {
 public:
  // Null when options.url is empty. Asks no server. Errors: kUsage for a URL, header or number that
  // cannot be meant, kCache when the module with the transports is missing or lacks this one or a
  // file of secrets cannot be read. Servers had better go on without the remote then.
  static hstu::jit::Result<std::unique_ptr<Remote>> open(const RemoteOptions& options);
  // Over a given transport.
  static std::unique_ptr<Remote> over(std::unique_ptr<Transport> transport,
                                      const RemoteOptions& options);
  ~Remote();

  // Never fails. A hit is an undamaged entry of this request and toolchain, whatever the server
  // sent. With `any_toolchain` (`key.toolchain` may be "" then) an entry of the toolchain that the
  // last publisher had also answers. A miss says why: absent, corrupt (also: the entry of another
  // key), unreachable (no or no usable answer, or not asked because of that), disabled.
  Lookup lookup(const Key& key, bool any_toolchain = false);

  // Sends the entry, then the pointer that `any_toolchain` follows. Waits, at most timeout_ms.
  // Does nothing when read-only. Errors: kCache, one line; the caller goes on.
  hstu::jit::Status publish(const Artifact& artifact);
  // The same in the background, one after the other; what finds 64 entries or 64 MiB waiting is
  // dropped and counted as a failure. A child after fork() drops what its parent had queued.
  void publish_later(Artifact artifact);
  // Waits until nothing is queued or sent, at most so long. True when nothing is. The destructor
  // does this for timeout_ms and drops the rest.
  bool flush(int timeout_ms);

  bool read_write() const;
  const std::string& shown() const;  // the address, without user info and query
  std::string warning() const;       // the first thing that went wrong, one line; "" if nothing did
  RemoteStatistics statistics() const;

 private:
  struct State;
  explicit Remote(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hstu::cache
