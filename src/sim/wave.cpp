// SPDX-License-Identifier: Apache-2.0
#include "sim/wave.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "sim/clones.hpp"
#include "sim/workgroup.hpp"

namespace hstu::jit::sim {
namespace {

// What a register holds that nothing wrote: a signalling NaN in 32 and in 16 bits.
constexpr uint32_t kPoison = 0x7db17db1;

HSTU_SIM_CLONES void blend(uint32_t* row, const uint32_t* value, uint64_t lanes) {
  for (int half = 0; half < 2; ++half) {
    const auto mask = static_cast<uint32_t>(lanes >> 32 * half);
    for (int i = 0; i < 32; ++i) {
      const bool active = mask >> i & 1;
      row[32 * half + i] = active ? value[32 * half + i] : row[32 * half + i];
    }
  }
}

std::string register_name(int index, bool scalar) {
  if (!scalar) {
    return index >= kFirstAgpr ? fmt::format("a{}", index - kFirstAgpr) : fmt::format("v{}", index);
  }
  switch (index) {
    case kVcc:
      return "vcc_lo";
    case kVcc + 1:
      return "vcc_hi";
    case kM0:
      return "m0";
    case kExec:
      return "exec_lo";
    case kExec + 1:
      return "exec_hi";
    case kScc:
      return "scc";
    default:
      return index >= kTtmp && index < kM0 ? fmt::format("ttmp{}", index - kTtmp)
                                           : fmt::format("s{}", index);
  }
}

}  // namespace

Wave::Wave(Workgroup& group, int number, int width)
    : group_(group),
      machine_(group.machine()),
      number_(number),
      width_(width),
      all_(width == 64 ? ~uint64_t{0} : 0xffffffffu),
      vector_(new Row[kVectors]()) {}

void Wave::reset(uint64_t exec, uint32_t mode, const RegisterCounts& registers) {
  program_counter = executed = 0;
  ended = at_barrier = signalled = stop = failed_ = false;
  barrier = nullptr;
  current_ = nullptr;
  fault_.clear();
  undefined_reads = waits = waits_needed = 0;
  first_undefined.clear();
  mode_ = mode;
  scalar_.fill(kPoison);
  scalar_[kNull] = 0;
  scalar_[kScc] = 0;
  registers_ = registers;
  scalar_pending_.fill(0);
  const auto marks = scalar_pending_.begin();
  if (machine_.cdna()) {
    std::fill(marks + std::min<int>(registers.scalar, kFlatScratch), marks + kFlatScratch,
              kNotAllocated);
  }
  std::fill(marks + kScalarRegisters, scalar_pending_.end(), kNotAllocated);
  scalar_writer_.fill(nullptr);
  pending_.fill(kNotAllocated);
  std::fill_n(pending_.begin(), registers.vector, uint8_t{0});
  std::fill_n(pending_.begin() + kFirstAgpr, registers.accumulation, uint8_t{0});
  written_.fill(0);
  vector_writer_.fill(nullptr);
  for (OutstandingQueue& queue : queues_) queue.clear();
  Row poison;
  for (int i = 0; i < kMaxLanes; ++i) poison.lane[i] = i < width_ ? kPoison : 0;
  for (int r = 0; r < registers.vector; ++r) vector_[r] = poison;
  for (int r = 0; r < registers.accumulation; ++r) vector_[kFirstAgpr + r] = poison;
  set_exec(exec);
  start_exec = exec_;
}

void Wave::set_scalar(int index, uint32_t value) {
  if (index == kNull) return;
  if (scalar_pending_[index] != 0) [[unlikely]]
    pending_fault(index, true, "overwritten");
  scalar_[index] = value;
  scalar_writer_[index] = current_;
  if (index == kExec) {
    exec_ = ((exec_ >> 32 << 32) | value) & all_;
  } else if (index == kExec + 1) {
    exec_ = (static_cast<uint64_t>(value) << 32 | static_cast<uint32_t>(exec_)) & all_;
  }
}

void Wave::blend_row(Row& row, const Row& value, uint64_t lanes) {
  blend(row.lane, value.lane, lanes);
}

const Row& Wave::fill_row(const Operand& o, int part, Row& scratch) {
  const uint32_t value = read_scalar_part(o, part);
  for (int i = 0; i < kMaxLanes; ++i) scratch.lane[i] = value;
  return scratch;
}

// ---- Loads and waits.

Outstanding& Wave::issue(Queue queue, int first, int registers, bool scalar) {
  OutstandingQueue& q = queues_[static_cast<int>(queue)];
  if (q.full()) {
    retire(q[0]);
    q.pop();
  }
  Outstanding& entry = q.push();
  entry.instruction = current_;
  entry.first = static_cast<uint16_t>(first);
  entry.registers = static_cast<uint16_t>(registers);
  entry.scalar = scalar;
  entry.touch.lanes = 0;
  for (int i = 0; i < registers; ++i) ++(scalar ? scalar_pending_[first + i] : pending_[first + i]);
  return entry;
}

void Wave::retire(const Outstanding& entry) {
  for (int i = 0; i < entry.registers; ++i) {
    --(entry.scalar ? scalar_pending_[entry.first + i] : pending_[entry.first + i]);
  }
  if (entry.touch.lanes != 0 && entry.touch.arriving) group_.lds().arrived(entry.touch, number_);
}

void Wave::wait(Queue queue, uint32_t count) {
  OutstandingQueue& q = queues_[static_cast<int>(queue)];
  if (queue == Queue::scalar && count > 0) return;  // any of them may be the one still missing
  while (q.size() > count) {
    retire(q[0]);
    q.pop();
  }
}

// lgkmcnt counts DS and scalar loads together. Scalar loads return in any order, DS in order: at
// most `count` of either are outstanding, and of DS the newest ones.
void Wave::wait_lgkm(uint32_t count) {
  wait(Queue::lds, count);
  wait(Queue::scalar, count);
}

// Loads of one queue return in order, so a second load into a register may follow the first; one
// of another queue may be overtaken.
Row& Wave::claim_load(Queue queue, int r, uint64_t lanes) {
  if (pending_[r] >= kNotAllocated) [[unlikely]]
    pending_fault(r, false, "written");
  else if (pending_[r] != 0) {
    int same = 0;
    const OutstandingQueue& q = queues_[static_cast<int>(queue)];
    for (uint32_t i = 0; i < q.size(); ++i) {
      const Outstanding& e = q[i];
      same += !e.scalar && r >= e.first && r < e.first + e.registers;
    }
    if (same != pending_[r]) pending_fault(r, false, "overwritten by a load of another counter");
  }
  written_[r] |= lanes;
  vector_writer_[r] = current_;
  return vector_[r];
}

void Wave::set_scalar_load(int index, uint32_t value) { set_scalar(index, value); }

// ---- Messages.

void Wave::fail(std::string what, int lane) {
  if (failed_) return;
  failed_ = stop = true;
  fault_ = group_.describe(*this, lane) + ": " + what;
}

const Outstanding* Wave::loader_of(int index, bool scalar) const {
  for (const OutstandingQueue& q : queues_) {
    for (uint32_t i = q.size(); i-- > 0;) {
      const Outstanding& e = q[i];
      if (e.scalar == scalar && index >= e.first && index < e.first + e.registers) return &e;
    }
  }
  return nullptr;
}

void Wave::pending_fault(int index, bool scalar, const char* use) {
  if ((scalar ? scalar_pending_[index] : pending_[index]) >= kNotAllocated) {
    const bool accumulation = !scalar && index >= kFirstAgpr;
    const int lane = scalar || exec_ == 0 ? -1 : std::countr_zero(exec_);
    return fail(fmt::format("{} is {}, but the kernel has {} {} registers",
                            register_name(index, scalar), use,
                            scalar         ? registers_.scalar
                            : accumulation ? registers_.accumulation
                                           : registers_.vector,
                            scalar         ? "scalar"
                            : accumulation ? "accumulation"
                                           : "vector"),
                lane);
  }
  const Outstanding* entry = loader_of(index, scalar);
  fail(fmt::format(
      "{}, loaded by {}, is {} before a wait for it", register_name(index, scalar),
      entry == nullptr ? std::string("an earlier load") : group_.place(entry->instruction), use));
}

void Wave::note_undefined(int r) {
  ++undefined_reads;
  if (first_undefined.empty()) {
    first_undefined = fmt::format("{} at {}", register_name(r, false), group_.place(current_));
  }
}

std::string Wave::origin(const Operand& o) const {
  if (o.kind != OperandKind::vector && o.kind != OperandKind::scalar) return "a constant";
  const bool scalar = o.kind == OperandKind::scalar;
  std::string name = register_name(o.index, scalar);
  if (o.registers > 1) {
    const int first = scalar || o.index < kFirstAgpr ? o.index : o.index - kFirstAgpr;
    name = fmt::format("{}[{}:{}]", name.substr(0, 1), first, first + o.registers - 1);
  }
  const Instruction* writer = scalar ? scalar_writer_[o.index] : vector_writer_[o.index];
  if (writer == nullptr) return name + ", set at the start of the wave or never";
  const bool load = writer->opcode->op_class == OpClass::scalar_memory ||
                    writer->opcode->op_class == OpClass::global_read ||
                    writer->opcode->op_class == OpClass::lds_read;
  return fmt::format("{}, {} by {}", name, load ? "loaded" : "written", group_.place(writer));
}

}  // namespace hstu::jit::sim
