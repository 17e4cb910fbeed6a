// SPDX-License-Identifier: Apache-2.0
#include "kernel_table_counts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

#include "object/classify.hpp"
#include "object/elf.hpp"
#include "object/listing.hpp"

namespace hstu::jit::table {
namespace {

std::string_view first_word(std::string_view text) { return text.substr(0, text.find(' ')); }

// The classes of a launch against the sums over its addresses.
void check_sums(const char* which, const sim::LaunchCounters& launch,
                std::vector<std::string>& out) {
  std::map<std::string, uint64_t> sums;
  for (const sim::InstructionCount& i : launch.instructions) {
    sums[i.op_class] += i.waves;
  }
  if (sums != launch.by_class) {
    for (const auto& [name, count] : launch.by_class) {
      if (sums[name] != count) {
        out.push_back(fmt::format("{} launch: {} instructions of class {}, {} over all addresses",
                                  which, count, name, sums[name]));
      }
    }
    for (const auto& [name, count] : sums) {
      if (count != 0 && launch.by_class.count(name) == 0) {
        out.push_back(fmt::format("{} launch: class {} is not counted", which, name));
      }
    }
  }
}

std::string_view class_of(const ListedInstruction& i) {
  return object::instruction_class(object::InstructionSet::amd, i.mnemonic);
}

// Where control may go after an instruction: the next one, and a branch's target.
std::vector<uint64_t> next_of(const ListedInstruction& i) {
  std::vector<uint64_t> out;
  const bool branch = i.mnemonic.rfind("s_branch", 0) == 0 || i.mnemonic.rfind("s_cbranch", 0) == 0;
  if (i.mnemonic.rfind("s_branch", 0) != 0) out.push_back(i.address + i.bytes);
  int64_t words = 0;
  const char* end = i.operands.data() + i.operands.size();
  if (branch && std::from_chars(i.operands.data(), end, words).ec == std::errc()) {
    words -= words > 32767 ? 65536 : 0;
    out.push_back(i.address + i.bytes + static_cast<uint64_t>(words * 4));
  }
  return out;
}

struct Place {
  const ListedInstruction* instruction = nullptr;  // null outside the kernel
  int64_t count = 0;                               // executed more in the second launch
  int launches = 0;                                // that executed it
  std::string text;                                // as simulated
};
using Places = std::map<uint64_t, Place>;

Places places_of(const KernelCode& kernel, const sim::LaunchCounters& fewer,
                 const sim::LaunchCounters& more) {
  Places out;
  for (const ListedInstruction& i : kernel.code) out[i.address] = {&i, 0, 0, i.mnemonic};
  for (const auto& [launch, sign] : {std::pair(&fewer, -1), std::pair(&more, 1)}) {
    for (const sim::InstructionCount& i : launch->instructions) {
      Place& place = out[i.address];
      place.count += sign * static_cast<int64_t>(i.waves);
      place.text = i.text;
      ++place.launches;
    }
  }
  return out;
}

// The additional executions as a flow from instruction to instruction. An instruction's count is
// the sum of the ways to it and the sum of the ways from it; in code of nested and consecutive ifs
// that settles every way, one after another.
class Flow {
 public:
  explicit Flow(const Places& places) {
    for (const auto& [address, place] : places) {
      if (place.count == 0 || place.instruction == nullptr) continue;
      for (const uint64_t next : next_of(*place.instruction)) {
        const auto to = places.find(next);
        if (to == places.end() || to->second.count == 0) continue;
        from_[address].push_back(ways_.size());
        to_[next].push_back(ways_.size());
        ways_.push_back({address, next, std::nullopt});
      }
    }
    for (bool settled = true; settled;) {
      settled = false;
      for (const auto* sides : {&from_, &to_}) {
        for (const auto& [address, ways] : *sides) {
          settled |= settle(ways, places.at(address).count);
        }
      }
    }
  }

  // Takes as many turns of a path out of the flow as it holds.
  int64_t take(std::span<const ListedInstruction> path) {
    std::vector<Way*> ways;
    int64_t turns = std::numeric_limits<int64_t>::max();
    for (size_t i = 0; i < path.size(); ++i) {
      Way* way = find(path[i].address, path[(i + 1) % path.size()].address);
      if (way == nullptr) return 0;
      ways.push_back(way);
      turns = std::min(turns, way->turns.value_or(0));
    }
    if (ways.empty() || turns <= 0) return 0;
    for (Way* way : ways) *way->turns -= turns;
    return turns;
  }

  // A way round from `header` along what is left, the most of it first; empty when there is none.
  std::vector<ListedInstruction> walk(uint64_t header, const Places& places) {
    std::vector<ListedInstruction> path;
    uint64_t address = header;
    do {
      const Way* best = nullptr;
      for (const size_t i : from_[address]) {
        const Way& way = ways_[i];
        if (way.turns.value_or(0) > 0 && (best == nullptr || *way.turns > *best->turns)) {
          best = &way;
        }
      }
      if (best == nullptr || path.size() > places.size()) return {};
      path.push_back(*places.at(address).instruction);
      address = best->to;
    } while (address != header);
    return path;
  }

 private:
  struct Way {
    uint64_t from = 0, to = 0;
    std::optional<int64_t> turns;
  };

  // Settles the one way that is open; its count is what the others leave.
  bool settle(const std::vector<size_t>& ways, int64_t count) {
    Way* open = nullptr;
    for (const size_t i : ways) {
      if (ways_[i].turns) {
        count -= *ways_[i].turns;
      } else if (open != nullptr) {
        return false;
      } else {
        open = &ways_[i];
      }
    }
    if (open != nullptr) open->turns = count;
    return open != nullptr;
  }

