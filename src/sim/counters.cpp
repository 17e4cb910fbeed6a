// SPDX-License-Identifier: Apache-2.0
#include "sim/counters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "object/classify.hpp"
#include "object/machine.hpp"
#include "sim/code.hpp"
#include "sim/tally.hpp"

namespace hstu::jit::sim {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kWidthNames[LaunchCounters::kLdsWidths] = {"b8",  "b16",  "b32",   "b64",
                                                                 "b96", "b128", "atomic"};

std::string mnemonic_of(const std::string& text) { return text.substr(0, text.find(' ')); }

// Clocks that one execution keeps the vector unit of its SIMD: the rates of the issue model.
uint64_t vector_clocks(const object::Machine& m, std::string_view kind, const std::string& name) {
  if (kind == "transcendental") return static_cast<uint64_t>(m.transcendental);
  const bool packed = name.rfind("v_pk_", 0) == 0 && name.find("_f32") != name.npos;
  if (packed) return static_cast<uint64_t>(std::max(m.packed_f32, m.tick));
  const bool product = name.rfind("v_mul_lo_", 0) == 0 || name.rfind("v_mul_hi_", 0) == 0 ||
                       name.rfind("v_mad_u64", 0) == 0 || name.rfind("v_mad_i64", 0) == 0;
  return static_cast<uint64_t>(product ? std::max(m.quarter_rate, m.tick) : m.tick);
}

void add(LdsWidth& to, const LdsWidth& from) {
  to.accesses += from.accesses;
  to.phases += from.phases;
  to.minimum += from.minimum;
}
void add(GlobalTally& to, const GlobalTally& from) {
  to.bytes += from.bytes;
  to.lines += from.lines;
  to.minimum += from.minimum;
}

std::string ratio(uint64_t value, uint64_t minimum) {
  return minimum == 0
             ? "-"
             : fmt::format("{:.2f}", static_cast<double>(value) / static_cast<double>(minimum));
}

}  // namespace

void Tally::add(const Tally& other) {
  for (size_t i = 0; i < executed.size(); ++i) executed[i] += other.executed[i];
  for (size_t w = 0; w < lds_read.size(); ++w) {
    sim::add(lds_read[w], other.lds_read[w]);
    sim::add(lds_write[w], other.lds_write[w]);
  }
  sim::add(global_read, other.global_read);
  sim::add(global_write, other.global_write);
  scalar_read_bytes += other.scalar_read_bytes;
  workgroups += other.workgroups;
  waves += other.waves;
  barriers += other.barriers;
  barriers_apart += other.barriers_apart;
  waits += other.waits;
  waits_needed += other.waits_needed;
  undefined_reads += other.undefined_reads;
  if (first_undefined.empty()) first_undefined = other.first_undefined;
}

void add_clocks(LaunchCounters& c, const object::Machine& rates, std::string_view kind,
                const std::string& mnemonic, uint64_t n) {
  if (kind == "matrix") {
    const auto clocks = object::matrix_clocks(rates, mnemonic);
    if (clocks) {
      c.matrix_passes += n * static_cast<uint64_t>(*clocks) / 4;
      return;
    }
    c.matrix_unknown += n;
    if (c.first_unknown.empty()) c.first_unknown = mnemonic;
  } else if (kind == "valu" || kind == "transcendental" || kind == "agpr_move") {
    c.valu_cycles += n * vector_clocks(rates, kind, mnemonic);
  }
}

LaunchCounters counters_of(const Tally& t, const Code& code, const Machine& machine) {
  LaunchCounters c;
  c.workgroups = t.workgroups;
  c.waves = t.waves;
  c.lds_read = t.lds_read;
  c.lds_write = t.lds_write;
  c.global_read_bytes = t.global_read.bytes;
  c.global_read_lines = t.global_read.lines;
  c.global_read_minimum = t.global_read.minimum;
  c.global_write_bytes = t.global_write.bytes;
  c.global_write_lines = t.global_write.lines;
  c.global_write_minimum = t.global_write.minimum;
  c.line_bytes = machine.line_bytes;
  c.scalar_read_bytes = t.scalar_read_bytes;
  c.waits = t.waits;
  c.waits_needed = t.waits_needed;
  c.barriers = t.barriers;
  c.barriers_apart = t.barriers_apart;
  c.undefined_reads = t.undefined_reads;
  c.first_undefined = t.first_undefined;
  for (const auto* widths : {&c.lds_read, &c.lds_write}) {
    for (const LdsWidth& width : *widths) c.lds_cycles += width.phases;
  }

  const Result<object::Machine> rates = object::find_machine(machine.target, {});
  for (const Instruction& i : code.instructions()) {
    const uint64_t n = t.executed[i.index];
    if (n == 0) continue;
    const std::string name = mnemonic_of(i.text);
    const std::string kind = object::instruction_class(object::InstructionSet::amd, name);
    c.instructions.push_back({i.address, i.text, kind, n});
    c.by_class[kind] += n;
    if (rates) add_clocks(c, *rates, kind, name, n);
  }
  return c;
}

