// SPDX-License-Identifier: Apache-2.0
#include "object/issue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <deque>
#include <optional>

#include "object/classify.hpp"
#include "object/operands.hpp"

namespace hstu::jit::object {
namespace {

using Kind = Step::Kind;
enum Counter : int { kLoads, kStores, kLds, kScalar };

bool starts(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}
bool has(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

int number_in(std::string_view text) {
  const bool hex = starts(text, "0x");
  if (hex) text.remove_prefix(2);
  int value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, hex ? 16 : 10);
  return value;
}

// "vmcnt(3)" in the operands of s_waitcnt.
int count_named(std::string_view operands, std::string_view name) {
  const size_t at = operands.find(name);
  return at == operands.npos ? -1 : number_in(operands.substr(at + name.size()));
}

// Which counters an s_wait... waits for, and how many operations each may leave in flight.
void read_wait(const ListedInstruction& i, Step& step) {
  const std::string_view name = i.mnemonic, text = i.operands;
  const size_t comma = text.rfind(' ');
  const int number = number_in(comma == text.npos ? text : text.substr(comma + 1));
  auto& wait = step.wait_for;
  constexpr int kField = 0x3f;
  if (name == "s_waitcnt") {
    wait[kLoads] = count_named(text, "vmcnt(");
    wait[kLds] = count_named(text, "lgkmcnt(");
  } else if (name == "s_waitcnt_vscnt" || name == "s_wait_storecnt") {
    wait[kStores] = number;
  } else if (name == "s_waitcnt_vmcnt" || name == "s_wait_loadcnt") {
    wait[kLoads] = number;
  } else if (name == "s_waitcnt_lgkmcnt" || name == "s_wait_dscnt") {
    wait[kLds] = number;
  } else if (name == "s_wait_kmcnt") {
    wait[kScalar] = number;
  } else if (name == "s_wait_loadcnt_dscnt") {
    wait[kLoads] = number >> 8 & kField;
    wait[kLds] = number & kField;
  } else if (name == "s_wait_storecnt_dscnt") {
    wait[kStores] = number >> 8 & kField;
    wait[kLds] = number & kField;
  }
}

// Hints to the hardware that take no issue slot of their own.
bool takes_no_time(std::string_view name) {
  return name == "s_delay_alu" || name == "s_clause" || starts(name, "s_set_inst_prefetch") ||
         name == "s_waitcnt_depctr" || name == "s_wait_alu" || starts(name, "s_inst_prefetch");
}

bool is_quarter_rate(std::string_view name) {
  return starts(name, "v_mul_lo_u32") || starts(name, "v_mul_lo_i32") ||
         starts(name, "v_mul_hi_u32") || starts(name, "v_mul_hi_i32") ||
         starts(name, "v_mad_u64_u32") || starts(name, "v_mad_i64_i32") ||
         starts(name, "v_mad_co_u64");
}

class StepMaker {
 public:
  StepMaker(const Machine& machine, int wave_width) : machine_(machine), width_(wave_width) {
    const std::string_view name = machine.name;
    store_counter_ = starts(name, "gfx9") ? kLoads : kStores;
    scalar_counter_ = starts(name, "gfx12") ? kScalar : kLds;
  }