  Way* find(uint64_t from, uint64_t to) {
    for (const size_t i : from_[from]) {
      if (ways_[i].to == to) return &ways_[i];
    }
    return nullptr;
  }

  std::vector<Way> ways_;
  std::map<uint64_t, std::vector<size_t>> from_, to_;  // ways by where they begin and end
};

void check_path(const object::Loop& loop, const std::map<std::string, int64_t>& mix,
                const Places& places, std::vector<std::string>& out) {
  for (const ListedInstruction& i : loop.path) {
    const Place& place = places.at(i.address);
    if (place.launches < 2) {
      out.push_back(fmt::format("{:#x} {}: on the model's path, not executed in both launches",
                                i.address, i.mnemonic));
    } else if (first_word(place.text) != i.mnemonic) {
      out.push_back(fmt::format("{:#x}: {} in the model, {} in simulation", i.address, i.mnemonic,
                                first_word(place.text)));
    }
  }
  if (mix_of(loop.path) != mix) {
    out.push_back("the model's number of instructions by class is not that of its path");
  }
}

void check_classes(const std::vector<ExecutedPath>& paths, const sim::LaunchCounters& fewer,
                   const sim::LaunchCounters& more, std::vector<std::string>& out) {
  std::map<std::string, int64_t> left;
  for (const auto& [name, count] : more.by_class) left[name] += static_cast<int64_t>(count);
  for (const auto& [name, count] : fewer.by_class) left[name] -= static_cast<int64_t>(count);
  for (const ExecutedPath& path : paths) {
    for (const auto& [name, count] : mix_of(path.path)) left[name] -= path.turns * count;
  }
  for (const auto& [name, count] : left) {
    if (count != 0) {
      out.push_back(fmt::format("class {}: {} more executed than the turns hold", name, count));
    }
  }
}

}  // namespace

Result<KernelCode> read_kernel_code(std::string_view bytes, const std::string& kernel) {
  const Result<Listing> listing = disassemble(bytes);
  if (!listing) return listing.error();
  const auto ranges = object::function_ranges(bytes);
  const auto range = ranges.find(kernel);
  if (range == ranges.end()) return object::odd_object("it has no function " + kernel);
  KernelCode out;
  for (const ListedInstruction& i : listing->instructions) {
    if (i.address >= range->second.begin && i.address < range->second.end) out.code.push_back(i);
  }
  Result<object::Loop> loop = object::find_main_loop(out.code);
  if (!loop) return std::move(loop).error();
  out.loop = std::move(*loop);
  return out;
}

std::map<std::string, int64_t> mix_of(std::span<const ListedInstruction> path) {
  std::map<std::string, int64_t> out;
  for (const ListedInstruction& i : path) ++out[std::string(class_of(i))];
  return out;
}

int64_t multiply_adds(std::string_view mnemonic) {
  for (size_t at = mnemonic.find('_'); at != std::string_view::npos;
       at = mnemonic.find('_', at + 1)) {
    int64_t product = 1;
    const char* from = mnemonic.data() + at + 1;
    const char* const end = mnemonic.data() + mnemonic.size();
    int read = 0;
    for (; read < 3; ++read) {
      int64_t value = 0;
      const auto [next, error] = std::from_chars(from, end, value);
      if (error != std::errc() || value <= 0 || value > 1024) break;
      product *= value;
      from = next;
      if (read < 2 && (from == end || *from++ != 'x')) break;
    }
    if (read == 3) return product;
  }
  return 0;
}

int64_t multiply_adds(std::span<const ListedInstruction> path) {
  int64_t sum = 0;
  for (const ListedInstruction& i : path) {
    if (i.mnemonic.rfind("v_mfma", 0) == 0 || i.mnemonic.rfind("v_wmma", 0) == 0) {
      sum += multiply_adds(i.mnemonic);
    }
  }
  return sum;
}

TurnReport compare_turns(const KernelCode& kernel, const std::map<std::string, int64_t>& mix,
                         const sim::LaunchCounters& fewer, const sim::LaunchCounters& more,
                         int64_t turns) {
  TurnReport report;
  std::vector<std::string>& out = report.differences;
  check_sums("first", fewer, out);
  check_sums("second", more, out);
  Places places = places_of(kernel, fewer, more);
  check_path(kernel.loop, mix, places, out);
  const uint64_t header = kernel.loop.address;
  if (const int64_t passed = places.at(header).count; passed != turns) {
    out.push_back(
        fmt::format("the loop's header at {:#x} was passed {} times more, {} turns are expected",
                    header, passed, turns));
  }
  Flow flow(places);
  report.paths.push_back({flow.take(kernel.loop.path), kernel.loop.path});
  if (report.paths.front().turns == 0) out.push_back("the model's path was not taken");
  for (;;) {
    std::vector<ListedInstruction> path = flow.walk(header, places);
    const int64_t taken = flow.take(path);
    if (taken == 0) break;
    report.paths.push_back({taken, std::move(path)});
  }
  for (const ExecutedPath& path : report.paths) {
    for (const ListedInstruction& i : path.path) places.at(i.address).count -= path.turns;
  }
  for (const auto& [address, place] : places) {
    if (place.count == 0) continue;
    out.push_back(fmt::format("{:#x} {}: executed {} times more than the turns of the loop hold",
                              address, place.text, place.count));
  }
  check_classes(report.paths, fewer, more, out);
  return report;
}

}  // namespace hstu::jit::table
