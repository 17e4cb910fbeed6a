// SPDX-License-Identifier: Apache-2.0
// FLAT, global and scratch memory. Source: AMD's ISA documents, "Flat Memory Instructions".
// Operands as printed: loads [destination] address [scalar base]; stores address data [scalar
// base]; `off` stands for an absent one.
#include <bit>

#include "sim/isa/access.hpp"
#include "sim/isa/atomic.hpp"
#include "sim/isa/memory_space.hpp"
#include "sim/isa/operand.hpp"
#include "sim/isa/tables.hpp"
#include "sim/workgroup.hpp"

namespace hstu::jit::sim {
namespace {

// The operands of an access, told apart by their kind.
struct Access {
  const Operand* data = nullptr;     // first data register
  const Operand* address = nullptr;  // vector part
  const Operand* base = nullptr;     // scalar part
};

// `before`: operands ahead of the address (destinations of loads); `after`: data behind it.
Access operands_of(const Instruction& i, int before, int after) {
  Access a;
  int next = 0;
  if (before > 0) a.data = &i.operand[next++];
  // Stores to scratch print "off, v0, s0": a first operand that is data alone.
  const int vectors = [&] {
    int n = 0;
    for (int o = 0; o < i.operands; ++o) n += i.operand[o].kind == OperandKind::vector;
    return n;
  }();
  if (vectors - next > after) a.address = &i.operand[next++];
  if (after > 0) a.data = &i.operand[next++];
  if (next < i.operands && i.operand[next].kind == OperandKind::scalar &&
      i.operand[next].index != kNull) {
    a.base = &i.operand[next];
  }
  return a;
}

// Byte addresses of every active lane; scratch places are bytes of the lane.
void find_places(Wave& w, const Instruction& i, const Access& a, Space space, Places& p) {
  p.lanes = w.exec();
  p.source = a.address != nullptr ? a.address : a.base;
  const auto offset = static_cast<int64_t>(i.modifiers.offset);
  const bool wide = space != Space::scratch && a.base == nullptr;
  Row low_row, high_row;
  const Row* low = a.address == nullptr ? nullptr : &w.read_row(*a.address, 0, low_row);
  const Row* high = low == nullptr || !wide ? nullptr : &w.read_row(*a.address, 1, high_row);
  uint64_t base = static_cast<uint64_t>(offset);
  if (a.base != nullptr) {
    base += space == Space::scratch ? w.read_scalar(*a.base) : w.read_scalar64(*a.base);
  }
  for (uint64_t left = p.lanes; left != 0; left &= left - 1) {
    const int l = std::countr_zero(left);
    uint64_t at = base + (low == nullptr ? 0 : low->lane[l]);
    if (high != nullptr) at += static_cast<uint64_t>(high->lane[l]) << 32;
    p.address[l] = space == Space::scratch ? static_cast<uint32_t>(at) : at;
  }
}

// Which lanes go where by the apertures; all of global accesses are global.
struct Split {
  uint64_t global = 0, lds = 0, scratch = 0;
};
Split split_lanes(const Places& p, Space space) {
  Split s;
  if (space == Space::global) s.global = p.lanes;
  if (space == Space::scratch) s.scratch = p.lanes;
  if (space != Space::flat) return s;
  for (uint64_t left = p.lanes; left != 0; left &= left - 1) {
    const int l = std::countr_zero(left);
    const uint64_t bit = uint64_t{1} << l, aperture = p.address[l] >> 32 << 32;
    (aperture == kSharedBase ? s.lds : aperture == kPrivateBase ? s.scratch : s.global) |= bit;
  }
  return s;
}

// LDS addresses of flat lanes.
void lds_places(const Places& p, uint64_t lanes, uint32_t* address) {
  for (uint64_t left = lanes; left != 0; left &= left - 1) {
    const int l = std::countr_zero(left);
    address[l] = static_cast<uint32_t>(p.address[l]);
  }
}

template <Space space>
void load(Wave& w, const Instruction& i) {
  const DataShape& shape = shape_of(i.opcode->argument);
  const Access a = operands_of(i, 1, 0);
  Places p;
  find_places(w, i, a, space, p);
  const Split s = split_lanes(p, space);
  if (s.global != 0) {
    p.lanes = s.global;
    load_memory(w, *a.data, shape, p, Queue::vector);
  }
  if (s.scratch != 0 && !w.failed()) {
    p.lanes = s.scratch;
    if (place_in_scratch(w, shape, p)) load_memory(w, *a.data, shape, p, Queue::vector);
  }
  if (s.lds != 0 && !w.failed()) {
    uint32_t address[kMaxLanes];
    lds_places(p, s.lds, address);
    load_lds(w, *a.data, shape, address, s.lds, *p.source, Queue::vector);
  }
  w.issue(Queue::vector, a.data->index, shape.registers, false);
  // Flat loads count on both counters: they may come from LDS.
  if (space == Space::flat) w.issue(Queue::lds, a.data->index, shape.registers, false);
}

void count_store(Wave& w) {
  w.issue(w.machine().separate_store_counter ? Queue::store : Queue::vector, 0, 0, false);
}

template <Space space>
void store(Wave& w, const Instruction& i) {
  const DataShape& shape = shape_of(i.opcode->argument);
  const Access a = operands_of(i, 0, 1);
  Places p;
  find_places(w, i, a, space, p);
  const Split s = split_lanes(p, space);
  if (s.global != 0) {
    p.lanes = s.global;
    store_memory(w, *a.data, shape, p);
  }
  if (s.scratch != 0 && !w.failed()) {
    p.lanes = s.scratch;
    if (place_in_scratch(w, shape, p)) store_memory(w, *a.data, shape, p);
  }
  if (s.lds != 0 && !w.failed()) {
    uint32_t address[kMaxLanes];
    lds_places(p, s.lds, address);
    store_lds(w, *a.data, shape, address, s.lds, *p.source);
  }
  count_store(w);
  if (space == Space::flat) w.issue(Queue::lds, 0, 0, false);
}

// global_load_lds_*: the offset counts on both sides.
void load_lds_direct(Wave& w, const Instruction& i) {
  const DataShape& shape = shape_of(i.opcode->argument);
  const Access a = operands_of(i, 0, 0);
  Places p;
  find_places(w, i, a, Space::global, p);
  load_to_lds(w, shape, p, lds_base(w) + static_cast<uint32_t>(i.modifiers.offset));
}

// The argument of an atomic: the operation, and whether it is of 64 bits.
template <Space space, typename T>
void atomic(Wave& w, const Instruction& i) {
  const bool returns = i.modifiers.glc || i.modifiers.sc0;
  const Access a = operands_of(i, returns ? 1 : 0, 1);
  Places p;
  find_places(w, i, a, space, p);
  const Split s = split_lanes(p, space);
  if (s.scratch != 0) return w.fail("an atomic of scratch memory is not simulated");
  p.lanes = s.global | s.lds;
  run_atomic<T>(w, i, *a.data, returns ? &i.operand[0] : nullptr, p, s.lds);
  if (space == Space::flat && !w.failed()) {
    w.issue(Queue::lds, returns ? i.operand[0].index : 0, returns ? int{sizeof(T) / 4} : 0, false);
  }
}

void no_operation(Wave&, const Instruction&) {}

constexpr ConstantType kB = ConstantType::b32;
constexpr OpClass kRead = OpClass::global_read, kWrite = OpClass::global_write,
                  kScratch = OpClass::scratch;

// The loads and stores that flat, global and scratch have alike.
#define HSTU_SIM_MOVES(prefix, space, read, write)                       \
  {prefix "_load_ubyte", load<space>, read, kB, kU8},                    \
      {prefix "_load_sbyte", load<space>, read, kB, kI8},                \
      {prefix "_load_ushort", load<space>, read, kB, kU16},              \
      {prefix "_load_sshort", load<space>, read, kB, kI16},              \
      {prefix "_load_dword", load<space>, read, kB, kB32},               \
      {prefix "_load_dwordx2", load<space>, read, kB, kB64},             \
      {prefix "_load_dwordx3", load<space>, read, kB, kB96},             \
      {prefix "_load_dwordx4", load<space>, read, kB, kB128},            \
      {prefix "_load_ubyte_d16", load<space>, read, kB, kU8Low},         \
      {prefix "_load_ubyte_d16_hi", load<space>, read, kB, kU8High},     \
      {prefix "_load_sbyte_d16", load<space>, read, kB, kI8Low},         \
      {prefix "_load_sbyte_d16_hi", load<space>, read, kB, kI8High},     \
      {prefix "_load_short_d16", load<space>, read, kB, kB16Low},        \
      {prefix "_load_short_d16_hi", load<space>, read, kB, kB16High},    \
      {prefix "_load_u8", load<space>, read, kB, kU8},                   \
      {prefix "_load_i8", load<space>, read, kB, kI8},                   \
      {prefix "_load_u16", load<space>, read, kB, kU16},                 \
      {prefix "_load_i16", load<space>, read, kB, kI16},                 \
      {prefix "_load_b32", load<space>, read, kB, kB32},                 \
      {prefix "_load_b64", load<space>, read, kB, kB64},                 \
      {prefix "_load_b96", load<space>, read, kB, kB96},                 \
      {prefix "_load_b128", load<space>, read, kB, kB128},               \
      {prefix "_load_d16_u8", load<space>, read, kB, kU8Low},            \
      {prefix "_load_d16_hi_u8", load<space>, read, kB, kU8High},        \
      {prefix "_load_d16_i8", load<space>, read, kB, kI8Low},            \
      {prefix "_load_d16_hi_i8", load<space>, read, kB, kI8High},        \
      {prefix "_load_d16_b16", load<space>, read, kB, kB16Low},          \
      {prefix "_load_d16_hi_b16", load<space>, read, kB, kB16High},      \
      {prefix "_store_byte", store<space>, write, kB, kU8},              \
      {prefix "_store_short", store<space>, write, kB, kU16},            \
      {prefix "_store_dword", store<space>, write, kB, kB32},            \
      {prefix "_store_dwordx2", store<space>, write, kB, kB64},          \
      {prefix "_store_dwordx3", store<space>, write, kB, kB96},          \
      {prefix "_store_dwordx4", store<space>, write, kB, kB128},         \
      {prefix "_store_byte_d16_hi", store<space>, write, kB, kU8High},   \
      {prefix "_store_short_d16_hi", store<space>, write, kB, kB16High}, \
      {prefix "_store_b8", store<space>, write, kB, kU8},                \
      {prefix "_store_b16", store<space>, write, kB, kU16},              \
      {prefix "_store_b32", store<space>, write, kB, kB32},              \
      {prefix "_store_b64", store<space>, write, kB, kB64},              \
      {prefix "_store_b96", store<space>, write, kB, kB96},              \
      {prefix "_store_b128", store<space>, write, kB, kB128},            \
      {prefix "_store_d16_hi_b8", store<space>, write, kB, kU8High}, {   \
    prefix "_store_d16_hi_b16", store<space>, write, kB, kB16High        \
  }

constexpr Opcode kMoves[] = {
    HSTU_SIM_MOVES("global", Space::global, kRead, kWrite),
    HSTU_SIM_MOVES("flat", Space::flat, kRead, kWrite),
    HSTU_SIM_MOVES("scratch", Space::scratch, kScratch, kScratch),
    {"global_load_lds_ubyte", load_lds_direct, kRead, kB, kU8},
    {"global_load_lds_sbyte", load_lds_direct, kRead, kB, kI8},
    {"global_load_lds_ushort", load_lds_direct, kRead, kB, kU16},
    {"global_load_lds_sshort", load_lds_direct, kRead, kB, kI16},
    {"global_load_lds_dword", load_lds_direct, kRead, kB, kB32},
    {"global_load_lds_dwordx3", load_lds_direct, kRead, kB, kB96},
    {"global_load_lds_dwordx4", load_lds_direct, kRead, kB, kB128},
    // Caches are not modelled: memory is always current.
    {"buffer_gl0_inv", no_operation, OpClass::other},
    {"buffer_gl1_inv", no_operation, OpClass::other},
    {"buffer_wbl2", no_operation, OpClass::other},
    {"buffer_inv", no_operation, OpClass::other},
    {"buffer_wbinvl1", no_operation, OpClass::other},
    {"buffer_wbinvl1_vol", no_operation, OpClass::other},
    {"buffer_invl2", no_operation, OpClass::other},
    {"global_inv", no_operation, OpClass::other},
    {"global_wb", no_operation, OpClass::other},
    {"global_wbinv", no_operation, OpClass::other},
    {"global_prefetch_b8", no_operation, OpClass::other},
    {"flat_prefetch_b8", no_operation, OpClass::other},
};
#undef HSTU_SIM_MOVES

}  // namespace

Execute global_atomic_32() { return atomic<Space::global, uint32_t>; }
Execute global_atomic_64() { return atomic<Space::global, uint64_t>; }
Execute flat_atomic_32() { return atomic<Space::flat, uint32_t>; }
Execute flat_atomic_64() { return atomic<Space::flat, uint64_t>; }

bool place_in_scratch(Wave& w, const DataShape& shape, Places& p) {
  const uint64_t base = w.group().scratch_base(w);
  const uint32_t size = w.group().scratch_bytes(), width = static_cast<uint32_t>(w.width());
  for (uint64_t left = p.lanes; left != 0; left &= left - 1) {
    const int l = std::countr_zero(left);
    const auto at = static_cast<uint32_t>(p.address[l]);
    if (!check_scratch(w, p, l, at, shape.bytes, size)) return false;
    p.address[l] = base + uint64_t{at / 4} * 4 * width + static_cast<uint64_t>(l) * 4 + at % 4;
    p.valid[l] = static_cast<uint8_t>(shape.bytes >= 4 ? shape.bytes / 4 : 1);
  }
  p.dword_stride = 4 * width;
  return true;
}

std::span<const Opcode> memory_opcodes() {
  static const std::vector<Opcode> all = [] {
    std::vector<Opcode> list(std::begin(kMoves), std::end(kMoves));
    add_buffer_opcodes(list);
    add_atomic_opcodes(list);
    return list;
  }();
  return all;
}

}  // namespace hstu::jit::sim
