// SPDX-License-Identifier: Apache-2.0
// Scalar instructions that steer a program: branches, waits, barriers, hardware registers. Sources:
// AMD's ISA documents, chapters "Program Flow Control" and "SOPP Instructions".
#include <fmt/format.h>

#include <optional>

#include "sim/isa/decode.hpp"
#include "sim/isa/operand.hpp"
#include "sim/isa/scalar.hpp"
#include "sim/isa/tables.hpp"
#include "sim/workgroup.hpp"

namespace hstu::jit::sim {
namespace {

void no_operation(Wave&, const Instruction&) {}

// ---- Branches.

void s_endpgm(Wave& w, const Instruction&) { w.ended = w.stop = true; }
void s_branch(Wave& w, const Instruction& i) { w.program_counter = i.target; }

template <bool (*condition)(Wave&)>
void branch_if(Wave& w, const Instruction& i) {
  if (condition(w)) w.program_counter = i.target;
}
bool scc0(Wave& w) { return !w.scc(); }
bool scc1(Wave& w) { return w.scc(); }
bool vccz(Wave& w) { return w.scalar_at(kVccz) != 0; }
bool vccnz(Wave& w) { return w.scalar_at(kVccz) == 0; }
bool execz(Wave& w) { return w.exec() == 0; }
bool execnz(Wave& w) { return w.exec() != 0; }

void go_to(Wave& w, uint64_t address) {
  uint32_t index = 0;
  if (!w.group().code().index_at(address, index)) {
    return w.fail(
        fmt::format("jumps to {:#x}, where no instruction of the object begins", address));
  }
  w.program_counter = index;
}
uint64_t next_address(Wave& w, const Instruction& i) {
  return w.group().code().to_memory(i.address + i.bytes);
}
void s_getpc_b64(Wave& w, const Instruction& i) {
  w.write_scalar64(i.operand[0], next_address(w, i));
}
void s_setpc_b64(Wave& w, const Instruction& i) { go_to(w, w.read_scalar64(i.operand[0])); }
void s_swappc_b64(Wave& w, const Instruction& i) {
  const uint64_t target = w.read_scalar64(i.operand[1]);
  w.write_scalar64(i.operand[0], next_address(w, i));
  go_to(w, target);
}
void s_call_b64(Wave& w, const Instruction& i) {
  const uint64_t next = next_address(w, i);
  w.write_scalar64(i.operand[0], next);
  go_to(w, next + 4 * static_cast<int64_t>(static_cast<int16_t>(i.operand[1].bits)));
}
void s_trap(Wave& w, const Instruction& i) {
  w.fail(fmt::format("the kernel trapped ({})", i.operand[0].bits));
}

// ---- Waits.

uint32_t all_outstanding(const Wave& w) {
  uint32_t sum = 0;
  for (int q = 0; q < kQueues; ++q) sum += w.outstanding(static_cast<Queue>(q)).size();
  return sum;
}
// Counts a wait and whether it had something to wait for.
template <typename Wait>
void counted(Wave& w, const Wait& wait) {
  const uint32_t before = all_outstanding(w);
  wait();
  ++w.waits;
  w.waits_needed += all_outstanding(w) != before;
}

void s_waitcnt(Wave& w, const Instruction& i) {
  counted(w, [&] {
    const uint32_t vm = i.operand[0].bits >> kVmShift & 0xff;
    const uint32_t lgkm = i.operand[0].bits >> kLgkmShift & 0xff;
    if (vm != kNoWait) w.wait(Queue::vector, vm);
    if (lgkm != kNoWait) w.wait_lgkm(lgkm);
  });
}
// The count is the last operand: "s_waitcnt_vscnt null, 0x0", "s_wait_loadcnt 0x1".
uint32_t count_of(const Instruction& i) {
  return i.operands == 0 ? 0 : static_cast<uint32_t>(i.operand[i.operands - 1].bits);
}
template <Queue queue>
void wait_for(Wave& w, const Instruction& i) {
  counted(w, [&] { w.wait(queue, count_of(i)); });
}
void wait_for_lgkm(Wave& w, const Instruction& i) {
  counted(w, [&] { w.wait_lgkm(count_of(i)); });
}
// Two counts in one: DS in bits 5:0, loads or stores in bits 13:8.
template <Queue queue>
void wait_for_two(Wave& w, const Instruction& i) {
  counted(w, [&] {
    w.wait(Queue::lds, count_of(i) & 63);
    w.wait(queue, count_of(i) >> 8 & 63);
  });
}
void wait_for_all(Wave& w, const Instruction&) {
  counted(w, [&] {
    for (int q = 0; q < kQueues; ++q) w.wait(static_cast<Queue>(q), 0);
  });
}
void s_sleep(Wave& w, const Instruction&) { w.stop = true; }

// ---- Barriers.

void arrive(Wave& w, const Instruction& i) {
  if (w.exec() != w.start_exec) {
    return w.fail(fmt::format("divergent barrier: exec is {:#x}, the wave began with {:#x}",
                              w.exec(), w.start_exec));
  }
  ++w.group().tally().barriers;
  w.barrier = &i;
}
void s_barrier(Wave& w, const Instruction& i) {
  arrive(w, i);
  w.at_barrier = w.stop = true;
}
// gfx12 has more barriers than that of all waves, number -1; its s_barrier_wait prints 16 bits.
bool is_workgroup_barrier(Wave& w, const Operand& o) {
  constexpr int16_t kWorkgroup = -1;
  if (o.kind == OperandKind::constant && static_cast<int16_t>(o.bits) == kWorkgroup) return true;
  w.fail(o.kind == OperandKind::constant
             ? fmt::format("named barriers are not simulated, only that of the workgroup (-1); "
                           "this is {}",
                           static_cast<int16_t>(o.bits))
             : std::string("named barriers (the number is in M0) are not simulated"));
  return false;
}
void s_barrier_signal(Wave& w, const Instruction& i) {
  if (!is_workgroup_barrier(w, i.operand[0])) return;
  if (w.signalled) return w.fail("signals a barrier twice without waiting for it");
  arrive(w, i);
  w.signalled = true;
}
void s_barrier_wait(Wave& w, const Instruction& i) {
  if (!is_workgroup_barrier(w, i.operand[0])) return;
  if (!w.signalled) return w.fail("waits for a barrier that it did not signal");
  if (w.exec() != w.start_exec) return arrive(w, i);
  w.at_barrier = w.stop = true;
}

// ---- Hardware registers: id in bits 5:0, offset in 10:6, size - 1 in 15:11.

constexpr uint32_t kModeId = 1;

// Nothing for a register whose value is not known here: kernels are told no invented one.
std::optional<uint32_t> hardware_register(Wave& w, uint32_t id) {
  const Generation generation = w.machine().generation;
  const bool cdna = w.machine().cdna(), gfx12 = generation == Generation::gfx12;
  const uint64_t clock = w.executed * 4;
  switch (id) {
    case kModeId:
      return w.mode();
    case 4:  // HW_ID: the wave's slot; everything runs on compute unit 0
      if (!cdna) break;
      return static_cast<uint32_t>(w.number());
    case 15:  // SH_MEM_BASES: the high 16 bits of the private and of the shared aperture
      if (gfx12) break;
      return static_cast<uint32_t>(kPrivateBase >> 48 | kSharedBase >> 48 << 16);
    case 20:  // XCC_ID: which die
      if (generation != Generation::gfx942 && generation != Generation::gfx950) break;
      return 0;
    case 23:  // HW_ID1: as HW_ID
      if (cdna) break;
      return static_cast<uint32_t>(w.number());
    case 29:  // SHADER_CYCLES, and its upper half
      if (cdna) break;
      return static_cast<uint32_t>(clock);
    case 30:
      if (!gfx12) break;
      return static_cast<uint32_t>(clock >> 32);
  }
  return std::nullopt;
}
void refuse_register(Wave& w, const char* use, uint32_t id) {
  w.fail(fmt::format("{} hardware register {}, which is not simulated", use, id));
}
void s_getreg_b32(Wave& w, const Instruction& i) {
  const auto code = static_cast<uint32_t>(i.operand[1].bits);
  const uint32_t size = (code >> 11 & 31) + 1, offset = code >> 6 & 31;
  const uint64_t mask = (uint64_t{1} << size) - 1;
  const std::optional<uint32_t> value = hardware_register(w, code & 63);
  if (!value) return refuse_register(w, "reads", code & 63);
  w.write_scalar(i.operand[0], static_cast<uint32_t>(*value >> offset & mask));
}
void set_register(Wave& w, const Operand& which, uint32_t value) {
  const auto code = static_cast<uint32_t>(which.bits);
  constexpr uint32_t kScheduling = 26;  // gfx12: when waves may issue, not what they compute
  if ((code & 63) == kScheduling && w.machine().generation == Generation::gfx12) return;
  if ((code & 63) != kModeId) return refuse_register(w, "writes", code & 63);
  const uint32_t size = (code >> 11 & 31) + 1, offset = code >> 6 & 31;
  const auto mask = static_cast<uint32_t>(((uint64_t{1} << size) - 1) << offset);
  w.set_mode((w.mode() & ~mask) | (value << offset & mask));
}
void s_setreg_b32(Wave& w, const Instruction& i) {
  set_register(w, i.operand[0], w.read_scalar(i.operand[1]));
}
void s_round_mode(Wave& w, const Instruction& i) {
  w.set_mode((w.mode() & ~0xfu) | (count_of(i) & 0xf));
}
void s_denorm_mode(Wave& w, const Instruction& i) {
  w.set_mode((w.mode() & ~0xf0u) | (count_of(i) & 0xf) << 4);
}
// A clock that moves with the wave's instructions: runs are the same each time.
void s_memtime(Wave& w, const Instruction& i) {
  const uint64_t now = w.executed * 4;
  w.set_scalar_load(i.operand[0].index, static_cast<uint32_t>(now));
  w.set_scalar_load(i.operand[0].index + 1, static_cast<uint32_t>(now >> 32));
  w.issue(Queue::scalar, i.operand[0].index, 2, true);
}
void s_sendmsg_rtn(Wave& w, const Instruction& i) {
  for (int r = 0; r < i.operand[0].registers; ++r) w.set_scalar_load(i.operand[0].index + r, 0);
  w.issue(Queue::scalar, i.operand[0].index, i.operand[0].registers, true);
}

constexpr Opcode kOpcodes[] = {
    {"s_nop", no_operation, OpClass::other},
    {"s_endpgm", s_endpgm, OpClass::branch},
    {"s_endpgm_saved", s_endpgm, OpClass::branch},
    {"s_branch", s_branch, OpClass::branch},
    {"s_cbranch_scc0", branch_if<scc0>, OpClass::branch},
    {"s_cbranch_scc1", branch_if<scc1>, OpClass::branch},
    {"s_cbranch_vccz", branch_if<vccz>, OpClass::branch},
    {"s_cbranch_vccnz", branch_if<vccnz>, OpClass::branch},
    {"s_cbranch_execz", branch_if<execz>, OpClass::branch},
    {"s_cbranch_execnz", branch_if<execnz>, OpClass::branch},
    // Debuggers are never attached.
    {"s_cbranch_cdbgsys", no_operation, OpClass::branch},
    {"s_cbranch_cdbguser", no_operation, OpClass::branch},
    {"s_getpc_b64", s_getpc_b64, OpClass::salu},
    {"s_setpc_b64", s_setpc_b64, OpClass::branch},
    {"s_swappc_b64", s_swappc_b64, OpClass::branch},
    {"s_call_b64", s_call_b64, OpClass::branch},
    {"s_trap", s_trap, OpClass::other},

    {"s_waitcnt", s_waitcnt, OpClass::wait},
    {"s_waitcnt_vmcnt", wait_for<Queue::vector>, OpClass::wait},
    {"s_waitcnt_vscnt", wait_for<Queue::store>, OpClass::wait},
    {"s_waitcnt_lgkmcnt", wait_for_lgkm, OpClass::wait},
    {"s_waitcnt_expcnt", no_operation, OpClass::wait},
    {"s_waitcnt_depctr", no_operation, OpClass::wait},
    {"s_wait_loadcnt", wait_for<Queue::vector>, OpClass::wait},
    {"s_wait_storecnt", wait_for<Queue::store>, OpClass::wait},
    {"s_wait_dscnt", wait_for<Queue::lds>, OpClass::wait},
    {"s_wait_kmcnt", wait_for<Queue::scalar>, OpClass::wait},
    {"s_wait_loadcnt_dscnt", wait_for_two<Queue::vector>, OpClass::wait},
    {"s_wait_storecnt_dscnt", wait_for_two<Queue::store>, OpClass::wait},
    {"s_wait_samplecnt", no_operation, OpClass::wait},
    {"s_wait_bvhcnt", no_operation, OpClass::wait},
    {"s_wait_expcnt", no_operation, OpClass::wait},
    {"s_wait_alu", no_operation, OpClass::wait},
    {"s_wait_event", no_operation, OpClass::wait},
    {"s_wait_idle", wait_for_all, OpClass::wait},
    {"s_sleep", s_sleep, OpClass::other},
    {"s_sleep_var", s_sleep, OpClass::other},

    {"s_barrier", s_barrier, OpClass::barrier},
    {"s_barrier_signal", s_barrier_signal, OpClass::barrier},
    {"s_barrier_wait", s_barrier_wait, OpClass::barrier},

    {"s_getreg_b32", s_getreg_b32, OpClass::salu},
    {"s_setreg_b32", s_setreg_b32, OpClass::salu},
    {"s_setreg_imm32_b32", s_setreg_b32, OpClass::salu},
    {"s_round_mode", s_round_mode, OpClass::salu},
    {"s_denorm_mode", s_denorm_mode, OpClass::salu},
    {"s_memtime", s_memtime, OpClass::scalar_memory},
    {"s_memrealtime", s_memtime, OpClass::scalar_memory},
    {"s_sendmsg_rtn_b32", s_sendmsg_rtn, OpClass::scalar_memory},
    {"s_sendmsg_rtn_b64", s_sendmsg_rtn, OpClass::scalar_memory},

    // Hints to schedulers, caches and profilers.
    {"s_setprio", no_operation, OpClass::other},
    {"s_sethalt", no_operation, OpClass::other},
    {"s_clause", no_operation, OpClass::other},
    {"s_delay_alu", no_operation, OpClass::other},
    {"s_sendmsg", no_operation, OpClass::other},
    {"s_sendmsghalt", no_operation, OpClass::other},
    {"s_inst_prefetch", no_operation, OpClass::other},
    {"s_set_inst_prefetch_distance", no_operation, OpClass::other},
    {"s_prefetch_inst", no_operation, OpClass::other},
    {"s_prefetch_inst_pc_rel", no_operation, OpClass::other},
    {"s_prefetch_data", no_operation, OpClass::other},
    {"s_prefetch_data_pc_rel", no_operation, OpClass::other},
    {"s_icache_inv", no_operation, OpClass::other},
    {"s_dcache_inv", no_operation, OpClass::other},
    {"s_dcache_wb", no_operation, OpClass::other},
    {"s_dcache_inv_vol", no_operation, OpClass::other},
    {"s_dcache_wb_vol", no_operation, OpClass::other},
    {"s_gl1_inv", no_operation, OpClass::other},
    {"s_incperflevel", no_operation, OpClass::other},
    {"s_decperflevel", no_operation, OpClass::other},
    {"s_ttracedata", no_operation, OpClass::other},
    {"s_ttracedata_imm", no_operation, OpClass::other},
    {"s_version", no_operation, OpClass::other},
};

}  // namespace

std::span<const Opcode> scalar_program_opcodes() { return kOpcodes; }

std::span<const Opcode> scalar_opcodes() {
  static const std::vector<Opcode> all = [] {
    std::vector<Opcode> list;
    for (const auto part : {scalar_integer_opcodes(), scalar_bit_opcodes(), scalar_float_opcodes(),
                            scalar_program_opcodes()}) {
      list.insert(list.end(), part.begin(), part.end());
    }
    return list;
  }();
  return all;
}

}  // namespace hstu::jit::sim
