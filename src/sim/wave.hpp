// SPDX-License-Identifier: Apache-2.0
// A wave: registers, execution mask and what the checks know about each register.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "sim/isa/instruction.hpp"
#include "sim/machine.hpp"
#include "sim/outstanding.hpp"

namespace hstu::jit::sim {

class Workgroup;

constexpr int kMaxLanes = 64;
// Registers after the end of either file: an operand of many may reach that far, and no kernel has
// them.
constexpr int kPastFile = 64;
// One 32-bit vector register of all lanes. Lanes past the wave's width stay zero.
struct alignas(64) Row {
  uint32_t lane[kMaxLanes];
};

// What an instruction touches is read and written through these calls, which check that the
// kernel has it, that no load into it is outstanding (else a fault), that it was written before
// (else counted) and, for writes, change active lanes only. A fault stops the wave after the
// instruction.
class Wave {
 public:
  Wave(Workgroup& group, int number, int width);

  int width() const { return width_; }
  int number() const { return number_; }  // within the workgroup
  uint64_t all_lanes() const { return all_; }
  Workgroup& group() { return group_; }
  const Machine& machine() const { return machine_; }
  uint32_t gfx() const { return machine_.gfx; }  // 0x908, 0x90a, 0x942, 0x950, 0x1100, 0x1201
  // The MODE register: bits 1:0 rounding of f32, 3:2 of f16 and f64, 5:4 denormals of f32, 7:6 of
  // f16 and f64 (bit 0 of a pair keeps denormal inputs, bit 1 denormal results), 8 DX10 clamp,
  // 9 IEEE.
  uint32_t mode() const { return mode_; }
  void set_mode(uint32_t mode) { mode_ = mode; }

  uint64_t exec() const { return exec_; }
  void set_exec(uint64_t mask) {
    exec_ = mask & all_;
    scalar_[kExec] = static_cast<uint32_t>(exec_);
    scalar_[kExec + 1] = static_cast<uint32_t>(exec_ >> 32);
  }
  uint64_t vcc() const { return scalar_pair(kVcc) & all_; }
  void write_vcc(uint64_t mask) {
    set_scalar(kVcc, static_cast<uint32_t>(mask));
    if (width_ == 64) set_scalar(kVcc + 1, static_cast<uint32_t>(mask >> 32));
  }
  bool scc() const { return scalar_[kScc] != 0; }
  void set_scc(bool value) { scalar_[kScc] = value; }
  uint32_t m0() const { return scalar_[kM0]; }

  // ---- Scalar operands: registers and constants. 64-bit forms take two registers.
  uint32_t read_scalar(const Operand& o) { return read_scalar_part(o, 0); }
  uint64_t read_scalar64(const Operand& o) {
    if (o.kind != OperandKind::scalar) return o.bits;
    const uint64_t low = scalar_at(o.index);
    return low | static_cast<uint64_t>(o.index == kNull ? 0 : scalar_at(o.index + 1)) << 32;
  }
  // Register `part` of an operand.
  uint32_t read_scalar_part(const Operand& o, int part) {
    if (o.kind != OperandKind::scalar) return static_cast<uint32_t>(o.bits >> (part == 1 ? 32 : 0));
    return scalar_at(o.index == kNull ? o.index : o.index + part);
  }
  void write_scalar(const Operand& o, uint32_t value) { set_scalar(o.index, value); }
  void write_scalar64(const Operand& o, uint64_t value) {
    set_scalar(o.index, static_cast<uint32_t>(value));
    if (o.index != kNull) set_scalar(o.index + 1, static_cast<uint32_t>(value >> 32));
  }
  // A lane mask: one register on wave32, two on wave64.
  uint64_t read_mask(const Operand& o) {
    return (width_ == 64 ? read_scalar64(o) : read_scalar(o)) & all_;
  }
  void write_mask(const Operand& o, uint64_t mask) {
    if (width_ == 64) {
      write_scalar64(o, mask);
    } else {
      write_scalar(o, static_cast<uint32_t>(mask));
    }
  }
  // Registers by number in the scalar file.
  uint32_t scalar_at(int index) {
    if (scalar_pending_[index] != 0) [[unlikely]]
      pending_fault(index, true, "read");
    if (index >= kVccz) [[unlikely]]
      return index == kVccz ? vcc() == 0 : exec_ == 0;
    return scalar_[index];
  }
  void set_scalar(int index, uint32_t value);

