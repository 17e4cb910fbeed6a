// SPDX-License-Identifier: Apache-2.0
#include "object/loop.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <unordered_map>

#include "object/classify.hpp"

namespace hstu::jit::object {
namespace {

bool starts(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}
std::string_view kind_of(const ListedInstruction& instruction) {
  return instruction_class(InstructionSet::amd, instruction.mnemonic);
}
bool is_branch(const ListedInstruction& i) {
  return starts(i.mnemonic, "s_branch") || starts(i.mnemonic, "s_cbranch");
}
// Control never comes to the instruction after it.
bool ends_flow(const ListedInstruction& i) {
  return starts(i.mnemonic, "s_branch") || starts(i.mnemonic, "s_endpgm") ||
         starts(i.mnemonic, "s_setpc") || starts(i.mnemonic, "s_code_end");
}

std::optional<uint64_t> target_of(const ListedInstruction& i) {
  if (!is_branch(i)) return std::nullopt;
  int64_t words = 0;
  const char* end = i.operands.data() + i.operands.size();
  if (std::from_chars(i.operands.data(), end, words).ec != std::errc()) return std::nullopt;
  words -= words > 32767 ? 65536 : 0;
  return i.address + i.bytes + static_cast<uint64_t>(words * 4);
}

struct Block {
  size_t begin = 0, end = 0;  // instructions
  std::vector<size_t> next;   // blocks control may come to
};

std::vector<Block> blocks_of(std::span<const ListedInstruction> code) {
  std::unordered_map<uint64_t, size_t> at;
  for (size_t i = 0; i < code.size(); ++i) at[code[i].address] = i;
  std::vector<bool> leads(code.size() + 1, false);
  std::vector<std::optional<size_t>> target(code.size());
  leads[0] = true;
  for (size_t i = 0; i < code.size(); ++i) {
    if (const auto address = target_of(code[i])) {
      const auto found = at.find(*address);
      if (found != at.end()) target[i] = found->second;
    }
    if (target[i]) leads[*target[i]] = true;
    if (is_branch(code[i]) || ends_flow(code[i])) leads[i + 1] = true;
  }
  std::vector<Block> blocks;
  std::vector<size_t> block_of(code.size());
  for (size_t i = 0; i < code.size(); ++i) {
    if (leads[i]) blocks.push_back({i, i, {}});
    block_of[i] = blocks.size() - 1;
    blocks.back().end = i + 1;
  }
  for (size_t b = 0; b < blocks.size(); ++b) {
    const size_t last = blocks[b].end - 1;
    if (!ends_flow(code[last]) && b + 1 < blocks.size()) blocks[b].next.push_back(b + 1);
    if (target[last]) blocks[b].next.push_back(block_of[*target[last]]);
  }
  return blocks;
}

// What a path is judged by, most important first; smaller is better. Sums of costs compare as the
// costs do, so the best path is found block by block.
using Cost = std::array<int64_t, 4>;
constexpr int kMatrix = 0, kMask = 1;

Cost cost_of(std::span<const ListedInstruction> code, const Block& block) {
  Cost cost{};
  for (size_t i = block.begin; i < block.end; ++i) {
    const std::string_view kind = kind_of(code[i]);
    const std::string_view name = code[i].mnemonic;
    cost[kMatrix] -= kind == "matrix";
    cost[kMask] +=
        starts(name, "v_cmp") || starts(name, "v_cndmask") || starts(name, "v_dual_cndmask");
    cost[2] -= starts(kind, "global_") || starts(kind, "lds_");
    cost[3] += 1;
  }
  return cost;
}

Cost sum(const Cost& a, const Cost& b) {
  Cost out{};
  for (size_t i = 0; i < out.size(); ++i) out[i] = a[i] + b[i];
  return out;
}

// All blocks that come to one of `tails` without passing `header`; the header included.
std::vector<bool> body_of(const std::vector<std::vector<size_t>>& previous, size_t header,
                          const std::vector<size_t>& tails) {
  std::vector<bool> in(previous.size(), false);
  in[header] = true;
  std::vector<size_t> open;
  for (size_t tail : tails) open.push_back(tail);
  while (!open.empty()) {
    const size_t block = open.back();
    open.pop_back();
    if (in[block]) continue;
    in[block] = true;
    for (size_t before : previous[block]) open.push_back(before);
  }
  return in;
}

struct Candidate {
  size_t header = 0;
  std::vector<bool> in;
  std::vector<size_t> path;
  Cost cost{};
  bool inner_loops = false;
  double mask_per_matrix() const {
    return static_cast<double>(cost[kMask]) / static_cast<double>(-cost[kMatrix]);
  }
};

// The blocks of a loop in an order in which each comes before those it leads to; edges that close
// an inner loop are left out (and noted).
std::vector<size_t> order_of(const std::vector<Block>& blocks, Candidate& loop) {
  enum class State : uint8_t { fresh, open, done };
  std::vector<State> state(blocks.size(), State::fresh);
  std::vector<size_t> order;
  struct Frame {
    size_t block, edge;
  };
  std::vector<Frame> stack = {{loop.header, 0}};
  state[loop.header] = State::open;
  while (!stack.empty()) {
    Frame& top = stack.back();
    if (top.edge == blocks[top.block].next.size()) {
      state[top.block] = State::done;
      order.push_back(top.block);
      stack.pop_back();
      continue;
    }
    const size_t next = blocks[top.block].next[top.edge++];
    if (!loop.in[next] || next == loop.header) continue;
    if (state[next] == State::open) loop.inner_loops = true;
    if (state[next] != State::fresh) continue;
    state[next] = State::open;
    stack.push_back({next, 0});
  }
  std::reverse(order.begin(), order.end());
  return order;
}

// Sets the best path from the header round to it.
void find_path(const std::vector<Block>& blocks, const std::vector<Cost>& costs, Candidate& loop) {
  const std::vector<size_t> order = order_of(blocks, loop);
  std::vector<size_t> place(blocks.size(), 0);
  for (size_t i = 0; i < order.size(); ++i) place[order[i]] = i;
  struct Reached {
    Cost cost{};
    size_t from = 0;
  };
  std::vector<std::optional<Reached>> reached(blocks.size());
  reached[loop.header] = Reached{costs[loop.header], loop.header};
  std::optional<size_t> last;
  for (const size_t block : order) {
    if (!reached[block]) continue;
    for (const size_t next : blocks[block].next) {
      if (next == loop.header) {
        if (!last || reached[block]->cost < reached[*last]->cost) last = block;
        continue;
      }
      if (!loop.in[next] || place[next] <= place[block]) continue;  // closes an inner loop
      const Cost cost = sum(reached[block]->cost, costs[next]);
      if (!reached[next] || cost < reached[next]->cost) reached[next] = Reached{cost, block};
    }
  }
  if (!last) return;
  loop.cost = reached[*last]->cost;
  for (size_t block = *last;; block = reached[block]->from) {
    loop.path.push_back(block);
    if (block == loop.header) break;
  }
  std::reverse(loop.path.begin(), loop.path.end());
}

// a is a part of b, and not all of it.
bool inside(const std::vector<bool>& a, const std::vector<bool>& b) {
  bool smaller = false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] && !b[i]) return false;
    smaller |= b[i] && !a[i];
  }
  return smaller;
}

