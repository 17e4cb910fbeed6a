// SPDX-License-Identifier: Apache-2.0
// Putting the bytes of an entry in place, and the steps at which a test may kill it.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace hstu::cache {

// Every step of a publish, in order. HSTU_JIT_TEST_CRASH=<name> makes the process kill itself when
// it has reached that step; the fault tests walk this table.
enum class PublishStep {
  started,         // nothing done
  folder_made,     // objects/ab is there
  temporary_made,  // an empty temporary file
  half_written,    // half of the bytes
  written,         // all of them, not forced to the disk
  synced,          // forced to the disk
  closed,          // the last error a network file system may report is in
  renamed,         // the entry has its name
  folder_synced,   // so has the folder on disk
  count
};
inline constexpr std::array<std::string_view, static_cast<size_t>(PublishStep::count)>
    kPublishStepNames = {"started", "folder_made", "temporary_made", "half_written", "written",
                         "synced",  "closed",      "renamed",        "folder_synced"};

// Dies by SIGKILL here when the environment names this step.
void reach(PublishStep step);

struct PublishResult {
  int code = 0;         // errno of what failed
  std::string problem;  // "cannot write ...: No space left on device"; "" when it is in place
};

// ROOT/v1/objects/FAN/NAME with these bytes, whole or not at all, whatever lies there.
PublishResult publish_entry(const std::string& root, const std::string& fan,
                            const std::string& name, std::string_view bytes);

// Moves what lies under this name out of the way, to ROOT/v1/quarantine, where it is kept a while.
// Failing to is no matter: it stays a miss.
void quarantine(const std::string& root, const class Folder& folder, const std::string& name);

}  // namespace hstu::cache