  Result<Step> make(const ListedInstruction& i) const {
    const std::string_view name = i.mnemonic;
    const std::string_view kind = instruction_class(InstructionSet::amd, name);
    Step step;
    Operands operands = operands_of(i);
    step.reads = std::move(operands.reads);
    step.writes = std::move(operands.writes);
    if (kind == "matrix") {
      const auto clocks = matrix_clocks(machine_, name);
      if (!clocks) {
        return Error{ErrorKind::kFailed,
                     fmt::format("the duration of {} on {} is not known", name, machine_.name), "",
                     ""};
      }
      step.kind = Kind::matrix;
      step.busy = ticks(*clocks);
      step.result = step.busy + ticks(machine_.matrix_extra);
    } else if (kind == "transcendental") {
      step.kind = Kind::transcendental;
      step.busy = ticks(machine_.transcendental);
      step.result = std::max(ticks(machine_.transcendental_latency), step.busy + 1);
    } else if (kind == "valu" || kind == "agpr_move" || name == "v_nop") {
      step.kind = Kind::valu;
      step.busy = valu_ticks(name);
      step.result = step.busy + ticks(machine_.valu_latency) - 1;
    } else if (starts(kind, "lds_") || kind == "cross_lane") {
      step.kind = Kind::lds;
      step.counter = kLds;
      step.lds_ticks = lds_ticks(name);
      step.result = ticks(machine_.lds_latency);
    } else if (starts(kind, "global_") || kind == "scratch") {
      step.kind = Kind::global;
      step.counter = has(name, "store") ? store_counter_ : kLoads;
      step.result = ticks(machine_.global_latency);
      if (has(name, "_lds") || has(i.operands, " lds")) step.lds_ticks = lds_ticks(name);
    } else if (kind == "scalar_memory") {
      step.counter = scalar_counter_;
      step.result = ticks(machine_.scalar_latency);
    } else if (kind == "waitcnt") {
      step.kind = Kind::wait;
      read_wait(i, step);
    } else if (name == "s_barrier_signal") {
      step.kind = Kind::arrive;
    } else if (kind == "barrier") {
      step.kind = Kind::barrier;
      step.arrives = name == "s_barrier";
    } else if (name == "s_nop") {
      step.kind = Kind::pause;
      step.busy = (number_in(i.operands) & 0x7f) + 1;  // the hardware reads no more bits
    } else if (name == "s_setprio") {
      step.kind = Kind::priority;
      step.number = number_in(i.operands);
    }
    return step;
  }

 private:
  double ticks(int clocks) const { return static_cast<double>(clocks) / machine_.tick; }
  double valu_ticks(std::string_view name) const {
    if (is_quarter_rate(name)) return ticks(machine_.quarter_rate);
    if (starts(name, "v_permlane32_swap") || starts(name, "v_permlane16_swap")) return 2;
    if (starts(name, "v_pk_") && has(name, "_f32")) return ticks(machine_.packed_f32);
    return 1;
  }
  double lds_ticks(std::string_view name) const {
    const int bytes = std::max(4, bytes_per_lane(name)) * width_;
    return ticks(bytes * machine_.lds_port_simds) / machine_.lds_port_bytes;
  }

  const Machine& machine_;
  int width_, store_counter_, scalar_counter_;
};

constexpr Policy kPolicies[] = {
    {"turns, exclusive", Order::turns, true},
    {"turns, overlapping", Order::turns, false},
    {"matrix first, exclusive", Order::matrix_first, true},
    {"matrix first, overlapping", Order::matrix_first, false},
    {"oldest first, exclusive", Order::oldest_first, true},
    {"oldest first, overlapping", Order::oldest_first, false},
};

// The state of one wave.
struct Wave {
  size_t at = 0;
  int priority = 0;
  int64_t arrived = 0;
  bool at_barrier = false;
  double resume = 0;  // after a pause
  std::vector<double> ready = std::vector<double>(kRegisterCount, 0);
  // When a matrix instruction may add to what an earlier one leaves in a register.
  std::vector<double> chain = std::vector<double>(kRegisterCount, -1);
  std::array<std::deque<double>, kCounters> in_flight;
};

class Simd {
 public:
  Simd(std::span<const Step> steps, const Machine& machine, int waves, int group,
       const Policy& policy)
      : steps_(steps),
        machine_(machine),
        group_(static_cast<size_t>(group)),
        policy_(policy),
        waves_(static_cast<size_t>(waves)) {}

