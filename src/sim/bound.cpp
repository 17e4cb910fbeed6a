// SPDX-License-Identifier: Apache-2.0
// What each unit alone would take for a launch, were its work spread evenly over the whole part.
#include <fmt/format.h>

#include "sim/counters.hpp"
#include "sim/machine.hpp"

namespace hstu::jit::sim {

Bound bound_of(const LaunchCounters& c, const std::string& target) {
  Bound bound;
  const Machine* m = machine_of(target);
  if (m == nullptr) return bound;
  const double simds = static_cast<double>(m->compute_units) * m->simds;
  const double clocks_per_us = m->clock_ghz * 1e3;
  const auto matrix_clocks = static_cast<double>(c.matrix_passes) * 4;
  const auto valu_clocks = static_cast<double>(c.valu_cycles);
  const auto lds_clocks = static_cast<double>(c.lds_cycles);
  const auto bytes =
      static_cast<double>((c.global_read_lines + c.global_write_lines)) * c.line_bytes;
  bound.matrix_us = matrix_clocks / simds / clocks_per_us;
  bound.valu_us = valu_clocks / simds / clocks_per_us;
  bound.lds_us = lds_clocks / m->compute_units / clocks_per_us;
  bound.memory_us = bytes / (m->memory_gb_s * 1e3);

  struct Part {
    const char* name;
    double us;
  };
  const Part parts[] = {{"matrix", bound.matrix_us},
                        {"VALU", bound.valu_us},
                        {"LDS", bound.lds_us},
                        {"memory", bound.memory_us}};
  const Part* worst = parts;
  for (const Part& part : parts) {
    if (part.us > worst->us) worst = &part;
  }
  bound.limit = worst->name;
  bound.arithmetic = fmt::format(
      "bound of {} ({} CUs of {} SIMDs, {} GHz, {} GB/s), each unit alone and evenly loaded\n"
      "  matrix  {} passes x 4 clocks / {} SIMDs / {} GHz = {:.3g} us\n"
      "  VALU    {} clocks / {} SIMDs / {} GHz = {:.3g} us\n"
      "  LDS     {} clocks / {} CUs / {} GHz = {:.3g} us\n"
      "  memory  {} lines x {} bytes / {} GB/s = {:.3g} us, no line found in a cache\n"
      "  limit   {}, {:.3g} us\n",
      m->product, m->compute_units, m->simds, m->clock_ghz, m->memory_gb_s, c.matrix_passes, simds,
      m->clock_ghz, bound.matrix_us, c.valu_cycles, simds, m->clock_ghz, bound.valu_us,
      c.lds_cycles, m->compute_units, m->clock_ghz, bound.lds_us,
      c.global_read_lines + c.global_write_lines, c.line_bytes, m->memory_gb_s, bound.memory_us,
      bound.limit, worst->us);
  if (c.matrix_unknown > 0) {
    bound.arithmetic += fmt::format(
        "  the matrix bound is too small: {} instructions of unknown duration ({}) are left out\n",
        c.matrix_unknown, c.first_unknown);
  }
  return bound;
}

}  // namespace hstu::jit::sim
