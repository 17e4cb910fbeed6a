// SPDX-License-Identifier: Apache-2.0
// A wave: registers, execution mask and what the checks know about each register.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "sim/isa/instruction.hpp"

namespace hstu::jit::sim {

class Workgroup;

constexpr int kMaxLanes = 64;
// One 32-bit vector register of all lanes. Lanes past the wave's width stay zero.
struct alignas(64) Row {
  uint32_t lane[kMaxLanes];
};

// What an instruction touches is read and written through these calls, which check that it was
// written before (else counted), that no load into it is outstanding (else a fault) and, for
// writes, change active lanes only. A fault stops the wave after the instruction.
class Wave {
 public:
  Wave(Workgroup& group, int number, int width);

  int width() const { return width_; }
  int number() const { return number_; }  // within the workgroup
  Workgroup& group() { return group_; }

  uint64_t exec() const { return exec_; }
  void set_exec(uint64_t mask) { exec_ = width_ == 64 ? mask : mask & 0xffffffffu; }
  uint64_t vcc() const { return scalar_pair(kVcc); }
  bool scc() const { return scalar_[kScc] != 0; }
  void set_scc(bool value) { scalar_[kScc] = value; }

  // ---- Scalar operands: registers and constants. 64-bit forms take two registers.
  uint32_t read_scalar(const Operand& o);
  uint64_t read_scalar64(const Operand& o);
  void write_scalar(const Operand& o, uint32_t value);
  void write_scalar64(const Operand& o, uint64_t value);
  // A lane mask: one register on wave32, two on wave64.
  uint64_t read_mask(const Operand& o);
  void write_mask(const Operand& o, uint64_t mask);

  // ---- Vector operands. The bits of register `part` of an operand in every lane, modifiers not
  // applied: the register's own row, or `scratch` filled with a scalar or constant.
  const Row& read_row(const Operand& o, int part, Row& scratch);
  // Writes active lanes of register `part`.
  void write_row(const Operand& o, int part, const Row& value) { write_row(o, part, value, exec_); }
  void write_row(const Operand& o, int part, const Row& value, uint64_t lanes);
  // For instructions that write in place (matrix units): marks all `lanes` of the register as
  // written and gives its row. Sources are claimed with `claim_source` before.
  Row& claim_row(const Operand& o, int part, uint64_t lanes);
  const Row& claim_source(const Operand& o, int part, uint64_t lanes);

  // First fault of the wave; empty while all is well.
  void fail(std::string what);
  bool failed() const { return !fault_.empty(); }
  const std::string& fault() const { return fault_; }

  uint64_t program_counter = 0;  // index of the next instruction
  bool ended = false;

 protected:
  uint64_t scalar_pair(int index) const {
    return scalar_[index] | static_cast<uint64_t>(scalar_[index + 1]) << 32;
  }

  Workgroup& group_;
  int number_, width_;
  uint64_t exec_ = 0;
  std::array<uint32_t, kScalarRegisters> scalar_{};
  std::unique_ptr<Row[]> vector_;                     // kVectorRegisters rows
  std::array<uint64_t, kVectorRegisters> written_{};  // lanes ever written
  std::array<uint8_t, kVectorRegisters> pending_{};   // loads outstanding
  std::string fault_;
};

}  // namespace hstu::jit::sim
