// SPDX-License-Identifier: Apache-2.0
// DS reads, writes and atomics. Source: AMD's ISA documents, "Local Data Share" and "LDS & GDS
// Instructions". Operands as printed: [destination] address [data [data]].
#include <bit>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "sim/isa/access.hpp"
#include "sim/isa/atomic.hpp"
#include "sim/isa/lds_permute.hpp"
#include "sim/isa/tables.hpp"
#include "sim/workgroup.hpp"

namespace hstu::jit::sim {
namespace {

// Byte addresses of the active lanes, `offset` bytes on.
void find_addresses(Wave& w, const Operand& o, uint32_t offset, uint32_t* address) {
  Row scratch;
  const Row& row = w.read_row(o, 0, scratch);
  for (int l = 0; l < kMaxLanes; ++l) address[l] = row.lane[l] + offset;
}

// What a barrier has to know while the access is outstanding.
void remember(Outstanding& entry, const uint32_t* address, uint64_t lanes, int bytes, bool write,
              int32_t second = 0) {
  entry.touch.lanes = lanes;
  entry.touch.bytes = static_cast<uint16_t>(bytes);
  entry.touch.write = write;
  entry.touch.atomic = entry.touch.arriving = false;
  entry.touch.second = second;
  std::memcpy(entry.touch.address, address, sizeof entry.touch.address);
}

void read(Wave& w, const Instruction& i) {
  const DataShape& shape = shape_of(i.opcode->argument);
  uint32_t address[kMaxLanes];
  find_addresses(w, i.operand[1], static_cast<uint32_t>(i.modifiers.offset), address);
  load_lds(w, i.operand[0], shape, address, w.exec(), i.operand[1], Queue::lds);
  remember(w.issue(Queue::lds, i.operand[0].index, shape.registers, false), address, w.exec(),
           shape.bytes, false);
}

void write(Wave& w, const Instruction& i) {
  const DataShape& shape = shape_of(i.opcode->argument);
  uint32_t address[kMaxLanes];
  find_addresses(w, i.operand[0], static_cast<uint32_t>(i.modifiers.offset), address);
  store_lds(w, i.operand[1], shape, address, w.exec(), i.operand[0]);
  remember(w.issue(Queue::lds, 0, 0, false), address, w.exec(), shape.bytes, true);
}

int32_t first_from_second(const Instruction& i, uint32_t step) {
  return (int{i.modifiers.offset0} - int{i.modifiers.offset1}) * static_cast<int32_t>(step);
}

// Two accesses, their offsets in units of the data or of 64 times as much.
template <int unit>
void read2(Wave& w, const Instruction& i) {
  const DataShape& shape = shape_of(i.opcode->argument);
  const uint32_t step = shape.bytes * unit;
  uint32_t address[kMaxLanes], value[kMaxLanes][4];
  for (int half = 0; half < 2; ++half) {
    const uint32_t offset = (half == 0 ? i.modifiers.offset0 : i.modifiers.offset1) * step;
    find_addresses(w, i.operand[1], offset, address);
    for (uint64_t left = w.exec(); left != 0; left &= left - 1) {
      const int l = std::countr_zero(left);
      if (!use_lds(w, i.operand[1], l, LdsUse::read, address[l], shape.bytes)) return;
      std::memcpy(value[l] + half * shape.registers, w.group().lds().data() + address[l],
                  shape.bytes);
    }
    count_lds(w, address, w.exec(), shape.bytes, LdsUse::read);
  }
  const DataShape& both = shape_of(shape.registers == 2 ? kB128 : kB64);
  put_loaded(w, i.operand[0], both, w.exec(), value, Queue::lds);
  remember(w.issue(Queue::lds, i.operand[0].index, both.registers, false), address, w.exec(),
           shape.bytes, false, first_from_second(i, step));
}

template <int unit>
void write2(Wave& w, const Instruction& i) {
  const DataShape& shape = shape_of(i.opcode->argument);
  const uint32_t step = shape.bytes * unit;
  uint32_t address[kMaxLanes];
  for (int half = 0; half < 2 && !w.failed(); ++half) {
    const uint32_t offset = (half == 0 ? i.modifiers.offset0 : i.modifiers.offset1) * step;
    find_addresses(w, i.operand[0], offset, address);
    store_lds(w, i.operand[1 + half], shape, address, w.exec(), i.operand[0]);
  }
  remember(w.issue(Queue::lds, 0, 0, false), address, w.exec(), shape.bytes, true,
           first_from_second(i, step));
}

// addtid: lane l at M0 + offset + 4 l.
void lane_addresses(Wave& w, const Instruction& i, uint32_t* address) {
  for (int l = 0; l < kMaxLanes; ++l) {
    address[l] = lds_base(w) + static_cast<uint32_t>(i.modifiers.offset + 4 * l);
  }
}
Operand m0_operand() {
  Operand o;
  o.kind = OperandKind::scalar;
  o.index = kM0;
  return o;
}
void read_addtid(Wave& w, const Instruction& i) {
  uint32_t address[kMaxLanes];
  lane_addresses(w, i, address);
  load_lds(w, i.operand[0], shape_of(kB32), address, w.exec(), m0_operand(), Queue::lds);
  remember(w.issue(Queue::lds, i.operand[0].index, 1, false), address, w.exec(), 4, false);
}
void write_addtid(Wave& w, const Instruction& i) {
  uint32_t address[kMaxLanes];
  lane_addresses(w, i, address);
  store_lds(w, i.operand[0], shape_of(kB32), address, w.exec(), m0_operand());
  remember(w.issue(Queue::lds, 0, 0, false), address, w.exec(), 4, true);
}

// ---- Transposing reads of gfx950. Sixteen lanes read a matrix whose rows are 16 elements long,
// each lane a piece of a row; lane i gets column i. The argument is the bits of an element.
uint32_t element(const uint32_t* words, int index, int bits) {
  const int at = index * bits;
  uint64_t pair = words[at / 32];
  if (at / 32 + 1 < 3) pair |= static_cast<uint64_t>(words[at / 32 + 1]) << 32;
  return static_cast<uint32_t>(pair >> at % 32) & ((1u << bits) - 1);
}
void read_transposed(Wave& w, const Instruction& i) {
  const int bits = i.opcode->argument;
  const DataShape& shape = shape_of(bits == 6 ? kB96 : kB64);
  const int elements = shape.bytes * 8 / bits, lanes_per_row = 16 / elements;
  if (w.exec() != w.all_lanes()) return w.fail("a transposing read with lanes switched off");
  uint32_t address[kMaxLanes];
  find_addresses(w, i.operand[1], static_cast<uint32_t>(i.modifiers.offset), address);
  uint32_t raw[kMaxLanes][4] = {}, value[kMaxLanes][4] = {};
  for (int l = 0; l < w.width(); ++l) {
    if (!use_lds(w, i.operand[1], l, LdsUse::read, address[l], shape.bytes)) return;
    std::memcpy(raw[l], w.group().lds().data() + address[l], shape.bytes);
  }
  for (int l = 0; l < w.width(); ++l) {
    const int first = l / 16 * 16, column = l % 16;
    for (int k = 0; k < elements; ++k) {
      const uint32_t* from = raw[first + k * lanes_per_row + column / elements];
      const uint64_t wide = static_cast<uint64_t>(element(from, column % elements, bits))
                            << k * bits % 32;
      value[l][k * bits / 32] |= static_cast<uint32_t>(wide);
      if (wide >> 32 != 0) value[l][k * bits / 32 + 1] |= static_cast<uint32_t>(wide >> 32);
    }
  }
  count_lds(w, address, w.exec(), shape.bytes, LdsUse::read);
  put_loaded(w, i.operand[0], shape, w.exec(), value, Queue::lds);
  remember(w.issue(Queue::lds, i.operand[0].index, shape.registers, false), address, w.exec(),
           shape.bytes, false);
}

// ---- Atomics. gfx9's ds_cmpst has the comparison first, gfx11's ds_cmpstore the new value.
template <typename T, bool returns, bool compare_first>
void atomic(Wave& w, const Instruction& i) {
  constexpr int kRegisters = sizeof(T) / 4;
  const int16_t op = i.opcode->argument;
  const int first = returns ? 1 : 0;
  const bool two = op == kCompareSwap || op == kMaskOr;
  const Operand& where = i.operand[first];
  const Operand& one = i.operand[first + 1];
  const Operand& other = i.operand[first + (two ? 2 : 1)];
  uint32_t address[kMaxLanes];
  find_addresses(w, where, static_cast<uint32_t>(i.modifiers.offset), address);
  Row scratch[4];
  const Row* a[2] = {};
  const Row* b[2] = {};
  for (int r = 0; r < kRegisters; ++r) {
    a[r] = &w.read_row(one, r, scratch[r]);
    b[r] = &w.read_row(other, r, scratch[2 + r]);
  }
  const auto value = [](const Row* const* rows, int l) {
    T out = rows[0]->lane[l];
    if constexpr (kRegisters == 2) out |= static_cast<T>(rows[1]->lane[l]) << 32;
    return out;
  };
  uint32_t before[kMaxLanes][4];
  for (uint64_t left = w.exec(); left != 0; left &= left - 1) {
    const int l = std::countr_zero(left);
    if (!use_lds(w, where, l, LdsUse::atomic, address[l], sizeof(T))) return;
    uint8_t* place = w.group().lds().data() + address[l];
    T old, data = value(a, l), compare = value(b, l);
    if (compare_first && op == kCompareSwap) std::swap(data, compare);
    std::memcpy(&old, place, sizeof(T));
    const T next = atomic_result<T>(op, old, data, compare);
    std::memcpy(place, &next, sizeof(T));
    before[l][0] = static_cast<uint32_t>(old);
    before[l][1] = static_cast<uint32_t>(static_cast<uint64_t>(old) >> 32);
  }
  count_lds(w, address, w.exec(), sizeof(T), LdsUse::atomic);
  if (returns) {
    put_loaded(w, i.operand[0], shape_of(kRegisters == 2 ? kB64 : kB32), w.exec(), before,
               Queue::lds);
  }
  Outstanding& entry =
      w.issue(Queue::lds, returns ? i.operand[0].index : 0, returns ? kRegisters : 0, false);
  remember(entry, address, w.exec(), sizeof(T), true);
  entry.touch.atomic = true;
}

struct AtomicName {
  const char* name;       // after "ds_"
  const char* returning;  // its form that returns the old value
  AtomicOp op;
  bool wide, compare_first;
};
constexpr AtomicName kAtomics[] = {
    {"add_u32", "add_rtn_u32", kAdd, false, false},
    {"add_u64", "add_rtn_u64", kAdd, true, false},
    {"sub_u32", "sub_rtn_u32", kSub, false, false},
    {"sub_u64", "sub_rtn_u64", kSub, true, false},
    {"rsub_u32", "rsub_rtn_u32", kReverseSub, false, false},
    {"rsub_u64", "rsub_rtn_u64", kReverseSub, true, false},
    {"inc_u32", "inc_rtn_u32", kIncrement, false, false},
    {"inc_u64", "inc_rtn_u64", kIncrement, true, false},
    {"dec_u32", "dec_rtn_u32", kDecrement, false, false},
    {"dec_u64", "dec_rtn_u64", kDecrement, true, false},
    {"min_i32", "min_rtn_i32", kMinI, false, false},
    {"min_i64", "min_rtn_i64", kMinI, true, false},
    {"max_i32", "max_rtn_i32", kMaxI, false, false},
    {"max_i64", "max_rtn_i64", kMaxI, true, false},
    {"min_u32", "min_rtn_u32", kMinU, false, false},
    {"min_u64", "min_rtn_u64", kMinU, true, false},
    {"max_u32", "max_rtn_u32", kMaxU, false, false},
    {"max_u64", "max_rtn_u64", kMaxU, true, false},
    {"and_b32", "and_rtn_b32", kAnd, false, false},
    {"and_b64", "and_rtn_b64", kAnd, true, false},
    {"or_b32", "or_rtn_b32", kOr, false, false},
    {"or_b64", "or_rtn_b64", kOr, true, false},
    {"xor_b32", "xor_rtn_b32", kXor, false, false},
    {"xor_b64", "xor_rtn_b64", kXor, true, false},
    {"mskor_b32", "mskor_rtn_b32", kMaskOr, false, false},
    {"mskor_b64", "mskor_rtn_b64", kMaskOr, true, false},
    {"cmpst_b32", "cmpst_rtn_b32", kCompareSwap, false, true},
    {"cmpst_b64", "cmpst_rtn_b64", kCompareSwap, true, true},
    {"cmpstore_b32", "cmpstore_rtn_b32", kCompareSwap, false, false},
    {"cmpstore_b64", "cmpstore_rtn_b64", kCompareSwap, true, false},
    {"sub_clamp_u32", "sub_clamp_rtn_u32", kSubClamp, false, false},
    {"cond_sub_u32", "cond_sub_rtn_u32", kCondSub, false, false},
    {"add_f32", "add_rtn_f32", kAddFloat, false, false},
    {"add_f64", "add_rtn_f64", kAddFloat, true, false},
    {"min_f32", "min_rtn_f32", kMinFloat, false, false},
    {"min_f64", "min_rtn_f64", kMinFloat, true, false},
    {"max_f32", "max_rtn_f32", kMaxFloat, false, false},
    {"max_f64", "max_rtn_f64", kMaxFloat, true, false},
    {"min_num_f32", "min_num_rtn_f32", kMinFloat, false, false},
    {"max_num_f32", "max_num_rtn_f32", kMaxFloat, false, false},
    {"pk_add_f16", "pk_add_rtn_f16", kAddPackedF16, false, false},
    {"pk_add_bf16", "pk_add_rtn_bf16", kAddPackedBf16, false, false},
    {"wrxchg_b32", "wrxchg_rtn_b32", kSwap, false, false},
    {"wrxchg_b64", "wrxchg_rtn_b64", kSwap, true, false},
    {"storexchg_b32", "storexchg_rtn_b32", kSwap, false, false},
    {"storexchg_b64", "storexchg_rtn_b64", kSwap, true, false},
};

template <bool returns>
Execute atomic_execute(const AtomicName& name) {
  if (name.wide) {
    return name.compare_first ? atomic<uint64_t, returns, true> : atomic<uint64_t, returns, false>;
  }
  return name.compare_first ? atomic<uint32_t, returns, true> : atomic<uint32_t, returns, false>;
}

void no_operation(Wave&, const Instruction&) {}

constexpr OpClass kRead = OpClass::lds_read, kWrite = OpClass::lds_write,
                  kCross = OpClass::cross_lane;
constexpr ConstantType kB = ConstantType::b32;

constexpr Opcode kOpcodes[] = {
    {"ds_read_u8", read, kRead, kB, kU8},
    {"ds_read_i8", read, kRead, kB, kI8},
    {"ds_read_u16", read, kRead, kB, kU16},
    {"ds_read_i16", read, kRead, kB, kI16},
    {"ds_read_b32", read, kRead, kB, kB32},
    {"ds_read_b64", read, kRead, kB, kB64},
    {"ds_read_b96", read, kRead, kB, kB96},
    {"ds_read_b128", read, kRead, kB, kB128},
    {"ds_read_u8_d16", read, kRead, kB, kU8Low},
    {"ds_read_u8_d16_hi", read, kRead, kB, kU8High},
    {"ds_read_i8_d16", read, kRead, kB, kI8Low},
    {"ds_read_i8_d16_hi", read, kRead, kB, kI8High},
    {"ds_read_u16_d16", read, kRead, kB, kB16Low},
    {"ds_read_u16_d16_hi", read, kRead, kB, kB16High},
    {"ds_read2_b32", read2<1>, kRead, kB, kB32},
    {"ds_read2_b64", read2<1>, kRead, kB, kB64},
    {"ds_read2st64_b32", read2<64>, kRead, kB, kB32},
    {"ds_read2st64_b64", read2<64>, kRead, kB, kB64},
    {"ds_read_addtid_b32", read_addtid, kRead},
    {"ds_write_b8", write, kWrite, kB, kU8},
    {"ds_write_b16", write, kWrite, kB, kU16},
    {"ds_write_b32", write, kWrite, kB, kB32},
    {"ds_write_b64", write, kWrite, kB, kB64},
    {"ds_write_b96", write, kWrite, kB, kB96},
    {"ds_write_b128", write, kWrite, kB, kB128},
    {"ds_write_b8_d16_hi", write, kWrite, kB, kU8High},
    {"ds_write_b16_d16_hi", write, kWrite, kB, kB16High},
    {"ds_write2_b32", write2<1>, kWrite, kB, kB32},
    {"ds_write2_b64", write2<1>, kWrite, kB, kB64},
    {"ds_write2st64_b32", write2<64>, kWrite, kB, kB32},
    {"ds_write2st64_b64", write2<64>, kWrite, kB, kB64},
    {"ds_write_addtid_b32", write_addtid, kWrite},

    // gfx11 and later.
    {"ds_load_u8", read, kRead, kB, kU8},
    {"ds_load_i8", read, kRead, kB, kI8},
    {"ds_load_u16", read, kRead, kB, kU16},
    {"ds_load_i16", read, kRead, kB, kI16},
    {"ds_load_b32", read, kRead, kB, kB32},
    {"ds_load_b64", read, kRead, kB, kB64},
    {"ds_load_b96", read, kRead, kB, kB96},
    {"ds_load_b128", read, kRead, kB, kB128},
    {"ds_load_u8_d16", read, kRead, kB, kU8Low},
    {"ds_load_u8_d16_hi", read, kRead, kB, kU8High},
    {"ds_load_i8_d16", read, kRead, kB, kI8Low},
    {"ds_load_i8_d16_hi", read, kRead, kB, kI8High},
    {"ds_load_u16_d16", read, kRead, kB, kB16Low},
    {"ds_load_u16_d16_hi", read, kRead, kB, kB16High},
    {"ds_load_2addr_b32", read2<1>, kRead, kB, kB32},
    {"ds_load_2addr_b64", read2<1>, kRead, kB, kB64},
    {"ds_load_2addr_stride64_b32", read2<64>, kRead, kB, kB32},
    {"ds_load_2addr_stride64_b64", read2<64>, kRead, kB, kB64},
    {"ds_load_addtid_b32", read_addtid, kRead},
    {"ds_store_b8", write, kWrite, kB, kU8},
    {"ds_store_b16", write, kWrite, kB, kU16},
    {"ds_store_b32", write, kWrite, kB, kB32},
    {"ds_store_b64", write, kWrite, kB, kB64},
    {"ds_store_b96", write, kWrite, kB, kB96},
    {"ds_store_b128", write, kWrite, kB, kB128},
    {"ds_store_b8_d16_hi", write, kWrite, kB, kU8High},
    {"ds_store_b16_d16_hi", write, kWrite, kB, kB16High},
    {"ds_store_2addr_b32", write2<1>, kWrite, kB, kB32},
    {"ds_store_2addr_b64", write2<1>, kWrite, kB, kB64},
    {"ds_store_2addr_stride64_b32", write2<64>, kWrite, kB, kB32},
    {"ds_store_2addr_stride64_b64", write2<64>, kWrite, kB, kB64},
    {"ds_store_addtid_b32", write_addtid, kWrite},

    // gfx950.
    {"ds_read_b64_tr_b16", read_transposed, kRead, kB, 16},
    {"ds_read_b64_tr_b8", read_transposed, kRead, kB, 8},
    {"ds_read_b64_tr_b4", read_transposed, kRead, kB, 4},
    {"ds_read_b96_tr_b6", read_transposed, kRead, kB, 6},

    {"ds_permute_b32", ds_permute, kCross},
    {"ds_bpermute_b32", ds_bpermute, kCross},
    {"ds_bpermute_fi_b32", ds_bpermute_fetch, kCross},
    {"ds_swizzle_b32", ds_swizzle, kCross},
    {"ds_nop", no_operation, OpClass::other},
};

}  // namespace

std::span<const Opcode> lds_opcodes() {
  static std::deque<std::string> names;  // opcodes keep pointers to them
  static const std::vector<Opcode> all = [] {
    std::vector<Opcode> list(std::begin(kOpcodes), std::end(kOpcodes));
    for (const AtomicName& name : kAtomics) {
      names.push_back(std::string("ds_") + name.name);
      list.push_back(
          {names.back().c_str(), atomic_execute<false>(name), OpClass::lds_atomic, kB, name.op});
      names.push_back(std::string("ds_") + name.returning);
      list.push_back(
          {names.back().c_str(), atomic_execute<true>(name), OpClass::lds_atomic, kB, name.op});
    }
    return list;
  }();
  return all;
}

}  // namespace hstu::jit::sim