uint64_t LaunchCounters::instruction_total() const {
  uint64_t sum = 0;
  for (const InstructionCount& i : instructions) sum += i.waves;
  return sum;
}

std::string to_text(const LaunchCounters& c, const std::string& target) {
  std::string out;
  const auto line = [&](const char* name, const std::string& value) {
    out += fmt::format("  {:<22} {}\n", name, value);
  };
  out +=
      fmt::format("counters of {} workgroups, {} waves on sim:{}\n", c.workgroups, c.waves, target);
  line("instructions", fmt::format("{}", c.instruction_total()));
  for (const auto& [kind, count] : c.by_class) {
    line(("  " + kind).c_str(), fmt::format("{}", count));
  }
  line("matrix passes", fmt::format("{} (4 clocks each)", c.matrix_passes));
  if (c.matrix_unknown > 0) {
    line("  of unknown length", fmt::format("{} instructions, not in the passes, first {}",
                                            c.matrix_unknown, c.first_unknown));
  }
  line("VALU clocks", fmt::format("{}", c.valu_cycles));
  line("LDS clocks", fmt::format("{}", c.lds_cycles));
  for (const auto& [name, widths] :
       {std::pair("read", &c.lds_read), std::pair("write", &c.lds_write)}) {
    for (size_t w = 0; w < widths->size(); ++w) {
      const LdsWidth& width = (*widths)[w];
      if (width.accesses == 0) continue;
      line(fmt::format("  LDS {} {}", name, kWidthNames[w]).c_str(),
           fmt::format("{} accesses, {} phases, {} without conflicts ({})", width.accesses,
                       width.phases, width.minimum, ratio(width.phases, width.minimum)));
    }
  }
  line("global reads",
       fmt::format("{} bytes, {} lines of {}, {} at least ({})", c.global_read_bytes,
                   c.global_read_lines, c.line_bytes, c.global_read_minimum,
                   ratio(c.global_read_lines, c.global_read_minimum)));
  line("global writes",
       fmt::format("{} bytes, {} lines of {}, {} at least ({})", c.global_write_bytes,
                   c.global_write_lines, c.line_bytes, c.global_write_minimum,
                   ratio(c.global_write_lines, c.global_write_minimum)));
  line("scalar reads", fmt::format("{} bytes", c.scalar_read_bytes));
  line("waits", fmt::format("{}, {} with something outstanding", c.waits, c.waits_needed));
  line("barriers", fmt::format("{} (waves that arrived); {} met at different addresses", c.barriers,
                               c.barriers_apart));
  line("undefined reads", c.undefined_reads == 0
                              ? std::string("0")
                              : fmt::format("{}, first {}", c.undefined_reads, c.first_undefined));
  const Bound bound = bound_of(c, target);
  return out + bound.arithmetic;
}

std::string to_json(const LaunchCounters& c, const std::string& target) {
  Json j;
  j["target"] = target;
  j["workgroups"] = c.workgroups;
  j["waves"] = c.waves;
  j["instructions"] = c.instruction_total();
  for (const auto& [kind, count] : c.by_class) j["by_class"][kind] = count;
  j["matrix_passes"] = c.matrix_passes;
  j["matrix_unknown"] = c.matrix_unknown;
  j["valu_clocks"] = c.valu_cycles;
  j["lds_clocks"] = c.lds_cycles;
  j["lds"] = Json::array();
  for (const auto& [name, widths] :
       {std::pair("read", &c.lds_read), std::pair("write", &c.lds_write)}) {
    for (size_t w = 0; w < widths->size(); ++w) {
      const LdsWidth& width = (*widths)[w];
      if (width.accesses == 0) continue;
      j["lds"].push_back({{"direction", name},
                          {"width", kWidthNames[w]},
                          {"accesses", width.accesses},
                          {"phases", width.phases},
                          {"minimum", width.minimum}});
    }
  }
  j["global_read"] = {{"bytes", c.global_read_bytes},
                      {"lines", c.global_read_lines},
                      {"minimum", c.global_read_minimum}};
  j["global_write"] = {{"bytes", c.global_write_bytes},
                       {"lines", c.global_write_lines},
                       {"minimum", c.global_write_minimum}};
  j["line_bytes"] = c.line_bytes;
  j["scalar_read_bytes"] = c.scalar_read_bytes;
  j["waits"] = {{"executed", c.waits}, {"needed", c.waits_needed}};
  j["barriers"] = c.barriers;
  j["barriers_apart"] = c.barriers_apart;
  j["undefined_reads"] = c.undefined_reads;
  const Bound bound = bound_of(c, target);
  j["bound"] = {{"matrix_us", bound.matrix_us},
                {"valu_us", bound.valu_us},
                {"lds_us", bound.lds_us},
                {"memory_us", bound.memory_us},
                {"limit", bound.limit}};
  return j.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace hstu::jit::sim
