// SPDX-License-Identifier: Apache-2.0
// Finds the loop a kernel spends its time in, and the path through it that the steady state takes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "object/listing.hpp"

namespace hstu::jit::object {

struct Loop {
  uint64_t address = 0;                 // of its header
  std::vector<ListedInstruction> path;  // one round, in the order of execution
  int blocks = 0, blocks_on_path = 0;
  int matrix_loops = 0;      // innermost loops with matrix instructions that the kernel has
  int64_t instructions = 0;  // of all its blocks
  int64_t matrix = 0;        // matrix instructions on the path
  int64_t mask = 0;          // vector compares and selects on the path
  bool inner_loops = false;  // the path passes the body of a loop without matrix instructions once
};

// Of the innermost loops with matrix instructions, the one with the least mask code per matrix
// instruction among those with at least half as many as the richest. Within it, the path from the
// header back to it with the most matrix instructions; of those the least mask code (the full
// tile), then the most memory accesses (a next tile is fetched), then the fewest instructions.
// Loops that share a header count as one, as in compiled code, where a nested loop has its own.
// `code`: the instructions of one kernel, by address. Errors: kFailed when there is no such loop.
Result<Loop> find_main_loop(std::span<const ListedInstruction> code);

}  // namespace hstu::jit::object
