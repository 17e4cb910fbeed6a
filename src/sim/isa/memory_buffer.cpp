// SPDX-License-Identifier: Apache-2.0
// Buffer loads, stores and atomics. Source: AMD's ISA documents, "Vector Memory Buffer
// Instructions". Operands as printed: [data] [address] buffer offset; the buffer is four scalar
// registers.
#include <algorithm>
#include <bit>

#include "sim/isa/memory_space.hpp"
#include "sim/workgroup.hpp"

namespace hstu::jit::sim {
namespace {

struct Buffer {
  uint64_t base = 0;
  uint32_t stride = 0, records = 0;
  bool swizzle = false, add_lane = false;
  uint32_t index_stride = 8, element = 4;
  uint32_t select = 0;  // of out-of-range rules, gfx10 and later
};

Buffer read_buffer(Wave& w, const Operand& o) {
  uint32_t word[4];
  for (int d = 0; d < 4; ++d) word[d] = w.scalar_at(o.index + d);
  Buffer b;
  b.base = word[0] | static_cast<uint64_t>(word[1] & 0xffff) << 32;
  b.stride = word[1] >> 16 & 0x3fff;
  b.records = word[2];
  b.add_lane = (word[3] >> 23 & 1) != 0;
  b.index_stride = 8u << (word[3] >> 21 & 3);
  if (w.machine().cdna()) {
    b.swizzle = word[1] >> 31 != 0;
    b.element = 2u << (word[3] >> 19 & 3);
  } else {
    const uint32_t mode = word[1] >> 30;
    b.swizzle = mode != 0;
    b.element = mode == 1 ? 4 : mode == 2 ? 8 : 16;
    b.select = word[3] >> 28 & 3;
  }
  return b;
}

// How many bytes from `offset` on lie in the buffer; dwords count one by one.
uint64_t bytes_left(const Buffer& b, const Machine& machine, uint64_t index, uint64_t offset,
                    uint64_t scalar_offset) {
  constexpr uint64_t kAll = 64;
  if (machine.cdna()) {
    if (b.stride != 0 && b.swizzle) return index < b.records ? kAll : 0;
    const uint64_t at = offset + index * b.stride + scalar_offset;
    return at < b.records ? b.records - at : 0;
  }
  switch (b.select) {
    case 0:
      if (b.stride != 0 && offset >= b.stride) return 0;
      return index < b.records ? kAll : 0;
    case 1:
      return index < b.records ? kAll : 0;
    case 2:
      return b.records != 0 ? kAll : 0;
    default: {
      const uint64_t at = offset + index * b.stride;
      return at < b.records ? b.records - at : 0;
    }
  }
}

struct BufferAccess {
  const Operand* data = nullptr;
  bool scratch = false;
  Places places;
};

// `data`: an operand comes first that is moved.
void find_buffer_places(Wave& w, const Instruction& i, bool data, const DataShape& shape,
                        BufferAccess& a) {
  int at = 0;
  if (data) a.data = &i.operand[at++];
  const Operand* address = nullptr;
  if (i.modifiers.offen || i.modifiers.idxen) address = &i.operand[at++];
  if (at >= i.operands || i.operand[at].kind != OperandKind::scalar ||
      i.operand[at].registers != 4) {
    return w.fail("has no buffer where one is expected");
  }
  const Operand& buffer_operand = i.operand[at];
  const Buffer b = read_buffer(w, buffer_operand);
  const uint32_t scalar_offset = at + 1 < i.operands ? w.read_scalar(i.operand[at + 1]) : 0;

  Places& p = a.places;
  p.lanes = w.exec();
  p.source = address != nullptr ? address : &buffer_operand;
  Row first_row, second_row;
  const Row* first = address == nullptr ? nullptr : &w.read_row(*address, 0, first_row);
  const bool both = i.modifiers.offen && i.modifiers.idxen;
  const Row* second = both ? &w.read_row(*address, 1, second_row) : first;
  const uint8_t all = static_cast<uint8_t>(std::max(1, shape.bytes / 4));
  const auto width = static_cast<uint32_t>(w.width());
  a.scratch = b.swizzle && w.group().own_range(b.base) != nullptr;

  for (uint64_t left = p.lanes; left != 0; left &= left - 1) {
    const int l = std::countr_zero(left);
    uint64_t index = b.add_lane ? static_cast<uint64_t>(l) : 0;
    if (i.modifiers.idxen) index += first->lane[l];
    uint64_t offset = static_cast<uint64_t>(static_cast<uint32_t>(i.modifiers.offset));
    if (i.modifiers.offen) offset += second->lane[l];
    if (a.scratch) {
      // The stack pointer counts bytes of the whole wave. The kernel may have moved the base.
      const uint64_t moved = b.base - w.group().scratch_base(w);
      p.address[l] = static_cast<uint32_t>(offset + (scalar_offset + moved) / width);
      continue;
    }
    const uint64_t bytes = bytes_left(b, w.machine(), index, offset, scalar_offset);
    p.valid[l] = shape.bytes >= 4 ? static_cast<uint8_t>(std::min<uint64_t>((bytes + 3) / 4, all))
                                  : static_cast<uint8_t>(bytes > 0);
    p.clipped = p.clipped || p.valid[l] < all;
    uint64_t linear = index * b.stride + offset;
    if (b.swizzle) {
      const uint64_t row = index / b.index_stride, column = index % b.index_stride;
      linear = (row * b.stride + offset / b.element * b.element) * b.index_stride +
               column * b.element + offset % b.element;
    }
    p.address[l] = b.base + scalar_offset + linear;
  }
  if (a.scratch) place_in_scratch(w, shape, p);
}

void load(Wave& w, const Instruction& i) {
  const DataShape& shape = shape_of(i.opcode->argument);
  BufferAccess a;
  find_buffer_places(w, i, !i.modifiers.lds, shape, a);
  if (w.failed()) return;
  if (i.modifiers.lds) {
    return load_to_lds(w, shape, a.places, lds_base(w) + static_cast<uint32_t>(i.modifiers.offset));
  }
  load_memory(w, *a.data, shape, a.places, Queue::vector);
  w.issue(Queue::vector, a.data->index, shape.registers, false);
}

void store(Wave& w, const Instruction& i) {
  const DataShape& shape = shape_of(i.opcode->argument);
  BufferAccess a;
  find_buffer_places(w, i, true, shape, a);
  if (w.failed()) return;
  store_memory(w, *a.data, shape, a.places);
  w.issue(w.machine().separate_store_counter ? Queue::store : Queue::vector, 0, 0, false);
}

template <typename T>
void atomic(Wave& w, const Instruction& i) {
  const bool returns = i.modifiers.glc || i.modifiers.sc0;
  BufferAccess a;
  find_buffer_places(w, i, true, shape_of(sizeof(T) == 8 ? kB64 : kB32), a);
  if (w.failed()) return;
  if (a.scratch) return w.fail("an atomic of scratch memory is not simulated");
  // One operand is both data and result.
  run_atomic<T>(w, i, *a.data, returns ? a.data : nullptr, a.places, 0);
}

constexpr OpClass kRead = OpClass::global_read, kWrite = OpClass::global_write;
constexpr ConstantType kB = ConstantType::b32;

constexpr Opcode kOpcodes[] = {
    {"buffer_load_ubyte", load, kRead, kB, kU8},
    {"buffer_load_sbyte", load, kRead, kB, kI8},
    {"buffer_load_ushort", load, kRead, kB, kU16},
    {"buffer_load_sshort", load, kRead, kB, kI16},
    {"buffer_load_dword", load, kRead, kB, kB32},
    {"buffer_load_dwordx2", load, kRead, kB, kB64},
    {"buffer_load_dwordx3", load, kRead, kB, kB96},
    {"buffer_load_dwordx4", load, kRead, kB, kB128},
    {"buffer_load_ubyte_d16", load, kRead, kB, kU8Low},
    {"buffer_load_ubyte_d16_hi", load, kRead, kB, kU8High},
    {"buffer_load_sbyte_d16", load, kRead, kB, kI8Low},
    {"buffer_load_sbyte_d16_hi", load, kRead, kB, kI8High},
    {"buffer_load_short_d16", load, kRead, kB, kB16Low},
    {"buffer_load_short_d16_hi", load, kRead, kB, kB16High},
    {"buffer_load_u8", load, kRead, kB, kU8},
    {"buffer_load_i8", load, kRead, kB, kI8},
    {"buffer_load_u16", load, kRead, kB, kU16},
    {"buffer_load_i16", load, kRead, kB, kI16},
    {"buffer_load_b32", load, kRead, kB, kB32},
    {"buffer_load_b64", load, kRead, kB, kB64},
    {"buffer_load_b96", load, kRead, kB, kB96},
    {"buffer_load_b128", load, kRead, kB, kB128},
    {"buffer_load_d16_u8", load, kRead, kB, kU8Low},
    {"buffer_load_d16_hi_u8", load, kRead, kB, kU8High},
    {"buffer_load_d16_i8", load, kRead, kB, kI8Low},
    {"buffer_load_d16_hi_i8", load, kRead, kB, kI8High},
    {"buffer_load_d16_b16", load, kRead, kB, kB16Low},
    {"buffer_load_d16_hi_b16", load, kRead, kB, kB16High},
    {"buffer_store_byte", store, kWrite, kB, kU8},
    {"buffer_store_short", store, kWrite, kB, kU16},
    {"buffer_store_dword", store, kWrite, kB, kB32},
    {"buffer_store_dwordx2", store, kWrite, kB, kB64},
    {"buffer_store_dwordx3", store, kWrite, kB, kB96},
    {"buffer_store_dwordx4", store, kWrite, kB, kB128},
    {"buffer_store_byte_d16_hi", store, kWrite, kB, kU8High},
    {"buffer_store_short_d16_hi", store, kWrite, kB, kB16High},
    {"buffer_store_b8", store, kWrite, kB, kU8},
    {"buffer_store_b16", store, kWrite, kB, kU16},
    {"buffer_store_b32", store, kWrite, kB, kB32},
    {"buffer_store_b64", store, kWrite, kB, kB64},
    {"buffer_store_b96", store, kWrite, kB, kB96},
    {"buffer_store_b128", store, kWrite, kB, kB128},
    {"buffer_store_d16_hi_b8", store, kWrite, kB, kU8High},
    {"buffer_store_d16_hi_b16", store, kWrite, kB, kB16High},
};

}  // namespace

Execute buffer_atomic_32() { return atomic<uint32_t>; }
Execute buffer_atomic_64() { return atomic<uint64_t>; }

void add_buffer_opcodes(std::vector<Opcode>& list) {
  list.insert(list.end(), std::begin(kOpcodes), std::end(kOpcodes));
}

}  // namespace hstu::jit::sim