  Result<Replay> run() {
    // Rounds of all waves together, so that a wave that others crowd out does not hide the rest.
    const int64_t count = static_cast<int64_t>(waves_.size());
    const int64_t warm_up = 3 * count, measured = 8 * count;
    // A round takes at most the sum of everything in sequence, once for each wave.
    double longest = 100;
    for (const Step& step : steps_) longest += step.busy + step.result + 4 * step.lds_ticks + 8;
    const double limit = longest * static_cast<double>(warm_up + measured);
    double begin = 0, matrix_at_begin = 0;
    while (rounds_ < warm_up + measured) {
      if (now_ > limit) {
        return Error{ErrorKind::kFailed, "the waves of its loop wait for each other for ever", "",
                     ""};
      }
      if (!measuring_ && rounds_ >= warm_up) {
        measuring_ = true;
        begin = now_;
        matrix_at_begin = matrix_ticks_;
      }
      one_tick();
      now_ = static_cast<double>(++ticks_);
    }
    const double ticks = now_ - begin;
    Replay out;
    // The last instruction of the window is counted whole.
    out.matrix_share = std::min(1.0, (matrix_ticks_ - matrix_at_begin) / ticks);
    out.ticks_per_round = ticks * static_cast<double>(count) / static_cast<double>(measured);
    const double all = ticks * static_cast<double>(count);
    for (const auto& [reason, waited] : stalls_) out.stalls[reason] = waited / all;
    return out;
  }

 private:
  enum Port : unsigned { kVector = 1, kScalarPort = 2, kLdsPort = 4, kGlobalPort = 8 };

  static unsigned port_of(Kind kind) {
    switch (kind) {
      case Kind::valu:
      case Kind::transcendental:
      case Kind::matrix:
        return kVector;
      case Kind::scalar:
      case Kind::priority:
        return kScalarPort;
      case Kind::lds:
        return kLdsPort;
      case Kind::global:
        return kGlobalPort;
      default:
        return 0;
    }
  }

  void one_tick() {
    std::vector<size_t> order(waves_.size());
    const size_t turn = policy_.order == Order::oldest_first ? 0 : ticks_;
    for (size_t i = 0; i < order.size(); ++i) order[i] = (turn + i) % waves_.size();
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return rank(waves_[a]) < rank(waves_[b]); });
    for (size_t w = 0; w < waves_.size(); ++w) {
      if (waves_[w].at_barrier && all_arrived(w)) waves_[w].at_barrier = false;
    }
    unsigned used = 0;
    for (const size_t w : order) {
      const char* stall = issue(waves_[w], used);
      if (measuring_) stalls_[stall == nullptr ? "issuing" : stall] += 1;
    }
  }

  int rank(const Wave& wave) const {
    constexpr int kPriorities = 4;
    const bool matrix =
        policy_.order == Order::matrix_first && steps_[wave.at].kind == Kind::matrix;
    return 2 * (kPriorities - wave.priority) - (matrix ? 1 : 0);
  }

  bool all_arrived(size_t w) const {
    const size_t first = w / group_ * group_;
    const size_t end = std::min(waves_.size(), first + group_);
    for (size_t i = first; i < end; ++i) {
      if (waves_[i].arrived < waves_[w].arrived) return false;
    }
    return true;
  }

  // Issues the wave's next instruction, or says why not.
  const char* issue(Wave& wave, unsigned& used) {
    if (wave.resume > now_) return "pause";
    if (wave.at_barrier) return "barrier";
    const Step& step = steps_[wave.at];
    const unsigned port = port_of(step.kind);
    if ((port & used) != 0) return "port";
    if (step.kind == Kind::wait) {
      if (const char* stall = waits(wave, step)) return stall;
    } else if (const char* stall = vector_unit(step)) {
      return stall;
    } else if (!operands_ready(wave, step)) {
      return "operand";
    }
    used |= port;
    begin(wave, step);
    if (++wave.at == steps_.size()) {
      wave.at = 0;
      ++rounds_;
    }
    return nullptr;
  }

  const char* waits(Wave& wave, const Step& step) {
    constexpr const char* kReasons[kCounters] = {"global wait", "store wait", "lds wait",
                                                 "scalar wait"};
    for (size_t c = 0; c < kCounters; ++c) {
      auto& flight = wave.in_flight[c];
      flight.erase(
          std::remove_if(flight.begin(), flight.end(), [&](double done) { return done <= now_; }),
          flight.end());
      if (step.wait_for[c] >= 0 && flight.size() > static_cast<size_t>(step.wait_for[c])) {
        return kReasons[c];
      }
    }
    return nullptr;
  }