std::vector<Candidate> matrix_loops(const std::vector<Block>& blocks,
                                    const std::vector<Cost>& costs) {
  std::vector<std::vector<size_t>> previous(blocks.size()), tails(blocks.size());
  for (size_t b = 0; b < blocks.size(); ++b) {
    for (const size_t next : blocks[b].next) {
      previous[next].push_back(b);
      // Every loop goes back to a lower address somewhere.
      if (next <= b) tails[next].push_back(b);
    }
  }
  std::vector<Candidate> loops;
  for (size_t header = 0; header < blocks.size(); ++header) {
    if (tails[header].empty()) continue;
    Candidate loop;
    loop.header = header;
    loop.in = body_of(previous, header, tails[header]);
    find_path(blocks, costs, loop);
    if (!loop.path.empty() && loop.cost[kMatrix] < 0) loops.push_back(std::move(loop));
  }
  std::vector<Candidate> innermost;
  for (const Candidate& loop : loops) {
    const bool holds_another = std::any_of(loops.begin(), loops.end(), [&](const Candidate& other) {
      return inside(other.in, loop.in);
    });
    if (!holds_another) innermost.push_back(loop);
  }
  return innermost;
}

}  // namespace

Result<Loop> find_main_loop(std::span<const ListedInstruction> code) {
  const auto matrix = std::count_if(
      code.begin(), code.end(), [](const ListedInstruction& i) { return kind_of(i) == "matrix"; });
  if (matrix == 0) return Error{ErrorKind::kFailed, "it has no matrix instruction", "", ""};
  const std::vector<Block> blocks = blocks_of(code);
  // Far more than any kernel of ours; the search is quadratic.
  constexpr size_t kMostBlocks = 2048;
  if (blocks.size() > kMostBlocks) {
    return Error{
        ErrorKind::kFailed,
        fmt::format("its {} basic blocks are more than the {} that are searched for a loop",
                    blocks.size(), kMostBlocks),
        "", ""};
  }
  std::vector<Cost> costs;
  for (const Block& block : blocks) costs.push_back(cost_of(code, block));
  std::vector<Candidate> loops = matrix_loops(blocks, costs);
  if (loops.empty()) {
    return Error{ErrorKind::kFailed,
                 fmt::format("it has no loop around any of its {} matrix instructions", matrix), "",
                 ""};
  }
  int64_t most = 0;
  for (const Candidate& loop : loops) most = std::max(most, -loop.cost[kMatrix]);
  const Candidate* best = nullptr;
  for (const Candidate& loop : loops) {
    if (-2 * loop.cost[kMatrix] < most) continue;
    if (best == nullptr || loop.mask_per_matrix() < best->mask_per_matrix() ||
        (loop.mask_per_matrix() == best->mask_per_matrix() &&
         loop.cost[kMatrix] < best->cost[kMatrix])) {
      best = &loop;
    }
  }
  Loop out;
  out.address = code[blocks[best->header].begin].address;
  out.blocks_on_path = static_cast<int>(best->path.size());
  out.matrix_loops = static_cast<int>(loops.size());
  out.matrix = -best->cost[kMatrix];
  out.mask = best->cost[kMask];
  out.inner_loops = best->inner_loops;
  for (size_t b = 0; b < blocks.size(); ++b) {
    if (!best->in[b]) continue;
    ++out.blocks;
    out.instructions += static_cast<int64_t>(blocks[b].end - blocks[b].begin);
  }
  for (const size_t block : best->path) {
    for (size_t i = blocks[block].begin; i < blocks[block].end; ++i) out.path.push_back(code[i]);
  }
  return out;
}

}  // namespace hstu::jit::object
