// SPDX-License-Identifier: Apache-2.0
// The kernel table as text, Markdown and JSON.
#pragma once

#include <string>
#include <vector>

#include "kernel_table_row.hpp"

namespace hstu::jit::table {

struct Tally {
  int rows = 0, failed = 0, goals = 0, missed = 0, narrow = 0, skipped = 0;
};

// The rows of one target and compiler, below a heading.
std::string heading(const Target& target, const std::string& toolchain, bool markdown);
std::string line(const Row& row, bool markdown);
// The paths of a row where they are several, and what failed; lines, or a Markdown list that must
// follow its table.
std::string notes(const Row& row, bool markdown);
// What the columns mean, and what the shares are.
std::string legend(bool markdown);
std::string summary(const Tally& tally);

struct Skip {
  std::string target, reason;
};
// Schema hstu-jit/kernel-table/1.
std::string to_json(const std::vector<Row>& rows, const std::vector<Skip>& skips,
                    const Tally& tally);

}  // namespace hstu::jit::table