  // Why a vector instruction cannot start in this tick, or nothing.
  const char* vector_unit(const Step& step) const {
    switch (step.kind) {
      case Kind::valu:
        return vector_free_ > now_ ? "vector unit" : nullptr;
      case Kind::transcendental:
        return (machine_.transcendental_apart ? trans_free_ : vector_free_) > now_ ? "vector unit"
                                                                                   : nullptr;
      case Kind::matrix:
        if (policy_.exclusive && vector_free_ > now_) return "vector unit";
        return matrix_free_ > now_ ? "matrix unit" : nullptr;
      default:
        return nullptr;
    }
  }

  bool operands_ready(const Wave& wave, const Step& step) const {
    for (const uint16_t r : step.reads) {
      if (wave.ready[r] <= now_) continue;
      const bool chained =
          step.kind == Kind::matrix && wave.chain[r] >= 0 && wave.chain[r] <= now_ &&
          std::find(step.writes.begin(), step.writes.end(), r) != step.writes.end();
      if (!chained) return false;
    }
    return true;
  }

  void begin(Wave& wave, const Step& step) {
    double ready = now_ + step.result, chain = -1;
    switch (step.kind) {
      case Kind::valu:
        vector_free_ = now_ + step.busy;
        break;
      case Kind::transcendental:
        if (machine_.transcendental_apart) {
          trans_free_ = now_ + step.busy;
        } else {
          vector_free_ = now_ + step.busy;
        }
        break;
      case Kind::matrix:
        matrix_free_ = chain = now_ + step.busy;
        // On RDNA the matrix unit is the vector ALU, or is taken not to be.
        vector_free_ =
            std::max(vector_free_,
                     machine_.transcendental_apart && policy_.exclusive ? matrix_free_ : now_ + 1);
        matrix_ticks_ += step.busy;
        break;
      case Kind::lds:
      case Kind::global:
        if (step.lds_ticks > 0) lds_free_ = std::max(lds_free_, now_) + step.lds_ticks;
        if (step.kind == Kind::lds) ready = lds_free_ + step.result;
        break;
      case Kind::arrive:
        ++wave.arrived;
        break;
      case Kind::barrier:
        wave.arrived += step.arrives;
        wave.at_barrier = true;
        break;
      case Kind::pause:
        wave.resume = now_ + step.busy;
        break;
      case Kind::priority:
        wave.priority = step.number;
        break;
      default:
        break;
    }
    if (step.counter >= 0) {
      wave.in_flight[static_cast<size_t>(step.counter)].push_back(ready);
      ready = now_;  // that loaded registers are not read early is what the waits see to
    }
    for (const uint16_t r : step.writes) {
      wave.ready[r] = ready;
      wave.chain[r] = chain;
    }
  }

  std::span<const Step> steps_;
  const Machine& machine_;
  size_t group_;
  const Policy& policy_;
  std::vector<Wave> waves_;
  double now_ = 0, vector_free_ = 0, matrix_free_ = 0, trans_free_ = 0, lds_free_ = 0;
  double matrix_ticks_ = 0;
  size_t ticks_ = 0;
  int64_t rounds_ = 0;
  bool measuring_ = false;
  std::map<std::string, double> stalls_;
};

}  // namespace

std::span<const Policy> issue_policies() { return kPolicies; }

Result<std::vector<Step>> make_steps(std::span<const ListedInstruction> path,
                                     const Machine& machine, int wave_width) {
  const StepMaker maker(machine, wave_width);
  std::vector<Step> steps;
  for (const ListedInstruction& instruction : path) {
    if (takes_no_time(instruction.mnemonic)) continue;
    Result<Step> step = maker.make(instruction);
    if (!step) return std::move(step).error();
    steps.push_back(std::move(*step));
  }
  return steps;
}

Result<Replay> replay(std::span<const Step> steps, const Machine& machine, int waves, int group,
                      const Policy& policy) {
  return Simd(steps, machine, waves, group, policy).run();
}

}  // namespace hstu::jit::object