  // ---- Vector operands. The bits of register `part` of an operand in every lane, modifiers not
  // applied: the register's own row, or `scratch` filled with a scalar or constant.
  const Row& read_row(const Operand& o, int part, Row& scratch) {
    if (o.kind != OperandKind::vector) [[unlikely]]
      return fill_row(o, part, scratch);
    return claim_source(o, part, exec_);
  }
  // Writes active lanes of register `part`.
  void write_row(const Operand& o, int part, const Row& value) { write_row(o, part, value, exec_); }
  void write_row(const Operand& o, int part, const Row& value, uint64_t lanes) {
    Row& row = claim_row(o, part, lanes);
    if (lanes == all_) [[likely]]
      row = value;
    else
      blend_row(row, value, lanes);
  }
  // For instructions that write in place (matrix units): marks all `lanes` of the register as
  // written and gives its row. Sources are claimed with `claim_source` before.
  Row& claim_row(const Operand& o, int part, uint64_t lanes) {
    const int r = o.index + part;
    if (pending_[r] != 0) [[unlikely]]
      pending_fault(r, false, "overwritten");
    written_[r] |= lanes;
    vector_writer_[r] = current_;
    return vector_[r];
  }
  const Row& claim_source(const Operand& o, int part, uint64_t lanes) {
    const int r = o.index + part;
    if (pending_[r] != 0) [[unlikely]]
      pending_fault(r, false, "read");
    if ((lanes & ~written_[r]) != 0) [[unlikely]]
      note_undefined(r);
    return vector_[r];
  }
  // Copies active lanes of `value` into `row`.
  static void blend_row(Row& row, const Row& value, uint64_t lanes);

  // ---- Loads: a register whose value arrives when `queue` is waited for.
  Row& claim_load(Queue queue, int vector_register, uint64_t lanes);
  void set_scalar_load(int index, uint32_t value);
  Outstanding& issue(Queue queue, int first, int registers, bool scalar);
  // Waits until at most `count` are outstanding. Loads of scalar memory return out of order.
  void wait(Queue queue, uint32_t count);
  void wait_lgkm(uint32_t count);
  const OutstandingQueue& outstanding(Queue queue) const {
    return queues_[static_cast<int>(queue)];
  }

  // First fault of the wave; empty while all is well. Kernel, instruction, workgroup and wave are
  // added here, the lane where one is given.
  void fail(std::string what, int lane = -1);
  bool failed() const { return failed_; }
  const std::string& fault() const { return fault_; }
  // "v12, loaded by global_load_dword at 0x1a40": an operand and where its value came from.
  std::string origin(const Operand& o) const;

  // Puts the wave at a kernel's start: registers poisoned, nothing outstanding. The use of a
  // register beyond the kernel's own is a fault.
  void reset(uint64_t exec, uint32_t mode, const RegisterCounts& registers);
  // Sets a register that the hardware initialises.
  void preset_scalar(int index, uint32_t value) { scalar_[index] = value; }
  Row& preset_vector(int index) {
    written_[index] = all_;
    return vector_[index];
  }

  const Instruction* current() const { return current_; }
  void set_current(const Instruction& instruction) { current_ = &instruction; }

  uint64_t program_counter = 0;  // index of the next instruction
  uint64_t executed = 0;
  uint64_t start_exec = 0;
  bool ended = false;
  bool at_barrier = false, signalled = false;
  const Instruction* barrier = nullptr;  // where it waits
  bool stop = false;                     // after this instruction: fault, end, barrier, turn over

  uint64_t undefined_reads = 0;
  std::string first_undefined;
  uint64_t waits = 0, waits_needed = 0;

 private:
  uint64_t scalar_pair(int index) const {
    return scalar_[index] | static_cast<uint64_t>(scalar_[index + 1]) << 32;
  }
  const Row& fill_row(const Operand& o, int part, Row& scratch);
  void note_undefined(int vector_register);
  // Of a register whose mark is not 0.
  void pending_fault(int index, bool scalar, const char* use);
  void retire(const Outstanding& entry);
  const Outstanding* loader_of(int index, bool scalar) const;

  Workgroup& group_;
  const Machine& machine_;
  int number_, width_;
  bool failed_ = false;
  uint32_t mode_ = 0;
  uint64_t all_ = 0;
  uint64_t exec_ = 0;
  const Instruction* current_ = nullptr;
  static constexpr int kVectors = kVectorRegisters + kPastFile;
  static constexpr int kScalars = kVectors;       // an index of the wrong file is one too many
  static constexpr uint8_t kNotAllocated = 0x80;  // more than loads can be outstanding
  RegisterCounts registers_;
  std::array<uint32_t, kScalars> scalar_{};
  std::unique_ptr<Row[]> vector_;             // kVectors rows
  std::array<uint64_t, kVectors> written_{};  // lanes ever written
  // Loads outstanding, or kNotAllocated.
  std::array<uint8_t, kVectors> pending_{};
  std::array<uint8_t, kScalars> scalar_pending_{};
  std::array<const Instruction*, kVectors> vector_writer_{};
  std::array<const Instruction*, kScalars> scalar_writer_{};
  std::array<OutstandingQueue, kQueues> queues_;
  std::string fault_;
};

}  // namespace hstu::jit::sim
